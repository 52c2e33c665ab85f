/* SPDX-License-Identifier: Apache-2.0 */
/* word_merge.c - merges within one word. */
#include "data/word_merge.h"

#include "data/unicode.h"

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

/* Symbols of the bytes: those that the vocabulary lacks are dropped. */
static int64_t byte_symbols(const struct tokenizer *tokenizer,
                            const unsigned char *bytes, size_t length,
                            int32_t *ids)
{
    int64_t count = 0;

    for (size_t i = 0; i < length; i++)
        if (tokenizer->byte_ids[bytes[i]] >= 0)
            ids[count++] = tokenizer->byte_ids[bytes[i]];
    return count;
}

/* The bytes of one character as tokens of their own; 0: not all exist. */
static int64_t fall_back(const struct tokenizer *tokenizer,
                         const unsigned char *bytes, size_t length,
                         int32_t *ids)
{
    for (size_t i = 0; i < length; i++) {
        ids[i] = tokenizer->fallback[bytes[i]];
        if (ids[i] < 0) return 0;
    }
    return (int64_t)length;
}

/* Symbols of the characters. An unknown one waits until the next known one
 * comes, as in the library: bytes overtake it. */
static int64_t character_symbols(const struct tokenizer *tokenizer,
                                 const unsigned char *bytes, size_t length,
                                 int32_t *ids)
{
    int64_t count = 0, step;
    bool waiting = false;
    size_t size;

    for (size_t at = 0; at < length; at += size) {
        int32_t id;

        unicode_at(bytes, at, &size);
        id = size == 1 ? tokenizer->byte_ids[bytes[at]]
                       : tokenizer_word(tokenizer, bytes + at, size);
        if (id >= 0) {
            if (waiting) ids[count++] = tokenizer->unknown;
            waiting = false;
            ids[count++] = id;
            continue;
        }
        step = fall_back(tokenizer, bytes + at, size, ids + count);
        count += step;
        if (step > 0 || tokenizer->unknown < 0) continue;
        if (waiting && !tokenizer->fuse_unknown)
            ids[count++] = tokenizer->unknown;
        waiting = true;
    }
    if (waiting) ids[count++] = tokenizer->unknown;
    return count;
}

static int64_t symbols_of(const struct tokenizer *tokenizer,
                          const unsigned char *bytes, size_t length,
                          int32_t *ids)
{
    if (tokenizer->model == MODEL_BYTES)
        return byte_symbols(tokenizer, bytes, length, ids);
    return character_symbols(tokenizer, bytes, length, ids);
}

/* A character that only unused tokens spell is unknown after all. */
static status append_unknown(const struct tokenizer *tokenizer, int32_t id,
                             struct token_list *out, int64_t first)
{
    const unsigned char *name = (const unsigned char *)tokenizer->names[id];
    const uint32_t length = tokenizer->name_lengths[id];
    int64_t step;

    TRY(token_list_reserve(out, (int64_t)length + 4));
    step = fall_back(tokenizer, name, length, out->ids + out->count);
    out->count += step;
    if (step > 0 || (tokenizer->fuse_unknown && out->count > first &&
                     out->ids[out->count - 1] == tokenizer->unknown))
        return OK;
    return token_list_append(out, &tokenizer->unknown, 1);
}

/* Tokens that come apart do so until none is left, from left to right. */
static status take_apart(const struct tokenizer *tokenizer,
                         struct token_list *out, int64_t first)
{
    struct token_list whole = {0}, stack = {0};
    status result;

    TRY_GOTO(done, result, token_list_append(&whole, out->ids + first,
                                             out->count - first));
    out->count = first;
    for (int64_t i = 0; i < whole.count; i++) {
        TRY_GOTO(done, result, token_list_append(&stack, &whole.ids[i], 1));
        while (stack.count > 0) {
            const int32_t id = stack.ids[--stack.count];
            const struct halves *halves = &tokenizer->halves[id];
            const int32_t both[2] = {halves->right, halves->left};

            if (halves->left == HALVES_WHOLE)
                TRY_GOTO(done, result, token_list_append(out, &id, 1));
            else if (halves->left == HALVES_UNKNOWN)
                TRY_GOTO(done, result, append_unknown(tokenizer, id, out,
                                                first));
            else
                TRY_GOTO(done, result, token_list_append(&stack, both, 2));
        }
    }
done:
    token_list_free(&whole);
    token_list_free(&stack);
    return result;
}

/* There are never more symbols than bytes; fall_back looks at four more. */
static status merge_any(const struct tokenizer *tokenizer,
                        struct word_cache *cache, const unsigned char *bytes,
                        size_t length, struct token_list *out)
{
    struct token_list symbols = {0};
    status result;
    int64_t count;

    if (length <= SHORT_WORD) {
        int32_t *ids;

        TRY(token_list_reserve(out, SHORT_WORD + 4));
        ids = out->ids + out->count;
        count = symbols_of(tokenizer, bytes, length, ids);
        out->count += merge_short(tokenizer, ids, (int)count);
        return OK;
    }
    TRY_GOTO(done, result, token_list_reserve(&symbols, (int64_t)length + 4));
    count = symbols_of(tokenizer, bytes, length, symbols.ids);
    if (count > 0)
        TRY_GOTO(done, result,
                 merge_long(tokenizer, cache, symbols.ids, count, out));
done:
    token_list_free(&symbols);
    return result;
}

status word_merge(const struct tokenizer *tokenizer, struct word_cache *cache,
                  const unsigned char *bytes, size_t length,
                  struct token_list *out)
{
    const int64_t first = out->count;

    TRY(merge_any(tokenizer, cache, bytes, length, out));
    if (tokenizer->halves == NULL) return OK;
    return take_apart(tokenizer, out, first);
}
