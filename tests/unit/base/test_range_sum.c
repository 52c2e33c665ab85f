/* SPDX-License-Identifier: Apache-2.0 */
/* test_range_sum.c - mirrors src/base/range_sum.h: pieces add up in any order
 * and size; a changed bit, and pages that changed places, show. */
#include "base/range_sum.h"

#include <string.h>
#include "tests/test.h"

enum { BYTES = 3 * RANGE_SUM_PAGE + 100 };

static unsigned char area[BYTES] __attribute__((aligned(64)));
static unsigned char elsewhere[BYTES + 1] __attribute__((aligned(64)));

static void fill(void)
{
    for (uint32_t i = 0; i < BYTES; i++)
        area[i] = (unsigned char)(i * 2654435761u >> 13);
}

static uint64_t whole(void)
{
    const struct range_sum sum = {(const char *)area, 0};

    return range_sum_of(&sum, area, area, BYTES);
}

TEST(pieces_add_up)
{
    static const size_t sizes[] = {1, 3, 4, 7, 64, 1000, 4096, 5000, BYTES};

    fill();
    memcpy(elsewhere + 1, area, BYTES); /* not at a multiple of 4 */
    for (int s = 0; s < ROWS(sizes); s++) {
        struct range_sum sum = {(const char *)area, 0};

        for (size_t end = BYTES, first; end > 0; end = first) { /* backward */
            first = end > sizes[s] ? end - sizes[s] : 0;
            range_sum_add(&sum, range_sum_of(&sum, area + first,
                                             elsewhere + 1 + first,
                                             end - first));
        }
        EQUAL_INT(sum.total, whole());
    }
}

TEST(changes_show)
{
    fill();
    const uint64_t before = whole();

    for (size_t i = 0; i < BYTES; i += 37)
        for (int bit = 0; bit < 8; bit++) {
            area[i] ^= (unsigned char)(1 << bit);
            CHECK(whole() != before);
            area[i] ^= (unsigned char)(1 << bit);
        }
    memcpy(elsewhere, area, RANGE_SUM_PAGE);
    memcpy(area, area + RANGE_SUM_PAGE, RANGE_SUM_PAGE);
    memcpy(area + RANGE_SUM_PAGE, elsewhere, RANGE_SUM_PAGE);
    CHECK(whole() != before);
}

static uint32_t word_at(size_t place)
{
    uint32_t word;

    memcpy(&word, area + place, sizeof word);
    return word;
}

static void add_at(size_t place, uint32_t change)
{
    const uint32_t word = word_at(place) + change;

    memcpy(area + place, &word, sizeof word);
}

/* Sums of 32 bits with a factor for each page saw none of these: two words of a
 * page that changed by as much in opposite ways, or places, and two signs. */
TEST(two_words_that_change_show)
{
    static const size_t others[] = {4, 28, 64, 128, 4092 - 60, 2048, 4096,
                                    8192 + 4};
    static const uint32_t changes[] = {1, 2, 0x8000, 0x10000, 0x1000000,
                                       0x40000000, 0x80000000};

    fill();
    const uint64_t before = whole();

    for (int i = 0; i < ROWS(others); i++) {
        const size_t a = 60, b = 60 + others[i];
        const uint32_t one = word_at(a), other = word_at(b);

        CHECK(one != other);
        add_at(a, other - one);
        add_at(b, one - other);
        CHECK(whole() != before); /* they changed places */
        add_at(a, one - other);
        add_at(b, other - one);
        for (int c = 0; c < ROWS(changes); c++)
            for (int way = 0; way < 2; way++) {
                add_at(a, changes[c]);
                add_at(b, way ? changes[c] : 0 - changes[c]);
                CHECK(whole() != before);
                add_at(a, 0 - changes[c]);
                add_at(b, way ? 0 - changes[c] : changes[c]);
            }
    }
    CHECK(whole() == before);
}

/* The factors of words are those that the formula states, however they are
 * added up. */
TEST(each_word_has_its_factor)
{
    memset(area, 0, BYTES);
    for (size_t place = 0; place + 4 <= BYTES; place += 4) {
        add_at(place, 1);
        EQUAL_INT(whole(), range_sum_factor(place));
        CHECK(range_sum_factor(place) % 2 == 1);
        add_at(place, 0xFFFFFFFFu);
    }
}

TEST_MAIN(pieces_add_up, changes_show, two_words_that_change_show,
          each_word_has_its_factor)
