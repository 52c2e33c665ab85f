/* SPDX-License-Identifier: Apache-2.0 */
/* test_call.c - mirrors src/comm/call.c: every collective, every way of doing
 * it, 1 to 9 ranks, against plain loops. */
#include "comm/comm.h"
#include "comm/traffic.h"
#include "tests/test.h"

enum { RANKS_MOST = 9 };

struct row {
    struct comm_call call;
    enum dtype dtype;
    int64_t n;
    int node;
    int64_t sent[RANKS_MOST + 1]; /* bytes of the call, by rank */
};

/* Element i of rank r: whole numbers, so that sums are exact in any order. */
static double value(int rank, int64_t i)
{
    const uint32_t mixed = (uint32_t)(rank * 7919 + i * 104729 + 17) *
                           2654435761u;

    return (double)(mixed >> 20) - 2048;
}

static void fill(const struct tensor *t, int rank)
{
    for (int64_t i = 0; i < tensor_count(t); i++)
        tensor_set(t, i, value(rank, i));
}

static double expected(const struct row *row, int size, int64_t i)
{
    double result = value(0, i);

    for (int r = 1; r < size; r++) {
        const double v = value(r, i);

        if (row->call.reduction == REDUCE_SUM) result += v;
        else if (v > result) result = v;
    }
    return result;
}

/* What element i of `out` must be on this rank. */
static double correct(const struct row *row, const struct group *g, int64_t i)
{
    const int64_t n = row->n;

    switch (row->call.kind) {
    case COMM_ALL_REDUCE: return expected(row, g->size, i);
    case COMM_REDUCE_SCATTER: return expected(row, g->size, g->rank * n + i);
    case COMM_ALL_GATHER: return value((int)(i / n), i % n);
    case COMM_BROADCAST: return value(row->call.peer, i);
    default: return value((int)(i / n), g->rank * n + i % n);
    }
}

static status check_out(const struct row *row, const struct group *g,
                        const struct tensor *out)
{
    for (int64_t i = 0; i < tensor_count(out); i++)
        if (tensor_get(out, i) != correct(row, g, i))
            FAIL(ERR_VERIFY, "%s by %s, %d ranks, n %lld: element %lld of rank "
                 "%d is %g, expected %g", comm_kind_name(row->call.kind),
                 algorithm_name(row->call.algorithm), g->size,
                 (long long)row->n, (long long)i, g->rank, tensor_get(out, i),
                 correct(row, g, i));
    return OK;
}

static status tensor_take(struct arena *arena, enum dtype dtype, int64_t n,
                          struct tensor *out)
{
    void *data;

    TRY(arena_take_array(arena, (size_t)n, (size_t)dtype_bytes(dtype),
                         &data));
    *out = tensor_1d(data, dtype, n);
    return OK;
}

static status row_run(struct row *row, struct group *g, struct arena *arena)
{
    const bool in_blocks = row->call.kind == COMM_REDUCE_SCATTER ||
                           row->call.kind == COMM_ALL_TO_ALL;
    const bool out_blocks = row->call.kind == COMM_ALL_GATHER ||
                            row->call.kind == COMM_ALL_TO_ALL;
    struct comm_call call = row->call;

    TRY(tensor_take(arena, row->dtype, row->n * (out_blocks ? g->size : 1),
                    &call.out));
    TRY(tensor_take(arena, row->dtype, row->n * (in_blocks ? g->size : 1),
                    &call.in));
    fill(&call.in, g->rank);
    if (call.kind == COMM_BROADCAST && g->rank == call.peer)
        fill(&call.out, g->rank);
    call.scratch_bytes = comm_scratch_bytes(g, &call);
    TRY(arena_take(arena, call.scratch_bytes, &call.scratch));
    comm_traffic_reset(g);
    TRY(comm_run(g, &call));
    TRY(check_out(row, g, &call.out));
    row->sent[g->rank] = comm_traffic_bytes(g, call.kind);
    if (call.kind != COMM_ALL_REDUCE) return OK;
    call.out = call.in; /* in place */
    TRY(comm_run(g, &call));
    TRY(check_out(row, g, &call.out));
    return OK;
}

static status row_body(void *argument, struct group *world)
{
    struct row *row = argument;
    struct arena arena;
    status result;

    arena_init(&arena, "test", 0);
    world->node = row->node;
    group_limit_ms(world, 20000);
    result = row_run(row, world, &arena);
    arena_free(&arena);
    return result;
}

static const enum comm_kind kinds[] = {
    COMM_ALL_REDUCE, COMM_REDUCE_SCATTER, COMM_ALL_GATHER, COMM_BROADCAST,
    COMM_ALL_TO_ALL};

static void sizes_run(int size, enum comm_kind kind, enum algorithm algorithm)
{
    static const int64_t sizes[] = {0, 1, 7, 1003};

    for (int i = 0; i < ROWS(sizes); i++) {
        struct row row = {
            .call = {.kind = kind, .algorithm = algorithm,
                     .reduction = i % 2 ? REDUCE_MAX : REDUCE_SUM},
            .dtype = ((int)algorithm + (int)kind) % 2 ? DTYPE_F32 : DTYPE_F64,
            .n = sizes[i]};

        if (kind == COMM_BROADCAST) row.call.peer = size / 2;
        IS_OK(ranks_run(size, row_body, &row));
    }
}

TEST(every_collective_is_right)
{
    for (int size = 1; size <= RANKS_MOST; size++)
        for (int k = 0; k < ROWS(kinds); k++)
            for (int a = 0; a < ALGORITHM_COUNT; a++)
                sizes_run(size, kinds[k], (enum algorithm)a);
}

TEST(large_ones_are_right)
{
    for (int size = 2; size <= 6; size += 2)
        for (int k = 0; k < ROWS(kinds); k++)
            for (int a = 0; a < ALGORITHM_COUNT; a++) {
                struct row row = {.call = {.kind = kinds[k],
                                           .algorithm = (enum algorithm)a},
                                  .dtype = DTYPE_F32, .n = 200001,
                                  .node = size == 6 ? 3 : 1};

                IS_OK(ranks_run(size, row_body, &row));
            }
}

/* Bytes that rank r sends, by the closed forms of comm.h; S = 4 n. */
TEST(bytes_are_the_closed_forms)
{
    enum { N = 5040, S = 4 * N };
    static const struct {
        enum comm_kind kind;
        enum algorithm algorithm;
        int size, node;
        int64_t all; /* sum over ranks */
    } rows[] = {
        {COMM_ALL_REDUCE, ALGORITHM_RING, 2, 0, 2 * S},
        {COMM_ALL_REDUCE, ALGORITHM_RING, 7, 0, 2 * 6 * S},
        {COMM_ALL_REDUCE, ALGORITHM_HALVING, 8, 0, 2 * 7 * S},
        {COMM_ALL_REDUCE, ALGORITHM_TREE, 8, 0, 2 * 7 * S},
        {COMM_ALL_REDUCE, ALGORITHM_TREE, 5, 0, 2 * 4 * S},
        {COMM_ALL_REDUCE, ALGORITHM_ORDERED, 4, 0, 2 * 3 * S},
        /* two nodes of 4: n (2 (g-1)/g + 2 (N-1)/(N g)) S */
        {COMM_ALL_REDUCE, ALGORITHM_HIERARCHY, 8, 4, 12 * S + 2 * S},
        {COMM_REDUCE_SCATTER, ALGORITHM_RING, 4, 0, 3 * 4 * S},
        {COMM_REDUCE_SCATTER, ALGORITHM_HALVING, 4, 0, 3 * 4 * S},
        {COMM_REDUCE_SCATTER, ALGORITHM_ORDERED, 5, 0, 4 * 5 * S},
        {COMM_ALL_GATHER, ALGORITHM_RING, 6, 0, 5 * 6 * S},
        {COMM_ALL_GATHER, ALGORITHM_HALVING, 8, 0, 7 * 8 * S},
        {COMM_ALL_GATHER, ALGORITHM_ORDERED, 3, 0, 2 * 3 * S},
        {COMM_ALL_TO_ALL, ALGORITHM_AUTO, 5, 0, 4 * 5 * S},
        {COMM_BROADCAST, ALGORITHM_TREE, 7, 0, 6 * S},
        {COMM_BROADCAST, ALGORITHM_RING, 7, 0, 6 * S},
    };

    for (int i = 0; i < ROWS(rows); i++) {
        struct row row = {.call = {.kind = rows[i].kind,
                                   .algorithm = rows[i].algorithm},
                          .dtype = DTYPE_F32, .n = N, .node = rows[i].node};
        const bool even = rows[i].algorithm != ALGORITHM_TREE &&
                          rows[i].kind != COMM_BROADCAST;
        int64_t all = 0;

        IS_OK(ranks_run(rows[i].size, row_body, &row));
        for (int r = 0; r < rows[i].size; r++) {
            if (even) EQUAL_INT(row.sent[r], rows[i].all / rows[i].size);
            all += row.sent[r];
        }
        EQUAL_INT(all, rows[i].all);
    }
}

/* ---- refusals ---- */

static status sizes_body(void *argument, struct group *world)
{
    const struct comm_call *call = argument;

    TRY(comm_run(world, call));
    return OK;
}

TEST(calls_that_do_not_fit_are_refused)
{
    static float data[64];
    const struct tensor five = tensor_1d(data, DTYPE_F32, 5);
    const struct tensor ten = tensor_1d(data, DTYPE_F32, 10);
    const struct tensor bf16 = tensor_1d(data, DTYPE_BF16, 5);
    const struct tensor f64 = tensor_1d(data, DTYPE_F64, 5);
    const struct tensor across = tensor_transpose(
        tensor_2d(data, DTYPE_F32, 2, 5));
    struct comm_call rows[] = {
        {.kind = COMM_ALL_REDUCE, .out = five, .in = ten},
        {.kind = COMM_ALL_REDUCE, .out = bf16, .in = bf16},
        {.kind = COMM_ALL_REDUCE, .out = five, .in = f64},
        {.kind = COMM_ALL_REDUCE, .out = across, .in = across},
        {.kind = COMM_REDUCE_SCATTER, .out = five, .in = ten},
        {.kind = COMM_ALL_GATHER, .out = ten, .in = five},
        {.kind = COMM_ALL_TO_ALL, .out = ten, .in = ten},
        {.kind = COMM_BROADCAST, .out = ten, .peer = 3},
        {.kind = COMM_ALL_REDUCE, .out = five, .in = five, .leaves = 2},
    };
    static const char *const words[] = {
        "out has 5 and in 10 elements", "float32 or float64", "of one type",
        "not dense", "3 ranks", "3 ranks", "3 ranks", "ranks are 0 to 2",
        "2 leaves over 3 ranks"};

    for (int i = 0; i < ROWS(rows); i++)
        FAILS(ranks_run(3, sizes_body, &rows[i]), ERR_CONFIG, words[i]);
    rows[0] = (struct comm_call){
        .kind = COMM_REDUCE_SCATTER, .algorithm = ALGORITHM_RING,
        .out = tensor_1d(data, DTYPE_F32, 2),
        .in = tensor_1d(data, DTYPE_F32, 6)};
    FAILS(ranks_run(3, sizes_body, &rows[0]), ERR_MEMORY,
          "0 bytes of scratch, ring needs");
}

static status counts_body(void *argument, struct group *world)
{
    /* rank i sends i + j elements to rank j */
    int64_t in_counts[4], out_counts[4], in[64], out[64];
    struct comm_call call = {.kind = COMM_ALL_TO_ALL, .in_counts = in_counts,
                             .out_counts = out_counts};
    int64_t n = 0, *at = out;

    (void)argument;
    for (int j = 0; j < world->size; j++) {
        in_counts[j] = out_counts[j] = world->rank + j;
        for (int64_t i = 0; i < in_counts[j]; i++)
            in[n++] = 100 * world->rank + 10 * j + i;
    }
    call.in = tensor_1d(in, DTYPE_I64, n);
    call.out = tensor_1d(out, DTYPE_I64, n);
    TRY(comm_run(world, &call));
    for (int j = 0; j < world->size; j++)
        for (int64_t i = 0; i < out_counts[j]; i++)
            if (*at++ != 100 * j + 10 * world->rank + i)
                FAIL(ERR_VERIFY, "from rank %d", j);
    return OK;
}

TEST(all_to_all_takes_counts)
{
    for (int size = 1; size <= 4; size++)
        IS_OK(ranks_run(size, counts_body, NULL));
}

TEST_MAIN(every_collective_is_right, large_ones_are_right,
          bytes_are_the_closed_forms, calls_that_do_not_fit_are_refused,
          all_to_all_takes_counts)
