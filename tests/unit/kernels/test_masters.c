/* SPDX-License-Identifier: Apache-2.0 */
/* test_masters.c - mirrors src/kernels/masters.h: every float32 number comes
 * back from its two parts, in every instruction set, and 16 bits beside a
 * weight would not do. */
#include "kernels/masters.h"

#include <string.h>

#include "base/check.h"
#include "kernels/element.h"
#include "kernels/kernels.h"
#include "tests/test.h"

enum { MOST = 2048, BEFORE = 7 };

struct arrays {
    uint32_t values[MOST];
    uint16_t weights[BEFORE + MOST], lower[BEFORE + MOST];
    unsigned char ties[(MOST + BEFORE) / 8 + 2];
};

static struct masters masters_of(struct arrays *x, int first, int64_t count)
{
    const struct master_arenas arenas = {x->weights, x->lower, x->ties};
    struct masters m = masters_at(&arenas, first, first, count);

    m.values = tensor_1d(x->values, DTYPE_F32, count);
    return m;
}

static uint32_t mixed(uint32_t i)
{
    i = (i ^ i >> 15) * 2654435761u;
    return i ^ i >> 13;
}

/* The lower halves that matter, and some. */
static uint32_t lower_half(uint32_t upper, int i)
{
    static const uint16_t edges[] = {0, 1, 2, 0x7FFE, 0x7FFF, 0x8000, 0x8001,
                                     0x8002, 0xFFFE, 0xFFFF};

    return i < ROWS(edges) ? edges[i] : mixed(upper * 16 + (uint32_t)i) >> 16;
}

/* All upper halves: both signs, subnormal numbers, every exponent, infinity and
 * NaN, quiet or not. */
TEST(every_master_comes_back)
{
    enum { EACH = 16, UPPER = MOST / EACH };
    static struct arrays x, y;
    struct stream stream = {0};
    int64_t ties = 0;

    for (uint32_t upper = 0; upper < 65536; upper += UPPER) {
        struct masters m = masters_of(&x, 3, MOST);
        struct masters n = masters_of(&x, 3, MOST);

        n.values.data = y.values;
        for (int i = 0; i < MOST; i++)
            x.values[i] = (upper + (uint32_t)i / EACH) << 16 |
                          lower_half(upper + (uint32_t)i / EACH, i % EACH);
        IS_OK(kernels_reference_f32.masters_split(&stream, &m));
        IS_OK(kernels_reference_f32.masters_join(&stream, &n));
        EQUAL_BYTES(x.values, y.values, sizeof x.values);
        for (int i = 0; i < MOST; i++) {
            CHECK(x.weights[3 + i] == bf16_from_f32(f32_of_bits(x.values[i])));
            ties += x.ties[(3 + i) / 8] >> (3 + i) % 8 & 1;
        }
    }
    /* A tie rounds down beside each even upper half of a number; NaN that is
     * not quiet has 63 or 64 upper halves of each sign. */
    CHECK(ties >= 2 * 0x7F80 / 2 + 2 * 63 * EACH &&
          ties <= 2 * 0x7F80 / 2 + 2 * 64 * EACH);
}

/* Why a master needs a 17th bit. */
TEST(even_weights_have_more_masters_than_16_bits_count)
{
    int64_t even = 0, odd = 0;

    for (uint32_t bits = 0x3F7F0000u; bits < 0x3F830000u; bits++) {
        even += bf16_from_f32(f32_of_bits(bits)) == 0x3F80;
        odd += bf16_from_f32(f32_of_bits(bits)) == 0x3F81;
    }
    CHECK(even == 65537 && odd == 65535);
}

static void fill(struct arrays *x)
{
    memset(x, 0x5A, sizeof *x);
    for (int i = 0; i < MOST; i++) {
        x->values[i] = mixed((uint32_t)i);
        if (i % 7 == 0) /* ties, rounded up and down */
            x->values[i] = (x->values[i] & 0xFFFF0000u) | 0x8000u;
        if (i % 31 == 0) x->values[i] |= 0x7F800000u;
    }
}

/* Splits and joins values [start, start + count), whose bits begin with any of
 * a byte. */
static void compare(const struct kernels *k, int first, int start,
                    int64_t count)
{
    static struct arrays wanted, found;
    const struct kernels *const tables[2] = {&kernels_reference_f32, k};
    struct arrays *const arrays[2] = {&wanted, &found};
    struct stream stream = {0};

    for (int i = 0; i < 2; i++) {
        struct arrays *x = arrays[i];
        struct masters all = masters_of(x, first, MOST), m;

        fill(x);
        m = masters_part(&all, start, count);
        m.values = tensor_1d(x->values + start, DTYPE_F32, count);
        IS_OK(tables[i]->masters_split(&stream, &m));
        if (count > 0) memset(x->values + start, 0, (size_t)count * 4);
        IS_OK(tables[i]->masters_join(&stream, &m));
    }
    EQUAL_BYTES(&wanted, &found, sizeof wanted);
    fill(&found);
    EQUAL_BYTES(wanted.values, found.values, sizeof wanted.values);
}

TEST(instruction_sets_have_the_bits_of_the_reference)
{
    static const int64_t counts[] = {0, 1, 5, 8, 16, 255, 256, 500, 1900};

    for (int isa = ISA_PLAIN; isa < ISA_COUNT; isa++) {
        struct kernels table;

        if (kernels_get(&table, DTYPE_BF16, (enum isa)isa) != OK) {
            status_clear();
            continue;
        }
        for (int c = 0; c < ROWS(counts); c++)
            for (int first = 0; first < 8; first++)
                compare(&table, first, 5 * c + first % 3, counts[c]);
    }
}

TEST_MAIN(every_master_comes_back,
          even_weights_have_more_masters_than_16_bits_count,
          instruction_sets_have_the_bits_of_the_reference)
