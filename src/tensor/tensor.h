/* SPDX-License-Identifier: Apache-2.0 */
/* tensor.h - the description of a block of numbers: type, shape, strides. A
 * tensor never owns its memory. */
#ifndef LOCKSTEP_TENSOR_TENSOR_H
#define LOCKSTEP_TENSOR_TENSOR_H

#include <stdbool.h>
#include <stdint.h>
#include "base/status.h"

enum dtype {
    DTYPE_F32, DTYPE_F64, DTYPE_BF16, DTYPE_F16, DTYPE_I32, DTYPE_I64,
    DTYPE_U8, DTYPE_COUNT
};

enum { TENSOR_DIMENSIONS_MAX = 4 };

struct tensor {
    void *data;      /* borrowed */
    enum dtype dtype;
    int dimensions;  /* 0 to TENSOR_DIMENSIONS_MAX */
    int64_t shape[TENSOR_DIMENSIONS_MAX];  /* elements */
    int64_t stride[TENSOR_DIMENSIONS_MAX]; /* elements */
};

int dtype_bytes(enum dtype dtype);         /* per element */
const char *dtype_name(enum dtype dtype);  /* "float32" */
/* "float32", "float64", "bfloat16", ...; false when unknown. */
bool dtype_parse(const char *name, enum dtype *out);
/* True for types of two bytes; computations on them are in float32. */
static inline bool dtype_is_narrow(enum dtype dtype)
{
    return dtype == DTYPE_BF16 || dtype == DTYPE_F16;
}
/* The type of sums, statistics and masters beside numbers of this type. */
static inline enum dtype dtype_real(enum dtype dtype)
{
    return dtype_is_narrow(dtype) ? DTYPE_F32 : dtype;
}

/* Dense, row-major. */
struct tensor tensor_1d(void *data, enum dtype dtype, int64_t n);
struct tensor tensor_2d(void *data, enum dtype dtype, int64_t rows,
                        int64_t cols);
struct tensor tensor_3d(void *data, enum dtype dtype, int64_t a, int64_t b,
                        int64_t c);
int64_t tensor_count(const struct tensor *tensor); /* elements */
int64_t tensor_bytes(const struct tensor *tensor); /* of dense elements */
struct tensor tensor_transpose(struct tensor matrix); /* 2-D view */
/* Rows [first, first + count) and columns [first, first + count) of a
 * matrix. */
struct tensor tensor_rows(struct tensor matrix, int64_t first, int64_t count);
struct tensor tensor_cols(struct tensor matrix, int64_t first, int64_t count);
/* Element `index` (row-major, dense tensors) widened. */
double tensor_get(const struct tensor *tensor, int64_t index);
void tensor_set(const struct tensor *tensor, int64_t index, double value);

float bf16_to_f32(uint16_t bits);
uint16_t bf16_from_f32(float value); /* nearest even; NaN stays NaN */
float f16_to_f32(uint16_t bits);
uint16_t f16_from_f32(float value); /* the same; from 65520 on: infinity */

/* How far apart two dense tensors of one shape are, and where first. */
struct tensor_difference {
    int64_t count;     /* elements whose bits differ (any NaN equals any NaN) */
    int64_t first;     /* index of the first, -1 if none */
    double max_abs;    /* largest |a - b| */
    double max_scale;  /* largest |b| */
};
void tensor_compare(const struct tensor *a, const struct tensor *b,
                    struct tensor_difference *out);

#endif
