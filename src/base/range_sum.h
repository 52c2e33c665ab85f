/* SPDX-License-Identifier: Apache-2.0 */
/* range_sum.h - a checksum to which the parts of a range add in any order, by
 * whichever thread writes them: so it needs no pass of its own.
 *
 *   sum of 32-bit words, each times an odd factor of its page, mod 2^32
 *
 * A changed bit always shows, and pages that changed places do; words of one
 * page that did are not seen. */
#ifndef LOCKSTEP_BASE_RANGE_SUM_H
#define LOCKSTEP_BASE_RANGE_SUM_H

#include <stddef.h>
#include <stdint.h>

struct range_sum {
    const char *base; /* of the range, at a multiple of 4 bytes */
    uint32_t total;   /* of what was added */
};

enum { RANGE_SUM_PAGE = 4096 };

/* The page that is `place` bytes from the base has this factor. */
static inline uint32_t range_sum_factor(size_t place)
{
    return (uint32_t)(place / RANGE_SUM_PAGE) * 2654435761u * 2 + 1;
}

/* Adds up bytes within one page, `place` from the base of the range. */
static inline uint32_t range_sum_piece(const unsigned char *data, size_t place,
                                       size_t bytes)
{
    const uint32_t factor = range_sum_factor(place);
    uint32_t sum = 0;

    if ((place | bytes | (uintptr_t)data) % 4 == 0) {
        const uint32_t *words = (const uint32_t *)(const void *)data;

        _Pragma("omp simd reduction(+ : sum)")
        for (size_t i = 0; i < bytes / 4; i++) sum += words[i];
        return factor * sum;
    }
    for (size_t i = 0; i < bytes; i++)
        sum += (uint32_t)data[i] << 8 * ((place + i) % 4);
    return factor * sum;
}

/* Adds up bytes whose place in the range is `at`, though they lie at `data`. */
static inline uint32_t range_sum_of(const struct range_sum *sum,
                                    const void *at, const void *data,
                                    size_t bytes)
{
    const unsigned char *from = data;
    size_t place = (size_t)((const char *)at - sum->base);
    uint32_t total = 0;

    while (bytes > 0) {
        const size_t rest = RANGE_SUM_PAGE - place % RANGE_SUM_PAGE;
        const size_t now = rest < bytes ? rest : bytes;

        total += range_sum_piece(from, place, now);
        from += now;
        place += now;
        bytes -= now;
    }
    return total;
}

static inline void range_sum_add(struct range_sum *sum, uint32_t part)
{
    __atomic_fetch_add(&sum->total, part, __ATOMIC_RELAXED);
}

#endif
