/* SPDX-License-Identifier: Apache-2.0 */
/* token_trace.h - the positions that an encoding call records on request. */
#ifndef LOCKSTEP_TOKENIZER_TOKEN_TRACE_H
#define LOCKSTEP_TOKENIZER_TOKEN_TRACE_H

#include "tokenizer/tokenizer.h"

/* A token and its bytes in the original. */
struct traced_token {
    struct origin origin;
    uint32_t before, after; /* white space at the ends of what it spells,
                             * characters */
};

struct token_trace {
    const struct tokenizer *tokenizer; /* borrowed */
    struct traced_token *items;        /* owned; of the ids, in order */
    int64_t count, capacity;
    const unsigned char *word;         /* that is encoded */
    const struct origin *from;         /* of its bytes */
    size_t length;                     /* bytes */
    size_t at, done; /* bytes of the word that were passed, and their sizes
                      * (word_merge.h) */
    size_t sum;      /* of the sizes of its tokens so far: at most done */
    struct token_list sizes; /* owned; what word_merge tells */
};

/* A word comes. */
void token_trace_word(struct token_trace *trace, const unsigned char *word,
                      size_t length, const struct origin *from);
/* A token with an origin; spelled [length]: what it writes, NULL: nothing that
 * white space is looked for in. */
status token_trace_origin(struct token_trace *trace, struct origin origin,
                          const unsigned char *spelled, size_t length);
/* A token that stands for word[start, stop). `spelled` as above. */
status token_trace_token(struct token_trace *trace, struct span part,
                         const unsigned char *spelled, size_t length);
/* The tokens ids [count] of the word, as many as trace->sizes. */
status token_trace_merged(struct token_trace *trace, const int32_t *ids,
                          int64_t count);
/* The first of the last `count` tokens and the one before it become one. */
void token_trace_fuse(struct token_trace *trace, int64_t count);
/* Appends the places of all; special: the template's tokens stand around them.
 */
status token_trace_places(const struct token_trace *trace, const char *text,
                          size_t length, bool special,
                          struct token_places *out);
void token_trace_free(struct token_trace *trace);

#endif
