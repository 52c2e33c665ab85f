/* SPDX-License-Identifier: Apache-2.0 */
/* cases.h - pipelines of many layouts, of all ranks of a pipe. */
#ifndef LOCKSTEP_TESTS_LIST_CASES_H
#define LOCKSTEP_TESTS_LIST_CASES_H

#include "list/traffic.h"
#include "list/verify.h"
#include "schedule/build.h"
#include "tests/test.h"

enum { CASE_BLOCKS = 8, CASE_RANKS = 8, CASE_LENGTH = 16 };

struct layout_case {
    const char *schedule, *zero;
    int pipe, data, shard, tensor, context;
    int micro_batch, rounds;
    int prefetch;
    int leaves;      /* of the batch, and sequences; 0: 16 */
    bool keep, once, overlap, domino, tied, z_loss;
    int bucket, in_flight; /* elements */
};

static const struct layout_case layout_cases[] = {
    {.schedule = "1f1b", .zero = "ddp"},
    {.schedule = "1f1b", .zero = "ddp", .data = 4},
    {.schedule = "1f1b", .zero = "ddp", .data = 2, .tensor = 2},
    {.schedule = "1f1b", .zero = "ddp", .context = 2, .tensor = 2},
    {.schedule = "1f1b", .zero = "ddp", .context = 2, .data = 2},
    {.schedule = "1f1b", .zero = "zero1", .data = 4, .z_loss = true},
    {.schedule = "1f1b", .zero = "zero2", .data = 4, .rounds = 2},
    {.schedule = "1f1b", .zero = "zero2", .data = 2, .rounds = 4,
     .tied = true},
    {.schedule = "1f1b", .zero = "fsdp", .data = 4},
    {.schedule = "1f1b", .zero = "fsdp", .data = 4, .prefetch = 3},
    {.schedule = "1f1b", .zero = "fsdp", .data = 4, .keep = true},
    {.schedule = "1f1b", .zero = "fsdp", .data = 2, .rounds = 4,
     .prefetch = 1},
    {.schedule = "1f1b", .zero = "fsdp", .data = 2, .tensor = 2,
     .rounds = 2, .prefetch = 1, .tied = true},
    {.schedule = "1f1b", .zero = "hsdp", .data = 2, .shard = 2,
     .rounds = 2, .prefetch = 1},
    {.schedule = "1f1b", .zero = "fsdp", .data = 2, .tensor = 2,
     .domino = true, .micro_batch = 2, .prefetch = 1},
    {.schedule = "1f1b", .zero = "fsdp", .data = 2, .context = 2,
     .prefetch = 2},
    {.schedule = "1f1b", .zero = "ddp", .pipe = 2},
    {.schedule = "1f1b", .zero = "ddp", .pipe = 4, .data = 2, .tied = true},
    {.schedule = "gpipe", .zero = "fsdp", .pipe = 4, .data = 2,
     .prefetch = 1},
    {.schedule = "interleaved", .zero = "fsdp", .pipe = 2, .data = 2,
     .prefetch = 1},
    {.schedule = "breadth-first", .zero = "fsdp", .pipe = 2, .data = 2,
     .prefetch = 1},
    {.schedule = "zb-h1", .zero = "zero1", .pipe = 4, .data = 2},
    {.schedule = "zb-v", .zero = "fsdp", .pipe = 2, .data = 2,
     .prefetch = 1, .tied = true},
    {.schedule = "dualpipe", .zero = "ddp", .pipe = 4, .tied = true},
    {.schedule = "dualpipe", .zero = "fsdp", .pipe = 2, .data = 2,
     .prefetch = 1},
    {.schedule = "dualpipev", .zero = "zero1", .pipe = 2, .data = 2,
     .z_loss = true},
    {.schedule = "zb-2p", .zero = "ddp", .pipe = 2, .tensor = 2},
    {.schedule = "breadth-first", .zero = "fsdp", .pipe = 2, .data = 2,
     .prefetch = 1, .once = true},
    {.schedule = "breadth-first", .zero = "fsdp", .pipe = 2, .data = 2,
     .prefetch = 2, .once = true, .tied = true},
    {.schedule = "gpipe", .zero = "fsdp", .pipe = 4, .data = 2, .once = true},
    {.schedule = "interleaved", .zero = "fsdp", .pipe = 2, .data = 2,
     .prefetch = 1, .once = true},
    {.schedule = "zb-v", .zero = "fsdp", .pipe = 2, .data = 2,
     .prefetch = 1, .once = true, .tied = true},
    {.schedule = "dualpipe", .zero = "fsdp", .pipe = 2, .data = 2,
     .prefetch = 1, .once = true},
    {.schedule = "1f1b", .zero = "fsdp", .data = 2, .rounds = 4,
     .prefetch = 3, .once = true, .tied = true},
    {.schedule = "dualpipe", .zero = "fsdp", .pipe = 2, .data = 2,
     .tensor = 2, .micro_batch = 2, .overlap = true, .prefetch = 1},
    {.schedule = "dualpipev", .zero = "ddp", .pipe = 2, .tensor = 2,
     .micro_batch = 2, .overlap = true},
    {.schedule = "1f1b", .zero = "fsdp", .pipe = 4, .data = 2, .rounds = 4,
     .prefetch = 1, .tied = true},
    {.schedule = "interleaved", .zero = "zero2", .pipe = 2, .data = 2,
     .tensor = 2, .rounds = 8},
    {.schedule = "breadth-first", .zero = "fsdp", .pipe = 2, .data = 2,
     .rounds = 4, .prefetch = 2, .once = true},
    {.schedule = "gpipe", .zero = "hsdp", .pipe = 2, .data = 2, .shard = 2,
     .rounds = 4, .prefetch = 1},
    {.schedule = "1f1b", .zero = "fsdp", .data = 2, .context = 2,
     .rounds = 4, .prefetch = 1},
    {.schedule = "1f1b", .zero = "fsdp", .data = 4, .prefetch = 1,
     .bucket = 20000, .tied = true},
    {.schedule = "1f1b", .zero = "ddp", .data = 4, .bucket = 1 << 20},
    {.schedule = "1f1b", .zero = "fsdp", .data = 4, .prefetch = 4,
     .in_flight = 20000},
    {.schedule = "interleaved", .zero = "hsdp", .pipe = 2, .data = 2,
     .shard = 2, .prefetch = 3, .bucket = 20000, .in_flight = 30000},
    {.schedule = "1f1b", .zero = "zero2", .data = 2, .context = 2,
     .tensor = 2, .rounds = 2},
    {.schedule = "1f1b", .zero = "ddp", .data = 4, .leaves = 12},
    {.schedule = "1f1b", .zero = "zero1", .data = 4, .leaves = 12,
     .tied = true},
};

static int at_least_one(int value)
{
    return value > 0 ? value : 1;
}

#define CASE_MODEL(is_tied)                                                 \
    {.kind = &model_llama, .vocab = 96, .layers = CASE_BLOCKS, .heads = 4,  \
     .kv_heads = 2, .head_width = 8, .width = 32, .feed_forward = 40,       \
     .context = CASE_LENGTH, .rope.base = 10000, .norm_epsilon = 1e-5,      \
     .init_std = 0.02, .tied = (is_tied)}

/* Constant: threads of several ranks read it. */
static const struct model *case_model(bool tied)
{
    static const struct model models[2] = {CASE_MODEL(false),
                                           CASE_MODEL(true)};

    return &models[tied];
}

static struct mesh case_mesh(const struct layout_case *c)
{
    struct mesh mesh = mesh_alone();

    mesh.size[AXIS_PIPE] = at_least_one(c->pipe);
    mesh.size[AXIS_DATA] = at_least_one(c->data);
    mesh.size[AXIS_SHARD] = at_least_one(c->shard);
    mesh.size[AXIS_TENSOR] = at_least_one(c->tensor);
    mesh.size[AXIS_CONTEXT] = at_least_one(c->context);
    return mesh;
}

/* The pipeline of the rank at a place. */
static status case_plan_at(struct pipeline *out, const struct layout_case *c,
                           const struct place *place)
{
    static const char *const none[] = {"none"};
    const int ranks = at_least_one(c->data) * at_least_one(c->shard);
    const int micro = at_least_one(c->micro_batch);
    const int rounds = at_least_one(c->rounds);
    const int share = (c->leaves > 0 ? c->leaves : 16) / ranks / rounds;
    const struct mesh mesh = case_mesh(c);
    int blocks[2 * CASE_BLOCKS];
    struct schedule schedule;
    struct pipeline_request request = {.stage = {
        .model = case_model(c->tied), .mode = PROGRAM_TRAIN,
        .dtype = DTYPE_F32,
        .layout.grid = {share, 4, c->context > 1 ? 2 : 1, 0},
        .size.batch = share,
        .size.micro_batch = micro,
        .size.length = CASE_LENGTH, .backward = BACKWARD_FUSED,
        .training.optimizer = true,
        .machine.threads = 1, .recomputation.policy = none,
        .recomputation.count = 1,
        .divided.gather = {.prefetch = c->prefetch, .reshard = !c->keep,
                           .once = c->once}, .reduction.rounds = c->rounds,
        .reduction.piped = c->rounds > 0 && c->pipe > 1,
        .layout.overlap = {c->domino || c->overlap ? 2 : 0, c->domino},
        .regular.z_loss = c->z_loss ? 1e-4 : 0},
        .schedule = &schedule, .blocks = blocks};
    status result;

    if (c->rounds > 0)
        request.stage.size.micro_batch = request.stage.size.batch;
    request.stage.layout.mesh = mesh;
    request.stage.layout.place = *place;
    TRY(division_parse(&request.stage.divided.division, c->zero));
    request.stage.divided.division.bucket = c->bucket;
    request.stage.divided.gather.in_flight = c->in_flight;
    TRY(schedule_build(&schedule, c->schedule, mesh.size[AXIS_PIPE],
                       request.stage.reduction.piped
                           ? rounds : (int)(request.stage.size.batch /
                                            request.stage.size.micro_batch)));
    for (int i = 0; i < schedule.stages; i++)
        blocks[i] = CASE_BLOCKS / schedule.stages;
    result = pipeline_plan(out, &request);
    if (result == OK) pipeline_reserve_ahead(out);
    schedule_free(&schedule);
    return result;
}

/* The pipeline of rank `pipe` of the pipe; of the other axes the last rank. */
static inline status case_plan(struct pipeline *out,
                               const struct layout_case *c, int pipe)
{
    const struct mesh mesh = case_mesh(c);
    struct place place = {{0}};

    for (int axis = AXIS_PIPE; axis < AXIS_COUNT; axis++)
        place.at[axis] = mesh.size[axis] - 1;
    place.at[AXIS_PIPE] = pipe;
    return case_plan_at(out, c, &place);
}

#endif
