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

/* The value that element i of `out` must have on this rank. */
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

TEST(sums_of_integers_are_right)
{
    for (int size = 1; size <= RANKS_MOST; size++)
        for (int k = 0; k < 2; k++)
            for (int a = 0; a < ALGORITHM_COUNT; a++) {
                struct row row = {.call = {.kind = kinds[k],
                                           .algorithm = (enum algorithm)a},
                                  .dtype = DTYPE_I64, .n = 1003,
                                  .node = size % 2 ? 0 : 2};

                IS_OK(ranks_run(size, row_body, &row));
            }
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
        "out has 5 and in 10 elements", "float32, float64 or sums of int64",
        "of one type", "not dense", "3 ranks", "3 ranks", "3 ranks",
        "ranks are 0 to 2",
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

/* ---- blocks of different lengths ---- */

struct uneven {
    enum comm_kind kind;
    enum algorithm algorithm;
    const int64_t *counts;
    int leaves;
    bool in_place;
    int64_t sent[RANKS_MOST];
};

static int64_t sum_before(const int64_t *counts, int rank)
{
    int64_t sum = 0;

    for (int i = 0; i < rank; i++) sum += counts[i];
    return sum;
}

static status uneven_check(const struct uneven *u, const struct group *g,
                           const struct tensor *out)
{
    int rank = 0;
    int64_t at = 0;

    for (int64_t i = 0; i < tensor_count(out); i++, at++) {
        double right = 0;

        if (u->kind == COMM_ALL_GATHER) {
            while (at == u->counts[rank]) at = 0, rank++;
            right = value(rank, at);
        }
        for (int r = 0; u->kind == COMM_REDUCE_SCATTER && r <
             (u->leaves > 0 ? u->leaves : g->size); r++)
            right += value(r, sum_before(u->counts, g->rank) + i);
        if (tensor_get(out, i) != right)
            FAIL(ERR_VERIFY, "%s by %s, %d ranks: element %lld of rank %d is "
                 "%g, expected %g", comm_kind_name(u->kind),
                 algorithm_name(u->algorithm), g->size, (long long)i, g->rank,
                 tensor_get(out, i), right);
    }
    return OK;
}

/* Roots of value(leaf, i), one after the other. */
static status uneven_fill(const struct uneven *u, struct group *g,
                          struct arena *arena, struct comm_call *call)
{
    const int64_t whole = sum_before(u->counts, g->size);
    struct comm_root roots[COMM_ROOTS_MAX] = {{g->rank, 1, 1}};
    const int count = u->leaves > 0 ? comm_roots(u->leaves, g->size, g->rank,
                                                 roots) : 1;

    TRY(tensor_take(arena, DTYPE_F64, count * whole, &call->in));
    TRY(tensor_take(arena, DTYPE_F64, u->counts[g->rank], &call->out));
    call->in_counts = u->counts;
    for (int r = 0; r < count; r++)
        for (int64_t i = 0; i < whole; i++) {
            double sum = 0;

            for (int l = 0; l < roots[r].leaves; l++)
                sum += value(roots[r].first + l, i);
            tensor_set(&call->in, r * whole + i, sum);
        }
    return OK;
}

static status uneven_run(struct uneven *u, struct group *g,
                         struct arena *arena)
{
    const int64_t whole = sum_before(u->counts, g->size);
    const int64_t own = u->counts[g->rank];
    struct comm_call call = {.kind = u->kind, .algorithm = u->algorithm,
                             .leaves = u->leaves};

    if (u->kind == COMM_REDUCE_SCATTER) {
        TRY(uneven_fill(u, g, arena, &call));
    } else {
        TRY(tensor_take(arena, DTYPE_F64, whole, &call.out));
        TRY(tensor_take(arena, DTYPE_F64, own, &call.in));
        call.out_counts = u->counts;
        if (u->in_place)
            call.in.data = (double *)call.out.data +
                           sum_before(u->counts, g->rank);
        fill(&call.in, g->rank);
    }
    call.scratch_bytes = comm_scratch_bytes(g, &call);
    TRY(arena_take(arena, call.scratch_bytes, &call.scratch));
    comm_traffic_reset(g);
    TRY(comm_run(g, &call));
    u->sent[g->rank] = comm_traffic_bytes(g, u->kind);
    TRY(uneven_check(u, g, &call.out));
    return OK;
}

static status uneven_body(void *argument, struct group *world)
{
    struct arena arena;
    status result;

    arena_init(&arena, "test", 0);
    group_limit_ms(world, 20000);
    if (world->size == 6) world->node = 3;
    result = uneven_run(argument, world, &arena);
    arena_free(&arena);
    return result;
}

static const struct {
    int size;
    int64_t counts[RANKS_MOST];
} uneven_rows[] = {
    {1, {5}}, {1, {0}}, {2, {0, 7}}, {2, {1031, 0}}, {2, {0, 0}},
    {3, {1, 0, 1024}}, {4, {2048, 3, 1024, 0}}, {5, {0, 0, 9, 0, 0}},
    {6, {1, 2, 3, 4, 5, 6}}, {7, {100, 0, 5000, 1, 1, 0, 77}}};

TEST(blocks_may_differ_in_length_and_be_empty)
{
    for (int i = 0; i < ROWS(uneven_rows); i++)
        for (int a = 0; a < ALGORITHM_COUNT; a++)
            for (int mode = 0; mode < 4; mode++) {
                struct uneven u = {
                    .kind = mode < 2 ? COMM_REDUCE_SCATTER : COMM_ALL_GATHER,
                    .algorithm = (enum algorithm)a, .in_place = mode == 3,
                    .leaves = mode == 1 ? 12 : 0,
                    .counts = uneven_rows[i].counts};

                if (mode == 1 && a != ALGORITHM_AUTO && a != ALGORITHM_ORDERED)
                    continue;
                IS_OK(ranks_run(uneven_rows[i].size, uneven_body, &u));
            }
}

/* To the byte: straight, a rank sends every other rank's block of its roots, or
 * its own block to all; around a ring all but one block. */
TEST(bytes_of_uneven_blocks)
{
    static const int64_t counts[] = {2048, 3, 1024, 0};
    static const struct {
        enum comm_kind kind;
        enum algorithm algorithm;
        int leaves;
        int64_t sent[4]; /* elements */
    } rows[] = {
        {COMM_REDUCE_SCATTER, ALGORITHM_ORDERED, 0, {1027, 3072, 2051, 3075}},
        {COMM_REDUCE_SCATTER, ALGORITHM_ORDERED, 8, {1027, 3072, 2051, 3075}},
        {COMM_REDUCE_SCATTER, ALGORITHM_RING, 0, {1027, 3072, 2051, 3075}},
        {COMM_ALL_GATHER, ALGORITHM_ORDERED, 0, {6144, 9, 3072, 0}},
        {COMM_ALL_GATHER, ALGORITHM_RING, 0, {3072, 2051, 3075, 1027}},
    };

    for (int i = 0; i < ROWS(rows); i++) {
        struct uneven u = {.kind = rows[i].kind, .counts = counts,
                           .algorithm = rows[i].algorithm,
                           .leaves = rows[i].leaves};

        IS_OK(ranks_run(4, uneven_body, &u));
        for (int r = 0; r < 4; r++) EQUAL_INT(u.sent[r], 8 * rows[i].sent[r]);
    }
}

TEST(counts_that_do_not_fit_are_refused)
{
    static double data[8];
    static const int64_t counts[] = {2, 2, 2}, negative[] = {4, -1, 2};
    const struct tensor two = tensor_1d(data, DTYPE_F64, 2);
    const struct tensor five = tensor_1d(data, DTYPE_F64, 5);
    struct comm_call rows[] = {
        {.kind = COMM_REDUCE_SCATTER, .out = two, .in = five,
         .in_counts = counts},
        {.kind = COMM_ALL_GATHER, .out = five, .in = two,
         .out_counts = counts},
        {.kind = COMM_ALL_GATHER, .out = five, .in = two,
         .out_counts = negative},
    };

    for (int i = 0; i < ROWS(rows); i++)
        FAILS(ranks_run(3, sizes_body, &rows[i]), ERR_CONFIG,
              "3 ranks and the counts of their blocks");
}

TEST_MAIN(every_collective_is_right, sums_of_integers_are_right,
          large_ones_are_right, bytes_are_the_closed_forms,
          calls_that_do_not_fit_are_refused, all_to_all_takes_counts,
          blocks_may_differ_in_length_and_be_empty, bytes_of_uneven_blocks,
          counts_that_do_not_fit_are_refused)
