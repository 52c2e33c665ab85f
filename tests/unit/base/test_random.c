/* SPDX-License-Identifier: Apache-2.0 */
/* test_random.c - mirrors src/base/random.c. */
#include "base/random.h"

#include <math.h>
#include "tests/test.h"

/* The vectors that Salmon et al. publish with their implementation. */
TEST(philox_gives_the_published_words)
{
    static const struct {
        struct random_key key;
        uint64_t low, high;
        uint32_t words[4];
    } rows[] = {
        {{{0, 0}}, 0, 0, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
        {{{0xffffffff, 0xffffffff}}, UINT64_MAX, UINT64_MAX,
         {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
        {{{0xa4093822, 0x299f31d0}}, 0x85a308d3243f6a88, 0x0370734413198a2e,
         {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
    };

    for (int i = 0; i < ROWS(rows); i++) {
        uint32_t out[4];

        random_block(rows[i].key, rows[i].low, rows[i].high, out);
        EQUAL_BYTES(out, rows[i].words, sizeof out);
    }
}

TEST(keys_differ_by_seed_and_name)
{
    struct random_key keys[400];
    char name[24];

    for (int i = 0; i < 400; i++) {
        snprintf(name, sizeof name, "layer %d", i / 20);
        keys[i] = random_key_make((uint64_t)(i % 20), name);
        for (int j = 0; j < i; j++)
            CHECK(memcmp(&keys[i], &keys[j], sizeof *keys) != 0);
    }
    /* Runs of other versions must draw the same numbers. */
    EQUAL_INT(random_key_make(1, "order").word[0], 1174111614);
}

TEST(tops_are_the_first_bits_of_uniform_numbers)
{
    const uint64_t firsts[] = {0, 1000003, UINT32_MAX - 20ull, 1ull << 40};
    uint32_t out[RANDOM_MANY];

    for (int k = 0; k < ROWS(firsts); k++) {
        const struct random_key key = random_key_make((uint64_t)k, "tops");

        random_uniform_tops(key, firsts[k], out);
        for (uint64_t i = 0; i < RANDOM_MANY; i++) {
            const double x = random_uniform(key, firsts[k] + i);

            CHECK(out[i] == (uint32_t)(x * 0x1p32));
        }
    }
}

TEST(uniform_numbers_are_uniform)
{
    enum { N = 100000, BINS = 50 };
    const struct random_key key = random_key_make(7, "test");
    int bins[BINS] = {0};
    double sum = 0, chi = 0;

    for (uint64_t i = 0; i < N; i++) {
        const double x = random_uniform(key, i);

        CHECK(x >= 0 && x < 1);
        sum += x;
        bins[(int)(x * BINS)]++;
    }
    /* Six standard deviations; the numbers are always the same. */
    CHECK(fabs(sum / N - 0.5) < 6 * sqrt(1.0 / 12 / N));
    for (int i = 0; i < BINS; i++)
        chi += (bins[i] - N / BINS) * (double)(bins[i] - N / BINS) /
               (N / BINS);
    CHECK(chi < BINS + 6 * sqrt(2.0 * BINS));
}

TEST(bounded_integers_stay_below)
{
    const struct random_key key = random_key_make(7, "below");
    int seen[10] = {0};

    for (uint64_t i = 0; i < 10000; i++) seen[random_below(key, i, 10)]++;
    for (int i = 0; i < 10; i++) CHECK(seen[i] > 800 && seen[i] < 1200);
    for (uint64_t i = 0; i < 100; i++) {
        EQUAL_INT(random_below(key, i, 1), 0);
        CHECK(random_below(key, i, UINT64_MAX) < UINT64_MAX);
    }
}

TEST(permutations_are_bijections)
{
    static const uint64_t counts[] = {1,  2,  3,  4,   5,    7,   8, 9,
                                      15, 16, 17, 100, 1000, 4097};
    static unsigned char seen[5000];

    for (int c = 0; c < ROWS(counts); c++) {
        for (uint64_t seed = 0; seed < 5; seed++) {
            const struct random_key key = random_key_make(seed, "order");

            memset(seen, 0, sizeof seen);
            for (uint64_t i = 0; i < counts[c]; i++) {
                const uint64_t image = random_permute(key, counts[c], i);

                CHECK(image < counts[c]);
                seen[image]++;
            }
            for (uint64_t i = 0; i < counts[c]; i++) EQUAL_INT(seen[i], 1);
        }
    }
}

TEST(permutations_of_huge_counts_end)
{
    static const uint64_t counts[] = {
        UINT64_MAX, (UINT64_C(1) << 63) + 1, (UINT64_C(1) << 62) + 1,
        UINT64_C(1) << 32, (UINT64_C(1) << 32) + 1};
    const struct random_key key = random_key_make(3, "order");

    for (int c = 0; c < ROWS(counts); c++)
        for (uint64_t i = 0; i < 1000; i++)
            CHECK(random_permute(key, counts[c], i) < counts[c]);
}

/* Neighbours must not stay neighbours: the mean distance of the images of i
 * and i + 1 is a third of the count when they are independent. */
TEST(permutations_mix)
{
    enum { N = 10007 };
    const struct random_key key = random_key_make(11, "order");
    double sum = 0;

    for (uint64_t i = 0; i + 1 < N; i++)
        sum += fabs((double)random_permute(key, N, i) -
                    (double)random_permute(key, N, i + 1));
    CHECK(fabs(sum / N / N - 1.0 / 3) < 0.02);
}

TEST_MAIN(philox_gives_the_published_words,
          tops_are_the_first_bits_of_uniform_numbers,
          keys_differ_by_seed_and_name,
          uniform_numbers_are_uniform, bounded_integers_stay_below,
          permutations_are_bijections, permutations_of_huge_counts_end,
          permutations_mix)
