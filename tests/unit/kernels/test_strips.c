/* SPDX-License-Identifier: Apache-2.0 */
/* test_strips.c - products of a weight in strips have the bits of those of the
 * weight as it was, and so have its rows. */
#include "tests/unit/kernels/product.h"

/* k is a multiple of 32 in every segment, so that all grains fit. */
static const struct matmul_case cases[] = {
    {1, 33, 256, 1, 1, false, true, false, false},
    {1, 288, 288, 1, 1, false, false, true, false},
    {1, 499, 640, 1, 1, false, true, true, false},
    {1, 70, 768, 4, 1, false, true, true, true},
    {1, 499, 768, 4, 1, false, true, true, false},
    {1, 803, 1536, 8, 1, false, true, false, true},
    {2, 96, 3072, 4, 1, false, false, true, false},
    {5, 31, 1536, 3, 1, false, false, false, false},
    {6, 64, 320, 1, 1, true, false, false, false},
    {7, 100, 768, 2, 1, false, true, false, false},
    {16, 65, 2560, 1, 1, false, false, true, true},
    {17, 128, 640, 1, 1, false, false, false, false},
    {70, 200, 5120, 8, 1, false, true, true, false},
    {130, 40, 288, 1, 1, false, false, false, false},
};

static const struct { enum dtype dtype; enum product product; } types[] = {
    {DTYPE_F32, PRODUCT_PAIRS}, {DTYPE_BF16, PRODUCT_PAIRS},
    {DTYPE_BF16, PRODUCT_TILES}};

/* b is the transpose of a dense weight; holes between segments are 32 wide. */
static void product_make(struct a_product *x, struct arena *arena,
                         const struct matmul_case *c, enum dtype dtype)
{
    const struct tensor w = tensor_2d(
        room_numbers(arena, c->n * c->k, dtype, 9), dtype, c->n, c->k);

    product_build(x, arena, c, 0, dtype);
    for (int i = 0; i < x->order.segment_count; i++)
        x->segments[i].length = x->segments[i].length / 32 * 32;
    x->p.b = tensor_transpose(w);
}

static void rows_check(const struct kernels *table, const struct tensor *turned,
                       const struct tensor *plain)
{
    const int64_t cols = plain->shape[1];
    const size_t bytes = (size_t)(cols * dtype_bytes(plain->dtype));
    char row[8192 * 4];

    for (int64_t i = 0; i < plain->shape[0]; i++) {
        strips_row(&table->strips, turned, i, row);
        assert_memory_equal(row, tensor_rows(*plain, i, 1).data, bytes);
    }
}

static void case_check(struct arena *arena, struct stream *stream, size_t i,
                       const struct kernels *table)
{
    struct a_product want, have;

    if (table->dtype == DTYPE_BF16 && cases[i].continues) return;
    product_make(&want, arena, &cases[i], table->dtype);
    product_make(&have, arena, &cases[i], table->dtype);
    assert_true(strips_fit(&table->strips, have.p.order));
    const struct tensor w = tensor_transpose(have.p.b);

    assert_true(table->strips.turn(stream, w));
    have.p.strips = true;
    const struct tensor plain = tensor_transpose(want.p.b);

    if (w.shape[0] >= table->strips.rows)
        assert_true(memcmp(w.data, plain.data,
                           (size_t)(w.shape[1] * table->strips.rows *
                                    dtype_bytes(w.dtype))) != 0);
    rows_check(table, &w, &plain);
    assert_int_equal(table->matmul(stream, &want.p), OK);
    assert_int_equal(table->matmul(stream, &have.p), OK);
    if (memcmp(have.p.c.data, want.p.c.data, c_bytes(&want)) != 0)
        fail_msg("case %zu: %s, type %d, product %d", i, table->backend,
                 (int)table->dtype, (int)table->product);
}

static void strips_check(int features)
{
    struct room room;
    struct kernels table;

    room_begin(&room, features);
    for (size_t t = 0; t < sizeof types / sizeof *types; t++)
        for (enum isa isa = ISA_PLAIN; isa < ISA_COUNT; isa++) {
            /* Only tables of AVX-512 ask for features. */
            if (features == 0 && isa != ISA_AVX512) continue;
            if (kernels_get_product(&table, types[t].dtype, isa,
                                    types[t].product) != OK) {
                status_clear();
                continue;
            }
            if (table.strips.rows == 0) continue; /* it has none */
            for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
                struct stream *stream = room_next(&room, i);

                case_check(&room.arena, stream, i, &table);
            }
        }
    room_end(&room);
}

static void test_strips_change_no_bit(void **state)
{
    (void)state;
    strips_check(FEATURES_ALL | FEATURE_EVEN_SLOW);
}

/* As on a processor without the instructions. */
static void test_emulated_strips_change_no_bit(void **state)
{
    (void)state;
    strips_check(0);
}

/* Weights that cannot lie in strips are refused. */
static void test_sums_that_do_not_fit(void **state)
{
    const struct sum_segment segments[] = {{0, 144, 0}, {144, 144, 1}};
    const struct sum_order order = {segments, 2, 2};
    const struct strips grains[] = {{.rows = 32, .grain = 1},
                                    {.rows = 32, .grain = 2},
                                    {.rows = 32, .grain = 32},
                                    {.rows = 0, .grain = 1}};

    (void)state;
    assert_true(strips_fit(&grains[0], &order));
    assert_true(strips_fit(&grains[1], &order));
    assert_false(strips_fit(&grains[2], &order));
    assert_false(strips_fit(&grains[3], &order));
    assert_int_equal(kernels_reference_f64.strips.rows, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_strips_change_no_bit),
        cmocka_unit_test(test_emulated_strips_change_no_bit),
        cmocka_unit_test(test_sums_that_do_not_fit),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
