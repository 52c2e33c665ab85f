/* SPDX-License-Identifier: Apache-2.0 */
/* test_ordered_sums.c - mirrors src/comm/ordered_sums.c: the bits of the grid's
 * tree, whatever the number of ranks. */
#include "comm/traffic.h"
#include "mesh/grid.h"
#include "tests/test.h"

enum { N = 4507, LEAVES_MOST = 64 };

struct reduction_case {
    int leaves;
    bool scatters, in_place;
};

static double leaf_value(int leaf, int64_t i)
{
    const uint32_t mixed = (uint32_t)(leaf * 7919 + i * 104729 + 17) *
                           2654435761u;

    return ((double)mixed - 2147483648.0) / (double)(1 + mixed % 1000);
}

static float tree_f32(float *leaf, int leaves)
{
    for (int width = 1; width < leaves; width *= 2)
        for (int i = 0; i + width < leaves; i += 2 * width)
            leaf[i] = leaf[i] + leaf[i + width];
    return leaf[0];
}

/* The tree's definition, once for float64 from the grid itself. */
static double correct(enum dtype dtype, int leaves, int64_t i)
{
    double wide[LEAVES_MOST];
    float narrow[LEAVES_MOST];

    for (int l = 0; l < leaves; l++) {
        wide[l] = leaf_value(l, i);
        narrow[l] = (float)wide[l];
    }
    return dtype == DTYPE_F64 ? grid_tree(wide, leaves)
                              : (double)tree_f32(narrow, leaves);
}

/* Node [first, first + span) of the tree, clipped. */
static double node(enum dtype dtype, const struct comm_root *root, int64_t i)
{
    double wide[LEAVES_MOST];
    float narrow[LEAVES_MOST];

    for (int l = 0; l < root->leaves; l++) {
        wide[l] = leaf_value(root->first + l, i);
        narrow[l] = (float)wide[l];
    }
    return dtype == DTYPE_F64 ? grid_tree(wide, root->leaves)
                              : (double)tree_f32(narrow, root->leaves);
}

static status check_bits(const struct tensor *out, int leaves, int64_t first,
                         const struct group *g)
{
    for (int64_t i = 0; i < tensor_count(out); i++) {
        const double found = tensor_get(out, i);
        const double right = correct(out->dtype, leaves, first + i);

        if (memcmp(&found, &right, sizeof found) != 0)
            FAIL(ERR_VERIFY, "%d leaves on %d ranks: element %lld of rank %d "
                 "is %a, the tree gives %a", leaves, g->size, (long long)i,
                 g->rank, found, right);
    }
    return OK;
}

static status case_run(const struct reduction_case *c, struct group *g,
                       struct arena *arena, enum dtype dtype)
{
    const int64_t n = c->scatters ? (int64_t)N * g->size : N;
    struct comm_root roots[COMM_ROOTS_MAX];
    const int count = comm_roots(c->leaves, g->size, g->rank, roots);
    struct comm_call call = {
        .kind = c->scatters ? COMM_REDUCE_SCATTER : COMM_ALL_REDUCE,
        .leaves = c->leaves};
    void *in, *out;

    TRY(arena_take_array(arena, (size_t)(count * n), sizeof(double), &in));
    TRY(arena_take_array(arena, N, sizeof(double), &out));
    call.in = tensor_1d(in, dtype, count * n);
    call.out = tensor_1d(c->in_place ? in : out, dtype, N);
    if (c->in_place && c->scatters)
        call.out.data = (char *)in + (int64_t)g->rank * N * dtype_bytes(dtype);
    for (int r = 0; r < count; r++)
        for (int64_t i = 0; i < n; i++)
            tensor_set(&call.in, r * n + i, node(dtype, &roots[r], i));
    TRY(comm_run(g, &call));
    TRY(check_bits(&call.out, c->leaves,
                   c->scatters ? (int64_t)g->rank * N : 0, g));
    return OK;
}

static status case_body(void *argument, struct group *world)
{
    struct arena arena;
    status result;

    arena_init(&arena, "test", 0);
    group_limit_ms(world, 20000);
    result = case_run(argument, world, &arena, DTYPE_F32);
    if (result == OK) result = case_run(argument, world, &arena, DTYPE_F64);
    arena_free(&arena);
    return result;
}

TEST(bits_do_not_depend_on_the_ranks)
{
    static const int leaves[] = {1, 2, 3, 4, 5, 8, 16, 64};

    for (int l = 0; l < ROWS(leaves); l++)
        for (int size = 1; size <= leaves[l] && size <= 9; size++)
            for (int mode = 0; mode < 4; mode++) {
                struct reduction_case c = {leaves[l], mode & 1, mode & 2};

                if (c.scatters && size > 4) continue;
                IS_OK(ranks_run(size, case_body, &c));
            }
}

/* ---- rows that are cut alike ---- */

enum { ROWS_MOST = 70 };

struct rows_case {
    int leaves, size, rows;
    const int64_t *counts; /* NULL: blocks of 9 */
    int64_t sent[8];
};

static int64_t block_count(const struct rows_case *c, int rank)
{
    return c->counts != NULL ? c->counts[rank] : 9;
}

static int64_t count_before(const struct rows_case *c, int rank)
{
    int64_t sum = 0;

    for (int i = 0; i < rank; i++) sum += block_count(c, i);
    return sum;
}

/* Element i of row p, in one sequence of numbers. */
static int64_t row_element(int64_t width, int64_t p, int64_t i)
{
    return p * width + i;
}

static status rows_scatter(struct rows_case *c, struct group *g,
                           struct arena *arena, void *out)
{
    const int64_t width = count_before(c, g->size), rows = c->rows;
    const int64_t mine = block_count(c, g->rank);
    struct comm_root roots[COMM_ROOTS_MAX];
    const int count = comm_roots(c->leaves, g->size, g->rank, roots);
    struct comm_call call = {.kind = COMM_REDUCE_SCATTER,
                             .rows = rows,
                             .leaves = c->leaves,
                             .in_counts = c->counts};
    void *in;

    TRY(arena_take_array(arena, (size_t)(count * rows * width),
                         sizeof(float), &in));
    call.in = tensor_1d(in, DTYPE_F32, count * rows * width);
    call.out = tensor_1d(out, DTYPE_F32, rows * mine);
    for (int r = 0; r < count; r++)
        for (int64_t i = 0; i < rows * width; i++)
            tensor_set(&call.in, r * rows * width + i,
                       node(DTYPE_F32, &roots[r], i));
    comm_traffic_reset(g);
    TRY(comm_run(g, &call));
    c->sent[g->rank] = comm_traffic_bytes(g, COMM_REDUCE_SCATTER);
    for (int64_t p = 0; p < rows; p++) {
        const struct tensor row = tensor_1d((float *)out + p * mine,
                                            DTYPE_F32, mine);

        TRY(check_bits(&row, c->leaves,
                       row_element(width, p, count_before(c, g->rank)), g));
    }
    return OK;
}

/* Puts the parts that rows_scatter left together again. */
static status rows_gather(const struct rows_case *c, struct group *g,
                          struct arena *arena, void *part)
{
    const int64_t width = count_before(c, g->size), rows = c->rows;
    struct comm_call call = {
        .kind = COMM_ALL_GATHER, .rows = rows, .out_counts = c->counts};
    void *out;

    TRY(arena_take_array(arena, (size_t)(rows * width), sizeof(float), &out));
    call.in = tensor_1d(part, DTYPE_F32, rows * block_count(c, g->rank));
    call.out = tensor_1d(out, DTYPE_F32, rows * width);
    TRY(comm_run(g, &call));
    TRY(check_bits(&call.out, c->leaves, 0, g));
    return OK;
}

static status rows_body(void *argument, struct group *world)
{
    struct rows_case *c = argument;
    struct arena arena;
    status result;
    void *part;

    arena_init(&arena, "test", 0);
    group_limit_ms(world, 20000);
    result = arena_take_array(&arena, (size_t)(ROWS_MOST * 4000),
                              sizeof(float), &part);
    if (result == OK) result = rows_scatter(c, world, &arena, part);
    if (result == OK) result = rows_gather(c, world, &arena, part);
    arena_free(&arena);
    return result;
}

TEST(rows_are_cut_alike)
{
    static const int64_t uneven[] = {5, 0, 3, 1, 7, 0}, long_one[] = {1, 3500};
    static const struct rows_case cases[] = {
        {1, 1, 70, uneven, {0}}, {2, 2, 70, uneven, {0}},
        {2, 2, 1, uneven, {0}}, {4, 2, 3, long_one, {0}},
        {3, 3, 70, NULL, {0}}, {8, 3, 64, uneven, {0}},
        {16, 6, 7, uneven, {0}}, {4, 4, 70, uneven, {0}}};

    for (int i = 0; i < ROWS(cases); i++) {
        struct rows_case c = cases[i];

        IS_OK(ranks_run(c.size, rows_body, &c));
        for (int r = 0; r < c.size; r++) {
            struct comm_root roots[COMM_ROOTS_MAX];
            const int64_t others = count_before(&c, c.size) -
                                   block_count(&c, r);

            EQUAL_INT(c.sent[r], 4 * c.rows * others *
                      comm_roots(c.leaves, c.size, r, roots));
        }
    }
}

static status ring_rows_body(void *argument, struct group *world)
{
    static float data[2][8];
    const struct comm_call call = {
        .kind = COMM_ALL_GATHER, .algorithm = ALGORITHM_RING, .rows = 2,
        .in = tensor_1d(data[0], DTYPE_F32, 4),
        .out = tensor_1d(data[1], DTYPE_F32, 8)};

    (void)argument;
    return comm_run(world, &call);
}

TEST(only_ordered_calls_take_rows)
{
    FAILS(ranks_run(2, ring_rows_body, NULL), ERR_CONFIG,
          "all-gather by ring on group world: 2 rows");
}

/* A test that cannot fail proves nothing: with 3 leaves, and 8, order shows. */
TEST(order_shows_in_the_bits)
{
    int differing = 0;

    for (int64_t i = 0; i < N; i++) {
        float sum = 0;

        for (int l = 0; l < 8; l++) sum += (float)leaf_value(l, i);
        differing += sum != (float)correct(DTYPE_F32, 8, i);
    }
    CHECK(differing > N / 4);
}

TEST(roots_are_the_largest_subtrees)
{
    static const struct {
        int leaves, size, rank, count;
        struct comm_root roots[4];
    } rows[] = {
        {8, 1, 0, 1, {{0, 8, 8}}},
        {8, 2, 1, 1, {{4, 4, 4}}},
        {8, 3, 0, 1, {{0, 2, 2}}},
        {8, 3, 1, 2, {{2, 2, 2}, {4, 1, 1}}},
        {8, 3, 2, 2, {{5, 1, 1}, {6, 2, 2}}},
        {3, 1, 0, 1, {{0, 3, 4}}},
        {3, 2, 0, 1, {{0, 1, 1}}},
        {3, 2, 1, 2, {{1, 1, 1}, {2, 1, 2}}},
        {3, 3, 2, 1, {{2, 1, 2}}},
    };

    for (int i = 0; i < ROWS(rows); i++) {
        struct comm_root roots[COMM_ROOTS_MAX];
        const int count = comm_roots(rows[i].leaves, rows[i].size,
                                     rows[i].rank, roots);

        EQUAL_INT(count, rows[i].count);
        for (int r = 0; r < count; r++) {
            EQUAL_INT(roots[r].first, rows[i].roots[r].first);
            EQUAL_INT(roots[r].leaves, rows[i].roots[r].leaves);
            EQUAL_INT(roots[r].span, rows[i].roots[r].span);
        }
    }
}

TEST_MAIN(bits_do_not_depend_on_the_ranks, order_shows_in_the_bits,
          roots_are_the_largest_subtrees, rows_are_cut_alike,
          only_ordered_calls_take_rows)
