/* SPDX-License-Identifier: Apache-2.0 */
/* gathered_numbers.c - the numbers of all ranks in one place, to be
 * compared. */
#include "proof/gathered_numbers.h"

#include <math.h>
#include <string.h>

/* A run on its way to rank 0: its row of the table, then its elements. */
struct row {
    int64_t kind, order;
    int64_t whole_first, length, repeats, whole_stride;
};
enum { ROW_FIELDS = sizeof(struct row) / sizeof(int64_t) };

struct gathering {
    struct gathered_numbers *out;
    const struct inventory *inventory;
    unsigned char *seen[INVENTORY_KINDS]; /* owned, [elements]: 1 + rank, 255
                                           * for higher ones */
    unsigned char *buffer;        /* owned: elements of one run */
    int64_t room;                 /* elements of the largest parameter */
    char wrong[256];              /* the first difference; the others still
                                   * hand over what they have */
};

static status take(struct gathering *g)
{
    const struct param_table *params = &g->inventory->whole.params;
    const size_t size = (size_t)dtype_bytes(g->out->dtype);
    void *memory;

    g->out->elements = params->elements;
    for (int i = 0; i < params->count; i++)
        if (params->items[i].elements > g->room)
            g->room = params->items[i].elements;
    TRY(memory_take((size_t)g->room, size, &memory));
    g->buffer = memory;
    for (int k = 0; k < INVENTORY_KINDS; k++) {
        const size_t count = (size_t)params->elements;

        TRY(memory_take(count, size, &g->out->data[k]));
        memset(g->out->data[k], 0, count * size);
        TRY(memory_take(count, 1, &memory));
        g->seen[k] = memory;
        memset(g->seen[k], 0, count);
    }
    return OK;
}

/* ---- merging, on rank 0 ---- */

static bool row_fits(const struct gathering *g, const struct row *row)
{
    const struct param_table *params = &g->inventory->whole.params;

    return row->kind >= 0 && row->kind < INVENTORY_KINDS && row->order >= 0 &&
           row->order < params->count && row->length > 0 &&
           row->repeats > 0 && row->length * row->repeats <= g->room &&
           row->whole_first >= 0 &&
           row->whole_first + (row->repeats - 1) * row->whole_stride +
                   row->length <= params->items[row->order].elements;
}

/* The same bits, or two NaNs: what bits a NaN has is up to the processor. */
static bool same_element(enum dtype dtype, const void *a, const void *b)
{
    const struct tensor one = tensor_1d((void *)(uintptr_t)a, dtype, 1);
    const struct tensor other = tensor_1d((void *)(uintptr_t)b, dtype, 1);

    return memcmp(a, b, (size_t)dtype_bytes(dtype)) == 0 ||
           (isnan(tensor_get(&one, 0)) && isnan(tensor_get(&other, 0)));
}

static void note_difference(struct gathering *g, const struct row *row,
                            int64_t element, int one, int other)
{
    if (g->wrong[0] != '\0') return;
    if (one == other) {
        snprintf(g->wrong, sizeof g->wrong,
                 "%s (%s): rank %d holds element %lld twice, with other bits",
                 g->inventory->whole.params.items[row->order].name,
                 inventory_name(g->inventory, (int)row->order,
                                (enum inventory_kind)row->kind),
                 one, (long long)element);
        return;
    }
    snprintf(g->wrong, sizeof g->wrong,
             "%s (%s): element %lld has other bits on rank %d than on rank %d",
             g->inventory->whole.params.items[row->order].name,
             inventory_name(g->inventory, (int)row->order,
                            (enum inventory_kind)row->kind),
             (long long)element, other, one);
}

static void merge(struct gathering *g, const struct row *row, int rank,
                  const unsigned char *from)
{
    const struct param *param =
        &g->inventory->whole.params.items[row->order];
    const int64_t size = dtype_bytes(g->out->dtype);
    unsigned char *data = g->out->data[row->kind];
    unsigned char *seen = g->seen[row->kind];
    const int mark = rank < 254 ? rank + 1 : 255;

    for (int64_t i = 0; i < row->repeats * row->length; i++) {
        const int64_t element = row->whole_first +
                                i / row->length * row->whole_stride +
                                i % row->length;
        const int64_t at = param->offset + element;

        if (seen[at] == 0)
            memcpy(data + at * size, from + i * size, (size_t)size);
        else if (!same_element(g->out->dtype, data + at * size,
                               from + i * size))
            note_difference(g, row, element, seen[at] - 1, rank);
        if (seen[at] == 0) seen[at] = (unsigned char)mark;
    }
}

static status check_seen(const struct gathering *g)
{
    const struct param_table *params = &g->inventory->whole.params;

    if (g->wrong[0] != '\0') FAIL(ERR_VERIFY, "%s", g->wrong);
    for (int k = 0; k < INVENTORY_KINDS; k++)
        for (int i = 0; i < params->count; i++) {
            const struct param *param = &params->items[i];
            const char *name = inventory_name(g->inventory, param->order,
                                              (enum inventory_kind)k);

            for (int64_t j = 0; name != NULL && j < param->elements; j++)
                if (g->seen[k][param->offset + j] == 0)
                    FAIL(ERR_VERIFY, "%s (%s): no rank holds element %lld",
                         param->name, name, (long long)j);
        }
    return OK;
}

/* ---- on the way ---- */

struct taking { struct gathering *g; struct group *world; };

/* Sends one run to rank 0, or merges it there. */
static status send_run(const struct taking *t, const struct row *row,
                       void *data)
{
    struct row copy = *row;
    const struct tensor line = tensor_1d(&copy, DTYPE_I64, ROW_FIELDS);
    const struct tensor body = tensor_1d(data, t->g->inventory->dtype,
                                         row->length * row->repeats);

    if (t->world == NULL || t->world->rank == 0) {
        merge(t->g, row, 0, data);
        return OK;
    }
    TRY(comm_send(t->world, line, 0, 0));
    return comm_send(t->world, body, 0, 0);
}

/* The run that begins with element `local` of the span; of narrow states a
 * widened copy. */
static status hand_over(const struct taking *t, const struct row *row,
                        const struct inventory_span *span, int64_t local)
{
    const struct inventory *inventory = t->g->inventory;
    const int64_t count = row->length * row->repeats;
    void *copy = NULL;
    status result;

    if (!span->coded && span->dtype == inventory->dtype)
        return send_run(t, row, (char *)span->data +
                                    local * dtype_bytes(span->dtype));
    TRY(memory_take((size_t)count, sizeof(double), &copy));
    inventory_read(inventory, span, local, count, copy);
    result = send_run(t, row, copy);
    memory_free(copy);
    return result;
}

static status hand_over_all(const struct taking *t)
{
    const struct inventory *inventory = t->g->inventory;

    for (int i = 0; i < inventory->count; i++) {
        const struct inventory_span *span = &inventory->spans[i];
        struct layout_run runs[LAYOUT_RUNS_MAX];
        const int count = inventory_runs(span, false, runs);

        for (int j = 0; j < count; j++) {
            const struct layout_run *run = &runs[j];
            const struct row row = {span->kind, span->param->order,
                                    run->whole_first, run->length,
                                    run->repeats, run->whole_stride};

            TRY(hand_over(t, &row, span, run->local_first));
        }
    }
    return OK;
}

/* Rows of `rank` until one with no length. */
static status receive_all(const struct taking *t, int rank)
{
    for (;;) {
        struct row row = {0};

        TRY(comm_recv(t->world, tensor_1d(&row, DTYPE_I64, ROW_FIELDS), rank,
                      0));
        if (row.length == 0) return OK;
        CHECK(row_fits(t->g, &row));
        TRY(comm_recv(t->world,
                      tensor_1d(t->g->buffer, t->g->out->dtype,
                                row.length * row.repeats), rank, 0));
        merge(t->g, &row, rank, t->g->buffer);
    }
}

static status gather(const struct taking *t)
{
    struct row end = {0};

    TRY(hand_over_all(t));
    if (t->world == NULL) return check_seen(t->g);
    if (t->world->rank > 0)
        return comm_send(t->world, tensor_1d(&end, DTYPE_I64, ROW_FIELDS), 0,
                         0);
    for (int i = 1; i < t->world->size; i++) TRY(receive_all(t, i));
    return check_seen(t->g);
}

status gathered_numbers_gather(struct gathered_numbers *out,
                               const struct inventory *inventory,
                               struct team *team)
{
    struct gathering g = {.out = out, .inventory = inventory};
    const struct taking taking = {&g, team->world};
    status result;

    *out = (struct gathered_numbers){.dtype = inventory->dtype};
    if (team_rank(team) == 0) TRY_GOTO(done, result, take(&g));
    result = gather(&taking);
done:
    memory_free(g.buffer);
    for (int k = 0; k < INVENTORY_KINDS; k++) memory_free(g.seen[k]);
    return result;
}

void gathered_numbers_free(struct gathered_numbers *whole)
{
    for (int k = 0; k < INVENTORY_KINDS; k++) memory_free(whole->data[k]);
    *whole = (struct gathered_numbers){0};
}
