/* SPDX-License-Identifier: Apache-2.0 */
/* word_merge.c - merges within one word. */
#include "data/word_merge.h"

#include <string.h>

enum { SHORT_WORD = 48 }; /* symbols; where a scan and a heap cost the same */

static const struct merge *merge_of(const struct tokenizer *tokenizer,
                                    int32_t left, int32_t right)
{
    const uint64_t pair = (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
    const struct merge *merge =
        &tokenizer->merges[tokenizer_merge_place(tokenizer, pair)];

    return merge->pair == pair ? merge : NULL;
}

/* In place: ids [count] -> the merged ids; returns how many. */
static int merge_short(const struct tokenizer *tokenizer, int32_t *ids,
                       int count)
{
    const struct merge *next[SHORT_WORD]; /* of ids[i] and ids[i + 1] */

    for (int i = 0; i + 1 < count; i++)
        next[i] = merge_of(tokenizer, ids[i], ids[i + 1]);
    for (;;) {
        int best = -1, rank = INT32_MAX;

        for (int i = 0; i + 1 < count; i++)
            if (next[i] != NULL && next[i]->rank < rank) {
                best = i;
                rank = next[i]->rank;
            }
        if (best < 0) return count;
        ids[best] = next[best]->id;
        count--;
        for (int i = best + 1; i < count; i++) {
            ids[i] = ids[i + 1];
            next[i - 1] = next[i];
        }
        if (best > 0)
            next[best - 1] = merge_of(tokenizer, ids[best - 1], ids[best]);
        if (best + 1 < count)
            next[best] = merge_of(tokenizer, ids[best], ids[best + 1]);
    }
}

/* A word as a doubly linked list; merged-away symbols have id -1. */
struct symbol { int32_t id; int64_t before, after; };
struct candidate { int32_t rank, id, left, right; int64_t at; };

struct heap {
    struct candidate *items; /* in the cache */
    int64_t count;
};

static bool goes_first(const struct candidate *a, const struct candidate *b)
{
    return a->rank != b->rank ? a->rank < b->rank : a->at < b->at;
}

static void heap_push(struct heap *heap, const struct candidate *item)
{
    int64_t at = heap->count++;

    while (at > 0) {
        const int64_t parent = (at - 1) / 2;

        if (!goes_first(item, &heap->items[parent])) break;
        heap->items[at] = heap->items[parent];
        at = parent;
    }
    heap->items[at] = *item;
}

static struct candidate heap_pop(struct heap *heap)
{
    const struct candidate top = heap->items[0];
    const struct candidate last = heap->items[--heap->count];
    int64_t at = 0;

    for (;;) {
        int64_t child = 2 * at + 1;

        if (child >= heap->count) break;
        if (child + 1 < heap->count &&
            goes_first(&heap->items[child + 1], &heap->items[child]))
            child++;
        if (!goes_first(&heap->items[child], &last)) break;
        heap->items[at] = heap->items[child];
        at = child;
    }
    heap->items[at] = last;
    return top;
}

static void propose(const struct tokenizer *tokenizer, struct heap *heap,
                    const struct symbol *symbols, int64_t at)
{
    const int64_t after = at < 0 ? -1 : symbols[at].after;
    const struct merge *merge;

    if (after < 0) return;
    merge = merge_of(tokenizer, symbols[at].id, symbols[after].id);
    if (merge == NULL) return;
    heap_push(heap, &(struct candidate){.rank = merge->rank,
                                        .id = merge->id,
                                        .left = symbols[at].id,
                                        .right = symbols[after].id,
                                        .at = at});
}

/* Two candidates for each of n - 1 merges and n - 1 to start with: the heap
 * never holds more than 3 n. */
static status reserve(struct word_cache *cache, int64_t count)
{
    if (cache->symbol_capacity < count) {
        TRY(memory_grow(&cache->symbols, (size_t)count,
                        sizeof(struct symbol)));
        cache->symbol_capacity = count;
    }
    if (cache->heap_capacity < 3 * count) {
        TRY(memory_grow(&cache->heap, (size_t)(3 * count),
                        sizeof(struct candidate)));
        cache->heap_capacity = 3 * count;
    }
    return OK;
}

static status merge_long(const struct tokenizer *tokenizer,
                         struct word_cache *cache, const int32_t *ids,
                         int64_t count, struct token_list *out)
{
    struct symbol *symbols;
    struct heap heap;

    TRY(reserve(cache, count));
    symbols = cache->symbols;
    heap = (struct heap){cache->heap, 0};
    for (int64_t i = 0; i < count; i++)
        symbols[i] = (struct symbol){ids[i], i - 1,
                                     i + 1 < count ? i + 1 : -1};
    for (int64_t i = 0; i < count; i++)
        propose(tokenizer, &heap, symbols, i);
    while (heap.count > 0) {
        const struct candidate best = heap_pop(&heap);
        struct symbol *left = &symbols[best.at];
        const int64_t after = left->after;

        /* Either half may have been merged since. */
        if (left->id != best.left || after < 0 ||
            symbols[after].id != best.right) continue;
        left->id = best.id;
        left->after = symbols[after].after;
        if (left->after >= 0) symbols[left->after].before = best.at;
        symbols[after].id = -1;
        propose(tokenizer, &heap, symbols, left->before);
        propose(tokenizer, &heap, symbols, best.at);
    }
    TRY(token_list_reserve(out, count));
    for (int64_t i = 0; i >= 0; i = symbols[i].after)
        out->ids[out->count++] = symbols[i].id;
    return OK;
}

status word_merge(const struct tokenizer *tokenizer, struct word_cache *cache,
                  const unsigned char *bytes, size_t length,
                  struct token_list *out)
{
    int64_t first = out->count, count = 0;
    struct token_list symbols = {0};
    status result;

    if (length <= SHORT_WORD) {
        TRY(token_list_reserve(out, SHORT_WORD));
        for (size_t i = 0; i < length; i++)
            if (tokenizer->byte_ids[bytes[i]] >= 0)
                out->ids[first + count++] = tokenizer->byte_ids[bytes[i]];
        out->count += merge_short(tokenizer, out->ids + first, (int)count);
        return OK;
    }
    TRY_GOTO(done, result, token_list_reserve(&symbols, (int64_t)length));
    for (size_t i = 0; i < length; i++)
        if (tokenizer->byte_ids[bytes[i]] >= 0)
            symbols.ids[count++] = tokenizer->byte_ids[bytes[i]];
    if (count > 0)
        TRY_GOTO(done, result,
                 merge_long(tokenizer, cache, symbols.ids, count, out));
done:
    token_list_free(&symbols);
    return result;
}
