/* SPDX-License-Identifier: Apache-2.0 */
/* masters.h - float32 masters of bfloat16 weights in 17 bits beside them.
 *
 *   master   3F7F 9A31   upper and lower half
 *   weight   3F80        the master, rounded to nearest even
 *   lower    9A31
 *   tie      0
 *
 * The upper half is the weight, or, where rounding went up, one less. It went
 * up if the lower half is above 8000, and not if it is below. At 8000 the bit
 * `tie` says it: 1 if rounding went down. No 16 bits could: 65,537 float32
 * numbers are rounded to a weight that is even, since both ties beside it are
 * (tests/unit/kernels/test_masters.c counts them). A NaN is rounded to a quiet
 * one with the same upper half; then `tie` says that the master was not quiet.
 * So every master comes back, bit by bit. */
#ifndef LOCKSTEP_KERNELS_MASTERS_H
#define LOCKSTEP_KERNELS_MASTERS_H

#include "tensor/tensor.h"

/* n masters; an operand of masters_join and masters_split. */
struct masters {
    struct tensor values;  /* [n] float32: as numbers */
    struct tensor weights; /* [n] bfloat16 */
    struct tensor lower;   /* [2 n] u8: uint16 */
    struct tensor ties;    /* [(first + n + 7) / 8] u8: a bit for each, */
    int first;             /* from this one on, 0 to 7; other bits are somebody
                            * else's */
};

static inline uint32_t master_join(uint32_t weight, uint32_t lower,
                                   uint32_t tie)
{
    const bool nan = (weight & 0x7FFFu) > 0x7F80u;
    const uint32_t up = lower > 0x8000u || (lower == 0x8000u && tie == 0);

    return (nan ? weight & ~(tie << 6) : weight - up) << 16 | lower;
}

static inline uint32_t master_tie(uint32_t bits, uint32_t weight)
{
    const bool nan = (bits & 0x7FFFFFFFu) > 0x7F800000u;
    const uint32_t same = bits >> 16 == weight;

    return nan ? !same : (bits & 0xFFFFu) == 0x8000u && same;
}

/* Memory of many. */
struct master_arenas {
    void *weights, *lower;
    unsigned char *ties;   /* NULL: masters are not split */
};

/* `count` masters: from weight `weight` on, whose other parts begin at number
 * `at`; values of none. */
struct masters masters_at(const struct master_arenas *arenas, int64_t weight,
                          int64_t at, int64_t count);
/* The number of masters, after checks of the operands. */
int64_t masters_check(const struct masters *m);
/* Masters [first, first + count) of those; values of none. */
struct masters masters_part(const struct masters *m, int64_t first,
                            int64_t count);
/* out [count] = masters first, first + step, ...; on the host. */
void masters_read(const struct masters *m, int64_t first, int64_t step,
                  int64_t count, float *out);
/* All of them, from values [n]; on the host. */
void masters_write(const struct masters *m, const float *values);

#endif
