/* SPDX-License-Identifier: Apache-2.0 */
/* team.c - the ranks of one run. */
#include "train/team.h"

#include "mesh/grid.h"

int team_rank(const struct team *team)
{
    return team->world == NULL ? 0 : team->world->rank;
}

int team_size(const struct team *team)
{
    return team->world == NULL ? 1 : team->world->size;
}

/* Each rank holds one root of `values`; every rank gets the tree's sum. */
static struct comm_call ordered_sum(struct tensor values)
{
    return (struct comm_call){.kind = COMM_ALL_REDUCE,
                              .algorithm = ALGORITHM_ORDERED,
                              .reduction = REDUCE_SUM, .out = values,
                              .in = values};
}

/* Root of a use: the flat arena for first uses, once; else its own buffer. */
static struct tensor second_root(const struct gradients *g, int stream)
{
    const struct program *p = g->program;
    const struct param *param = &p->params.items[p->streams[stream].param];

    return tensor_1d((char *)g->partials + g->states[stream].offset[0] *
                                               dtype_bytes(p->dtype),
                     p->dtype, param->elements);
}

static struct tensor first_roots(const struct gradients *g)
{
    return tensor_1d(g->root, g->program->dtype, g->program->params.elements);
}

size_t team_scratch_bytes(const struct team *team,
                          const struct gradients *gradients, int64_t values)
{
    const struct comm_call sum = ordered_sum(first_roots(gradients));
    const struct tensor joined = tensor_1d(NULL, DTYPE_F64, values + 1);
    const struct comm_call join = {.kind = COMM_ALL_REDUCE, .out = joined,
                                   .in = joined};

    if (team->world == NULL) return 0;
    const size_t a = comm_scratch_bytes(team->world, &sum);
    const size_t b = comm_scratch_bytes(team->world, &join);

    return (a > b ? a : b) + ARENA_ALIGN;
}

void team_use_scratch(const struct team *team, void *scratch, size_t bytes)
{
    if (team->world != NULL) group_scratch(team->world, scratch, bytes);
}

static status run_sum(const struct team *team, struct tensor values)
{
    const struct comm_call call = ordered_sum(values);

    return comm_run(team->world, &call);
}

status team_gradients(const struct team *team, struct gradients *gradients)
{
    const struct program *p = gradients->program;

    if (team->world == NULL) return OK;
    TRY(run_sum(team, first_roots(gradients)));
    for (int i = 0; i < p->stream_count; i++)
        if (p->streams[i].use > 0)
            TRY(run_sum(team, second_root(gradients, i)));
    return OK;
}

status team_loss(const struct team *team, double *root, int64_t *targets)
{
    double mine[2], all[2 * LEAVES_MAX], roots[LEAVES_MAX];

    if (team->world == NULL) return OK;
    const int size = team_size(team);

    CHECK(size <= LEAVES_MAX);
    mine[0] = *root;
    mine[1] = (double)*targets;
    TRY(comm_all_gather(team->world, tensor_1d(all, DTYPE_F64, 2 * size),
                        tensor_1d(mine, DTYPE_F64, 2)));
    *targets = 0;
    for (int i = 0; i < size; i++) {
        roots[i] = all[2 * i];
        *targets += (int64_t)all[2 * i + 1];
    }
    *root = grid_tree(roots, size);
    return OK;
}

status team_join(const struct team *team, double *values, int64_t count)
{
    if (team->world == NULL) return OK;
    const struct tensor all = tensor_1d(values, DTYPE_F64, count);

    return comm_all_reduce(team->world, all, all, REDUCE_SUM);
}

status team_most(const struct team *team, int *value)
{
    double most = *value;

    if (team->world == NULL) return OK;
    const struct tensor one = tensor_1d(&most, DTYPE_F64, 1);

    TRY(comm_all_reduce(team->world, one, one, REDUCE_MAX));
    *value = (int)most;
    return OK;
}

status team_agree(const struct team *team, status mine)
{
    if (team->world == NULL) return mine;
    return comm_agree(team->world, mine);
}
