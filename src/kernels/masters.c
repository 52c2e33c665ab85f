/* SPDX-License-Identifier: Apache-2.0 */
/* masters.c - split masters on the host, element by element. */
#include "kernels/masters.h"

#include "base/check.h"
#include "kernels/element.h"

int64_t masters_check(const struct masters *m)
{
    const int64_t count = tensor_count(&m->weights);

    CHECK(m->weights.dtype == DTYPE_BF16 && m->lower.dtype == DTYPE_U8 &&
          m->ties.dtype == DTYPE_U8);
    CHECK(tensor_count(&m->lower) == 2 * count);
    CHECK(m->first >= 0 && m->first < 8);
    CHECK(tensor_count(&m->ties) == (m->first + count + 7) / 8);
    return count;
}

struct masters masters_at(const struct master_arenas *arenas, int64_t weight,
                          int64_t at, int64_t count)
{
    const int first = (int)(at % 8);

    return (struct masters){
        .weights = tensor_1d((uint16_t *)arenas->weights + weight, DTYPE_BF16,
                             count),
        .lower = tensor_1d((uint16_t *)arenas->lower + at, DTYPE_U8,
                           2 * count),
        .ties = tensor_1d(arenas->ties + at / 8, DTYPE_U8,
                          (first + count + 7) / 8),
        .first = first};
}

struct masters masters_part(const struct masters *m, int64_t first,
                            int64_t count)
{
    const struct master_arenas all = {
        m->weights.data, (uint16_t *)m->lower.data - m->first, m->ties.data};

    return masters_at(&all, first, m->first + first, count);
}

void masters_read(const struct masters *m, int64_t first, int64_t step,
                  int64_t count, float *out)
{
    const uint16_t *weights = m->weights.data, *lower = m->lower.data;
    const unsigned char *ties = m->ties.data;

    for (int64_t i = first; count > 0; i += step, count--)
        *out++ = f32_of_bits(master_join(
            weights[i], lower[i],
            ties[(m->first + i) / 8] >> (m->first + i) % 8 & 1));
}

void masters_write(const struct masters *m, const float *values)
{
    const int64_t count = masters_check(m);
    uint16_t *weights = m->weights.data, *lower = m->lower.data;
    unsigned char *ties = m->ties.data;

    for (int64_t i = 0; i < count; i++) {
        const uint32_t bits = bits_of_f32(values[i]);
        const uint32_t weight = element_to_bf16(values[i]);
        unsigned char *byte = &ties[(m->first + i) / 8];
        const int at = (int)((m->first + i) % 8);

        weights[i] = (uint16_t)weight;
        lower[i] = (uint16_t)bits;
        *byte = (unsigned char)((*byte & ~(1u << at)) |
                                master_tie(bits, weight) << at);
    }
}
