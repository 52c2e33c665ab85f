/* SPDX-License-Identifier: Apache-2.0 */
/* exchange.c - what a rank sends in one training step. The forms are those of
 * comm.h: a sum is a reduce-scatter, in which a rank sends all blocks but its
 * own, and a gather, in which it sends its own block to all others. */
#include "plan/exchange_model.h"

#include <string.h>

void exchanges_add(struct exchanges *out, struct exchange row)
{
    if (row.size < 2) return;
    for (int i = 0; i < out->count; i++) {
        struct exchange *e = &out->items[i];

        if (e->kind != row.kind || strcmp(e->group, row.group) != 0 ||
            strcmp(e->what, row.what) != 0)
            continue;
        e->calls += row.calls;
        e->bytes += row.bytes;
        return;
    }
    CHECK(out->count < EXCHANGES_MAX);
    out->items[out->count++] = row;
}

void exchanges_sum(const struct exchanges *exchanges, const char *group,
                   enum comm_kind kind, int64_t *calls, int64_t *bytes)
{
    *calls = *bytes = 0;
    for (int i = 0; i < exchanges->count; i++) {
        const struct exchange *e = &exchanges->items[i];

        if (e->kind != kind || strcmp(e->group, group) != 0) continue;
        *calls += e->calls;
        *bytes += e->bytes;
    }
}

/* ---- forms ---- */

/* Elements of block `rank`: as equal as they can be, longer ones first. */
static int64_t equal_block(int64_t elements, int size, int rank)
{
    return elements / size + (rank < elements % size);
}

int64_t exchange_all_reduce(int64_t elements, int size, int rank)
{
    const int64_t own = equal_block(elements, size, rank);

    return (elements - own) + own * (size - 1);
}

/* ---- ranks that share the batch ---- */

struct side { const char *group; int size, rank; };

struct sharing {
    struct side divide;  /* what the division is over; size 1: nothing */
    struct side copies;  /* ranks that hold the same shard */
    struct side batch;
};

static struct sharing sharing_of(const struct stage *stage)
{
    const struct stage_request *r = &stage->request;
    const struct division *d = &r->division;
    const axis_set axes = d->weights | d->gradients | d->states;
    const int data = r->mesh.size[AXIS_DATA];
    const int shard = r->mesh.size[AXIS_SHARD];
    struct sharing s = {
        .divide = {"batch", 1, 0},
        .batch = {"batch", data * shard,
                  r->place.at[AXIS_DATA] * shard + r->place.at[AXIS_SHARD]}};

    s.copies = s.batch;
    if (axes >> AXIS_DATA & 1) {
        s.divide = s.batch;
        s.copies = (struct side){"data", 1, 0};
    } else if (axes != 0) {
        s.divide = (struct side){"shard", shard, r->place.at[AXIS_SHARD]};
        s.copies = (struct side){"data", data, r->place.at[AXIS_DATA]};
    }
    return s;
}

/* Gradients of a unit of `elements`, of which this rank owns `own`. */
static void add_gradients(struct exchanges *out, const struct sharing *s,
                          int64_t elements, int64_t own, int64_t bytes)
{
    exchanges_add(out, (struct exchange){
        .group = s->divide.group, .what = "gradients", .calls = 1,
        .kind = COMM_REDUCE_SCATTER, .size = s->divide.size,
        .bytes = (elements - own) * bytes});
    if (own == 0) return;
    exchanges_add(out, (struct exchange){
        .group = s->copies.group, .what = "gradients", .calls = 1,
        .kind = COMM_ALL_REDUCE, .size = s->copies.size,
        .bytes = bytes * exchange_all_reduce(own, s->copies.size, s->copies.rank)});
}

static void add_units(struct exchanges *out, const struct stage *stage,
                      const struct sharing *s)
{
    const struct program *p = &stage->program;
    const struct shards *shards = &stage->shards;
    const int64_t bytes = dtype_bytes(p->dtype);

    for (int i = 0; i < shards->count; i++) {
        const int64_t own = shard_sizes(shards, i)[shards->rank];

        add_gradients(out, s, shards->units[i].elements, own, bytes);
        exchanges_add(out, (struct exchange){
            .group = s->divide.group, .what = "weights", .calls = 1,
            .kind = COMM_ALL_GATHER, .size = s->divide.size,
            .bytes = own * bytes * (s->divide.size - 1)});
    }
    for (int i = 0; i < p->stream_count; i++) {
        const int unit = shard_unit_of(shards, p->streams[i].param);

        if (p->streams[i].use > 0)
            add_gradients(out, s, shards->units[unit].elements,
                          shard_sizes(shards, unit)[shards->rank], bytes);
    }
}

/* Squares that one rank of the model's axes owns, to all of them. */
static void add_norm(struct exchanges *out, const struct stage *stage)
{
    static const struct { enum axis axis; const char *group; } axes[] = {
        {AXIS_TENSOR, "tensor"}, {AXIS_PIPE, "pipe"}};
    const struct stage_request *r = &stage->request;
    const int64_t count =
        (int64_t)stage->program.params.orders * stage->holding.leaves;

    for (int i = 0; i < 2; i++) {
        const int size = r->mesh.size[axes[i].axis];

        exchanges_add(out, (struct exchange){
            .group = axes[i].group, .what = "norm", .calls = 1,
            .kind = COMM_ALL_REDUCE, .size = size,
            .bytes = dtype_bytes(DTYPE_F64) *
                     exchange_all_reduce(count, size,
                                         r->place.at[axes[i].axis])});
    }
}

void exchanges_of(struct exchanges *out, const struct stage *stage)
{
    const struct sharing s = sharing_of(stage);
    const int64_t real = dtype_bytes(DTYPE_F64);
    const int64_t blocks =
        shard_blocks(&stage->program.params, &stage->holding);

    *out = (struct exchanges){.count = 0};
    exchanges_of_program(out, stage);
    add_units(out, stage, &s);
    exchanges_add(out, (struct exchange){
        .group = s.divide.group, .what = "norm", .calls = 1,
        .kind = COMM_ALL_REDUCE, .size = s.divide.size,
        .bytes = real * exchange_all_reduce(blocks, s.divide.size, s.divide.rank)});
    exchanges_add(out, (struct exchange){
        .group = s.batch.group, .what = "loss", .calls = 1,
        .kind = COMM_ALL_GATHER, .size = s.batch.size,
        .bytes = 2 * real * (s.batch.size - 1)});
    add_norm(out, stage);
}
