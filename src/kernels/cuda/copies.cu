/* SPDX-License-Identifier: Apache-2.0 */
/* copies.cu - copies of parts of rows: a thread has a unit of bytes. */
#include "kernels/cuda/words.h"

#define COPY_UNIT(type) *(type *)to = from ? *(const type *)from : (type)0

CUDA_KERNEL(copy_parts)
{
    const struct device_parts *c = &p->of;
    const int64_t number = BLOCK * BLOCK_THREADS + THREAD;
    const int64_t part = number / p->units, unit = number % p->units;
    const int64_t row = part / c->parts, place = part % c->parts;
    const int64_t halves = unit / 2 + unit % 2 * (p->units / 2);
    const bool apart = c->turn == TURN_APART, near = c->turn == TURN_NEAR;
    char *to = (char *)c->to.at + row * c->to.apart + place * c->to_part;
    const char *from = (const char *)c->from.at;

    if (row >= c->rows) return;
    to += (apart ? halves : unit) * p->unit;
    if (from)
        from += row * c->from.apart + place * c->from_part +
                (near ? halves : unit) * p->unit;
    if (p->unit == 8) COPY_UNIT(uint64_t);
    else if (p->unit == 4) COPY_UNIT(uint32_t);
    else if (p->unit == 2) COPY_UNIT(uint16_t);
    else COPY_UNIT(uint8_t);
}
