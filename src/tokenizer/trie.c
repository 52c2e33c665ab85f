/* SPDX-License-Identifier: Apache-2.0 */
/* trie.c - all tokens that a text begins with: building it.
 *
 * Nodes are placed one after the other, each with all its children: the first
 * place where every child falls on a free unit. Free units form a list; after
 * a few tries the children go to the end, so that building stays linear. */
#include "tokenizer/trie.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include "base/arena.h"

enum {
    FREE = -1,
    TRIES_MAX = 32, /* places tried for one node */
    UNITS_MAX = 1 << 29
};

/* A node whose children are still to be placed: keys [low, high) share their
 * first `depth` bytes. */
struct range { int64_t low, high; size_t depth; int32_t node; };

struct builder {
    struct trie *trie;
    const struct trie_key *keys;
    int32_t *next_free;   /* owned [capacity]; by unit, -1 ends */
    int32_t *before_free; /* owned [capacity] */
    int32_t first_free, last_free, capacity;
    int32_t top;          /* all units from here on are free */
    struct range *stack;  /* owned */
    int64_t depth, stack_capacity;
    unsigned char bytes[256]; /* of the node being placed */
    int64_t starts[257];  /* keys of each of them */
    int byte_count;
};

static int compare_keys(const void *a, const void *b)
{
    const struct trie_key *left = a, *right = b;
    const size_t least =
        left->length < right->length ? left->length : right->length;
    const int order = memcmp(left->bytes, right->bytes, least);

    if (order != 0) return order;
    if (left->length != right->length)
        return left->length < right->length ? -1 : 1;
    return left->id < right->id ? -1 : left->id > right->id;
}

static status grow_array(void **array, int32_t capacity, size_t bytes)
{
    return memory_grow(array, (size_t)capacity, bytes);
}

/* More free units, at the end of the list. */
static status units_grow(struct builder *b)
{
    const int32_t from = b->capacity, to = from < 4096 ? 4096 : from * 2;
    void *units = b->trie->units, *next = b->next_free, *before =
        b->before_free;

    if (from > UNITS_MAX / 2)
        FAIL(ERR_MEMORY, "the vocabulary has too many bytes for a trie");
    TRY(grow_array(&units, to, sizeof *b->trie->units));
    b->trie->units = units;
    TRY(grow_array(&next, to, sizeof *b->next_free));
    b->next_free = next;
    TRY(grow_array(&before, to, sizeof *b->before_free));
    b->before_free = before;
    b->capacity = b->trie->count = to;
    for (int32_t i = from; i < to; i++) {
        b->trie->units[i] = (struct trie_unit){0, FREE, -1};
        b->before_free[i] = b->last_free;
        b->next_free[i] = -1;
        if (b->last_free >= 0)
            b->next_free[b->last_free] = i;
        else
            b->first_free = i;
        b->last_free = i;
    }
    return OK;
}

static void unit_take(struct builder *b, int32_t unit, int32_t parent)
{
    const int32_t before = b->before_free[unit], next = b->next_free[unit];

    if (before >= 0)
        b->next_free[before] = next;
    else
        b->first_free = next;
    if (next >= 0)
        b->before_free[next] = before;
    else
        b->last_free = before;
    b->trie->units[unit] = (struct trie_unit){0, parent, -1};
    if (unit >= b->top) b->top = unit + 1;
}

static bool fits(const struct builder *b, int32_t base)
{
    for (int i = 0; i < b->byte_count; i++)
        if (b->trie->units[base + b->bytes[i]].parent != FREE) return false;
    return true;
}

/* Every base has room for 256 children, so that a step needs no check. */
static status find_base(struct builder *b, int32_t *base)
{
    int32_t unit = b->first_free;

    for (int i = 0; i < TRIES_MAX && unit >= 0; i++) {
        *base = unit - b->bytes[0];
        if (*base > 0 && *base + 256 <= b->capacity && fits(b, *base))
            return OK;
        unit = b->next_free[unit];
    }
    *base = b->top;
    if (*base + 256 > b->capacity) TRY(units_grow(b));
    return OK;
}

static status push(struct builder *b, const struct range *range)
{
    if (b->depth == b->stack_capacity) {
        const int64_t capacity = b->stack_capacity * 2 + 256;
        void *grown = b->stack;

        TRY(memory_grow(&grown, (size_t)capacity, sizeof *b->stack));
        b->stack = grown;
        b->stack_capacity = capacity;
    }
    b->stack[b->depth++] = *range;
    return OK;
}

/* Keys that end at the node give it its id; the others begin its children. */
static void list_children(struct builder *b, const struct range *range)
{
    int64_t at = range->low;

    b->byte_count = 0;
    for (; at < range->high && b->keys[at].length == range->depth; at++)
        b->trie->units[range->node].id = b->keys[at].id;
    for (; at < range->high; at++) {
        const unsigned char byte = b->keys[at].bytes[range->depth];

        if (b->byte_count > 0 && b->bytes[b->byte_count - 1] == byte) continue;
        b->bytes[b->byte_count] = byte;
        b->starts[b->byte_count++] = at;
    }
    b->starts[b->byte_count] = range->high;
}

static status place(struct builder *b, const struct range *range)
{
    int32_t base;

    list_children(b, range);
    if (b->byte_count == 0) return OK;
    TRY(find_base(b, &base));
    b->trie->units[range->node].base = base;
    for (int i = 0; i < b->byte_count; i++) {
        const int32_t child = base + b->bytes[i];

        unit_take(b, child, range->node);
        TRY(push(b, &(struct range){b->starts[i], b->starts[i + 1],
                                    range->depth + 1, child}));
    }
    return OK;
}

status trie_build(struct trie *trie, struct trie_key *keys, int64_t count)
{
    struct builder b = {.trie = trie, .keys = keys, .first_free = -1,
                        .last_free = -1};
    status result;

    if (count > 0)
        qsort(keys, (size_t)count, sizeof *keys, compare_keys);
    TRY_GOTO(done, result, units_grow(&b));
    unit_take(&b, 0, -2); /* nobody's child */
    TRY_GOTO(done, result, push(&b, &(struct range){0, count, 0, 0}));
    while (b.depth > 0) {
        const struct range range = b.stack[--b.depth];

        TRY_GOTO(done, result, place(&b, &range));
    }
done:
    memory_free(b.next_free);
    memory_free(b.before_free);
    memory_free(b.stack);
    return result;
}

void trie_free(struct trie *trie)
{
    memory_free(trie->units);
    *trie = (struct trie){0};
}
