/* SPDX-License-Identifier: Apache-2.0 */
/* test_turned.c - mirrors src/kernels/turned.h: every instruction set gives the
 * bits of the reference, and the reference what the formulas say. */
#include "kernels/turned.h"

#include <math.h>

#include "kernels/kernels.h"
#include "tests/test.h"

enum { MOST = 20000, THREADS = 3 };

struct arrays { float x[MOST], gradient[MOST], m[MOST], v[MOST]; };

static float value(int array, int i)
{
    const uint32_t mixed = (uint32_t)(i * 7919 + array * 104729 + 5) *
                           2654435761u;

    return (float)(((double)mixed - 2147483648.0) / 2147483648.0) /
           (float)(1 + mixed % 97);
}

static void fill(struct arrays *a)
{
    for (int i = 0; i < MOST; i++) {
        a->x[i] = i % 11 == 0 ? 0 : value(0, i);
        a->gradient[i] = value(1, i);
        a->m[i] = value(2, i);
        a->v[i] = i % 11 == 0 ? 0 : value(3, i) * value(3, i);
    }
}

/* Moments, then the step from the first one. */
static void run(const struct kernels *k, struct stream *stream,
                struct arrays *a, int64_t count)
{
    struct turned p = {
        .x = tensor_1d(a->x, DTYPE_F32, count),
        .v = tensor_1d(a->v, DTYPE_F32, count),
        .m = tensor_1d(a->m, DTYPE_F32, count),
        .gradient = tensor_1d(a->gradient, DTYPE_F32, count), .beta1 = 0.95,
        .beta2 = 0.9, .correction1 = 0.0975, .correction2 = 0.19,
        .epsilon = 1e-8};

    IS_OK(k->turned(stream, &p));
    p.x = p.m;
    p.m = p.gradient = (struct tensor){.data = NULL};
    IS_OK(k->turned(stream, &p));
}

TEST(instruction_sets_have_the_bits_of_the_reference)
{
    static const int64_t counts[] = {1, 15, 16, 1500, MOST};
    static struct arrays wanted, found;

    for (int isa = ISA_PLAIN; isa < ISA_COUNT; isa++) {
        struct kernels table;
        struct stream alone = {0}, stream = {0};

        if (kernels_get(&table, DTYPE_F32, (enum isa)isa) != OK) {
            status_clear();
            continue;
        }
        IS_OK(threads_build(&stream.threads, THREADS));
        for (int i = 0; i < ROWS(counts); i++) {
            fill(&wanted);
            fill(&found);
            run(&kernels_reference_f32, &alone, &wanted, counts[i]);
            run(&table, &stream, &found, counts[i]);
            EQUAL_BYTES(&wanted, &found, sizeof wanted);
        }
        threads_free(stream.threads);
    }
}

TEST(formula)
{
    double x[2] = {3, -4}, gradient[2] = {1, 2}, m[2] = {0.5, -0.5};
    double v[2] = {4, 9};
    struct stream stream = {0};
    struct turned p = {
        .x = tensor_1d(x, DTYPE_F64, 2), .v = tensor_1d(v, DTYPE_F64, 2),
        .m = tensor_1d(m, DTYPE_F64, 2),
        .gradient = tensor_1d(gradient, DTYPE_F64, 2), .beta1 = 0.9,
        .beta2 = 0.75, .correction1 = 0.5, .correction2 = 0.25,
        .epsilon = 0.125};

    IS_OK(kernels_reference_f64.turned(&stream, &p));
    CHECK(fabs(m[0] - 0.55) < 1e-15 && fabs(m[1] + 0.25) < 1e-15);
    CHECK(v[0] == 3 + 2.25 && v[1] == 6.75 + 4);
    CHECK(x[0] == 3 && x[1] == -4);
    p.m = p.gradient = (struct tensor){.data = NULL};
    IS_OK(kernels_reference_f64.turned(&stream, &p));
    CHECK(fabs(x[0] - 6 / (sqrt(21) + 0.125)) < 1e-15);
    CHECK(fabs(x[1] + 8 / (sqrt(43) + 0.125)) < 1e-15);
    CHECK(v[0] == 5.25 && m[0] == 0.9 * 0.5 + (1 - 0.9) * 1);
}

TEST_MAIN(instruction_sets_have_the_bits_of_the_reference, formula)
