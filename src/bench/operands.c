/* SPDX-License-Identifier: Apache-2.0 */
/* operands.c - matrices of drawn values for the cases. */
#include "bench/cases.h"

#include <string.h>

#include "bench/draw.h"

/* Sum of three uniform numbers: deviation 0.5, a mean of 0. */
static float next_value(uint32_t *state)
{
    float sum = 0;

    for (int i = 0; i < 3; i++) sum += draw_share(state) - 0.5f;
    return sum;
}

float case_rounded(enum dtype narrow, float x)
{
    if (narrow == DTYPE_BF16) return bf16_to_f32(bf16_from_f32(x));
    if (narrow == DTYPE_F16) return f16_to_f32(f16_from_f32(x));
    return x;
}

/* Values come again after so many, a prime: no two rows are alike. */
enum { PERIOD = 8191 };

static struct tensor operand_of(struct operands *o, int64_t rows, int64_t cols,
                                bool narrow)
{
    const enum dtype dtype = narrow ? o->dtype : DTYPE_F32;
    struct tensor t = tensor_2d(o->data + o->used, dtype, rows, cols);
    const int64_t count = rows * cols;
    const struct tensor all = tensor_1d(t.data, dtype, count);
    const size_t bytes = (size_t)dtype_bytes(dtype);
    uint32_t state = (uint32_t)o->used * 2654435761u + 1u;

    CHECK(o->used + count <= o->capacity && o->count < CASE_OPERANDS);
    for (int64_t i = 0; i < count && i < PERIOD; i++) {
        const float x = next_value(&state);

        tensor_set(&all, i, (double)(narrow ? case_rounded(o->narrow, x) : x));
    }
    for (int64_t have = PERIOD; have < count; have *= 2)
        memcpy((char *)t.data + (size_t)have * bytes, t.data,
               (size_t)(have < count - have ? have : count - have) * bytes);
    o->rounds[o->count] = narrow;
    o->all[o->count++] = all;
    o->used += rows * cols;
    return t;
}

struct tensor case_operand(struct operands *o, int64_t rows, int64_t cols)
{
    return operand_of(o, rows, cols, true);
}

struct tensor case_operand_real(struct operands *o, int64_t rows,
                                  int64_t cols)
{
    return operand_of(o, rows, cols, false);
}
