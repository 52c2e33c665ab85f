/* SPDX-License-Identifier: Apache-2.0 */
/* codes.c - 8-bit states and split masters as numbers, for checkpoints and
 * proofs. Speed matters little here: the update itself has kernels. */
#include "kernels/code8.h"
#include "kernels/kernels.h"
#include "optimizer/states.h"

static int bits_of(const struct state_codes *codes)
{
    return codes->positive ? CODE8_BITS_MAX : CODE8_SIGNED_BITS;
}

static struct held_cursor begin(const struct state_codes *codes)
{
    return (struct held_cursor){.param = codes->param,
                                .holding = codes->holding,
                                .range = &codes->range};
}

/* Number of an element of the range in the leaf; -1: it is in another. */
static int64_t in_leaf(const struct held_cursor *c, int64_t element)
{
    const struct held_leaf *now = &c->now;
    const int64_t width = now->rows > 1 ? c->param->cols : now->count;
    const int64_t row = (element - now->first) / width;
    const int64_t column = (element - now->first) % width;

    if (element < now->first || row >= now->rows || column >= now->count)
        return -1;
    return row * now->count + column;
}

/* Neighbours are mostly in one leaf: the search goes on from the last one. */
static int64_t find(const struct state_codes *codes, struct held_cursor *c,
                    int64_t element)
{
    int64_t number = c->now.rows > 0 ? in_leaf(c, element) : -1;

    if (number >= 0) return number;
    *c = begin(codes);
    while (held_next(c)) {
        number = in_leaf(c, element);
        if (number >= 0) return number;
    }
    CHECK(false); /* every element is in a leaf */
    return -1;
}

void state_decode(const struct state_codes *codes, int64_t first, int64_t step,
                  int64_t count, float *out)
{
    struct held_cursor c = begin(codes);
    float table[CODE8_COUNT];

    if (codes->codes == NULL) {
        masters_read(&codes->masters, first, step, count, out);
        return;
    }
    code8_table(bits_of(codes), table);
    while (count > 0) {
        const int64_t number = find(codes, &c, first);
        const int64_t rest = c.now.count - number % c.now.count;
        const int64_t n = step > 1 ? 1 : rest < count ? rest : count;

        for (int64_t i = number; i < number + n; i++)
            *out++ = table[codes->codes[c.now.at + i]] *
                     codes->scales[c.now.blocks + i / SHARD_BLOCK];
        first += n * step;
        count -= n;
    }
}

/* One block of a leaf, `first` numbers in. */
static void encode_block(const struct state_codes *codes,
                         const struct held_cursor *c,
                         const struct code8_bins *bins, const float *elements,
                         int64_t first)
{
    const struct held_leaf *now = &c->now;
    const int64_t all = now->rows * now->count;
    const int64_t width = now->rows > 1 ? c->param->cols : now->count;
    const int64_t count = all - first < SHARD_BLOCK ? all - first
                                                    : SHARD_BLOCK;
    int64_t row = first / now->count, column = first % now->count;
    float block[SHARD_BLOCK], largest = 0, inverse;

    for (int64_t i = 0; i < count; i++) {
        const float x = elements[now->first + row * width + column];
        const float size = x < 0 ? -x : x;

        block[i] = x;
        largest = size > largest ? size : largest;
        if (++column < now->count) continue;
        column = 0;
        row++;
    }
    inverse = code8_inverse(largest);
    codes->scales[now->blocks + first / SHARD_BLOCK] =
        inverse > 0 ? largest : 0;
    for (int64_t i = 0; i < count; i++)
        codes->codes[now->at + first + i] =
            (unsigned char)code8_of(bins, bins->bits, block[i], inverse);
}

void state_encode(const struct state_codes *codes, const float *elements)
{
    struct held_cursor c = begin(codes);
    struct code8_bins bins;

    if (codes->codes == NULL) {
        masters_write(&codes->masters, elements);
        return;
    }
    code8_bins(bits_of(codes), &bins);
    while (held_next(&c))
        for (int64_t i = 0; i < c.now.rows * c.now.count; i += SHARD_BLOCK)
            encode_block(codes, &c, &bins, elements, i);
}
