/* SPDX-License-Identifier: Apache-2.0 */
/* request_rows.c - requests laid side by side into rows: the long ones first,
 * then the short ones into the granules that are left. */
#include "inference/request_rows.h"

#include <stdlib.h>
#include <string.h>

#include "base/arena.h"

enum { GRANULE_TOKENS = 128, LANE_TOKENS = 16,
       UNITS = GRANULE_TOKENS / LANE_TOKENS };

struct laying {
    struct request_rows *rows;
    int64_t *next;       /* owned [granules]: the one below in its stack */
    int64_t granules, room; /* of all rows so far */
    int64_t per_row;
    int64_t open[UNITS]; /* top of the stack of granules of which so many
                          * units are used; -1: none */
    int64_t cursor;      /* granules of the newest row that are given away */
};

static int64_t round_up(int64_t n, int64_t unit)
{
    return (n + unit - 1) / unit * unit;
}

/* Positions that a request keeps to itself, and a multiple of which it begins
 * at. */
static int64_t slot_tokens(int64_t length)
{
    int64_t slot = GRANULE_TOKENS;

    if (length <= GRANULE_TOKENS) return round_up(length, LANE_TOKENS);
    while (slot < length) slot *= 2;
    return slot;
}

int64_t request_rows_length(const struct task_requests *requests,
                            int64_t context)
{
    int64_t slot = slot_tokens(requests->longest);

    if (slot < GRANULE_TOKENS) slot = GRANULE_TOKENS;
    return slot < context ? slot : context;
}

static void push(struct laying *l, int64_t granule, int used)
{
    l->next[granule] = l->open[used];
    l->open[used] = granule;
}

/* The rest of the newest row serves short requests. */
static void close_row(struct laying *l)
{
    const int64_t first = l->granules - l->per_row;

    for (int64_t i = l->per_row - 1; i >= l->cursor; i--)
        push(l, first + i, 0);
    l->cursor = l->per_row;
}

static status open_row(struct laying *l)
{
    close_row(l);
    if (l->granules + l->per_row > l->room) {
        void *grown = l->next;

        l->room = 2 * l->room + l->per_row;
        TRY(memory_grow(&grown, (size_t)l->room, sizeof *l->next));
        l->next = grown;
    }
    l->granules += l->per_row;
    l->rows->count++;
    l->cursor = 0;
    return OK;
}

/* A request of several granules, into the newest row or a new one. */
static status lay_long(struct laying *l, struct request_place *place,
                       int64_t length)
{
    const int64_t slot = slot_tokens(length) / GRANULE_TOKENS;
    int64_t at = round_up(l->cursor, slot);

    if (at * GRANULE_TOKENS + length > l->rows->length) {
        TRY(open_row(l));
        at = 0;
    }
    for (int64_t i = l->cursor; i < at; i++) /* passed over */
        push(l, l->granules - l->per_row + i, 0);
    place->row = l->rows->count - 1;
    place->offset = at * GRANULE_TOKENS;
    l->cursor = at + round_up(length, GRANULE_TOKENS) / GRANULE_TOKENS;
    return OK;
}

/* Into the granule at the top of a stack, if it fits. */
static bool lay_into(struct laying *l, int used, struct request_place *place,
                     int64_t length)
{
    const int64_t granule = l->open[used];
    const int64_t at = granule < 0 ? 0
                       : granule % l->per_row * GRANULE_TOKENS +
                             used * LANE_TOKENS;
    const int64_t after = used + round_up(length, LANE_TOKENS) / LANE_TOKENS;

    if (granule < 0 || after > UNITS || at + length > l->rows->length)
        return false;
    l->open[used] = l->next[granule];
    if (after < UNITS) push(l, granule, (int)after);
    place->row = granule / l->per_row;
    place->offset = at;
    return true;
}

static status lay_short(struct laying *l, struct request_place *place,
                        int64_t length)
{
    for (int used = UNITS - 1; used >= 0; used--)
        if (lay_into(l, used, place, length)) return OK;
    TRY(open_row(l));
    close_row(l);
    CHECK(lay_into(l, 0, place, length));
    return OK;
}

/* ---- orders ---- */

struct sized { int64_t slot, length, request; };

/* Large slots first; equal ones in the order of the requests. */
static int by_slot(const void *a, const void *b)
{
    const struct sized *x = a, *y = b;

    if (x->slot != y->slot) return x->slot > y->slot ? -1 : 1;
    return x->request < y->request ? -1 : 1;
}

static int by_place(const void *a, const void *b)
{
    const struct request_place *x = a, *y = b;

    if (x->row != y->row) return x->row < y->row ? -1 : 1;
    return x->offset < y->offset ? -1 : 1;
}

static status lay_all(struct laying *l, const struct sized *order)
{
    const struct task_requests *r = l->rows->requests;

    for (int64_t i = 0; i < r->count; i++) {
        struct request_place *place = &l->rows->places[i];

        CHECK(order[i].length <= l->rows->length);
        place->request = order[i].request;
        if (i > 0 && order[i].slot <= GRANULE_TOKENS &&
            order[i - 1].slot > GRANULE_TOKENS)
            close_row(l);
        TRY(order[i].slot > GRANULE_TOKENS
                ? lay_long(l, place, order[i].length)
                : lay_short(l, place, order[i].length));
    }
    return OK;
}

static status lay(struct request_rows *rows)
{
    const struct task_requests *r = rows->requests;
    struct laying l = {.rows = rows};
    struct sized *order;
    void *memory;
    status result;

    l.per_row = round_up(rows->length, GRANULE_TOKENS) / GRANULE_TOKENS;
    l.cursor = l.per_row;
    for (int i = 0; i < UNITS; i++) l.open[i] = -1;
    TRY(memory_take((size_t)r->count + 1, sizeof *order, &memory));
    order = memory;
    for (int64_t i = 0; i < r->count; i++)
        order[i] = (struct sized){slot_tokens(r->items[i].length),
                                  r->items[i].length, i};
    qsort(order, (size_t)r->count, sizeof *order, by_slot);
    result = lay_all(&l, order);
    memory_free(order);
    memory_free(l.next);
    return result;
}

/* First places and values of each row. */
static status number(struct request_rows *rows)
{
    const struct task_requests *r = rows->requests;
    int64_t at = 0, value = 0;
    void *memory;

    TRY(memory_take((size_t)rows->count + 1, sizeof *rows->first, &memory));
    rows->first = memory;
    TRY(memory_take((size_t)rows->count + 1, sizeof *rows->value, &memory));
    rows->value = memory;
    for (int64_t row = 0; row <= rows->count; row++) {
        rows->first[row] = at;
        rows->value[row] = value;
        for (; at < r->count && rows->places[at].row == row; at++) {
            rows->places[at].value = value;
            value += r->items[rows->places[at].request].scored;
        }
    }
    CHECK(at == r->count && value == r->scored);
    return OK;
}

status request_rows_build(struct request_rows *rows,
                          const struct task_requests *requests,
                          int64_t length)
{
    void *memory;

    *rows = (struct request_rows){.requests = requests, .length = length};
    TRY(memory_take((size_t)requests->count + 1, sizeof *rows->places,
                    &memory));
    rows->places = memory;
    TRY(lay(rows));
    qsort(rows->places, (size_t)requests->count, sizeof *rows->places,
          by_place);
    return number(rows);
}

void request_rows_free(struct request_rows *rows)
{
    memory_free(rows->places);
    memory_free(rows->first);
    memory_free(rows->value);
    *rows = (struct request_rows){0};
}

/* ---- rows ---- */

struct row_arrays { int32_t *inputs, *targets, *positions, *documents; };

static void fill_gap(const struct row_arrays *a, int64_t from, int64_t to)
{
    for (int64_t t = from; t < to; t++) {
        a->inputs[t] = 0;
        a->targets[t] = -1;
        a->positions[t] = (int32_t)(t - from);
        a->documents[t] = (int32_t)from;
    }
}

static void fill_request(const struct row_arrays *a,
                         const struct task_requests *requests,
                         const struct request_place *place)
{
    const struct task_request *r = &requests->items[place->request];
    const int32_t *ids = requests->ids.ids + r->first;

    for (int32_t i = 0; i < r->length; i++) {
        const int64_t t = place->offset + i;

        a->inputs[t] = ids[i];
        a->targets[t] = i < r->length - r->scored ? -1 : ids[i + 1];
        a->positions[t] = i;
        a->documents[t] = (int32_t)place->offset;
    }
}

void request_rows_fill(const struct request_rows *rows, int64_t row,
                       int32_t *inputs, int32_t *targets, int32_t *positions,
                       int32_t *documents)
{
    const struct row_arrays a = {inputs, targets, positions, documents};
    const bool there = row < rows->count;
    int64_t at = 0;

    for (int64_t i = there ? rows->first[row] : 0;
         there && i < rows->first[row + 1]; i++) {
        const struct request_place *place = &rows->places[i];

        fill_gap(&a, at, place->offset);
        fill_request(&a, rows->requests, place);
        at = place->offset + rows->requests->items[place->request].length;
    }
    fill_gap(&a, at, rows->length);
}

void request_rows_cells(const struct request_rows *rows, int64_t row,
                        int64_t *cells)
{
    for (int64_t t = 0; t < rows->length; t++) cells[t] = -1;
    if (row >= rows->count) return;
    for (int64_t i = rows->first[row]; i < rows->first[row + 1]; i++) {
        const struct request_place *place = &rows->places[i];
        const struct task_request *r =
            &rows->requests->items[place->request];
        const int64_t first = place->offset + r->length - r->scored;

        for (int32_t k = 0; k < r->scored; k++)
            cells[first + k] = place->value + k;
    }
}
