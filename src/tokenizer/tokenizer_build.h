/* SPDX-License-Identifier: Apache-2.0 */
/* tokenizer_build.h - the parts of reading a tokenizer, whatever its file. */
#ifndef LOCKSTEP_TOKENIZER_TOKENIZER_BUILD_H
#define LOCKSTEP_TOKENIZER_TOKENIZER_BUILD_H

#include "base/json.h"
#include "tokenizer/tokenizer.h"

/* One token of the model while it is read. */
struct vocab_entry {
    const char *name; /* in the file or the parse */
    size_t length;    /* bytes */
    int32_t id;
    unsigned char kind; /* enum token_kind */
    bool spelled;       /* text can become it */
};

/* Names, bytes, kinds and both tables from the entries and the added tokens,
 * which were read before. */
status tokenizer_build_vocab(struct tokenizer *tokenizer,
                             const struct vocab_entry *entries,
                             int64_t count);
/* The ids of <0x00> to <0xFF>; -1 for those that are not there. */
void tokenizer_find_fallback(struct tokenizer *tokenizer);
/* Collects the added tokens that the text is searched for. */
status tokenizer_build_matchers(struct tokenizer *tokenizer);

/* An empty table for so many merges; then each merge. Of two merges of one
 * pair the later one counts. */
status tokenizer_merges_init(struct tokenizer *tokenizer, int64_t count);
void tokenizer_merges_add(struct tokenizer *tokenizer,
                          const struct merge *merge, int32_t left,
                          int32_t right);
/* All merges that follow from what tokens spell: two neighbours become the
 * token that is spelled like both, the one of smallest ranks[id] first; ranks
 * [vocab], a negative one is never made. Source: what tiktoken and
 * SentencePiece compute while they encode. */
status tokenizer_derive_merges(struct tokenizer *tokenizer,
                               const int32_t *ranks);
/* Where words may be cut, after the merges. */
status tokenizer_build_cuts(struct tokenizer *tokenizer);
/* The trie of a Unigram model; scores [vocab] are kept, borrowed. */
status tokenizer_build_unigram(struct tokenizer *tokenizer,
                               const double *scores);

/* tokenizer.json: added_tokens, model, post_processor. */
status tokenizer_read_added(struct tokenizer *tokenizer,
                            const struct json *root);
status tokenizer_read_model(struct tokenizer *tokenizer,
                            const struct json *model);
status tokenizer_read_template(struct tokenizer *tokenizer,
                               const struct json *json);

/* Whole files of other kinds, from tokenizer->json: SentencePiece's .model,
 * tiktoken's ranks, Mistral's tekken.json. */
status tokenizer_read_pieces(struct tokenizer *tokenizer);
status tokenizer_read_ranks(struct tokenizer *tokenizer);
status tokenizer_read_tekken(struct tokenizer *tokenizer,
                             const struct json *root);

#endif
