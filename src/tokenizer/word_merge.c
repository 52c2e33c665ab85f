/* SPDX-License-Identifier: Apache-2.0 */
/* word_merge.c - merges within one word. */
#include "tokenizer/word_merge.h"

#include "tokenizer/unicode.h"

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

/* Sizes of symbols become those of what they were merged into. */
static status add_sizes(const struct symbol *symbols, int64_t count,
                        const int32_t *parts, struct token_list *sizes)
{
    for (int64_t i = 0; i >= 0; i = symbols[i].after) {
        const int64_t stop = symbols[i].after < 0 ? count : symbols[i].after;
        int32_t size = 0;

        for (int64_t j = i; j < stop; j++) size += parts[j];
        TRY(token_list_append(sizes, &size, 1));
    }
    return OK;
}

/* parts [count]: sizes of the symbols, when `sizes` are asked for. */
static status merge_long(const struct tokenizer *tokenizer,
                         struct word_cache *cache,
                         const struct token_list *word, const int32_t *parts,
                         struct token_list *out, struct token_list *sizes)
{
    const int32_t *ids = word->ids;
    const int64_t count = word->count;
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
    if (sizes != NULL) TRY(add_sizes(symbols, count, parts, sizes));
    return OK;
}

int32_t word_byte_size(const struct tokenizer *tokenizer, unsigned char byte)
{
    return tokenizer->model != MODEL_BYTES || (byte > ' ' && byte < 0x7F) ? 1
                                                                          : 2;
}

/* Symbols of the bytes: those that the vocabulary lacks are dropped. */
static int64_t byte_symbols(const struct tokenizer *tokenizer,
                            const unsigned char *bytes, size_t length,
                            int32_t *ids, int32_t *sizes)
{
    int64_t count = 0;

    for (size_t i = 0; i < length; i++) {
        if (tokenizer->byte_ids[bytes[i]] < 0) continue;
        if (sizes != NULL) sizes[count] = word_byte_size(tokenizer, bytes[i]);
        ids[count++] = tokenizer->byte_ids[bytes[i]];
    }
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

/* To SentencePiece the last byte is the character, those before are nothing.
 */
static void fall_back_sizes(const struct tokenizer *tokenizer, size_t length,
                            int32_t *sizes)
{
    if (sizes == NULL) return;
    for (size_t i = 0; i < length; i++)
        sizes[i] = tokenizer->last_byte_whole ? 0 : 1;
    if (tokenizer->last_byte_whole) sizes[length - 1] = (int32_t)length;
}

/* Symbols while they are listed. */
struct symbols {
    int32_t *ids;
    int32_t *sizes; /* or NULL */
    int64_t count;
};

static void symbols_add(struct symbols *symbols, int32_t id, size_t size)
{
    if (symbols->sizes != NULL)
        symbols->sizes[symbols->count] = (int32_t)size;
    symbols->ids[symbols->count++] = id;
}

/* Symbols of the characters. An unknown one waits until the next known one
 * comes, as in the library: bytes overtake it. */
static int64_t character_symbols(const struct tokenizer *tokenizer,
                                 const unsigned char *bytes, size_t length,
                                 int32_t *ids, int32_t *sizes)
{
    struct symbols to = {ids, sizes, 0};
    size_t size, waiting = 0; /* bytes of the unknown one; 0: none */
    int64_t step;

    for (size_t at = 0; at < length; at += size) {
        int32_t id;

        unicode_at(bytes, at, &size);
        id = size == 1 ? tokenizer->byte_ids[bytes[at]]
                       : tokenizer_word(tokenizer, bytes + at, size);
        if (id >= 0) {
            if (waiting > 0) symbols_add(&to, tokenizer->unknown, waiting);
            waiting = 0;
            symbols_add(&to, id, size);
            continue;
        }
        step = fall_back(tokenizer, bytes + at, size, ids + to.count);
        if (step > 0)
            fall_back_sizes(tokenizer, size,
                            sizes == NULL ? NULL : sizes + to.count);
        to.count += step;
        if (step > 0 || tokenizer->unknown < 0) continue;
        if (waiting > 0 && !tokenizer->fuse_unknown) {
            symbols_add(&to, tokenizer->unknown, waiting);
            waiting = 0;
        }
        waiting += size;
    }
    if (waiting > 0) symbols_add(&to, tokenizer->unknown, waiting);
    return to.count;
}

static int64_t symbols_of(const struct tokenizer *tokenizer,
                          const unsigned char *bytes, size_t length,
                          int32_t *ids, int32_t *sizes)
{
    if (tokenizer->model == MODEL_BYTES)
        return byte_symbols(tokenizer, bytes, length, ids, sizes);
    return character_symbols(tokenizer, bytes, length, ids, sizes);
}

/* The merged state of a word so far. */
struct merged {
    struct token_list *ids, *sizes; /* sizes: or NULL */
    int64_t first;                  /* of the word */
};

/* Unknown characters in a row are one token, also when one of them is that only
 * because its token is unused. */
static status merged_add(const struct tokenizer *tokenizer,
                         const struct merged *merged, int32_t id, int32_t size)
{
    const struct token_list *ids = merged->ids;

    if (id == tokenizer->unknown && tokenizer->fuse_unknown &&
        ids->count > merged->first && ids->ids[ids->count - 1] == id) {
        if (merged->sizes != NULL)
            merged->sizes->ids[merged->sizes->count - 1] += size;
        return OK;
    }
    TRY(token_list_append(merged->ids, &id, 1));
    if (merged->sizes == NULL) return OK;
    return token_list_append(merged->sizes, &size, 1);
}

/* A character that only unused tokens spell is unknown after all. */
static status append_unknown(const struct tokenizer *tokenizer, int32_t id,
                             const struct merged *to)
{
    const unsigned char *name = (const unsigned char *)tokenizer->names[id];
    const uint32_t length = tokenizer->name_lengths[id];
    struct token_list *out = to->ids;
    int64_t step;

    TRY(token_list_reserve(out, (int64_t)length + 4));
    if (to->sizes != NULL)
        TRY(token_list_reserve(to->sizes, (int64_t)length + 4));
    step = fall_back(tokenizer, name, length, out->ids + out->count);
    if (step > 0) {
        out->count += step;
        if (to->sizes == NULL) return OK;
        fall_back_sizes(tokenizer, length, to->sizes->ids + to->sizes->count);
        to->sizes->count += step;
        return OK;
    }
    return merged_add(tokenizer, to, tokenizer->unknown, (int32_t)length);
}

/* One token, until all of its parts stay whole. */
static status come_apart(const struct tokenizer *tokenizer,
                         struct token_list *stack, int32_t size,
                         const struct merged *to)
{
    while (stack->count > 0) {
        const int32_t id = stack->ids[--stack->count];
        const struct halves *halves = &tokenizer->halves[id];
        const int32_t both[2] = {halves->right, halves->left};

        if (halves->left == HALVES_WHOLE)
            TRY(merged_add(tokenizer, to, id, size));
        else if (halves->left == HALVES_UNKNOWN)
            TRY(append_unknown(tokenizer, id, to));
        else {
            TRY(token_list_append(stack, both, 2));
            size = (int32_t)tokenizer->name_lengths[halves->left];
            continue;
        }
        if (stack->count > 0)
            size = (int32_t)
                tokenizer->name_lengths[stack->ids[stack->count - 1]];
    }
    return OK;
}

/* Tokens that come apart do so until none is left, from left to right. */
static status take_apart(const struct tokenizer *tokenizer,
                         const struct merged *to)
{
    struct token_list whole = {0}, stack = {0}, sizes = {0};
    status result;

    TRY_GOTO(done, result, token_list_append(&whole, to->ids->ids + to->first,
                                             to->ids->count - to->first));
    to->ids->count = to->first;
    if (to->sizes != NULL) {
        const int64_t first = to->sizes->count - whole.count;

        TRY_GOTO(done, result, token_list_append(
            &sizes, to->sizes->ids + first, whole.count));
        to->sizes->count = first;
    }
    for (int64_t i = 0; i < whole.count; i++) {
        TRY_GOTO(done, result, token_list_append(&stack, &whole.ids[i], 1));
        TRY_GOTO(done, result,
                 come_apart(tokenizer, &stack,
                            to->sizes == NULL ? 0 : sizes.ids[i], to));
    }
done:
    token_list_free(&whole);
    token_list_free(&stack);
    token_list_free(&sizes);
    return result;
}

/* There are never more symbols than bytes; fall_back looks at four more. */
static status merge_any(const struct tokenizer *tokenizer,
                        struct word_cache *cache, const unsigned char *bytes,
                        size_t length, struct token_list *out,
                        struct token_list *sizes)
{
    struct token_list symbols = {0}, parts = {0};
    status result;

    if (length <= SHORT_WORD && sizes == NULL) {
        int32_t *ids;
        int64_t count;

        TRY(token_list_reserve(out, SHORT_WORD + 4));
        ids = out->ids + out->count;
        count = symbols_of(tokenizer, bytes, length, ids, NULL);
        out->count += merge_short(tokenizer, ids, (int)count);
        return OK;
    }
    TRY_GOTO(done, result, token_list_reserve(&symbols, (int64_t)length + 4));
    if (sizes != NULL)
        TRY_GOTO(done, result,
                 token_list_reserve(&parts, (int64_t)length + 4));
    symbols.count = symbols_of(tokenizer, bytes, length, symbols.ids,
                               parts.ids);
    if (symbols.count > 0)
        TRY_GOTO(done, result, merge_long(tokenizer, cache, &symbols,
                                          parts.ids, out, sizes));
done:
    token_list_free(&symbols);
    token_list_free(&parts);
    return result;
}

status word_merge(const struct tokenizer *tokenizer, struct word_cache *cache,
                  const unsigned char *bytes, size_t length,
                  struct token_list *out, struct token_list *sizes)
{
    const struct merged merged = {out, sizes, out->count};

    TRY(merge_any(tokenizer, cache, bytes, length, out, sizes));
    if (tokenizer->halves == NULL) return OK;
    return take_apart(tokenizer, &merged);
}
