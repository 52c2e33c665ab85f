/* SPDX-License-Identifier: Apache-2.0 */
/* team.c - the ranks of one run, and the groups that they form. */
#include "step/team.h"

#include <string.h>

#include "base/log.h"
#include "comm/library.h"
#include "comm/nccl.h"
#include "comm/peers.h"
#include "mesh/grid.h"

int team_rank(const struct team *team)
{
    return team->world == NULL ? 0 : team->world->rank;
}

int team_size(const struct team *team)
{
    return team->world == NULL ? 1 : team->world->size;
}

struct group *team_group(struct team *team, int which)
{
    return team->groups[which].size > 1 ? &team->groups[which] : NULL;
}

struct group *team_axis_group(struct team *team, enum axis axis)
{
    return team_group(team, axis == AXIS_EXPERT && team->mesh.folded != 0
                                ? TEAM_EXPERTS : (int)axis);
}

/* The axes longer than 1. */
static axis_set longer(const struct mesh *mesh, axis_set axes)
{
    axis_set left = 0;

    for (int axis = AXIS_PIPE; axis < AXIS_COUNT; axis++)
        if (axes >> axis & 1 && mesh->size[axis] > 1) left |= 1u << axis;
    return left;
}

struct group *team_over(struct team *team, axis_set axes)
{
    const axis_set left = longer(&team->mesh, axes);

    if (left == 0) return NULL;
    if (mesh_is_batch(&team->mesh, axes)) return team_group(team, TEAM_BATCH);
    for (int axis = AXIS_PIPE; axis < AXIS_COUNT; axis++)
        if (left == 1u << axis) return team_group(team, axis);
    if (left == longer(&team->mesh, 1u << AXIS_DATA | 1u << AXIS_SHARD))
        return team_group(team, TEAM_DATA_SHARD);
    CHECK(left == longer(&team->mesh, 1u << AXIS_SHARD | 1u << AXIS_EXPERT));
    return team_group(team, TEAM_SHARD_EXPERT);
}

int team_batch_rank(const struct team *team)
{
    return team->groups[TEAM_BATCH].size > 1 ? team->groups[TEAM_BATCH].rank
                                             : 0;
}

int team_batch_size(const struct team *team)
{
    return team->groups[TEAM_BATCH].size > 1 ? team->groups[TEAM_BATCH].size
                                             : 1;
}

/* ---- groups ---- */

/* A group of ranks that share the batch. */
static status build_batch(struct team *team, int which, axis_set axes)
{
    const int size = mesh_group_size(&team->mesh, axes);
    char label[COMM_LABEL_BYTES];
    int *members;
    status result;

    TRY(memory_take((size_t)size, sizeof *members, (void **)&members));
    mesh_batch_members(&team->mesh, &team->order, &team->place, axes, members);
    mesh_batch_label(&team->mesh, axes, label);
    result = group_build(&team->groups[which], team->world, label, members,
                         size);
    team->groups[which].id = mesh_group_id(&team->mesh, axes);
    memory_free(members);
    return result;
}

static status build_batches(struct team *team)
{
    static const struct { int which; axis_set axes; } more[] = {
        {TEAM_DATA_SHARD, 1u << AXIS_DATA | 1u << AXIS_SHARD},
        {TEAM_SHARD_EXPERT, 1u << AXIS_SHARD | 1u << AXIS_EXPERT}};

    if (mesh_batch_ranks(&team->mesh) > 1)
        TRY(build_batch(team, TEAM_BATCH, AXES_BATCH));
    for (size_t i = 0; i < sizeof more / sizeof *more; i++) {
        const axis_set left = longer(&team->mesh, more[i].axes);

        if (!mesh_is_batch(&team->mesh, more[i].axes) &&
            (left & (left - 1)) != 0)
            TRY(build_batch(team, more[i].which, more[i].axes));
    }
    return OK;
}

static status build_experts(struct team *team)
{
    const int size = mesh_expert_ranks(&team->mesh);
    int *members;
    status result;

    if (team->mesh.folded == 0 || size == 1) return OK;
    TRY(memory_take((size_t)size, sizeof *members, (void **)&members));
    mesh_expert_members(&team->mesh, &team->order, &team->place, members);
    result = group_build(&team->groups[TEAM_EXPERTS], team->world,
                         mesh_axis_group_name(&team->mesh, AXIS_EXPERT),
                         members, size);
    team->groups[TEAM_EXPERTS].id =
        mesh_axis_group_id(&team->mesh, AXIS_EXPERT);
    memory_free(members);
    return result;
}

status team_build(struct team *team, struct group *world,
                  const struct mesh *mesh, const struct mesh_order *order,
                  int64_t limit_s)
{
    *team = (struct team){.world = world, .mesh = *mesh, .order = *order};
    if (world == NULL) return OK;
    if (limit_s > 0) group_limit_ms(world, 1000 * limit_s);
    group_nodes(world, mesh->node);
    mesh_place(mesh, order, world->rank, &team->place);
    TRY(build_batches(team));
    for (int axis = AXIS_PIPE; axis < AXIS_COUNT; axis++)
        if (mesh->size[axis] > 1)
            TRY(mesh_group_build(&team->groups[axis], world, mesh, order,
                                 1u << axis));
    TRY(build_experts(team));
    if (team_axis_group(team, AXIS_EXPERT) != NULL)
        team_axis_group(team, AXIS_EXPERT)->node = mesh_expert_run(mesh);
    for (int i = 0; i < TEAM_GROUPS; i++)
        if (limit_s > 0 && team->groups[i].size > 1)
            group_limit_ms(&team->groups[i], 1000 * limit_s);
    return OK;
}

/* The two ranks with a stage, as their leaves lie. */
static status add_copies(struct team *team, const struct pipeline *pipeline,
                         int index)
{
    const struct chunk *chunk = &pipeline->chunks[index];
    struct group *group = &team->copies[index];
    struct place place = team->place;
    int members[2];

    for (int i = 0; i < 2; i++) {
        place.at[AXIS_PIPE] = pipeline->schedule.places[i][chunk->number];
        members[i] = mesh_rank(&team->mesh, &team->order, &place);
    }
    TRY(group_build(group, team->world, chunk->label, members, 2));
    group->id = (struct group_id){GROUP_STAGE, chunk->number};
    group->limit_ns = team->world->limit_ns;
    return OK;
}

/* In the order of stage_rank_place. */
static status add_stage(struct team *team)
{
    const int ranks = stage_ranks(&team->mesh);
    struct group *group = &team->groups[TEAM_STAGE];
    int *members;
    status result;

    if (team->world == NULL || ranks == 1) return OK;
    TRY(memory_take((size_t)ranks, sizeof *members, (void **)&members));
    for (int i = 0; i < ranks; i++) {
        struct place place;

        stage_rank_place(&team->mesh, team->place.at[AXIS_PIPE], i, &place);
        members[i] = mesh_rank(&team->mesh, &team->order, &place);
    }
    result = group_build(group, team->world, "matrices", members, ranks);
    group->id = (struct group_id){GROUP_MATRICES, 0};
    memory_free(members);
    if (result == OK) group->limit_ns = team->world->limit_ns;
    return result;
}

status team_add_chunks(struct team *team, const struct pipeline *pipeline)
{
    void *memory = NULL;

    TRY(memory_take((size_t)pipeline->count, sizeof *team->copies, &memory));
    team->copies = memory;
    team->chunks = pipeline->count;
    /* Both ranks of a group build it at the same point: stage by stage. */
    for (int number = 0; number < pipeline->schedule.stages; number++)
        for (int i = 0; i < pipeline->count; i++)
            if (pipeline->chunks[i].number == number &&
                pipeline->chunks[i].copies > 1)
                TRY(add_copies(team, pipeline, i));
    for (int i = 0; i < pipeline->count; i++)
        if (pipeline->stages[i].states.matrices.count > 0)
            return add_stage(team);
    return OK;
}

struct group *team_copies(struct team *team, int chunk)
{
    return chunk < team->chunks && team->copies[chunk].size > 1
               ? &team->copies[chunk] : NULL;
}

/* ---- a library of messages ---- */

static struct group *group_at(struct team *team, int i)
{
    struct group *group = i < TEAM_GROUPS ? &team->groups[i]
                                          : &team->copies[i - TEAM_GROUPS];

    return group->size > 1 ? group : NULL;
}

/* Ranks that cannot read each other send as before. */
static status use_peers(struct team *team, struct device *device)
{
    int uses[] = {[PEERS_NONE] = 0, [PEERS_SOME] = 0, [PEERS_ALL] = 0};
    int all = 0;

    TRY(peers_build(&team->peers, team->world, device));
    for (int i = 0; i < TEAM_GROUPS + team->chunks; i++) {
        enum peers_use use = PEERS_NONE;

        if (group_at(team, i) == NULL) continue;
        TRY(group_use_peers(group_at(team, i), team->peers, i, &use));
        uses[use]++;
        all++;
    }
    const char *why = peers_why(team->peers)[0] != '\0'
                          ? peers_why(team->peers)
                          : "another rank cannot read it";

    if (uses[PEERS_NONE] > 0)
        LOG(WARNING, "comm", "comm.library=ipc: %d of %d groups send through "
            "host memory: %s", uses[PEERS_NONE], all, why);
    if (uses[PEERS_SOME] > 0)
        LOG(WARNING, "comm", "comm.library=ipc: %d of %d groups send in part "
            "through host memory: %s", uses[PEERS_SOME], all, why);
    return OK;
}

static status fail_lacks(void)
{
    FAIL(ERR_CONFIG, "comm.library=nccl wants a GPU for each rank, and "
                     "device=auto finds none for some; set comm.library=own");
}

status team_use_library(struct team *team, const char *name,
                        struct device *device)
{
    const struct nccl_plugin *nccl = NULL;
    int version, some = device != NULL, lacks = device == NULL;
    status result;

    if (team->world == NULL || strcmp(name, "own") == 0) return OK;
    TRY(team_most(team, &some));
    TRY(team_most(team, &lacks));
    if (!some) return OK;
    if (strcmp(name, "ipc") == 0) return use_peers(team, device);
    if (lacks) return team_agree(team, fail_lacks());
    result = nccl_open(&nccl, &version);
    if (result != OK)
        status_hint(result, "comm.library=own needs no NCCL");
    TRY(team_agree(team, result));
    for (int i = 0; i < TEAM_GROUPS + team->chunks; i++)
        if (group_at(team, i) != NULL)
            TRY(group_use_library(group_at(team, i), nccl, device));
    return OK;
}

void team_leave_library(struct team *team)
{
    for (int i = 0; i < TEAM_GROUPS + team->chunks; i++)
        if (group_at(team, i) != NULL) {
            group_leave_library(group_at(team, i));
            group_leave_peers(group_at(team, i));
        }
    peers_free(team->peers);
    team->peers = NULL;
}

status team_part(struct team *team)
{
    return peers_part(team->peers);
}

void team_free(struct team *team)
{
    team_use_scratch(team, NULL, 0); /* the world outlives it */
    team_leave_library(team);
    for (int i = 0; i < team->chunks; i++)
        if (team->copies[i].size > 0) group_free(&team->copies[i]);
    memory_free(team->copies);
    for (int i = 0; i < TEAM_GROUPS; i++)
        if (team->groups[i].size > 0) group_free(&team->groups[i]);
    *team = (struct team){0};
}

/* ---- sums ---- */

size_t team_scratch_bytes(struct team *team, int64_t values)
{
    const struct tensor joined = tensor_1d(NULL, DTYPE_F64, values);
    const struct comm_call join = {.kind = COMM_ALL_REDUCE, .out = joined,
                                   .in = joined};

    return team->world == NULL ? 0 : comm_scratch_bytes(team->world, &join);
}

void team_use_scratch(struct team *team, void *scratch, size_t bytes)
{
    if (team->world != NULL) group_scratch(team->world, scratch, bytes);
    for (int i = 0; i < TEAM_GROUPS; i++)
        if (team->groups[i].size > 1)
            group_scratch(&team->groups[i], scratch, bytes);
    for (int i = 0; i < team->chunks; i++)
        if (team->copies[i].size > 1)
            group_scratch(&team->copies[i], scratch, bytes);
}

status team_context_leaves(struct team *team, double *values, int64_t count,
                           int64_t *targets)
{
    struct group *context = team_group(team, AXIS_CONTEXT);
    double sum = (double)*targets;

    if (context == NULL) return OK;
    const struct tensor all = tensor_1d(values, DTYPE_F64, count);
    const struct comm_call call = {.kind = COMM_ALL_REDUCE,
                                   .algorithm = ALGORITHM_ORDERED,
                                   .reduction = REDUCE_SUM, .out = all,
                                   .in = all};
    const struct tensor one = tensor_1d(&sum, DTYPE_F64, 1);

    TRY(comm_run(context, &call));
    TRY(comm_all_reduce(context, one, one, REDUCE_SUM));
    *targets = (int64_t)sum;
    return OK;
}

status team_join(struct team *team, double *values, int64_t count)
{
    const struct tensor all = tensor_1d(values, DTYPE_F64, count);

    if (team->world == NULL) return OK;
    return comm_all_reduce(team->world, all, all, REDUCE_SUM);
}

status team_largest(struct team *team, double *values, int64_t count)
{
    const struct tensor all = tensor_1d(values, DTYPE_F64, count);

    if (team->world == NULL) return OK;
    return comm_all_reduce(team->world, all, all, REDUCE_MAX);
}

status team_most(struct team *team, int *value)
{
    double most = *value;

    if (team->world == NULL) return OK;
    const struct tensor one = tensor_1d(&most, DTYPE_F64, 1);

    TRY(comm_all_reduce(team->world, one, one, REDUCE_MAX));
    *value = (int)most;
    return OK;
}

status team_agree(struct team *team, status mine)
{
    if (team->world == NULL) return mine;
    return comm_agree(team->world, mine);
}
