/* SPDX-License-Identifier: Apache-2.0 */
/* tensor.c - views, element types and comparison. */
#include "tensor/tensor.h"

#include <math.h>
#include <string.h>

static const struct {
    const char *name;
    int bytes;
} rows[DTYPE_COUNT] = {
    [DTYPE_F32] = {"float32", 4},   [DTYPE_F64] = {"float64", 8},
    [DTYPE_BF16] = {"bfloat16", 2}, [DTYPE_F16] = {"float16", 2},
    [DTYPE_I32] = {"int32", 4},     [DTYPE_I64] = {"int64", 8},
    [DTYPE_U8] = {"uint8", 1},
};

int dtype_bytes(enum dtype dtype)
{
    CHECK((int)dtype >= 0 && dtype < DTYPE_COUNT);
    return rows[dtype].bytes;
}

const char *dtype_name(enum dtype dtype)
{
    return (int)dtype >= 0 && dtype < DTYPE_COUNT ? rows[dtype].name
                                                  : "unknown";
}

bool dtype_parse(const char *name, enum dtype *out)
{
    for (int i = 0; i < DTYPE_COUNT; i++) {
        if (strcmp(name, rows[i].name) == 0) {
            *out = (enum dtype)i;
            return true;
        }
    }
    return false;
}

struct tensor tensor_1d(void *data, enum dtype dtype, int64_t n)
{
    return (struct tensor){data, dtype, 1, {n}, {1}};
}

struct tensor tensor_2d(void *data, enum dtype dtype, int64_t rows_,
                        int64_t cols)
{
    return (struct tensor){data, dtype, 2, {rows_, cols}, {cols, 1}};
}

struct tensor tensor_3d(void *data, enum dtype dtype, int64_t a, int64_t b,
                        int64_t c)
{
    return (struct tensor){data, dtype, 3, {a, b, c}, {b * c, c, 1}};
}

int64_t tensor_count(const struct tensor *tensor)
{
    int64_t count = 1;

    for (int i = 0; i < tensor->dimensions; i++) count *= tensor->shape[i];
    return count;
}

int64_t tensor_bytes(const struct tensor *tensor)
{
    return tensor_count(tensor) * dtype_bytes(tensor->dtype);
}

struct tensor tensor_transpose(struct tensor matrix)
{
    const int64_t shape = matrix.shape[0], stride = matrix.stride[0];

    CHECK(matrix.dimensions == 2);
    matrix.shape[0] = matrix.shape[1];
    matrix.stride[0] = matrix.stride[1];
    matrix.shape[1] = shape;
    matrix.stride[1] = stride;
    return matrix;
}

/* Entries [first, first + count) of one dimension. */
static struct tensor slice(struct tensor matrix, int dimension, int64_t first,
                           int64_t count)
{
    CHECK(matrix.dimensions == 2);
    CHECK(first >= 0 && count >= 0 &&
          count <= matrix.shape[dimension] - first);
    /* A view of no data is a shape alone: plans are made of them. */
    if (matrix.data != NULL)
        matrix.data = (char *)matrix.data + first * matrix.stride[dimension] *
                                                dtype_bytes(matrix.dtype);
    matrix.shape[dimension] = count;
    return matrix;
}

struct tensor tensor_rows(struct tensor matrix, int64_t first, int64_t count)
{
    return slice(matrix, 0, first, count);
}

struct tensor tensor_cols(struct tensor matrix, int64_t first, int64_t count)
{
    return slice(matrix, 1, first, count);
}

float bf16_to_f32(uint16_t bits)
{
    const uint32_t wide = (uint32_t)bits << 16;
    float value;

    memcpy(&value, &wide, sizeof value);
    return value;
}

uint16_t bf16_from_f32(float value)
{
    uint32_t bits;

    memcpy(&bits, &value, sizeof bits);
    /* Rounding could carry a NaN into infinity: keep it, and make it quiet. */
    if ((bits & 0x7FFFFFFFu) > 0x7F800000u)
        return (uint16_t)(bits >> 16 | 0x0040u);
    return (uint16_t)((bits + 0x7FFFu + (bits >> 16 & 1)) >> 16);
}

float f16_to_f32(uint16_t bits)
{
    const uint32_t sign = (uint32_t)(bits & 0x8000u) << 16;
    const uint32_t exponent = bits >> 10 & 0x1F, fraction = bits & 0x3FFu;
    uint32_t wide;
    float value;

    if (exponent == 0) { /* zero or denormal: fraction units of 2^-24 */
        value = (float)fraction * 0x1p-24f;
        return sign != 0 ? -value : value;
    }
    if (exponent == 31)
        wide = sign | 0x7F800000u | fraction << 13;
    else
        wide = sign | (exponent + 112) << 23 | fraction << 13;
    memcpy(&value, &wide, sizeof value);
    return value;
}

/* A sum with a power of two whose last place is the last place of the result
 * rounds to it: 0.5 + x to steps of 2^-24, as float16 below 2^-14 has them. */
uint16_t f16_from_f32(float value)
{
    uint32_t bits, magnitude;
    uint16_t sign;

    memcpy(&bits, &value, sizeof bits);
    sign = (uint16_t)(bits >> 16 & 0x8000u);
    magnitude = bits & 0x7FFFFFFFu;
    if (magnitude > 0x7F800000u) return (uint16_t)(sign | 0x7E00u);
    if (magnitude >= 0x477FF000u) return (uint16_t)(sign | 0x7C00u);
    if (magnitude < 0x38800000u) {
        float sum;

        memcpy(&sum, &magnitude, sizeof sum);
        sum = 0.5f + sum;
        memcpy(&bits, &sum, sizeof bits);
        return (uint16_t)(sign | (uint16_t)(bits - 0x3F000000u));
    }
    magnitude += 0x0FFFu + (magnitude >> 13 & 1);
    return (uint16_t)(sign | (uint16_t)((magnitude - 0x38000000u) >> 13));
}

double tensor_get(const struct tensor *tensor, int64_t index)
{
    switch (tensor->dtype) {
    case DTYPE_F32: return (double)((const float *)tensor->data)[index];
    case DTYPE_F64: return ((const double *)tensor->data)[index];
    case DTYPE_BF16:
        return (double)bf16_to_f32(((const uint16_t *)tensor->data)[index]);
    case DTYPE_F16:
        return (double)f16_to_f32(((const uint16_t *)tensor->data)[index]);
    case DTYPE_I32: return (double)((const int32_t *)tensor->data)[index];
    case DTYPE_I64: return (double)((const int64_t *)tensor->data)[index];
    case DTYPE_U8: return (double)((const uint8_t *)tensor->data)[index];
    case DTYPE_COUNT: break;
    }
    status_bug(__FILE__, __LINE__, "the dtype is known");
}

void tensor_set(const struct tensor *tensor, int64_t index, double value)
{
    switch (tensor->dtype) {
    case DTYPE_F32: ((float *)tensor->data)[index] = (float)value; return;
    case DTYPE_F64: ((double *)tensor->data)[index] = value; return;
    case DTYPE_BF16:
        ((uint16_t *)tensor->data)[index] = bf16_from_f32((float)value);
        return;
    case DTYPE_F16:
        ((uint16_t *)tensor->data)[index] = f16_from_f32((float)value);
        return;
    case DTYPE_I32: ((int32_t *)tensor->data)[index] = (int32_t)value; return;
    case DTYPE_I64: ((int64_t *)tensor->data)[index] = (int64_t)value; return;
    case DTYPE_U8: ((uint8_t *)tensor->data)[index] = (uint8_t)value; return;
    case DTYPE_COUNT: break;
    }
    status_bug(__FILE__, __LINE__, "the dtype is known");
}

static bool dtype_is_integer(enum dtype dtype)
{
    return dtype == DTYPE_I32 || dtype == DTYPE_I64 || dtype == DTYPE_U8;
}

/* Compares elements `index`. Elements of one type differ in their bits, except
 * that NaNs are equal. Elements of two types differ in their value. */
static bool differs(const struct tensor *a, const struct tensor *b,
                    int64_t index)
{
    const int bytes = dtype_bytes(a->dtype);
    const double x = tensor_get(a, index), y = tensor_get(b, index);

    if (isnan(x) && isnan(y)) return false;
    if (a->dtype != b->dtype) return !(x == y);
    return memcmp((const char *)a->data + index * bytes,
                  (const char *)b->data + index * bytes, (size_t)bytes) != 0;
}

void tensor_compare(const struct tensor *a, const struct tensor *b,
                    struct tensor_difference *out)
{
    const int64_t count = tensor_count(a);

    CHECK(a->dimensions == b->dimensions);
    for (int i = 0; i < a->dimensions; i++)
        CHECK(a->shape[i] == b->shape[i]);
    CHECK(dtype_is_integer(a->dtype) == dtype_is_integer(b->dtype));
    *out = (struct tensor_difference){.first = -1};
    for (int64_t i = 0; i < count; i++) {
        const double y = fabs(tensor_get(b, i));

        if (y > out->max_scale) out->max_scale = y;
        if (!differs(a, b, i)) continue;
        if (out->first < 0) out->first = i;
        out->count++;
        const double gap = fabs(tensor_get(a, i) - tensor_get(b, i));
        if (isnan(gap)) /* one NaN, or two infinities of unlike sign */
            out->max_abs = INFINITY;
        else if (gap > out->max_abs)
            out->max_abs = gap;
    }
}
