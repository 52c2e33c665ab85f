/* SPDX-License-Identifier: Apache-2.0 */
/* test_forest.c - the tree over spans, grown in any order, is one tree. */
#include "nn/forest.h"

#include <stdio.h>
#include <string.h>

#include "tests/test.h"

enum { TEXT = 512 };

/* Slots hold the sum as it was written down. */
struct sums { char text[FOREST_SPANS_MAX][TEXT]; };

static status write_sum(void *argument, int left, int right)
{
    struct sums *sums = argument;
    char both[2 * TEXT + 8];

    snprintf(both, sizeof both, "(%s+%s)", sums->text[left],
             sums->text[right]);
    CHECK(strlen(both) < TEXT);
    snprintf(sums->text[left], TEXT, "%s", both);
    return OK;
}

/* Spans first .. count - 1 in the order (start + step i) mod count; those
 * before `first` have nothing. */
static void grow(struct sums *sums, int count, int first, int start, int step,
                 char *out)
{
    struct forest forest = {0};
    int slot;

    for (int i = 0; i < count; i++) {
        const int span = (start + step * i) % count;

        slot = span < first ? -1 : forest_take(&forest);
        if (slot >= 0) snprintf(sums->text[slot], TEXT, "%d", span);
        IS_OK(forest_put(&forest, span, slot, write_sum, sums));
    }
    IS_OK(forest_root(&forest, &slot, write_sum, sums));
    snprintf(out, TEXT, "%s", sums->text[slot]);
}

TEST(the_order_does_not_show)
{
    static struct sums sums;
    static const int steps[] = {1, 3, 5, 7, 11};
    char want[TEXT], have[TEXT];

    for (int count = 1; count <= 16; count++)
        for (int first = 0; first < count; first++) {
            grow(&sums, count, first, 0, 1, want);
            for (int i = 0; i < ROWS(steps); i++) {
                if (count % steps[i] == 0 && steps[i] > 1) continue;
                grow(&sums, count, first, i, steps[i], have);
                EQUAL_TEXT(have, want);
            }
        }
}

TEST(it_is_the_tree)
{
    static struct sums sums;
    char have[TEXT];

    grow(&sums, 4, 0, 0, 3, have);
    EQUAL_TEXT(have, "((0+1)+(2+3))");
    grow(&sums, 6, 0, 2, 5, have);
    EQUAL_TEXT(have, "(((0+1)+(2+3))+(4+5))");
    grow(&sums, 8, 3, 5, 3, have); /* 0, 1 and 2 have nothing */
    EQUAL_TEXT(have, "(3+((4+5)+(6+7)))");
}

static status nothing(void *argument, int left, int right)
{
    (void)argument;
    return left == right ? ERR_VERIFY : OK;
}

TEST(few_slots_are_in_use)
{
    struct forest forest = {0};

    for (int i = 0; i < 64; i++)
        IS_OK(forest_put(&forest, i, forest_take(&forest), nothing, NULL));
    EQUAL_INT(forest.most, 7);
    EQUAL_INT(forest.count, 1);
}

TEST_MAIN(the_order_does_not_show, it_is_the_tree, few_slots_are_in_use)
