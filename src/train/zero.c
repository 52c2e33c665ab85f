/* SPDX-License-Identifier: Apache-2.0 */
/* zero.c - the messages of data parallelism, and what the ranks divide. */
#include "train/zero.h"

#include <string.h>

static struct group *divides(const struct stage *stage, struct team *team)
{
    const struct division *d = &stage->request.division;
    const axis_set axes = d->weights | d->gradients | d->states;

    if (axes == 0) return NULL;
    return team_group(team, axes >> AXIS_DATA & 1 ? TEAM_BATCH : TEAM_SHARD);
}

static struct group *copies(const struct stage *stage, struct team *team)
{
    const struct group *shard = divides(stage, team);

    if (shard == NULL) return team_group(team, TEAM_BATCH);
    if (shard == team_group(team, TEAM_BATCH)) return NULL;
    return team_group(team, TEAM_DATA);
}

void zero_build(struct zero *zero, struct stage *stage, struct team *team)
{
    *zero = (struct zero){.stage = stage, .shard = divides(stage, team),
                          .copies = copies(stage, team)};
    CHECK(zero->shard == NULL || zero->shard->size == stage->shards.ranks);
    CHECK(zero->shard == NULL || zero->shard->rank == stage->shards.rank);
}

/* ---- where things lie ---- */

static struct tensor elements(const struct zero *z, void *data, int64_t first,
                              int64_t count)
{
    const enum dtype dtype = z->stage->program.dtype;

    return tensor_1d((char *)data + first * dtype_bytes(dtype), dtype, count);
}

/* What this rank owns of a unit that lies whole at `data`. */
static struct tensor own_of(const struct zero *z, int unit, void *data)
{
    const struct shards *s = &z->stage->shards;

    return elements(z, data, shard_cuts(s, unit)[s->rank],
                    shard_sizes(s, unit)[s->rank]);
}

static void *unit_in(const struct zero *z, void *flat, int unit)
{
    const struct shard_unit *u = &z->stage->shards.units[unit];

    return elements(z, flat, u->first, u->elements).data;
}

/* ---- calls ---- */

static struct comm_call scatter_call(const struct zero *z, int unit,
                                     void *data)
{
    const struct shards *s = &z->stage->shards;

    return (struct comm_call){
        .kind = COMM_REDUCE_SCATTER, .algorithm = ALGORITHM_ORDERED,
        .reduction = REDUCE_SUM, .out = own_of(z, unit, data),
        .in = elements(z, data, 0, s->units[unit].elements),
        .in_counts = shard_sizes(s, unit)};
}

static struct comm_call sum_call(struct tensor values)
{
    return (struct comm_call){.kind = COMM_ALL_REDUCE,
                              .algorithm = ALGORITHM_ORDERED,
                              .reduction = REDUCE_SUM, .out = values,
                              .in = values};
}

static struct comm_call gather_call(const struct zero *z, int unit,
                                    void *data)
{
    const struct shards *s = &z->stage->shards;

    return (struct comm_call){
        .kind = COMM_ALL_GATHER, .in = own_of(z, unit, data),
        .out = elements(z, data, 0, s->units[unit].elements),
        .out_counts = shard_sizes(s, unit)};
}

static size_t most(size_t a, size_t b)
{
    return a > b ? a : b;
}

static size_t unit_scratch(const struct zero *z, int unit)
{
    const struct shards *s = &z->stage->shards;
    size_t bytes = 0;

    if (z->shard != NULL) {
        const struct comm_call call = scatter_call(z, unit, NULL);

        bytes = most(bytes, comm_scratch_bytes(z->shard, &call));
    }
    if (z->copies != NULL) {
        const struct comm_call call =
            sum_call(elements(z, NULL, 0, s->units[unit].elements));

        bytes = most(bytes, comm_scratch_bytes(z->copies, &call));
    }
    return bytes;
}

size_t zero_scratch_bytes(struct stage *stage, struct team *team)
{
    const int64_t blocks =
        shard_blocks(&stage->program.params, &stage->holding);
    const struct comm_call norm = sum_call(tensor_1d(NULL, DTYPE_F64,
                                                     blocks));
    struct zero z;
    size_t bytes = 0;

    zero_build(&z, stage, team);
    for (int i = 0; i < stage->shards.count; i++)
        bytes = most(bytes, unit_scratch(&z, i));
    if (z.shard != NULL)
        bytes = most(bytes, comm_scratch_bytes(z.shard, &norm));
    return bytes;
}

/* ---- gradients ---- */

/* The unit that lies at `data`: summed over all ranks in what this one owns. */
static status reduce_unit(struct zero *z, int unit, void *data)
{
    struct tensor own = own_of(z, unit, data);

    if (z->shard != NULL) {
        const struct comm_call call = scatter_call(z, unit, data);

        TRY(comm_run(z->shard, &call));
    }
    if (z->copies == NULL || own.shape[0] == 0) return OK;
    const struct comm_call call = sum_call(own);

    return comm_run(z->copies, &call);
}

/* A second use of a parameter (a tied head) has a root of its own, cut as the
 * unit, which is that parameter alone. */
static status reduce_second(struct zero *z, int stream)
{
    const struct gradients *g = &z->stage->gradients;
    const struct program *p = &z->stage->program;
    const int unit = shard_unit_of(&z->stage->shards,
                                   p->streams[stream].param);
    void *root = gradient_root(g, stream).data;
    struct tensor own, first;

    CHECK(z->stage->shards.units[unit].params == 1);
    TRY(reduce_unit(z, unit, root));
    own = own_of(z, unit, root);
    first = own_of(z, unit, unit_in(z, g->root, unit));
    if (own.shape[0] == 0) return OK;
    return g->kernels->add(g->stream, first, first, own);
}

status zero_gradients(struct zero *z)
{
    const struct program *p = &z->stage->program;

    for (int i = 0; i < z->stage->shards.count; i++)
        TRY(reduce_unit(z, i, unit_in(z, z->stage->gradients.root, i)));
    for (int i = 0; i < p->stream_count; i++)
        if (p->streams[i].use > 0) TRY(reduce_second(z, i));
    return OK;
}

/* ---- around the update ---- */

status zero_blocks(struct zero *z, double *blocks)
{
    const struct tensor all =
        tensor_1d(blocks, DTYPE_F64, shard_blocks(&z->stage->program.params,
                                                  &z->stage->holding));

    if (z->shard == NULL) return OK;
    return comm_all_reduce(z->shard, all, all, REDUCE_SUM);
}

status zero_weights(struct zero *z)
{
    void *weights = z->stage->memory[MEMORY_WEIGHTS].data;

    if (z->shard == NULL) return OK;
    for (int i = 0; i < z->stage->shards.count; i++) {
        const struct comm_call call =
            gather_call(z, i, unit_in(z, weights, i));

        TRY(comm_run(z->shard, &call));
    }
    return OK;
}

status zero_collect(struct zero *z, const struct update_arena *arena,
                    void *full)
{
    const struct shards *s = &z->stage->shards;

    for (int i = 0; i < s->count; i++) {
        const struct tensor own = own_of(z, i, unit_in(z, full, i));
        const void *from =
            arena->divided
                ? elements(z, arena->data, s->units[i].at, 0).data
                : own_of(z, i, unit_in(z, arena->data, i)).data;
        const struct comm_call call = gather_call(z, i, unit_in(z, full, i));

        if (own.shape[0] > 0)
            memcpy(own.data, from, (size_t)(own.shape[0] *
                                            dtype_bytes(own.dtype)));
        if (z->shard != NULL) TRY(comm_run(z->shard, &call));
    }
    return OK;
}
