/* SPDX-License-Identifier: Apache-2.0 */
/* masters_block.h - a few split masters, joined and split. Loops leave ties
 * out, which one block of 256 in 256 has. */
#ifndef LOCKSTEP_KERNELS_CPU_MASTERS_BLOCK_H
#define LOCKSTEP_KERNELS_CPU_MASTERS_BLOCK_H

#include <string.h>
#include "kernels/cpu/cpu.h"
#include "kernels/element.h"
#include "kernels/masters.h"

struct masters_block {
    uint16_t *weights, *lower;
    unsigned char *ties;
    int64_t first; /* bit of master 0 */
};

static inline struct masters_block masters_block_of(const struct masters *m)
{
    return (struct masters_block){m->weights.data, m->lower.data, m->ties.data,
                                  m->first};
}

/* values [to - from] = masters [from, to). */
ELEMENTARY void masters_block_join(const struct masters_block *m, int64_t from,
                                   int64_t to, float *values)
{
    const uint16_t *weights = m->weights + from, *lower = m->lower + from;
    const unsigned char *ties = m->ties;
    const int64_t bit = m->first + from, count = to - from;

    SIMD for (int64_t i = 0; i < count; i++)
        values[i] = f32_of_bits(master_join(weights[i], lower[i], 0));
    for (int64_t at = bit / 8; at * 8 < bit + count; at++) {
        if (ties[at] == 0) continue;
        for (int64_t i = at * 8 - bit; i < at * 8 - bit + 8; i++)
            if (i >= 0 && i < count && ties[at] >> (bit + i) % 8 & 1)
                values[i] = f32_of_bits(master_join(weights[i], lower[i], 1));
    }
}

/* Bits [from, to) become 0. */
static inline void masters_bits_clear(unsigned char *bits, int64_t from,
                                      int64_t to)
{
    for (; from < to && from % 8 != 0; from++)
        bits[from / 8] &= (unsigned char)~(1u << from % 8);
    for (; from < to && to % 8 != 0; to--)
        bits[(to - 1) / 8] &= (unsigned char)~(1u << (to - 1) % 8);
    if (from < to) memset(bits + from / 8, 0, (size_t)(to - from) / 8);
}

/* Masters [from, to) = values [to - from]. */
ELEMENTARY void masters_block_split(const struct masters_block *m, int64_t from,
                                    int64_t to, const float *values)
{
    uint16_t *weights = m->weights + from, *lower = m->lower + from;
    const int64_t bit = m->first + from, count = to - from;
    uint32_t any = 0;

    _Pragma("omp simd reduction(| : any)")
    for (int64_t i = 0; i < count; i++) {
        const uint32_t bits = bits_of_f32(values[i]);

        weights[i] = (uint16_t)element_to_bf16(values[i]);
        lower[i] = (uint16_t)bits;
        any |= (uint32_t)((bits & 0xFFFFu) == 0x8000u) |
               (uint32_t)((bits & 0x7FFFFFFFu) > 0x7F800000u);
    }
    masters_bits_clear(m->ties, bit, bit + count);
    for (int64_t i = 0; i < count && any != 0; i++)
        m->ties[(bit + i) / 8] |= (unsigned char)(
            master_tie(bits_of_f32(values[i]), weights[i]) << (bit + i) % 8);
}

#endif
