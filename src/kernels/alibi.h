/* SPDX-License-Identifier: Apache-2.0 */
/* alibi.h - linear biases of scores, in bfloat16 as Falcon's released models
 * were trained with them. */
#ifndef LOCKSTEP_KERNELS_ALIBI_H
#define LOCKSTEP_KERNELS_ALIBI_H

#include "kernels/element.h"
#include "kernels/kernels.h"

/* The slope of query head `head` of the call. With n the largest power of two
 * up to the heads of the model: 2^(-8 i / n) for head i = 1 to n, then for the
 * remaining heads 2^(-4 i / n), i = 1, 3, 5, ...; a power, in float32, of the
 * first one, rounded to bfloat16. Source: Press, Smith and Lewis 2022,
 * arXiv:2108.12409, section 3 and the code that it names (heads that are no
 * power of two). */
float alibi_slope(const struct attention_alibi *alibi, int head);

/* x rounded to bfloat16. */
static inline float alibi_round(float x)
{
    return f32_of_bits(element_to_bf16(x) << 16);
}

/* Slope times position; position and product are rounded to bfloat16. */
static inline float alibi_bias(float slope, int64_t position)
{
    return alibi_round(slope * alibi_round((float)position));
}

/* The term that is added to q . k for the key at a position; documents (of
 * keys, from the call's first on) may be NULL. */
static inline float alibi_of(float slope, const int32_t *documents,
                             int64_t key, int64_t position)
{
    return alibi_bias(slope, position - (documents ? documents[key] : 0));
}

#endif
