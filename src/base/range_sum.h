/* SPDX-License-Identifier: Apache-2.0 */
/* range_sum.h - a checksum to which the parts of a range add in any order, by
 * whichever thread writes them: so it needs no pass of its own.
 *
 *   sum of 32-bit words, each times an odd factor of its place, mod 2^64
 *
 * A changed word always shows; changes of several words, also words that
 * changed places, are missed with a chance of about 2^-63. Source: Lemire and
 * Kaser 2014, "Strongly universal string hashing is fast" (multilinear
 * hashing). A factor is the product of one for its page, line of 64 bytes and
 * word of that, so lines need no multiplications but additions:
 *
 *   all = sum of lines, running = sum of `all` after each of n lines
 *   sum of k line(k), k = first ... first + n - 1: (first + n) all - running */
#ifndef LOCKSTEP_BASE_RANGE_SUM_H
#define LOCKSTEP_BASE_RANGE_SUM_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct range_sum {
    const char *base; /* of the range, at a multiple of 4 bytes */
    uint64_t total;   /* of what was added */
};

enum { RANGE_SUM_PAGE = 4096, RANGE_SUM_LINE = 64, RANGE_SUM_WORDS = 16 };

/* Even: twice a number without pattern. */
#define RANGE_SUM_PAGES UINT64_C(0x9E3779B97F4A7C16)
#define RANGE_SUM_LINES UINT64_C(0xD1342543DE82EF96)
#define RANGE_SUM_LANES UINT64_C(0xAF251AF3B0F025B6)

/* Adjacent lines within one page, by words of a line: those at even places, and
 * at odd ones. Vectors, since they stay in registers where arrays do not. */
typedef uint64_t range_sum_half
    __attribute__((vector_size(RANGE_SUM_WORDS / 2 * sizeof(uint64_t))));
struct range_sum_lines {
    range_sum_half all[2], running[2];
};

static inline uint64_t range_sum_page(size_t place)
{
    return place / RANGE_SUM_PAGE * RANGE_SUM_PAGES + 1;
}

static inline uint64_t range_sum_lane(size_t lane)
{
    return lane * RANGE_SUM_LANES + 1;
}

/* The word that is `place` bytes from the base has this factor. */
static inline uint64_t range_sum_factor(size_t place)
{
    const size_t line = place % RANGE_SUM_PAGE / RANGE_SUM_LINE;

    return range_sum_page(place) * (line * RANGE_SUM_LINES + 1) *
           range_sum_lane(place % RANGE_SUM_LINE / 4);
}

static inline __attribute__((always_inline)) void
range_sum_line(struct range_sum_lines *lines, const void *line)
{
    range_sum_half pairs;

    memcpy(&pairs, line, sizeof pairs); /* the lower half is the even word */
    lines->all[0] += pairs & UINT32_MAX;
    lines->all[1] += pairs >> 32;
    lines->running[0] += lines->all[0];
    lines->running[1] += lines->all[1];
}

/* `count` lines, of which the first is `place` from the base: their share of
 * the total. */
static inline uint64_t range_sum_close(const struct range_sum_lines *lines,
                                       size_t place, size_t count)
{
    const size_t end = place % RANGE_SUM_PAGE / RANGE_SUM_LINE + count;
    uint64_t sum = 0;

    for (size_t j = 0; j < RANGE_SUM_WORDS; j++) {
        const uint64_t all = lines->all[j % 2][j / 2];

        sum += range_sum_lane(j) *
               (all + RANGE_SUM_LINES *
                          (end * all - lines->running[j % 2][j / 2]));
    }
    return range_sum_page(place) * sum;
}

/* Adds up whole lines within one page. */
static inline uint64_t range_sum_whole(const unsigned char *data, size_t place,
                                       size_t count)
{
    struct range_sum_lines lines = {0};

    for (size_t k = 0; k < count; k++)
        range_sum_line(&lines, data + k * RANGE_SUM_LINE);
    return range_sum_close(&lines, place, count);
}

/* Adds up bytes, of any words. */
static inline uint64_t range_sum_bytes(const unsigned char *data, size_t place,
                                       size_t bytes)
{
    uint64_t sum = 0;
    uint32_t word;

    if ((place | bytes) % sizeof word == 0) {
        for (size_t i = 0; i < bytes; i += sizeof word) {
            memcpy(&word, data + i, sizeof word);
            sum += word * range_sum_factor(place + i);
        }
        return sum;
    }
    for (size_t i = 0; i < bytes; i++)
        sum += ((uint64_t)data[i] << 8 * ((place + i) % 4)) *
               range_sum_factor(place + i);
    return sum;
}

/* Adds up bytes within one page, `place` from the base of the range. */
static inline uint64_t range_sum_piece(const unsigned char *data, size_t place,
                                       size_t bytes)
{
    const size_t before = (0 - place) % RANGE_SUM_LINE;
    const size_t head = before < bytes ? before : bytes;
    const size_t lines = (bytes - head) / RANGE_SUM_LINE;
    const size_t used = head + lines * RANGE_SUM_LINE;

    return range_sum_bytes(data, place, head) +
           (lines > 0 ? range_sum_whole(data + head, place + head, lines)
                      : 0) +
           range_sum_bytes(data + used, place + used, bytes - used);
}

/* Adds up bytes whose place in the range is `at`, though they lie at `data`. */
static inline uint64_t range_sum_of(const struct range_sum *sum,
                                    const void *at, const void *data,
                                    size_t bytes)
{
    const unsigned char *from = data;
    size_t place = (size_t)((const char *)at - sum->base);
    uint64_t total = 0;

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

static inline void range_sum_add(struct range_sum *sum, uint64_t part)
{
    __atomic_fetch_add(&sum->total, part, __ATOMIC_RELAXED);
}

#endif
