/* SPDX-License-Identifier: Apache-2.0 */
/* tape.h - operands of kernels under test.
 *
 * A tape hands out matrices filled with numbers that follow from its seed
 * alone. The same case run on two tapes of one type sees the same inputs, so
 * the whole tapes, gaps between rows included, must be equal afterwards. */
#ifndef LOCKSTEP_TESTS_KERNELS_TAPE_H
#define LOCKSTEP_TESTS_KERNELS_TAPE_H

#include <math.h>
#include <string.h>
#include "base/arena.h"
#include "kernels/kernels.h"

enum values { VALUES_NORMAL, VALUES_EDGE };

enum { TAPE_ELEMENTS = 1 << 21, TAPE_DOUBLES = 4096, TAPE_SCRATCH = 1 << 22 };

struct tape {
    void *data; /* borrowed, TAPE_ELEMENTS of double */
    enum dtype dtype;
    enum values values;
    int64_t used, gap; /* elements; gap: between rows */
    uint64_t state;
    double doubles[TAPE_DOUBLES];
};

static inline uint64_t tape_bits(struct tape *t)
{
    uint64_t z = t->state += 0x9e3779b97f4a7c15u; /* splitmix64 */

    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

/* A float32 number; edge: a quarter of them denormal, huge, infinite, zero of
 * either sign or NaN. */
static inline float tape_value(struct tape *t)
{
    static const float edges[] = {
        0.0f, -0.0f, 0x1p-149f, -0x1.8p-130f, 0x1p-126f, 0x1.fffffep127f,
        -0x1p100f, 88.5f, -87.3f, -103.0f, 1e-20f, 3e4f, INFINITY, -INFINITY,
        NAN, -1e30f};
    uint64_t bits = tape_bits(t);
    float sum = 0;

    if (t->values == VALUES_EDGE && bits % 4 == 0) return edges[bits >> 60];
    for (int i = 0; i < 4; i++)
        sum += (float)(bits >> (16 * i) & 0xffff) / 65536.0f - 0.5f;
    return 1.7f * sum;
}

static inline struct tensor tape_matrix(struct tape *t, int64_t rows,
                                        int64_t cols)
{
    int64_t stride = cols + t->gap, count = rows * stride;
    char *start = (char *)t->data + t->used * dtype_bytes(t->dtype);
    struct tensor matrix = tensor_2d(start, t->dtype, rows, cols);

    CHECK(t->used + count <= TAPE_ELEMENTS);
    matrix.stride[0] = stride;
    for (int64_t i = 0; i < count; i++) {
        float value = tape_value(t);

        if (t->dtype == DTYPE_F32)
            ((float *)start)[i] = value;
        else
            ((double *)start)[i] = (double)value;
    }
    t->used += count;
    return matrix;
}

static inline struct tensor tape_vector(struct tape *t, int64_t count)
{
    int64_t gap = t->gap;
    struct tensor matrix;

    t->gap = 0;
    matrix = tape_matrix(t, 1, count);
    t->gap = gap;
    return tensor_1d(matrix.data, t->dtype, count);
}

static inline void tape_start(struct tape *t, enum dtype dtype, uint64_t seed,
                              enum values values, int64_t gap)
{
    t->dtype = dtype;
    t->used = 0;
    t->gap = gap;
    t->state = seed;
    t->values = values;
    memset(t->doubles, 0, sizeof t->doubles);
}

/* Index of the first element that differs (any NaN equals any NaN), -1 if
 * none; doubles come after the elements. Both tapes hold float32. */
static inline int64_t tape_differs(const struct tape *a, const struct tape *b)
{
    const float *x = a->data, *y = b->data;

    for (int64_t i = 0; i < a->used; i++)
        if (memcmp(&x[i], &y[i], sizeof *x) != 0 &&
            (x[i] == x[i] || y[i] == y[i]))
            return i;
    for (int i = 0; i < TAPE_DOUBLES; i++)
        if (memcmp(&a->doubles[i], &b->doubles[i], sizeof(double)) != 0 &&
            (a->doubles[i] == a->doubles[i] || b->doubles[i] == b->doubles[i]))
            return a->used + i;
    return -1;
}

#endif
