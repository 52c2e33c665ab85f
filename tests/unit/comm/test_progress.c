/* SPDX-License-Identifier: Apache-2.0 */
/* test_progress.c - mirrors src/comm/progress.c: calls in the background. */
#include "comm/progress.h"

#include <stdatomic.h>
#include "tests/test.h"

enum { N = 3001, CALLS = 6 };

/* Background calls and immediate ones of one group do not take each other's
 * messages. */
static status overlap_body(void *argument, struct group *world)
{
    static _Thread_local double data[CALLS][N];
    struct comm_handle handles[CALLS];
    double x = 1;

    (void)argument;
    for (int c = 0; c < CALLS; c++) {
        struct comm_call call = {.kind = COMM_ALL_REDUCE};

        for (int i = 0; i < N; i++) data[c][i] = world->rank + c + i;
        call.in = call.out = tensor_1d(data[c], DTYPE_F64, N);
        TRY(comm_start(world, &call, &handles[c]));
    }
    for (int i = 0; i < 3; i++)
        TRY(comm_all_reduce(world, tensor_1d(&x, DTYPE_F64, 1),
                            tensor_1d(&x, DTYPE_F64, 1), REDUCE_SUM));
    for (int c = CALLS - 1; c >= 0; c--) {
        TRY(comm_wait(&handles[c]));
        if (!comm_done(&handles[c])) FAIL(ERR_VERIFY, "done");
    }
    TRY(comm_wait(&handles[0])); /* a second time: nothing happens */
    for (int c = 0; c < CALLS; c++)
        for (int i = 0; i < N; i++)
            if (data[c][i] != world->size * (c + i) +
                world->size * (world->size - 1) / 2.0)
                FAIL(ERR_VERIFY, "call %d element %d: %g", c, i, data[c][i]);
    if (x != (double)world->size * world->size * world->size)
        FAIL(ERR_VERIFY, "immediate calls give %g", x);
    return OK;
}

TEST(calls_overlap)
{
    for (int size = 1; size <= 5; size++)
        IS_OK(ranks_run(size, overlap_body, NULL));
}

/* All start their sends before anybody receives. */
static status neighbours_body(void *argument, struct group *world)
{
    const int right = (world->rank + 1) % world->size;
    const int left = (world->rank + world->size - 1) % world->size;
    double out[2] = {world->rank, world->rank + 100}, in[2];
    struct comm_handle send[2], receive[2];

    (void)argument;
    for (int i = 0; i < 2; i++) {
        struct comm_call call = {.kind = COMM_RECV, .peer = left, .tag = i,
                                 .out = tensor_1d(&in[i], DTYPE_F64, 1)};

        TRY(comm_start(world, &call, &receive[i]));
        call = (struct comm_call){.kind = COMM_SEND, .peer = right, .tag = i,
                                  .in = tensor_1d(&out[i], DTYPE_F64, 1)};
        TRY(comm_start(world, &call, &send[i]));
    }
    for (int i = 1; i >= 0; i--) TRY(comm_wait(&receive[i]));
    for (int i = 0; i < 2; i++) TRY(comm_wait(&send[i]));
    if (in[0] != left || in[1] != left + 100)
        FAIL(ERR_VERIFY, "%g %g from %d", in[0], in[1], left);
    return OK;
}

TEST(sends_may_be_started_before_anybody_receives)
{
    for (int size = 2; size <= 6; size++)
        IS_OK(ranks_run(size, neighbours_body, NULL));
}

static status late_body(void *argument, struct group *world)
{
    _Atomic int *late = argument;
    double x = 1;
    struct comm_handle handle = {0};
    struct comm_call call = {.kind = COMM_ALL_REDUCE,
                             .in = tensor_1d(&x, DTYPE_F64, 1),
                             .out = tensor_1d(&x, DTYPE_F64, 1)};
    status result;

    group_limit_ms(world, 200);
    TRY(comm_wait(&handle)); /* zeroed: nothing to wait for */
    if (world->rank == 1) {
        usleep(500000);
        return OK;
    }
    TRY(comm_start(world, &call, &handle));
    result = comm_wait(&handle);
    if (result == ERR_PEER && strstr(status_message(), "rank 1"))
        atomic_fetch_add(late, 1);
    return result;
}

TEST(errors_come_out_of_wait)
{
    _Atomic int late = 0;

    FAILS(ranks_run(3, late_body, &late), ERR_PEER,
          "all-reduce on group world: rank 1 has not come within 0.2 s");
    EQUAL_INT(late, 2);
}

static status allocation_body(void *argument, struct group *world)
{
    double x[64] = {0};
    struct comm_call call = {.kind = COMM_ALL_REDUCE,
                             .in = tensor_1d(x, DTYPE_F64, 64),
                             .out = tensor_1d(x, DTYPE_F64, 64)};
    struct comm_handle handle;
    int64_t before;

    (void)argument;
    TRY(comm_run(world, &call));
    TRY(comm_agree(world, OK));
    before = arena_allocations();
    for (int i = 0; i < 10; i++) {
        TRY(comm_start(world, &call, &handle));
        TRY(comm_wait(&handle));
        TRY(comm_run(world, &call));
    }
    TRY(comm_agree(world, OK));
    if (arena_allocations() != before) FAIL(ERR_VERIFY, "allocated");
    return OK;
}

TEST(calls_allocate_nothing)
{
    IS_OK(ranks_run(4, allocation_body, NULL));
}

TEST_MAIN(calls_overlap, sends_may_be_started_before_anybody_receives,
          errors_come_out_of_wait, calls_allocate_nothing)
