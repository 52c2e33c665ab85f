/* SPDX-License-Identifier: Apache-2.0 */
/* tokenizer_merges.c - the table of merges, and what follows from it. */
#include <stdlib.h>
#include <string.h>
#include "tokenizer/tokenizer_build.h"
#include "tokenizer/unicode.h"
#include "tokenizer/word_merge.h"

status tokenizer_merges_init(struct tokenizer *tokenizer, int64_t count)
{
    uint64_t places = 16;
    void *memory;

    while (places < 2 * (uint64_t)count) places *= 2;
    TRY(arena_take_array(&tokenizer->arena, places, sizeof *tokenizer->merges,
                         &memory));
    tokenizer->merges = memory;
    tokenizer->merge_places = places;
    for (uint64_t i = 0; i < places; i++)
        tokenizer->merges[i].pair = UINT64_MAX;
    return OK;
}

void tokenizer_merges_add(struct tokenizer *tokenizer,
                          const struct merge *merge, int32_t left,
                          int32_t right)
{
    const uint64_t pair = (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
    struct merge *place =
        &tokenizer->merges[tokenizer_merge_place(tokenizer, pair)];

    *place = *merge;
    place->pair = pair;
}

/* A token to derive, shorter ones first. */
struct spelled { uint32_t length; int32_t id; };

static int compare_lengths(const void *a, const void *b)
{
    const struct spelled *left = a, *right = b;

    if (left->length != right->length)
        return left->length < right->length ? -1 : 1;
    return left->id < right->id ? -1 : left->id > right->id;
}

/* Encodes the token's own spelling with the merges of all shorter ones: when
 * two tokens are left, their merge is the only way to make it, because nothing
 * around it can have been merged across its ends before. */
static status derive_one(struct tokenizer *tokenizer, struct word_cache *cache,
                         const int32_t *ranks, int32_t id,
                         struct token_list *list)
{
    size_t length;
    const unsigned char *key = tokenizer_key(tokenizer, id, &length);

    list->count = 0;
    TRY(word_merge(tokenizer, cache, key, length, list, NULL));
    if (list->count == 2)
        tokenizer_merges_add(tokenizer,
                             &(struct merge){.rank = ranks[id], .id = id},
                             list->ids[0], list->ids[1]);
    return OK;
}

status tokenizer_derive_merges(struct tokenizer *tokenizer,
                               const int32_t *ranks)
{
    struct spelled *order = NULL;
    struct word_caches *caches = NULL;
    struct word_cache *cache;
    struct token_list list = {0};
    void *memory = NULL;
    int64_t count = 0;
    status result;

    TRY_GOTO(done, result, tokenizer_merges_init(tokenizer, tokenizer->vocab));
    TRY_GOTO(done, result, memory_take((size_t)tokenizer->vocab + 1,
                                       sizeof *order, &memory));
    order = memory;
    for (int32_t i = 0; i < tokenizer->vocab; i++) {
        size_t length;

        if (ranks[i] < 0 || tokenizer->kinds[i] == TOKEN_MISSING) continue;
        tokenizer_key(tokenizer, i, &length);
        order[count++] = (struct spelled){(uint32_t)length, i};
    }
    qsort(order, (size_t)count, sizeof *order, compare_lengths);
    TRY_GOTO(done, result, word_caches_build(&caches));
    TRY_GOTO(done, result, word_cache_borrow(caches, &cache));
    for (int64_t i = 0; i < count && result == OK; i++)
        result = derive_one(tokenizer, cache, ranks, order[i].id, &list);
    word_cache_return(caches, cache);
done:
    word_caches_free(caches);
    memory_free(memory);
    token_list_free(&list);
    return result;
}

/* First and last character of a token's name. */
static uint32_t edge(const struct tokenizer *tokenizer, int32_t id, bool last)
{
    const char *name = tokenizer->names[id];
    const size_t length = tokenizer->name_lengths[id];
    size_t at = 0;
    uint32_t code = 0;

    if (length == 0) return 0;
    if (last)
        at = length - unicode_before((const unsigned char *)name, length);
    text_utf8_decode(name + at, length - at, &code);
    return code;
}

/* Cuts presume that a symbol is spelled like the text it stands for, and that
 * no byte overtakes an unknown character and none is dropped. */
static bool may_cut(const struct tokenizer *tokenizer)
{
    int bytes = 0;

    for (int i = 0; i < 256; i++) bytes += tokenizer->fallback[i] >= 0;
    if (tokenizer->ignore_merges) return false;
    return bytes == 256 || (bytes == 0 && tokenizer->unknown >= 0);
}

static bool stands_for_other(const struct tokenizer *tokenizer, int32_t id)
{
    unsigned char byte;

    return id == tokenizer->unknown ||
           decoder_byte(tokenizer->names[id], tokenizer->name_lengths[id],
                        &byte);
}

status tokenizer_build_cuts(struct tokenizer *tokenizer)
{
    int64_t count = 0;

    if (!may_cut(tokenizer)) return OK;
    for (uint64_t i = 0; i < tokenizer->merge_places; i++)
        count += tokenizer->merges[i].pair != UINT64_MAX;
    TRY(cuts_init(&tokenizer->cuts, &tokenizer->arena, count));
    for (uint64_t i = 0; i < tokenizer->merge_places; i++) {
        const uint64_t pair = tokenizer->merges[i].pair;
        const int32_t left = (int32_t)(pair >> 32);
        const int32_t right = (int32_t)(pair & 0xFFFFFFFFu);

        if (pair == UINT64_MAX) continue;
        if (stands_for_other(tokenizer, left) ||
            stands_for_other(tokenizer, right) ||
            tokenizer->merges[i].id == tokenizer->unknown) {
            tokenizer->cuts = (struct cuts){0};
            return OK;
        }
        cuts_join(&tokenizer->cuts, edge(tokenizer, left, true),
                  edge(tokenizer, right, false));
    }
    return OK;
}
