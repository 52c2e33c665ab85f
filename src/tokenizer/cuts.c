/* SPDX-License-Identifier: Apache-2.0 */
/* cuts.c - where no merge can ever join two characters. */
#include "tokenizer/cuts.h"

#include "base/text.h"

enum { BITS_PER_MERGE = 32, BITS_MIN = 1 << 12 };

status cuts_init(struct cuts *cuts, struct arena *arena, int64_t merges)
{
    uint64_t bits = BITS_MIN;
    void *memory;

    while (bits < (uint64_t)merges * BITS_PER_MERGE) bits *= 2;
    TRY(arena_take_array(arena, bits / 64, sizeof *cuts->bits, &memory));
    cuts->bits = memory;
    cuts->mask = bits - 1;
    return OK;
}

static uint64_t place_of(const struct cuts *cuts, uint32_t left,
                         uint32_t right)
{
    const uint64_t pair = (uint64_t)left << 32 | right;

    return (pair * 0x9E3779B97F4A7C15u >> 20) & cuts->mask;
}

void cuts_join(struct cuts *cuts, uint32_t left, uint32_t right)
{
    const uint64_t place = place_of(cuts, left, right);

    cuts->bits[place / 64] |= (uint64_t)1 << place % 64;
}

static bool joined(const struct cuts *cuts, uint32_t left, uint32_t right)
{
    const uint64_t place = place_of(cuts, left, right);

    return (cuts->bits[place / 64] >> place % 64 & 1) != 0;
}

static bool is_letter(uint32_t code)
{
    return (code | 0x20) - 'a' < 26;
}

size_t cuts_next(const struct cuts *cuts, const unsigned char *word, size_t at,
                 size_t length)
{
    uint32_t left, right;

    at += (size_t)text_utf8_decode((const char *)word + at, length - at,
                                   &left);
    while (at < length) {
        size_t step = 1;

        right = word[at];
        if (right >= 0x80)
            step = (size_t)text_utf8_decode((const char *)word + at,
                                            length - at, &right);
        if (!(is_letter(left) && is_letter(right)) &&
            !joined(cuts, left, right))
            return at;
        left = right;
        at += step;
    }
    return at;
}
