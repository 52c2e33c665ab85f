/* SPDX-License-Identifier: Apache-2.0 */
/* bpe_merge.h - which pairs of tokens to merge, most frequent first. */
#ifndef LOCKSTEP_TOKENIZER_BPE_MERGE_H
#define LOCKSTEP_TOKENIZER_BPE_MERGE_H

#include "tokenizer/bpe_train.h"
#include "tokenizer/word_count.h"

enum { BPE_FIRST_MERGE = 257 }; /* id of the first merged token */

/* Token 0 is the special one, 1 to 256 are the bytes in order of their
 * characters; `id` joins left and right. Ids count up from BPE_FIRST_MERGE;
 * one comes again when two merges spell the same bytes. */
struct bpe_merge { int32_t left, right, id; };

struct bpe_merges {
    struct bpe_merge *items; /* owned */
    int64_t count, capacity;
    int64_t tokens;          /* distinct ids */
};

struct bpe_merging {
    int64_t wanted;    /* tokens, at most */
    int64_t count_min; /* a rarer pair ends it; 0 counts as 1 */
    void (*progress)(void *context, int64_t done, int64_t total);
    void *context;
};

status bpe_merge(const struct word_table *words,
                 const struct bpe_merging *merging, struct bpe_merges *merges);
void bpe_merges_free(struct bpe_merges *merges);

/* Appends the tokenizer.json of these merges: GPT-2's pattern and decoder.
 * The `tokenizers` library reads it too. */
status tokenizer_write(struct text *out, const char *special,
                       const struct bpe_merges *merges);

#endif
