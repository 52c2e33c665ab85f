/* SPDX-License-Identifier: Apache-2.0 */
/* convert.c - elements from one type and spacing to another, by way of a
 * small buffer of float64. */
#include "checkpoint/convert.h"
#include <string.h>

enum { AT_ONCE = 256 }; /* elements widened at once; 2 KiB of stack */

static bool floating(enum dtype dtype)
{
    return dtype == DTYPE_F32 || dtype == DTYPE_F64 || dtype == DTYPE_BF16 ||
           dtype == DTYPE_F16;
}

bool convert_possible(enum dtype to, enum dtype from)
{
    if (to >= DTYPE_COUNT || from >= DTYPE_COUNT) return false;
    return to == from || (floating(to) && floating(from));
}

static void copy_same(char *out, int64_t out_step, const char *in,
                      int64_t in_step, int64_t count, int bytes)
{
    if (out_step == 1 && in_step == 1) {
        memcpy(out, in, (size_t)count * (size_t)bytes);
        return;
    }
#define COPY(type)                                                     \
    for (int64_t i = 0; i < count; i++)                                \
        ((type *)(void *)out)[i * out_step] =                          \
            ((const type *)(const void *)in)[i * in_step]
    switch (bytes) {
    case 1: COPY(uint8_t); break;
    case 2: COPY(uint16_t); break;
    case 4: COPY(uint32_t); break;
    default: COPY(uint64_t); break;
    }
#undef COPY
}

static void widen(double *out, enum dtype from, const void *in, int64_t step,
                  int64_t count)
{
    const float *f32 = in;
    const double *f64 = in;
    const uint16_t *half = in;

    for (int64_t i = 0; i < count; i++) {
        const int64_t at = i * step;

        if (from == DTYPE_F32) out[i] = (double)f32[at];
        else if (from == DTYPE_F64) out[i] = f64[at];
        else if (from == DTYPE_BF16) out[i] = (double)bf16_to_f32(half[at]);
        else out[i] = (double)f16_to_f32(half[at]);
    }
}

/* To 16 bits a float64 must not be rounded twice. Where float32 is inexact its
 * last bit is made odd ("round to odd"), which keeps the second rounding
 * right. Source: Boldo and Melquiond 2008, "Emulation of FMA and correctly
 * rounded sums", section 3. */
static float f32_by_odd(double value)
{
    float nearest = (float)value;
    uint32_t bits;

    memcpy(&bits, &nearest, sizeof bits);
    if ((double)nearest != value && nearest - nearest == 0 && !(bits & 1)) {
        const double size = value < 0 ? -value : value;
        const double found = nearest < 0 ? -(double)nearest : (double)nearest;

        bits += found < size ? 1u : -1u;
        memcpy(&nearest, &bits, sizeof nearest);
    }
    return nearest;
}

static void narrow(enum dtype to, void *out, int64_t step, const double *in,
                   int64_t count)
{
    float *f32 = out;
    double *f64 = out;
    uint16_t *half = out;

    for (int64_t i = 0; i < count; i++) {
        if (to == DTYPE_F32) f32[i * step] = (float)in[i];
        else if (to == DTYPE_F64) f64[i * step] = in[i];
        else if (to == DTYPE_BF16)
            half[i * step] = bf16_from_f32(f32_by_odd(in[i]));
        else half[i * step] = f16_from_f32(f32_by_odd(in[i]));
    }
}

void convert_elements(struct spacing to, void *out, struct spacing from,
                      const void *in, int64_t count)
{
    const int64_t out_bytes = dtype_bytes(to.dtype) * to.step;
    const int64_t in_bytes = dtype_bytes(from.dtype) * from.step;

    CHECK(convert_possible(to.dtype, from.dtype));
    if (to.dtype == from.dtype) {
        copy_same(out, to.step, in, from.step, count, dtype_bytes(to.dtype));
        return;
    }
    for (int64_t first = 0; first < count; first += AT_ONCE) {
        const int64_t n = count - first < AT_ONCE ? count - first : AT_ONCE;
        double wide[AT_ONCE];

        widen(wide, from.dtype, (const char *)in + first * in_bytes,
              from.step, n);
        narrow(to.dtype, (char *)out + first * out_bytes, to.step, wide, n);
    }
}
