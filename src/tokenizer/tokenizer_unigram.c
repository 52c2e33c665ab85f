/* SPDX-License-Identifier: Apache-2.0 */
/* tokenizer_unigram.c - the trie of a Unigram vocabulary. */
#include "tokenizer/tokenizer_build.h"

status tokenizer_build_unigram(struct tokenizer *tokenizer,
                               const double *scores)
{
    struct trie_key *keys;
    int64_t count = 0;
    void *memory = NULL;
    status result;

    tokenizer->unigram.scores = scores;
    TRY(memory_take((size_t)tokenizer->vocab + 1, sizeof *keys, &memory));
    keys = memory;
    for (int32_t i = 0; i < tokenizer->vocab; i++) {
        size_t length;
        const unsigned char *key;

        if (tokenizer->kinds[i] == TOKEN_MISSING) continue;
        key = tokenizer_key(tokenizer, i, &length);
        /* Only what text can be, and of two with one name the later one. */
        if (length == 0 || tokenizer_word(tokenizer, key, length) != i)
            continue;
        keys[count++] = (struct trie_key){key, length, i};
    }
    result = trie_build(&tokenizer->unigram.trie, keys, count);
    memory_free(memory);
    return result;
}
