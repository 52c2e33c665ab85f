/* SPDX-License-Identifier: Apache-2.0 */
/* test_matmul.c - the fast products equal the reference in every bit, the
 * reference equals its definition, and float64 says that it is a product. */
#include "tests/unit/kernels/product.h"

static const struct matmul_case cases[] = {
    {1, 1, 1, 1, 1, false, false, false, false},
    {1, 33, 300, 1, 1, false, true, false, false},
    {3, 7, 5, 1, 1, false, false, false, false},
    {13, 31, 255, 1, 1, false, false, true, false},
    {14, 32, 256, 1, 1, false, true, true, false},
    {15, 64, 257, 1, 1, false, false, true, true},
    {29, 65, 640, 1, 3, true, false, false, false},
    {37, 40, 513, 1, 1, true, true, true, false},
    {40, 70, 640, 2, 1, false, false, false, false},
    {40, 70, 768, 4, 1, false, true, true, true},
    {17, 48, 1920, 3, 1, false, false, true, true},
    {18, 48, 1925, 5, 1, false, false, true, true},
    {19, 65, 1300, 7, 2, false, true, false, false},
    {64, 97, 1290, 3, 2, false, true, false, false},
    {30, 50, 5120, 4, 2, false, false, true, true},
    {23, 45, 3841, 8, 3, false, true, true, false},
    {16, 20, 64, 64, 1, false, false, false, false},
    {9, 33, 4000, 32, 2, false, false, false, true},
    {20, 30, 6400, 2, 30, false, false, true, true},
    {130, 200, 2600, 1, 1, false, false, true, true},
    {260, 70, 300, 1, 1, false, true, false, false},
    {5, 400, 2100, 1, 1, true, false, false, false},
    {130, 96, 2600, 4, 2, false, false, true, false},
    {500, 64, 1100, 2, 3, false, false, false, false},
    {330, 64, 300, 4, 1, false, false, false, true},
    {64, 64, 1200, 1, 2, true, false, false, false},
};

/* Rows that follow each other: pages apart, and results that start lines. */
static const struct matmul_case dense[] = {
    {1024, 64, 90, 1, 1, false, false, true, false},
    {1040, 1024, 10, 1, 1, false, false, false, false},
    {1040, 1024, 10, 2, 1, false, false, true, false},
    {8, 96, 21500, 4, 1, false, false, false, false}, /* narrow and long */
    {1, 64, 22000, 1, 1, false, false, false, false},
    {6, 96, 50000, 1, 2, true, false, true, false},
};

/* Sums over many rows of both into little: where the number of threads allows,
 * they share leaves in form 1. */
static const struct matmul_case narrow[] = {
    {45, 64, 2600, 8, 2, false, false, false, false},
    {60, 32, 700, 4, 1, false, false, false, false},
    {60, 32, 732, 6, 1, false, false, false, false},
    {45, 64, 2640, 12, 2, false, false, true, false},
    {100, 96, 5200, 4, 3, false, false, false, false},
    {20, 64, 900, 2, 1, false, false, false, false},
    {128, 32, 3100, 2, 1, false, false, false, false},
    {17, 32, 1100, 2, 1, false, false, false, false},
    {33, 64, 6500, 64, 1, false, false, false, false},
    {17, 32, 1100, 2, 1, false, true, false, false},
    {30, 128, 2100, 16, 4, false, false, false, false},
    {40, 96, 1300, 8, 1, false, true, false, false},
    {200, 384, 2944, 32, 1, false, false, false, false}, /* blocks of rows */
    {45, 64, 2600, 8, 2, false, false, true, false},
    {60, 96, 1300, 4, 1, false, false, false, true},
    {200, 384, 2944, 8, 2, false, false, false, true},
};
enum { POOL_MOST = 8 };

/* Whether case i is run by so many threads: each form by 1 to 4 in turn, or
 * form 1 alone by all that there are pools of. */
static bool is_tried(bool all, size_t i, int form, int threads)
{
    if (all) return threads <= 4 || threads == POOL_MOST;
    return threads == 1 + (int)((i + (size_t)form) % 4);
}

static void compare_with_reference(const struct matmul_case *list,
                                   size_t count, bool all)
{
    struct arena arena;
    struct threads *threads[POOL_MOST + 1] = {0};

    arena_init(&arena, "test", 0);
    for (int n = 1; n <= POOL_MOST; n++)
        assert_int_equal(threads_build(&threads[n], n), OK);
    for (size_t i = 0; i < count; i++) {
        for (int form = all ? 1 : 0; form < (all ? 2 : 4); form++) {
            struct a_product want, have, fresh;
            struct stream plain = {0};

            arena_reset(&arena);
            product_build(&want, &arena, &list[i], form, DTYPE_F32);
            product_twin(&fresh, &arena, &want);
            product_twin(&have, &arena, &want);
            kernels_reference_f32.matmul(&plain, &want.p);
            for (int run = 0; run < ISA_COUNT * POOL_MOST; run++) {
                const enum isa isa = (enum isa)(run / POOL_MOST);
                const int n = run % POOL_MOST + 1;
                struct kernels table;
                struct stream stream;

                if (!is_tried(all, i, form, n) || !room_table(&table, isa))
                    continue;
                product_again(&have, &fresh);
                stream = room_stream(threads[n], &table);
                assert_int_equal(table.matmul(&stream, &have.p), OK);
                if (memcmp(have.p.c.data, want.p.c.data, c_bytes(&want)))
                    fail_msg("case %zu form %d isa %s threads %d", i, form,
                             isa_name(isa), n);
            }
        }
    }
    for (int n = 1; n <= POOL_MOST; n++) threads_free(threads[n]);
    arena_free(&arena);
}

static void test_fast_equals_reference(void **state)
{
    (void)state;
    compare_with_reference(cases, sizeof cases / sizeof *cases, false);
    compare_with_reference(narrow, sizeof narrow / sizeof *narrow, true);
}

static void test_dense_rows(void **state)
{
    (void)state;
    row_pad = 0;
    compare_with_reference(dense, sizeof dense / sizeof *dense, false);
    row_pad = PAD;
}

/* A large product that needs several blocks of rows and columns and a stack
 * that waits between chunks. */
static void test_blocks_equal_reference(void **state)
{
    static const struct matmul_case big[] = {
        {40, 4200, 300, 2, 1, false, false, false, false},
        {600, 2100, 1100, 4, 1, false, false, false, true},
    };
    struct arena arena;

    (void)state;
    arena_init(&arena, "test", 0);
    for (size_t i = 0; i < sizeof big / sizeof *big; i++) {
        struct a_product want, have;
        struct kernels table;
        struct stream stream = {0};
        struct threads *threads = NULL;

        product_build(&want, &arena, &big[i], (int)i, DTYPE_F32);
        product_build(&have, &arena, &big[i], (int)i, DTYPE_F32);
        assert_int_equal(threads_build(&threads, 2), OK);
        stream.threads = threads;
        kernels_reference_f32.matmul(&stream, &want.p);
        assert_true(room_table(&table, ISA_AUTO));
        stream = room_stream(threads, &table);
        table.matmul(&stream, &have.p);
        assert_memory_equal(have.p.c.data, want.p.c.data, c_bytes(&want));
        threads_free(threads);
        arena_reset(&arena);
    }
    arena_free(&arena);
}

/* The same product again and again on more threads than cores: nothing that a
 * slow one still reads may be written by one that is blocks ahead. */
static void repeat(const struct matmul_case *item, int form, int rounds)
{
    struct arena arena;
    struct threads *threads = NULL;
    struct a_product want, have, fresh;
    struct kernels table;
    struct stream stream = {0};

    arena_init(&arena, "test", 0);
    assert_int_equal(threads_build(&threads, 2 * threads_cores()), OK);
    assert_true(room_table(&table, ISA_AUTO));
    product_build(&want, &arena, item, form, DTYPE_F32);
    product_twin(&have, &arena, &want);
    product_twin(&fresh, &arena, &want);
    stream = room_stream(NULL, &table);
    assert_int_equal(table.matmul(&stream, &want.p), OK);
    stream = room_stream(threads, &table);
    for (int i = 0; i < rounds; i++) {
        product_again(&have, &fresh);
        assert_int_equal(table.matmul(&stream, &have.p), OK);
        if (memcmp(have.p.c.data, want.p.c.data, c_bytes(&want)))
            fail_msg("%lld x %lld, round %d", (long long)want.p.c.shape[0],
                     (long long)want.p.c.shape[1], i);
    }
    threads_free(threads);
    arena_free(&arena);
}

/* Threads that share columns, or rows of operands read in place, never meet;
 * the last block is narrower, or lower. */
static void test_threads_that_run_ahead(void **state)
{
    static const struct matmul_case wide = {250, 8200, 40, 1, 1,
                                            false, false, false, false};
    static const struct matmul_case tall = {890, 800, 9000, 16, 1,
                                            false, false, false, false};

    (void)state;
    repeat(&wide, 0, 60);
    repeat(&tall, 1, 12);
}

static void test_nothing_is_a_product(void **state)
{
    static const struct matmul_case small = {4, 40, 64, 2, 1,
                                             false, false, false, false};
    struct arena arena;

    (void)state;
    arena_init(&arena, "test", 0);
    for (int side = 0; side < 2; side++) {
        struct a_product x;
        struct kernels table;
        struct stream stream;

        product_build(&x, &arena, &small, 0, DTYPE_F32);
        x.p.c.shape[side] = 0;
        if (side == 0) x.p.a.shape[0] = 0;
        else x.p.b.shape[1] = 0;
        assert_int_equal(kernels_get(&table, DTYPE_F32, ISA_AUTO), OK);
        stream = room_stream(NULL, &table);
        assert_int_equal(table.matmul(&stream, &x.p), OK);
    }
    arena_free(&arena);
}

/* The sums of sum_order, one element at a time and with no shared code. */
static float tree(const float *leaves, int count)
{
    if (count == 1) return leaves[0];
    int left = 1; /* the largest power of two below */

    while (2 * left < count) left *= 2;
    return tree(leaves, left) + tree(leaves + left, count - left);
}

static float element(const struct a_product *x, int64_t row, int64_t column)
{
    const struct tensor *a = &x->p.a, *b = &x->p.b;
    float leaves[LEAVES_MAX];
    bool begun[LEAVES_MAX] = {false};

    for (int64_t i = 0; i < x->order.segment_count; i++) {
        const struct sum_segment *s = &x->segments[i];

        for (int64_t at = 0; at < s->length; at += 256) {
            float chain = 0;

            for (int64_t k = s->first + at;
                 k < s->first + s->length && k < s->first + at + 256; k++)
                chain = __builtin_fmaf(
                    ((float *)a->data)[row * a->stride[0] + k * a->stride[1]],
                    ((float *)b->data)[k * b->stride[0] +
                                       column * b->stride[1]],
                    chain);
            leaves[s->leaf] = begun[s->leaf] ? leaves[s->leaf] + chain : chain;
            begun[s->leaf] = true;
        }
    }
    return tree(leaves, x->order.leaves);
}

static void test_reference_is_its_definition(void **state)
{
    struct arena arena;

    (void)state;
    if (SANITIZED_THREADS) skip(); /* has none */
    arena_init(&arena, "test", 0);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct matmul_case plain = cases[i];
        struct a_product x;
        struct stream stream = {0};

        plain.continues = plain.bias = plain.left = plain.in_place = false;
        product_build(&x, &arena, &plain, (int)i % 4, DTYPE_F32);
        kernels_reference_f32.matmul(&stream, &x.p);
        for (int64_t row = 0; row < plain.m; row += 7) {
            for (int64_t column = 0; column < plain.n; column += 5) {
                float want = element(&x, row, column);

                assert_memory_equal((float *)x.p.c.data +
                                        row * x.p.c.stride[0] + column,
                                    &want, sizeof want);
            }
        }
        arena_reset(&arena);
    }
    arena_free(&arena);
}

/* float64 with continues, bias and left against plain sums. */
static void test_float64_is_a_product(void **state)
{
    const struct matmul_case c = {11, 37, 700, 1, 1, true, true, true, false};
    struct arena arena;
    struct a_product x;
    struct stream stream = {0};
    double *before;

    (void)state;
    if (SANITIZED_THREADS) skip(); /* has none */
    arena_init(&arena, "test", 0);
    product_build(&x, &arena, &c, 2, DTYPE_F64);
    before = room_take(&arena, (int64_t)c_bytes(&x), 1);
    memcpy(before, x.p.c.data, c_bytes(&x));
    kernels_reference_f64.matmul(&stream, &x.p);
    for (int64_t i = 0; i < c.m; i++) {
        for (int64_t j = 0; j < c.n; j++) {
            int64_t at = i * x.p.c.stride[0] + j;
            double want = before[at] + ((double *)x.bias.data)[j] +
                          ((double *)x.left.data)[i * x.left.stride[0] + j];

            for (int64_t k = 0; k < c.k; k++)
                want += ((double *)x.p.a.data)[i * x.p.a.stride[0] + k] *
                        ((double *)x.p.b.data)[k + j * x.p.b.stride[1]];
            assert_true(fabs(((double *)x.p.c.data)[at] - want) < 1e-12);
        }
    }
    arena_free(&arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fast_equals_reference),
        cmocka_unit_test(test_dense_rows),
        cmocka_unit_test(test_blocks_equal_reference),
        cmocka_unit_test(test_threads_that_run_ahead),
        cmocka_unit_test(test_nothing_is_a_product),
        cmocka_unit_test(test_reference_is_its_definition),
        cmocka_unit_test(test_float64_is_a_product),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
