/* SPDX-License-Identifier: Apache-2.0 */
/* calibrate_messages.c - times the collectives of training between ranks as
 * threads: means of sustained calls, not the best. */
#include <string.h>

#include "bench/calibrate.h"
#include "bench/probe.h"
#include "comm/launch.h"

enum { SIZES = 5, OPS = 4 };
static const int64_t sizes[SIZES] = {1 << 10, 1 << 14, 1 << 17, 1 << 20,
                                     1 << 22};

struct run {
    struct measured_collective *rows;
    double limit;      /* seconds for one size of one operation */
};

struct buffers { float *in, *out; void *scratch; size_t scratch_bytes; };

static const struct { const char *name; enum comm_kind kind; } ops[OPS] = {
    {"all-reduce", COMM_ALL_REDUCE}, {"reduce-scatter", COMM_REDUCE_SCATTER},
    {"all-gather", COMM_ALL_GATHER}, {"send", COMM_SEND}};

static struct comm_call call_of(const struct buffers *b,
                                const struct group *world, int op,
                                int64_t bytes)
{
    const int64_t part = bytes / (int64_t)sizeof(float) / world->size;
    const int64_t whole = part * world->size;
    struct comm_call call = {
        .kind = ops[op].kind, .algorithm = ALGORITHM_ORDERED,
        .scratch = b->scratch, .scratch_bytes = b->scratch_bytes,
        .in = tensor_1d(b->in, DTYPE_F32, whole),
        .out = tensor_1d(b->out, DTYPE_F32, whole)};

    if (call.kind == COMM_ALL_GATHER)
        call.in = tensor_1d(b->in, DTYPE_F32, part);
    if (call.kind == COMM_REDUCE_SCATTER)
        call.out = tensor_1d(b->out, DTYPE_F32, part);
    if (call.kind == COMM_SEND) {
        call.algorithm = ALGORITHM_AUTO;
        call.peer = world->rank ^ 1;
    }
    return call;
}

/* A message there and one back count as two. */
static status once(struct group *world, struct comm_call *call)
{
    if (call->kind != COMM_SEND && call->kind != COMM_RECV)
        return comm_run(world, call);
    if (call->peer >= world->size) return OK;
    for (int turn = 0; turn < 2; turn++) {
        call->kind = (world->rank & 1) == turn ? COMM_SEND : COMM_RECV;
        TRY(comm_run(world, call));
    }
    return OK;
}

static status time_op(struct run *run, struct group *world,
                      struct comm_call *call, double *seconds)
{
    const double share = call->kind == COMM_SEND ? 2 : 1;
    double before, rounds;

    TRY(once(world, call));
    before = probe_now_s();
    TRY(once(world, call));
    rounds = run->limit / (probe_now_s() - before + 1e-7);
    if (rounds > 2000) rounds = 2000;
    if (rounds < 1) rounds = 1;
    TRY(comm_broadcast(world, tensor_1d(&rounds, DTYPE_F64, 1), 0));
    before = probe_now_s();
    for (int i = 0; i < (int)rounds; i++) TRY(once(world, call));
    *seconds = (probe_now_s() - before) / (double)(int)rounds / share;
    return OK;
}

static status time_all(struct run *run, struct group *world,
                       const struct buffers *b)
{
    for (int op = 0; op < OPS; op++) {
        struct measured_collective row = {.ranks = world->size,
                                          .count = SIZES};

        snprintf(row.op, sizeof row.op, "%s", ops[op].name);
        snprintf(row.path, sizeof row.path, "threads");
        for (int s = 0; s < SIZES; s++) {
            struct comm_call call = call_of(b, world, op, sizes[s]);

            row.bytes[s] = (double)sizes[s];
            TRY(time_op(run, world, &call, &row.seconds[s]));
        }
        if (world->rank == 0) run->rows[op] = row;
    }
    return OK;
}

static status rank_body(void *argument, struct group *world)
{
    const size_t most = (size_t)sizes[SIZES - 1];
    struct arena arena;
    struct buffers b = {.scratch_bytes = 3 * most + (1 << 16)};
    void *memory[3] = {NULL};
    status result;

    arena_init(&arena, "calibrate messages", 0);
    TRY_GOTO(done, result, arena_take(&arena, most, &memory[0]));
    TRY_GOTO(done, result, arena_take(&arena, most, &memory[1]));
    TRY_GOTO(done, result, arena_take(&arena, b.scratch_bytes, &memory[2]));
    b.in = memory[0];
    b.out = memory[1];
    b.scratch = memory[2];
    for (size_t i = 0; i < most / sizeof(float); i++)
        b.in[i] = b.out[i] = 1.0f + (float)(i % 1021) * 0x1p-10f;
    result = time_all(argument, world, &b);
done:
    arena_free(&arena);
    return result;
}

status calibrate_messages(struct measured_collective *rows, int most,
                          int ranks, double seconds, int *count,
                          struct message_figures *figures)
{
    struct run run = {rows, seconds / (OPS * SIZES)};
    const struct measured_collective *sent = &rows[OPS - 1];

    CHECK(most >= OPS);
    TRY(launch_run(&(struct launch){ranks, 60000}, rank_body, &run));
    *count = OPS;
    figures->latency = sent->seconds[0];
    figures->rate = (sent->bytes[SIZES - 1] - sent->bytes[SIZES - 2]) /
                    (sent->seconds[SIZES - 1] - sent->seconds[SIZES - 2]);
    if (!(figures->rate > 0))
        figures->rate = sent->bytes[SIZES - 1] / sent->seconds[SIZES - 1];
    return OK;
}
