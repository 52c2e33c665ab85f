/* SPDX-License-Identifier: Apache-2.0 */
/* buffer_offsets.c - offsets for buffers whose lives are known.
 *
 * A tree divides the events in halves, down to leaves of a few events. A buffer
 * is noted, as the span of offsets that it takes, in every node that its life
 * meets but does not cover, and in the topmost nodes that its life covers.
 * Spans that touch are one span: buffers are packed, so nodes have few.
 *
 *   events   0 .. 15 | 16 .. 31 | 32 .. 47 | 48 .. 63
 *   life               [===================]
 *   covers             node 16-31, node 32-47
 *   meets              node 0-63, node 0-31, node 32-63
 *
 * So the life of a new buffer meets the spans that cover the nodes on the way
 * down, and all spans noted in the nodes that it covers itself.
 *
 * If there are few buffers they are kept in one row, ordered by offset, and a
 * new one is compared with each of them. Both ways find the same offsets: the
 * lowest that are free. */
#include "nn/buffer_offsets.h"

#include <stdbool.h>
#include <string.h>

enum { LEAF = 16 /* events */, DEPTH_MOST = 32, FEW = 512 /* buffers */ };

struct span { int64_t from, to; };

/* Spans that do not touch, in order. */
struct spans {
    struct span *items; /* owned */
    int count, capacity;
};

struct node {
    struct spans covers, meets;
};

/* Rooms that meet one leaf and do not cover it. */
struct list {
    const struct placed_buffer **items; /* owned */
    int count, capacity;
};

struct tree {
    struct node *nodes;  /* owned, [2 leaves], the root is 1 */
    struct list *lists;  /* owned, [leaves] */
    int leaves;          /* a power of two */
};

/* The spans that may overlap one new buffer. */
struct search {
    const struct placed_buffer *room;
    const struct spans *sets[4 * DEPTH_MOST];
    const struct list *lists[2];
    int set_count, list_count;
};

/* ---- spans ---- */

/* The first span that ends after `at`. */
static int spans_after(const struct spans *s, int64_t at)
{
    int low = 0, high = s->count;

    while (low < high) {
        const int middle = low + (high - low) / 2;

        if (s->items[middle].to > at) high = middle;
        else low = middle + 1;
    }
    return low;
}

static status spans_add(struct spans *s, struct span span)
{
    const int at = spans_after(s, span.from - 1); /* may touch it */
    int end = at;

    while (end < s->count && s->items[end].from <= span.to) {
        if (s->items[end].from < span.from) span.from = s->items[end].from;
        if (s->items[end].to > span.to) span.to = s->items[end].to;
        end++;
    }
    if (end == at) { /* a new one */
        void *items = s->items;

        TRY(memory_next(&items, &s->capacity, s->count, 2, sizeof *s->items));
        s->items = items;
        for (int i = s->count++; i > at; i--) s->items[i] = s->items[i - 1];
    } else {
        const int gone = end - at - 1;

        for (int i = end; gone > 0 && i < s->count; i++)
            s->items[i - gone] = s->items[i];
        s->count -= gone;
    }
    s->items[at] = span;
    return OK;
}

static status list_add(struct list *list, const struct placed_buffer *room)
{
    void *items = list->items;

    TRY(memory_next(&items, &list->capacity, list->count, 16,
                    sizeof *list->items));
    list->items = items;
    list->items[list->count++] = room;
    return OK;
}

/* ---- the tree ---- */

/* Events [from, to] of a node that is `width` leaves wide. */
struct reach { int node, from, to; };

static struct reach half(struct reach r, int which)
{
    const int middle = r.from + (r.to - r.from) / 2;

    return which == 0 ? (struct reach){2 * r.node, r.from, middle}
                      : (struct reach){2 * r.node + 1, middle + 1, r.to};
}

static bool apart(const struct placed_buffer *room, struct reach r)
{
    return room->last < r.from || room->first > r.to;
}

static bool covered(const struct placed_buffer *room, struct reach r)
{
    return room->first <= r.from && room->last >= r.to;
}

static status note(struct tree *tree, const struct placed_buffer *room,
                   struct reach reach)
{
    const struct span span = {room->offset, room->offset + room->bytes};
    struct node *node = &tree->nodes[reach.node];

    if (apart(room, reach)) return OK;
    if (covered(room, reach)) return spans_add(&node->covers, span);
    TRY(spans_add(&node->meets, span));
    if (reach.node >= tree->leaves)
        return list_add(&tree->lists[reach.node - tree->leaves], room);
    TRY(note(tree, room, half(reach, 0)));
    return note(tree, room, half(reach, 1));
}

static void gather_set(struct search *search, const struct spans *spans)
{
    if (spans->count == 0) return;
    CHECK(search->set_count < 4 * DEPTH_MOST);
    search->sets[search->set_count++] = spans;
}

static void gather(const struct tree *tree, struct search *search,
                   struct reach reach)
{
    const struct node *node = &tree->nodes[reach.node];

    if (apart(search->room, reach)) return;
    gather_set(search, &node->covers);
    if (covered(search->room, reach)) {
        gather_set(search, &node->meets);
    } else if (reach.node >= tree->leaves) {
        search->lists[search->list_count++] =
            &tree->lists[reach.node - tree->leaves];
    } else {
        gather(tree, search, half(reach, 0));
        gather(tree, search, half(reach, 1));
    }
}

/* ---- the lowest offset ---- */

static bool pass_list(const struct list *list, const struct placed_buffer *room,
                      int64_t *offset)
{
    bool moved = false;

    for (int i = 0; i < list->count; i++) {
        const struct placed_buffer *other = list->items[i];

        if (other->last < room->first || other->first > room->last ||
            other->offset + other->bytes <= *offset ||
            other->offset - *offset >= room->bytes)
            continue;
        *offset = other->offset + other->bytes;
        moved = true;
    }
    return moved;
}

static bool pass_spans(const struct spans *spans,
                       const struct placed_buffer *room,
                       int64_t *offset)
{
    bool moved = false;

    for (int i = spans_after(spans, *offset);
         i < spans->count && spans->items[i].from - *offset < room->bytes;
         i++) {
        *offset = spans->items[i].to;
        moved = true;
    }
    return moved;
}

/* Beyond whatever is in the way, until nothing is. */
static int64_t lowest(const struct search *search)
{
    int64_t offset = 0;
    bool moved = true;

    while (moved) {
        moved = false;
        for (int i = 0; i < search->set_count; i++)
            if (pass_spans(search->sets[i], search->room, &offset))
                moved = true;
        for (int i = 0; i < search->list_count; i++)
            if (pass_list(search->lists[i], search->room, &offset))
                moved = true;
    }
    return offset;
}

static status check_end(const struct placed_buffer *room, int64_t *most)
{
    if (room->bytes > INT64_MAX - room->offset)
        FAIL(ERR_CONFIG, "buffers of more than 2^63 bytes are alive at once; "
                         "a smaller model or micro-batch has room");
    if (room->offset + room->bytes > *most)
        *most = room->offset + room->bytes;
    return OK;
}

static status place(struct tree *tree, struct placed_buffer *room,
                    int64_t *most)
{
    const struct reach all = {1, 0, tree->leaves * LEAF - 1};
    struct search search = {.room = room};

    gather(tree, &search, all);
    room->offset = lowest(&search);
    TRY(check_end(room, most));
    return note(tree, room, all);
}

/* ---- few ---- */

/* Placed rooms, in the order of their spans. */
struct row {
    int count;
    int first[FEW], last[FEW];
    struct span spans[FEW];
    uint8_t meets[FEW];    /* 1: lives at the same time as the new one */
};

/* Sets `meets`, and zeros to the end of its word. */
static void compare(struct row *row, const struct placed_buffer *room)
{
    const int first = room->first, last = room->last, count = row->count;

    _Pragma("omp simd")
    for (int i = 0; i < count; i++)
        row->meets[i] = (row->last[i] >= first) & (row->first[i] <= last);
    memset(row->meets + count, 0, (size_t)(-count & 7));
}

/* The lowest offset between those that live at the same time: most do not, and
 * are skipped by words. */
static int64_t lowest_in_row(struct row *row, const struct placed_buffer *room)
{
    int64_t offset = 0;

    compare(row, room);
    for (int base = 0; base < row->count; base += 8) {
        uint64_t word;

        memcpy(&word, row->meets + base, sizeof word);
        for (; word != 0; word &= word - 1) {
            const int i = base + __builtin_ctzll(word) / 8;

            if (row->spans[i].to <= offset) continue;
            if (row->spans[i].from - offset >= room->bytes) return offset;
            offset = row->spans[i].to;
        }
    }
    return offset;
}

static void move_up(void *array, int at, int count, size_t each)
{
    char *const item = (char *)array + (size_t)at * each;

    memmove(item + each, item, (size_t)(count - at) * each);
}

static status place_in_row(struct row *row, struct placed_buffer *room,
                           int64_t *most)
{
    int at = row->count;

    room->offset = lowest_in_row(row, room);
    TRY(check_end(room, most));
    while (at > 0 && row->spans[at - 1].from > room->offset) at--;
    move_up(row->first, at, row->count, sizeof *row->first);
    move_up(row->last, at, row->count, sizeof *row->last);
    move_up(row->spans, at, row->count, sizeof *row->spans);
    row->first[at] = room->first;
    row->last[at] = room->last;
    row->spans[at] = (struct span){room->offset, room->offset + room->bytes};
    row->count++;
    return OK;
}

static status place_few(struct placed_buffer **order, int count, int64_t *most)
{
    struct row row;

    row.count = 0;
    for (int i = 0; i < count; i++)
        TRY(place_in_row(&row, order[i], most));
    return OK;
}

/* ---- together ---- */

/* The largest first; equal ones stay in their order. */
static void sort_run(struct placed_buffer **order, int count)
{
    for (int i = 1; i < count; i++) {
        struct placed_buffer *const room = order[i];
        int at = i;

        for (; at > 0 && order[at - 1]->bytes < room->bytes; at--)
            order[at] = order[at - 1];
        order[at] = room;
    }
}

static void merge_runs(struct placed_buffer **from, struct placed_buffer **to,
                       int middle, int count)
{
    int left = 0, right = middle;

    for (int i = 0; i < count; i++)
        to[i] = right == count || (left < middle && from[left]->bytes >=
                                                        from[right]->bytes)
                    ? from[left++] : from[right++];
}

/* `order` has room for twice as many; returns the half that is sorted. (qsort
 * took as long as it took to place them.) */
static struct placed_buffer **sort_by_size(struct placed_buffer **order,
                                           int count)
{
    enum { RUN = 12 };
    struct placed_buffer **from = order, **to = order + count;

    for (int i = 0; i < count; i += RUN)
        sort_run(from + i, count - i < RUN ? count - i : RUN);
    for (int run = RUN; run < count; run *= 2) {
        struct placed_buffer **const merged = to;

        for (int i = 0; i < count; i += 2 * run) {
            const int both = count - i < 2 * run ? count - i : 2 * run;

            merge_runs(from + i, to + i, run < both ? run : both, both);
        }
        to = from;
        from = merged;
    }
    return from;
}

static status tree_build(struct tree *tree, int events)
{
    void *memory = NULL;

    tree->leaves = 1;
    while (tree->leaves <= (events - 1) / LEAF) tree->leaves *= 2;
    TRY(memory_take(2 * (size_t)tree->leaves, sizeof *tree->nodes, &memory));
    tree->nodes = memory;
    TRY(memory_take((size_t)tree->leaves, sizeof *tree->lists, &memory));
    tree->lists = memory;
    return OK;
}

static void tree_free(struct tree *tree)
{
    for (int i = 0; tree->nodes != NULL && i < 2 * tree->leaves; i++) {
        memory_free(tree->nodes[i].covers.items);
        memory_free(tree->nodes[i].meets.items);
    }
    for (int i = 0; tree->lists != NULL && i < tree->leaves; i++)
        memory_free(tree->lists[i].items);
    memory_free(tree->nodes);
    memory_free(tree->lists);
}

status buffers_place(struct placed_buffer *rooms, int count, int events,
                     int64_t *most)
{
    struct tree tree = {0};
    struct placed_buffer **order = NULL;
    void *memory = NULL;
    status result = OK;
    int filled = 0;

    *most = 0;
    if (count == 0) return OK;
    TRY(memory_take(2 * (size_t)count, sizeof *order, &memory));
    order = memory;
    for (int i = 0; i < count; i++) {
        CHECK(rooms[i].first >= 0 && rooms[i].last < events);
        rooms[i].offset = 0;
        if (rooms[i].bytes > 0) order[filled++] = &rooms[i];
    }
    order = sort_by_size(order, filled);
    if (filled <= FEW) {
        result = place_few(order, filled, most);
        goto done;
    }
    TRY_GOTO(done, result, tree_build(&tree, events));
    for (int i = 0; i < filled; i++)
        TRY_GOTO(done, result, place(&tree, order[i], most));
done:
    tree_free(&tree);
    memory_free(memory);
    return result;
}
