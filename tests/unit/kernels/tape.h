/* SPDX-License-Identifier: Apache-2.0 */
/* tape.h - operands of kernels under test.
 *
 * A tape hands out matrices filled with numbers that follow from its seed
 * alone. The same case run on two tapes sees the same inputs, so the whole
 * tapes, gaps between rows included, must be equal afterwards.
 *
 * Matrices are real (f32 or f64), or of the tape's narrow type. A tape that is
 * `widened` holds those as float32 numbers which the narrow type has too:
 * tape_round, after each kernel, makes them so again. */
#ifndef LOCKSTEP_TESTS_KERNELS_TAPE_H
#define LOCKSTEP_TESTS_KERNELS_TAPE_H

#include <math.h>
#include <string.h>
#include "base/arena.h"
#include "kernels/kernels.h"
#include "tests/sanitized.h"

enum values { VALUES_NORMAL, VALUES_EDGE };

enum {
    TAPE_ELEMENTS = 1 << 21, TAPE_DOUBLES = 4096, TAPE_SCRATCH = 1 << 22,
    TAPE_REGIONS = 512
};

struct region {
    struct tensor all; /* 1-D, gaps included */
    bool narrow;       /* or would be, on a tape that is not widened */
};

struct tape {
    void *data; /* borrowed, TAPE_ELEMENTS of double */
    enum dtype dtype, narrow; /* equal: no matrix is narrow */
    bool widened;
    enum values values;
    int64_t used, gap; /* elements; gap: between rows */
    uint64_t state;
    double doubles[TAPE_DOUBLES];
    struct region regions[TAPE_REGIONS];
    int region_count;
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

static inline float tape_rounded(enum dtype narrow, float value)
{
    if (narrow == DTYPE_BF16) return bf16_to_f32(bf16_from_f32(value));
    if (narrow == DTYPE_F16) return f16_to_f32(f16_from_f32(value));
    return value;
}

static inline struct tensor tape_take(struct tape *t, int64_t rows,
                                      int64_t cols, bool narrow)
{
    const enum dtype dtype = narrow && !t->widened ? t->narrow : t->dtype;
    const int64_t stride = cols + t->gap, count = rows * stride;
    char *start = (char *)t->data + t->used * (int64_t)sizeof(double);
    struct tensor matrix = tensor_2d(start, dtype, rows, cols);
    const struct tensor all = tensor_1d(start, dtype, count);

    CHECK(t->used + count <= TAPE_ELEMENTS && t->region_count < TAPE_REGIONS);
    t->regions[t->region_count++] = (struct region){all, narrow};
    matrix.stride[0] = stride;
    for (int64_t i = 0; i < count; i++) {
        const float value = tape_value(t);

        tensor_set(&all, i,
                   (double)(narrow ? tape_rounded(t->narrow, value) : value));
    }
    t->used += count;
    return matrix;
}

static inline struct tensor tape_matrix(struct tape *t, int64_t rows,
                                        int64_t cols)
{
    return tape_take(t, rows, cols, true);
}

static inline struct tensor tape_real(struct tape *t, int64_t rows,
                                      int64_t cols)
{
    return tape_take(t, rows, cols, false);
}

static inline struct tensor tape_flat(struct tape *t, int64_t count,
                                      bool narrow)
{
    const int64_t gap = t->gap;
    struct tensor matrix;

    t->gap = 0;
    matrix = tape_take(t, 1, count, narrow);
    t->gap = gap;
    return tensor_1d(matrix.data, matrix.dtype, count);
}

static inline struct tensor tape_vector(struct tape *t, int64_t count)
{
    return tape_flat(t, count, true);
}

static inline struct tensor tape_real_vector(struct tape *t, int64_t count)
{
    return tape_flat(t, count, false);
}

/* Element i of a matrix whose rows may be apart. */
static inline double cell(struct tensor matrix, int64_t i)
{
    const struct tensor row = tensor_rows(matrix, i / matrix.shape[1], 1);

    return tensor_get(&row, i % matrix.shape[1]);
}

static inline void cell_set(struct tensor matrix, int64_t i, double value)
{
    const struct tensor row = tensor_rows(matrix, i / matrix.shape[1], 1);

    tensor_set(&row, i % matrix.shape[1], value);
}

/* narrow: dtype of what is narrow, or `dtype` again. */
static inline void tape_start(struct tape *t, enum dtype dtype,
                              enum dtype narrow, enum values values,
                              int64_t gap)
{
    t->dtype = dtype;
    t->narrow = narrow;
    t->used = 0;
    t->region_count = 0;
    t->gap = gap;
    t->state = 7;
    t->values = values;
    memset(t->doubles, 0, sizeof t->doubles);
}

/* Rounds what a row of float32 has stored where a narrow one would round. */
static inline void tape_round(struct tape *t)
{
    for (int r = 0; t->widened && r < t->region_count; r++) {
        float *x = t->regions[r].all.data;

        for (int64_t i = 0;
             t->regions[r].narrow && i < t->regions[r].all.shape[0]; i++)
            x[i] = tape_rounded(t->narrow, x[i]);
    }
}

static inline bool tape_same(double a, double b)
{
    return memcmp(&a, &b, sizeof a) == 0 || (a != a && b != b);
}

/* Index of the first element that differs in its bits, widened (any NaN equals
 * any NaN), -1 if none; doubles come after the elements. */
static inline int64_t tape_differs(const struct tape *a, const struct tape *b)
{
    int64_t before = 0;

    for (int r = 0; r < a->region_count; r++) {
        const struct tensor *x = &a->regions[r].all, *y = &b->regions[r].all;

        for (int64_t i = 0; i < x->shape[0]; i++)
            if (!tape_same(tensor_get(x, i), tensor_get(y, i)))
                return before + i;
        before += x->shape[0];
    }
    for (int i = 0; i < TAPE_DOUBLES; i++)
        if (!tape_same(a->doubles[i], b->doubles[i])) return before + i;
    return -1;
}

#endif
