/* SPDX-License-Identifier: Apache-2.0 */
/* test_descent.c - mirrors src/kernels/cpu/descent.c: every instruction set
 * gives the bits of the reference, and the reference what the formulas say. */
#include "kernels/kernels.h"
#include "tests/test.h"

enum { MOST = 1037 };

static float value(int array, int i)
{
    const uint32_t mixed = (uint32_t)(i * 7919 + array * 104729 + 5) *
                           2654435761u;

    return (float)(((double)mixed - 2147483648.0) / 2147483648.0) /
           (float)(1 + mixed % 97);
}

struct arrays { float a[MOST], b[MOST]; uint16_t copy[MOST]; };

static void arrays_fill(struct arrays *x)
{
    for (int i = 0; i < MOST; i++) {
        x->a[i] = value(0, i);
        x->b[i] = value(1, i);
        x->copy[i] = 0;
    }
}

static void run(const struct kernels *k, struct arrays *x, int64_t count,
                enum dtype narrow)
{
    struct stream stream = {0};
    struct descent descent = {.weight = tensor_1d(x->a, DTYPE_F32, count),
                              .step = tensor_1d(x->b, DTYPE_F32, count),
                              .rate = 0.013, .keep = 0.998};

    if (narrow != DTYPE_F32) descent.copy = tensor_1d(x->copy, narrow, count);
    IS_OK(k->descend(&stream, &descent));
}

static void check_copy(const struct arrays *x, int64_t count,
                       enum dtype narrow)
{
    for (int64_t i = 0; i < count; i++)
        CHECK(x->copy[i] == (narrow == DTYPE_BF16 ? bf16_from_f32(x->a[i])
                                                  : f16_from_f32(x->a[i])));
}

static void compare(enum isa isa, enum dtype narrow)
{
    static struct arrays wanted, found;
    const int64_t counts[] = {0, 1, 15, 16, 17, 500, MOST};
    struct kernels table;

    if (kernels_get(&table, narrow, isa) != OK) {
        status_clear();
        return;
    }
    for (int c = 0; c < ROWS(counts); c++) {
        arrays_fill(&wanted);
        arrays_fill(&found);
        run(&kernels_reference_f32, &wanted, counts[c], DTYPE_F32);
        run(&table, &found, counts[c], narrow);
        EQUAL_BYTES(wanted.a, found.a, sizeof wanted.a);
        EQUAL_BYTES(wanted.b, found.b, sizeof wanted.b);
        if (narrow != DTYPE_F32) check_copy(&found, counts[c], narrow);
    }
}

TEST(instruction_sets_have_the_bits_of_the_reference)
{
    for (int isa = ISA_PLAIN; isa < ISA_COUNT; isa++) {
        compare((enum isa)isa, DTYPE_F32);
        compare((enum isa)isa, DTYPE_BF16);
        compare((enum isa)isa, DTYPE_F16);
    }
}

TEST(formula)
{
    double step[2] = {0.5, -1}, w[2] = {1, -3};
    struct stream stream = {0};
    const struct descent descent = {.weight = tensor_1d(w, DTYPE_F64, 2),
                                    .step = tensor_1d(step, DTYPE_F64, 2),
                                    .rate = 0.5, .keep = 0.25};

    IS_OK(kernels_reference_f64.descend(&stream, &descent));
    CHECK(w[0] == 0.25 - 0.25 && w[1] == -0.75 + 0.5);
}

TEST_MAIN(instruction_sets_have_the_bits_of_the_reference, formula)
