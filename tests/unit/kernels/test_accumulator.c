/* SPDX-License-Identifier: Apache-2.0 */
/* test_accumulator.c - products by an accumulator of few bits: every table has
 * the bits of a definition without shared code, what is not finite stays so,
 * and promotion lowers the error of a long sum as published. */
#include "kernels/element.h"
#include "tests/unit/kernels/product.h"

enum { LONG = 4096, SIDE = 24 };

/* Element of a matrix of any strides. */
static int64_t place(const struct tensor *t, int64_t row, int64_t column)
{
    return row * t->stride[0] + column * t->stride[1];
}

static double get(const struct tensor *t, int64_t row, int64_t column)
{
    return (double)element_get(t->data, t->dtype, place(t, row, column));
}

static void put(const struct tensor *t, int64_t i, double value)
{
    const int64_t columns = t->shape[1];

    element_set(t->data, t->dtype, place(t, i / columns, i % columns),
                (float)value);
}

/* ---- the definition once more ---- */

static double short_of(double x, int bits)
{
    int e;

    if (x == 0 || !isfinite(x)) return x;
    frexp(x, &e);
    return ldexp(trunc(ldexp(x, bits - e)), e - bits);
}

static double granule_of(const struct a_product *x, const int64_t at[2],
                         int64_t first, int64_t count)
{
    const int bits = x->p.accumulator->bits;
    double p[GRANULE], most = 0, sum = 0, plain = 0;
    int e;

    for (int64_t i = 0; i < count; i++) {
        const int64_t k = first + i;

        p[i] = get(&x->p.a, at[0], k) * get(&x->p.b, k, at[1]);
        plain += p[i];
        most = fmax(most, fabs(p[i]));
    }
    if (!isfinite(plain)) return plain;
    frexp(most, &e);
    for (int64_t i = 0; most > 0 && i < count; i++)
        sum += ldexp(trunc(ldexp(p[i], bits - e)), e - bits);
    return short_of(sum, bits);
}

static void segment_of(const struct a_product *x, const int64_t at[2],
                       const struct sum_segment *s, float *sum, bool *there)
{
    const struct accumulator *of = x->p.accumulator;
    double c = 0;

    for (int64_t k = 0; k < s->length;) {
        int64_t count = of->granule;
        const int64_t end =
            of->promote > 0 ? k / of->promote * of->promote + of->promote
                            : s->length;

        if (k + count > end) count = end - k;
        if (k + count > s->length) count = s->length - k;
        c = short_of(c + granule_of(x, at, s->first + k, count), of->bits);
        k += count;
        if (k < s->length && k < end) continue;
        *sum = *there ? *sum + (float)c : (float)c;
        *there = true;
        c = 0;
    }
}

/* An element of c; one leaf, or two. */
static float product_of(const struct a_product *x, int64_t row, int64_t column)
{
    const int64_t at[2] = {row, column};
    float sums[2] = {0};
    bool there[2] = {x->p.continues};

    if (x->p.continues) sums[0] = (float)get(&x->p.c, row, column);
    for (int64_t i = 0; i < x->order.segment_count; i++) {
        const struct sum_segment *s = &x->order.segments[i];

        segment_of(x, at, s, &sums[s->leaf], &there[s->leaf]);
    }
    float out = x->order.leaves == 2 ? sums[0] + sums[1] : sums[0];

    if (x->p.bias) out = out + (float)tensor_get(x->p.bias, column);
    if (x->p.left) out = (float)get(x->p.left, row, column) + out;
    return out;
}

static bool same(float a, float b)
{
    return memcmp(&a, &b, sizeof a) == 0 || (a != a && b != b);
}

static const struct matmul_case cases[] = {
    {1, 1, 1, 1, 1, false, false, false, false},
    {3, 33, 300, 1, 1, false, true, false, false},
    {5, 70, 97, 1, 3, false, false, true, false},
    {14, 32, 256, 2, 1, false, true, true, false},
    {7, 40, 513, 1, 2, true, false, false, false},
    {9, 31, 640, 2, 3, false, false, false, false},
};
static const struct accumulator units[] = {
    {14, 32, 128}, {14, 32, 0}, {2, 1, 1}, {24, 256, 512}, {6, 7, 21},
    {11, 16, 16}};

/* Now and then what is large, tiny, zero or not finite. */
static void make_hard(struct tensor t, bool wild)
{
    for (int64_t i = 0; i < tensor_count(&t); i++) {
        if (i % 37 == 5) put(&t, i, i % 2 ? 0x1p120 : 0x1p-120);
        if (i % 41 == 7) put(&t, i, i % 2 ? 0 : -0.0);
        if (wild && i % 97 == 11)
            put(&t, i, i % 3 ? (double)INFINITY : (double)NAN);
    }
}

static void compare_table(struct room *room, const struct kernels *table,
                          int kind, int *runs)
{
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (size_t u = 0; u < sizeof units / sizeof *units; u++) {
            struct stream *stream = room_next(room, i + u);
            struct a_product x;
            struct tensor want;

            product_build_of(&x, &room->arena, &cases[i], (int)(i + u) % 4,
                             (struct product_types){DTYPE_BF16, DTYPE_F32,
                                                    DTYPE_F32});
            x.p.accumulator = &units[u];
            if (kind > 0) make_hard(x.p.a, kind > 1);
            if (kind > 0) make_hard(x.p.b, kind > 1);
            want = tensor_2d(room_take(&room->arena, cases[i].m * cases[i].n,
                                       4), DTYPE_F32, cases[i].m, cases[i].n);
            for (int64_t j = 0; j < tensor_count(&want); j++)
                ((float *)want.data)[j] = product_of(&x, j / cases[i].n,
                                                     j % cases[i].n);
            assert_int_equal(table->matmul(stream, &x.p), OK);
            for (int64_t j = 0; j < tensor_count(&want); j++) {
                const float have = (float)get(
                    &x.p.c, j / cases[i].n, j % cases[i].n);
                const float must = ((float *)want.data)[j];

                if (!same(have, must))
                    fail_msg("case %zu, unit %zu, kind %d, element %lld: %a, "
                             "not %a", i, u, kind, (long long)j, (double)have,
                             (double)must);
            }
            ++*runs;
        }
}

static void test_tables_have_the_definition(void **state)
{
    struct room room;
    int runs = 0;

    (void)state;
    room_begin(&room, FEATURES_ALL);
    for (int isa = ISA_PLAIN; isa < ISA_COUNT; isa++)
        for (int product = PRODUCT_PAIRS; product <= PRODUCT_TILES; product++) {
            struct kernels table;

            if (kernels_get_product(&table, DTYPE_BF16, (enum isa)isa,
                                    (enum product)product) != OK) {
                status_clear();
                continue;
            }
            for (int kind = 0; kind < 3; kind++)
                compare_table(&room, &table, kind, &runs);
        }
    assert_true(runs > 0);
    room_end(&room);
}

/* ---- promotion ---- */

/* To E4M3, of normal numbers that are not near its ends. */
static double to_e4m3(double x)
{
    int e;

    frexp(x, &e);
    if (e < -5) e = -5;
    return ldexp(rint(ldexp(x, 4 - e)), e - 4);
}

static void fill_normal(struct tensor t, uint64_t seed)
{
    for (int64_t i = 0; i < tensor_count(&t); i++) {
        const double u = (room_number(&seed) + 1) / 2;
        const double v = room_number(&seed);

        put(&t, i, to_e4m3(sqrt(-2 * log(1 - u)) *
                           cos(3.14159265358979 * v)));
    }
}

static double error_of(struct room *room, int promote)
{
    const struct accumulator unit = {14, 32, promote};
    const struct matmul_case form = {SIDE, SIDE, LONG, 1, 1, false, false,
                                     false, false};
    struct stream *stream = room_next(room, 1);
    struct a_product x;
    struct kernels table;
    double apart = 0, all = 0;

    product_build_of(&x, &room->arena, &form, 0,
                     (struct product_types){DTYPE_BF16, DTYPE_F32, DTYPE_F32});
    fill_normal(x.p.a, 3);
    fill_normal(x.p.b, 4);
    x.p.accumulator = &unit;
    assert_int_equal(kernels_get(&table, DTYPE_BF16, ISA_AUTO), OK);
    assert_int_equal(table.matmul(stream, &x.p), OK);
    for (int64_t i = 0; i < SIDE * SIDE; i++) {
        double exact = 0, difference;

        for (int64_t k = 0; k < LONG; k++)
            exact += get(&x.p.a, i / SIDE, k) * get(&x.p.b, k, i % SIDE);
        difference = get(&x.p.c, i / SIDE, i % SIDE) - exact;
        apart += difference * difference;
        all += exact * exact;
    }
    return sqrt(apart / all);
}

/* An emulation of that unit has 3.2e-3 without promotion and 1.2e-4 with N_C =
 * 128: DeepSeek-AI 2024, arXiv:2412.19437, section 3.3.2, says why. */
static void test_promotion_is_worth_a_factor_of_27(void **state)
{
    struct room room;

    (void)state;
    room_begin(&room, FEATURES_ALL);
    const double never = error_of(&room, 0), often = error_of(&room, 128);

    room_end(&room);
    if (fabs(never - 3.2e-3) > 0.5e-3 || fabs(often - 1.2e-4) > 0.2e-4 ||
        fabs(never / often - 27) > 3)
        fail_msg("%.3g without promotion, %.3g with it: a factor of %.1f",
                 never, often, never / often);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tables_have_the_definition),
        cmocka_unit_test(test_promotion_is_worth_a_factor_of_27),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
