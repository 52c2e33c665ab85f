/* SPDX-License-Identifier: Apache-2.0 */
/* element.h - one element of a float32, bfloat16 or float16 array, for kernels
 * whose operands may be narrow.
 *
 * Without branches on the value, so that loops become vectors. `dtype` should
 * be a constant after inlining. The bits are those of tensor.h's functions. */
#ifndef LOCKSTEP_KERNELS_ELEMENT_H
#define LOCKSTEP_KERNELS_ELEMENT_H

#include "kernels/elementary.h"
#include "tensor/tensor.h"

/* The exponents of float16 are moved by 112; what that makes of infinity and
 * NaN is moved by as much again. */
ELEMENTARY float element_from_f16(uint32_t bits)
{
    const uint32_t magnitude = (bits & 0x7FFFu) << 13;
    const float moved = f32_of_bits(magnitude) * 0x1p112f;
    const uint32_t special = magnitude >= 0x0F800000u ? 0x7F800000u : 0u;

    return f32_of_bits(bits_of_f32(moved) | special | (bits & 0x8000u) << 16);
}

ELEMENTARY uint32_t element_to_f16(float value)
{
    const uint32_t bits = bits_of_f32(value);
    const uint32_t magnitude = bits & 0x7FFFFFFFu;
    /* Below 2^-14 a sum with 0.5 rounds to steps of 2^-24. */
    const uint32_t small =
        bits_of_f32(0.5f + f32_of_bits(magnitude)) - 0x3F000000u;
    const uint32_t normal =
        (magnitude + 0x0FFFu + (magnitude >> 13 & 1) - 0x38000000u) >> 13;
    uint32_t out = magnitude < 0x38800000u ? small : normal;

    out = magnitude >= 0x477FF000u ? 0x7C00u : out;
    out = magnitude > 0x7F800000u ? 0x7E00u : out;
    return out | (bits >> 16 & 0x8000u);
}

ELEMENTARY uint32_t element_to_bf16(float value)
{
    const uint32_t bits = bits_of_f32(value);
    const uint32_t rounded = (bits + 0x7FFFu + (bits >> 16 & 1)) >> 16;

    return value != value ? bits >> 16 | 0x0040u : rounded;
}

ELEMENTARY float element_get(const void *x, enum dtype dtype, int64_t i)
{
    if (dtype == DTYPE_BF16)
        return f32_of_bits((uint32_t)((const uint16_t *)x)[i] << 16);
    if (dtype == DTYPE_F16) return element_from_f16(((const uint16_t *)x)[i]);
    return ((const float *)x)[i];
}

ELEMENTARY void element_set(void *x, enum dtype dtype, int64_t i, float value)
{
    if (dtype == DTYPE_BF16)
        ((uint16_t *)x)[i] = (uint16_t)element_to_bf16(value);
    else if (dtype == DTYPE_F16)
        ((uint16_t *)x)[i] = (uint16_t)element_to_f16(value);
    else
        ((float *)x)[i] = value;
}

/* An array, for functions that are inlined where its type is known. */
struct elements {
    const void *data; /* borrowed */
    enum dtype dtype;
};

ELEMENTARY float element_of(struct elements x, int64_t i)
{
    return element_get(x.data, x.dtype, i);
}

/* Calls one of three copies of an inlined function, in each of which its first
 * argument, the type, is a constant. */
#define ELEMENT_CHOOSE(dtype, function, ...)                             \
    do {                                                                 \
        if ((dtype) == DTYPE_BF16) function(DTYPE_BF16, __VA_ARGS__);    \
        else if ((dtype) == DTYPE_F16) function(DTYPE_F16, __VA_ARGS__); \
        else function(DTYPE_F32, __VA_ARGS__);                           \
    } while (0)

/* Address of element i. */
ELEMENTARY void *element_at(const void *x, enum dtype dtype, int64_t i)
{
    return (char *)(uintptr_t)x +
           i * (dtype == DTYPE_BF16 || dtype == DTYPE_F16 ? 2 : 4);
}

#endif
