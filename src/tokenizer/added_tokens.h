/* SPDX-License-Identifier: Apache-2.0 */
/* added_tokens.h - finds added tokens in text: leftmost, and of those the
 * longest.
 *
 * A trie in arrays. The first byte decides nearly always, so text without
 * added tokens passes at the speed of one look-up per byte. */
#ifndef LOCKSTEP_TOKENIZER_ADDED_TOKENS_H
#define LOCKSTEP_TOKENIZER_ADDED_TOKENS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "base/status.h"

struct added_token {
    const char *content; /* in the tokenizer's arena, NUL after it */
    size_t length;       /* bytes */
    int32_t id;
    bool single_word;    /* only where no word character touches it */
    bool lstrip, rstrip; /* takes the white space before, after it */
    bool normalized;     /* looked for after the normalizer */
    bool special;        /* decoders may leave it out */
};

struct added_node {
    int32_t child;   /* first, or 0 */
    int32_t sibling; /* next, or 0 */
    int32_t token;   /* index that ends here, or -1 */
    unsigned char byte;
};

struct added_matcher {
    const struct added_token *tokens; /* borrowed */
    struct added_node *nodes;         /* owned; node 0 is the root */
    int32_t count, capacity;          /* nodes */
    int32_t first[256];               /* child of the root, or 0 */
};

/* A matcher of no tokens yet; `tokens` must outlive it. */
status added_init(struct added_matcher *matcher,
                  const struct added_token *tokens);
/* tokens[index] is found where the text has `pattern`; of several ids with the
 * same pattern the one that was inserted first. Empty patterns are never
 * found. */
status added_insert(struct added_matcher *matcher, int32_t index,
                    const char *pattern, size_t length);
void added_free(struct added_matcher *matcher);

/* Bytes of the longest pattern that `text` [length > 0] begins with, or 0. */
size_t added_longest(const struct added_matcher *matcher, const char *text,
                     size_t length);

/* A walk through a text; start with `at` and `done` 0. */
struct added_search {
    const char *text; /* borrowed */
    size_t length;    /* bytes */
    size_t at;        /* where to look next */
    size_t done;      /* end of the last match with what it stripped */
};

struct added_match {
    const struct added_token *token;
    size_t start, stop; /* with the white space that it strips */
};

/* The next match; `done` becomes its stop. White space that a match stripped
 * may be the beginning of the next one, which then begins before `done`, or at
 * it when it strips too: then it may be nothing, and is no match. A match
 * strips nothing before `done`. False: none. */
bool added_next(const struct added_matcher *matcher,
                struct added_search *search, struct added_match *match);

#endif
