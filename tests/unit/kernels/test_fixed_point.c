/* SPDX-License-Identifier: Apache-2.0 */
/* test_fixed_point.c - mirrors src/kernels/cpu/fixed_point.c: every instruction
 * set, and the emulated kernels of CUDA, have the bits of the reference; and
 * the reference is what long integers say. */
#include <math.h>
#include <string.h>
#include "base/threads.h"
#include "kernels/kernels.h"
#include "tests/test.h"

enum { MOST = 33001 };
__extension__ typedef __int128 wide;

/* Magnitudes from denormals to the largest, both signs, and what is none. */
static float value(int i)
{
    static const float special[] = {
        0.0f, -0.0f, 1.0f, -1.0f, 0.5f, -0.5f, 1.5f, 2.5f, -2.5f, 0x1p-149f,
        -0x1p-149f, 0x1p-126f, 0x1.fffffep127f, -0x1.fffffep127f, INFINITY,
        -INFINITY, NAN};
    const uint32_t mixed = (uint32_t)(i * 7919 + 5) * 2654435761u;
    const float unit = (float)(((double)mixed - 2147483648.0) / 2147483648.0);

    if (i % 5 == 0) return special[i / 5 % ROWS(special)];
    return i % 5 == 1 ? unit : ldexpf(unit, (int)(mixed % 90) - 45);
}

/* The integer of a number, from its bits alone: mantissa times a power. */
static wide wanted_integer(float v, int exponent, int spare)
{
    const wide most = (wide)1 << (61 - 2 * spare);
    const wide mark = (wide)1 << (62 - spare);
    wide whole, half;
    int power;

    if (!isfinite(v)) return mark;
    const wide mantissa = (wide)(frexpf(v, &power) * 0x1p24f);

    power += exponent - 24;
    if (power > 62) return mantissa == 0 ? 0 : mark;
    if (power >= 0) whole = mantissa * ((wide)1 << power);
    else if (power < -40) whole = 0;
    else {
        const wide unit = (wide)1 << -power;

        whole = mantissa / unit;
        half = mantissa % unit;
        if (half < 0) half = -half;
        if (2 * half > unit || (2 * half == unit && whole % 2 != 0))
            whole += mantissa < 0 ? -1 : 1;
    }
    return whole > most || whole < -most ? mark : whole;
}

static struct fixed form(int exponent, int spare, bool first)
{
    return (struct fixed){.scale = ldexp(1, exponent), .spare = spare,
                          .first = first};
}

TEST(integers_are_those_of_long_arithmetic)
{
    static const int exponents[] = {40, 0, 23, -10, 60, 100};
    struct stream stream = {0};

    for (int e = 0; e < ROWS(exponents); e++)
        for (int spare = 0; spare <= FIXED_SPARE_MOST; spare += 3)
            for (int i = 0; i < 2000; i++) {
                float v = value(i);
                int64_t sum = 77;

                IS_OK(kernels_reference_f32.fixed_add(
                    &stream, tensor_1d(&sum, DTYPE_I64, 1),
                    tensor_1d(&v, DTYPE_F32, 1),
                    form(exponents[e], spare, true)));
                CHECK(sum == (int64_t)wanted_integer(v, exponents[e], spare));
            }
}

/* `leaves` numbers, of which those from `bad` on are `what`, added in an order
 * that `step` says, by `pieces` sums that are then added up. */
static float sum_of(int leaves, int spare, int bad, float what, int step,
                    int pieces)
{
    int64_t sums[8] = {0};
    float result;
    struct stream stream = {0};
    const struct kernels *k = &kernels_reference_f32;

    for (int i = 0; i < leaves; i++) {
        const int leaf = i * step % leaves;
        const float most = ldexpf(1, 61 - 2 * spare);
        float v = leaf >= bad ? what : leaf % 3 == 0 ? -most : most;

        IS_OK(k->fixed_add(&stream, tensor_1d(&sums[i % pieces], DTYPE_I64, 1),
                           tensor_1d(&v, DTYPE_F32, 1),
                           form(0, spare, i < pieces)));
    }
    for (int i = 1; i < pieces; i++)
        IS_OK(k->fixed_add(&stream, tensor_1d(sums, DTYPE_I64, 1),
                           tensor_1d(&sums[i], DTYPE_I64, 1),
                           form(0, spare, false)));
    IS_OK(k->fixed_read(&stream, tensor_1d(&result, DTYPE_F32, 1),
                        tensor_1d(sums, DTYPE_I64, 1), form(0, spare, false)));
    return result;
}

TEST(a_mark_is_seen_in_any_order_and_number)
{
    for (int spare = 0; spare <= FIXED_SPARE_MOST; spare++) {
        const int leaves = 1 << spare;
        const float over = nextafterf(ldexpf(1, 61 - 2 * spare), INFINITY);
        const float kinds[] = {INFINITY, -INFINITY, NAN, over, -over};

        for (int pieces = 1; pieces <= (leaves < 8 ? leaves : 8); pieces++)
            for (int kind = 0; kind < ROWS(kinds); kind++)
                for (int bad = 0; bad < leaves; bad += 1 + leaves / 5)
                    CHECK(isnan(sum_of(leaves, spare, bad, kinds[kind],
                                       kind + pieces > 4 ? 1 : leaves - 1,
                                       pieces)));
        CHECK(isfinite(sum_of(leaves, spare, leaves, 0, 1, 1)));
        CHECK(isfinite(sum_of(leaves, spare, 0, ldexpf(1, 61 - 2 * spare), 1,
                              1)));
        CHECK(isfinite(sum_of(leaves, spare, 0, -ldexpf(1, 61 - 2 * spare), 1,
                              1)));
    }
}

TEST(order_does_not_show)
{
    static float v[64];
    struct stream stream = {0};

    for (int i = 0; i < 64; i++)
        v[i] = isfinite(value(i)) && fabsf(value(i)) < 0x1p8f ? value(i) : 3;
    for (int step = 1; step < 64; step += 2) {
        wide exact = 0;
        int64_t sum = 0;
        float read;

        for (int i = 0; i < 64; i++) {
            IS_OK(kernels_reference_f32.fixed_add(
                &stream, tensor_1d(&sum, DTYPE_I64, 1),
                tensor_1d(&v[i * step % 64], DTYPE_F32, 1),
                form(40, 6, false)));
            exact += wanted_integer(v[i], 40, 6);
        }
        CHECK(sum == (int64_t)exact);
        IS_OK(kernels_reference_f32.fixed_read(
            &stream, tensor_1d(&read, DTYPE_F32, 1),
            tensor_1d(&sum, DTYPE_I64, 1), form(40, 6, false)));
        CHECK(read == (float)exact * 0x1p-40f);
    }
}

TEST(a_sum_of_nothing_is_positive_zero)
{
    float v[2] = {-0.0f, -0x1p-149f}, read;
    int64_t sum = 0;
    struct stream stream = {0};

    for (int i = 0; i < 2; i++)
        IS_OK(kernels_reference_f32.fixed_add(
            &stream, tensor_1d(&sum, DTYPE_I64, 1),
            tensor_1d(&v[i], DTYPE_F32, 1), form(40, 3, false)));
    IS_OK(kernels_reference_f32.fixed_read(
        &stream, tensor_1d(&read, DTYPE_F32, 1),
        tensor_1d(&sum, DTYPE_I64, 1), form(40, 3, false)));
    CHECK(read == 0 && !signbit(read));
}

struct arrays {
    float x[MOST], y[MOST];
    int64_t sums[MOST], other[MOST];
};

/* Sets, adds numbers, adds integers, reads elsewhere, then in place. */
static void run(const struct kernels *k, struct arrays *a, int64_t count,
                struct stream *stream)
{
    const struct tensor sums = tensor_1d(a->sums, DTYPE_I64, count);
    const struct tensor x = tensor_1d(a->x, DTYPE_F32, count);

    for (int i = 0; i < MOST; i++) {
        a->x[i] = value(i);
        a->y[i] = 0;
        a->sums[i] = i;
        a->other[i] = (int64_t)value(i % 5 == 1 ? i : 1) * i;
    }
    IS_OK(k->fixed_add(stream, sums, x, form(30, 3, true)));
    IS_OK(k->fixed_add(stream, sums, x, form(17, 3, false)));
    IS_OK(k->fixed_add(stream, sums, tensor_1d(a->other, DTYPE_I64, count),
                       form(0, 3, false)));
    IS_OK(k->fixed_read(stream, tensor_1d(a->y, DTYPE_F32, count), sums,
                        form(30, 3, false)));
    IS_OK(k->fixed_add(stream, tensor_1d(a->other, DTYPE_I64, count), sums,
                       form(0, 3, true)));
    IS_OK(k->fixed_read(stream, tensor_1d(a->other, DTYPE_F32, count),
                        tensor_1d(a->other, DTYPE_I64, count),
                        form(30, 3, false)));
}

static void compare(enum isa isa, struct stream *stream)
{
    static struct arrays wanted, found;
    static const int64_t counts[] = {0, 1, 2, 3, 15, 16, 17, 500, MOST};
    struct stream alone = {0};
    struct kernels table;

    if (kernels_get(&table, DTYPE_F32, isa) != OK) {
        status_clear();
        return;
    }
    for (int c = 0; c < ROWS(counts); c++) {
        run(&kernels_reference_f32, &wanted, counts[c], &alone);
        run(&table, &found, counts[c], stream);
        EQUAL_BYTES(wanted.sums, found.sums, sizeof wanted.sums);
        for (int64_t i = 0; i < counts[c]; i++) {
            const float *in_place = (const float *)(const void *)found.other;

            CHECK(memcmp(&wanted.y[i], &found.y[i], sizeof(float)) == 0 ||
                  (isnan(wanted.y[i]) && isnan(found.y[i])));
            CHECK(memcmp(&in_place[i], &found.y[i], sizeof(float)) == 0 ||
                  (isnan(in_place[i]) && isnan(found.y[i])));
        }
    }
}

TEST(instruction_sets_have_the_bits_of_the_reference)
{
    struct stream stream = {0};

    for (int isa = ISA_PLAIN; isa < ISA_COUNT; isa++)
        compare((enum isa)isa, &stream);
    IS_OK(threads_build(&stream.threads, 3));
    for (int isa = ISA_PLAIN; isa < ISA_COUNT; isa++)
        compare((enum isa)isa, &stream);
    threads_free(stream.threads);
}

TEST_MAIN(integers_are_those_of_long_arithmetic,
          a_mark_is_seen_in_any_order_and_number, order_does_not_show,
          a_sum_of_nothing_is_positive_zero,
          instruction_sets_have_the_bits_of_the_reference)
