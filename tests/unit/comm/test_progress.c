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
    for (int c = CALLS - 1; c >= 0; c--) TRY(comm_wait(&handles[c]));
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

/* Rank 1 begins with group b and waits for it before it starts anything on a;
 * rank 0 has started a's calls first. Each group has more than one call. */
static status order_run(struct group *groups, int me)
{
    static _Thread_local double data[4][N];
    struct comm_handle handles[4];

    for (int i = 0; i < 4; i++) {
        const int c = me == 0 ? i : (i + 2) % 4; /* 0 1 on a, 2 3 on b */
        struct comm_call call = {.kind = COMM_ALL_REDUCE};

        for (int k = 0; k < N; k++) data[c][k] = me + c + k;
        call.in = call.out = tensor_1d(data[c], DTYPE_F64, N);
        TRY(comm_start(&groups[c / 2], &call, &handles[c]));
        if (me == 1 && i == 1) {
            TRY(comm_wait(&handles[2]));
            TRY(comm_wait(&handles[3]));
        }
    }
    for (int c = 0; c < 4; c++) TRY(comm_wait(&handles[c]));
    for (int c = 0; c < 4; c++)
        for (int k = 0; k < N; k++)
            if (data[c][k] != 1 + 2.0 * (c + k))
                FAIL(ERR_VERIFY, "call %d, element %d: %g", c, k, data[c][k]);
    return OK;
}

static status order_body(void *argument, struct group *world)
{
    const int members[] = {0, 1};
    struct group groups[2] = {{0}};
    status result;

    (void)argument;
    group_limit_ms(world, 20000);
    result = group_build(&groups[0], world, "a", members, 2);
    if (result == OK)
        result = group_build(&groups[1], world, "b", members, 2);
    if (result == OK) result = order_run(groups, world->rank);
    for (int i = 0; i < 2; i++) group_free(&groups[i]);
    return result;
}

TEST(groups_do_not_wait_for_each_other)
{
    for (int i = 0; i < 5; i++) IS_OK(ranks_run(2, order_body, NULL));
}

/* Rows and columns of 3 x 2 ranks: a gather on one and a reduce-scatter on the
 * other, again and again, two rounds deep, beside calls made at once. */
enum { DEEP = 2, ROUNDS_RUN = 12 };

static status prefetch_run(struct group *row, struct group *column,
                           struct group *world)
{
    static _Thread_local double all[DEEP][3 * N], sums[DEEP][N / 2],
        whole[DEEP][N / 2 * 2], mine[N];
    struct comm_handle gather[DEEP] = {0}, reduce[DEEP] = {0};

    for (int k = 0; k < N; k++) mine[k] = world->rank * 10 + k % 7;
    for (int i = 0; i < ROUNDS_RUN; i++) {
        const int at = i % DEEP;
        double x = 1;
        struct comm_call call = {.kind = COMM_ALL_GATHER,
                                 .in = tensor_1d(mine, DTYPE_F64, N)};

        TRY(comm_wait(&gather[at]));
        TRY(comm_wait(&reduce[at]));
        for (int k = 0; i >= DEEP && k < N; k++)
            if (all[at][2 * N + k] != row->members[2] * 10 + k % 7)
                FAIL(ERR_VERIFY, "gathered %g", all[at][2 * N + k]);
        for (int k = 0; i >= DEEP && k < N / 2; k++)
            if (sums[at][k] != 2.0 * (i - DEEP) + 1)
                FAIL(ERR_VERIFY, "summed %g", sums[at][k]);
        call.out = tensor_1d(all[at], DTYPE_F64, 3 * N);
        TRY(comm_start(row, &call, &gather[at]));
        for (int k = 0; k < N / 2 * 2; k++)
            whole[at][k] = i + column->rank;
        call = (struct comm_call){
            .kind = COMM_REDUCE_SCATTER,
            .in = tensor_1d(whole[at], DTYPE_F64, N / 2 * 2),
            .out = tensor_1d(sums[at], DTYPE_F64, N / 2)};
        TRY(comm_start(column, &call, &reduce[at]));
        TRY(comm_all_reduce(row, tensor_1d(&x, DTYPE_F64, 1),
                            tensor_1d(&x, DTYPE_F64, 1), REDUCE_SUM));
        if (x != 3) FAIL(ERR_VERIFY, "at once %g", x);
    }
    for (int i = 0; i < DEEP; i++) {
        TRY(comm_wait(&gather[i]));
        TRY(comm_wait(&reduce[i]));
    }
    return OK;
}

static status prefetch_body(void *argument, struct group *world)
{
    const int r = world->rank / 3, c = world->rank % 3;
    const int row_members[] = {3 * r, 3 * r + 1, 3 * r + 2};
    const int column_members[] = {c, 3 + c};
    struct group row = {0}, column = {0};
    status result;

    (void)argument;
    group_limit_ms(world, 20000);
    result = group_build(&row, world, "row", row_members, 3);
    if (result == OK)
        result = group_build(&column, world, "column", column_members, 2);
    if (result == OK) result = prefetch_run(&row, &column, world);
    group_free(&row);
    group_free(&column);
    return result;
}

TEST(several_calls_on_several_groups_are_under_way)
{
    for (int i = 0; i < 3; i++) IS_OK(ranks_run(6, prefetch_body, NULL));
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

    group_limit_ms(world, 1500);
    TRY(comm_wait(&handle)); /* zeroed: nothing to wait for */
    if (world->rank == 1) {
        usleep(4000000);
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
          "all-reduce on group world: rank 1 has not come within 1.5 s");
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
          groups_do_not_wait_for_each_other,
          several_calls_on_several_groups_are_under_way,
          errors_come_out_of_wait, calls_allocate_nothing)
