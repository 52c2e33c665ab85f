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

static uint32_t whole(void)
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
    const uint32_t before = whole();

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

TEST_MAIN(pieces_add_up, changes_show)
