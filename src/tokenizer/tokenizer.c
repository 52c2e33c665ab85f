/* SPDX-License-Identifier: Apache-2.0 */
/* tokenizer.c - look-ups in a tokenizer that has been read. */
#include "tokenizer/tokenizer.h"

#include <string.h>
#include "tokenizer/word_cache.h"

static uint64_t mix(uint64_t a, uint64_t b)
{
    __extension__ typedef unsigned __int128 wide;
    const wide product = (wide)a * b;

    return (uint64_t)product ^ (uint64_t)(product >> 64);
}

/* Folds 16 bytes at a time with one wide product; the tail overlaps. Not for
 * files: byte order shows. */
uint64_t tokenizer_hash(const void *bytes, size_t length)
{
    const uint64_t k0 = 0x9E3779B97F4A7C15u, k1 = 0xD1B54A32D192ED03u;
    const unsigned char *at = bytes;
    uint64_t hash = k0 ^ length, a = 0, b = 0;

    for (; length > 16; length -= 16, at += 16) {
        memcpy(&a, at, 8);
        memcpy(&b, at + 8, 8);
        hash = mix(a ^ k1, b ^ hash);
    }
    a = b = 0;
    if (length >= 8) {
        memcpy(&a, at, 8);
        memcpy(&b, at + length - 8, 8);
    } else if (length >= 4) {
        memcpy(&a, at, 4);
        memcpy(&b, at + length - 4, 4);
    } else if (length > 0) {
        a = at[0] | (uint64_t)at[length / 2] << 8 |
            (uint64_t)at[length - 1] << 16;
    }
    return mix(a ^ k1, b ^ hash) ^ hash;
}

uint64_t tokenizer_merge_place(const struct tokenizer *tokenizer,
                               uint64_t pair)
{
    const uint64_t mask = tokenizer->merge_places - 1;
    uint64_t place = mix(pair, 0x9E3779B97F4A7C15u) & mask;

    while (tokenizer->merges[place].pair != pair &&
           tokenizer->merges[place].pair != UINT64_MAX)
        place = (place + 1) & mask;
    return place;
}

const unsigned char *tokenizer_key(const struct tokenizer *tokenizer,
                                   int32_t id, size_t *length)
{
    if (tokenizer->model == MODEL_BYTES)
        return tokenizer_bytes(tokenizer, id, length);
    *length = tokenizer->name_lengths[id];
    return (const unsigned char *)tokenizer->names[id];
}

int32_t tokenizer_word(const struct tokenizer *tokenizer,
                       const unsigned char *bytes, size_t length)
{
    const uint64_t mask = tokenizer->name_places - 1;
    uint64_t place = tokenizer_hash(bytes, length) & mask;

    for (;; place = (place + 1) & mask) {
        const int32_t id = tokenizer->word_table[place];
        const unsigned char *known;
        size_t known_length;

        if (id < 0) return -1;
        known = tokenizer_key(tokenizer, id, &known_length);
        if (known_length == length && memcmp(known, bytes, length) == 0)
            return id;
    }
}

bool tokenizer_find(const struct tokenizer *tokenizer, const char *name,
                    int32_t *id)
{
    const uint64_t mask = tokenizer->name_places - 1;
    uint64_t place = tokenizer_hash(name, strlen(name)) & mask;

    for (;; place = (place + 1) & mask) {
        const int32_t found = tokenizer->name_table[place];

        if (found < 0) return false;
        if (strcmp(tokenizer->names[found], name) != 0) continue;
        *id = found;
        return true;
    }
}

int64_t tokenizer_vocab(const struct tokenizer *tokenizer)
{
    return tokenizer->vocab;
}

enum token_kind tokenizer_kind(const struct tokenizer *tokenizer, int32_t id)
{
    if (id < 0 || id >= tokenizer->vocab) return TOKEN_MISSING;
    return (enum token_kind)tokenizer->kinds[id];
}

const unsigned char *tokenizer_bytes(const struct tokenizer *tokenizer,
                                     int32_t id, size_t *length)
{
    *length = 0;
    if (id < 0 || id >= tokenizer->vocab) return tokenizer->bytes;
    *length = tokenizer->starts[id + 1] - tokenizer->starts[id];
    return tokenizer->bytes + tokenizer->starts[id];
}

status tokenizer_end_of_text(const struct tokenizer *tokenizer,
                             const char *name, int32_t *id)
{
    static const char *const usual[] = {
        "<|endoftext|>", "<|end_of_text|>", "</s>", "<eos>", "<|eos|>",
        "<|im_end|>", "<|endofprompt|>", "<EOT>", "[EOS]"
    };

    if (name[0] != '\0') {
        if (tokenizer_find(tokenizer, name, id)) return OK;
        FAIL(ERR_CONFIG, "%s: tokenizer.end_of_text: there is no token %s",
             tokenizer->source, name);
    }
    for (size_t i = 0; i < sizeof usual / sizeof *usual; i++)
        if (tokenizer_find(tokenizer, usual[i], id)) return OK;
    FAIL(ERR_CONFIG, "%s: none of the usual end-of-text tokens is here "
         "(<|endoftext|>, <|end_of_text|>, </s>, <eos>, ...); name it with "
         "tokenizer.end_of_text", tokenizer->source);
}

void tokenizer_free(struct tokenizer *tokenizer)
{
    word_caches_free(tokenizer->caches);
    normalizer_free(&tokenizer->normalizer);
    pretokenizer_free(&tokenizer->pretokenizer);
    decoder_free(&tokenizer->decoder);
    unigram_free(&tokenizer->unigram);
    added_free(&tokenizer->raw);
    added_free(&tokenizer->normal);
    added_free(&tokenizer->kept);
    arena_free(&tokenizer->arena);
    *tokenizer = (struct tokenizer){0};
}
