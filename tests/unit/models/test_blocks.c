/* SPDX-License-Identifier: Apache-2.0 */
/* test_blocks.c - sets of blocks: periods and text, there and back. */
#include "models/blocks.h"
#include "tests/test.h"

TEST(periods_are_found_again)
{
    for (int count = 1; count <= 70; count++)
        for (int period = 0; period <= count; period++) {
            struct blocks set;

            blocks_every(&set, count, period);
            EQUAL_INT(blocks_period(&set, count), period);
            EQUAL_INT(blocks_count(&set), period ? count / period : 0);
        }
}

TEST(other_sets_have_no_period)
{
    struct blocks set;

    blocks_every(&set, 6, 2);
    blocks_put(&set, 0);
    EQUAL_INT(blocks_period(&set, 6), -1);
    IS_OK(blocks_from_text(&set, 6, "here", "0-4"));
    EQUAL_INT(blocks_period(&set, 6), -1);
    IS_OK(blocks_from_text(&set, 6, "here", "0-5"));
    EQUAL_INT(blocks_period(&set, 6), 1);
}

TEST(text_is_read_and_written)
{
    static const struct { const char *in, *out; int count; } rows[] = {
        {"", "", 0},
        {"3", "3", 1},
        {"0-4,6", "0-4,6", 6},
        {"7,1,0-2,2", "0-2,7", 4},
        {"9999", "9999", 1},
        {"0-9999", "0-9999", 10000},
        {"62-65", "62-65", 4},
    };

    for (int i = 0; i < ROWS(rows); i++) {
        struct blocks set;
        struct text text = {0};

        IS_OK(blocks_from_text(&set, BLOCKS_MOST, "here", rows[i].in));
        EQUAL_INT(blocks_count(&set), rows[i].count);
        IS_OK(blocks_to_text(&set, BLOCKS_MOST, &text));
        EQUAL_TEXT(text.length > 0 ? text.bytes : "", rows[i].out);
        text_free(&text);
    }
}

TEST(what_is_no_block_is_refused)
{
    static const char *const texts[] = {
        "8", "0-8", "-1", "5-3", "1,", ",1", "1;2", "1-", "all", "1 2",
        "99999999999999999999", "0x1"};

    for (int i = 0; i < ROWS(texts); i++) {
        struct blocks set;

        FAILS(blocks_from_text(&set, 8, "model.window_except", texts[i]),
              ERR_CONFIG, "is not a list of blocks from 0 to 7");
        status_clear();
    }
}

TEST(blocks_of_a_range_are_counted)
{
    struct blocks set;

    blocks_every(&set, 200, 3);
    for (int first = 0; first < 140; first += 7)
        for (int count = 0; first + count <= 200; count++) {
            int found = 0;

            for (int i = first; i < first + count; i++)
                found += blocks_has(&set, i);
            EQUAL_INT(blocks_among(&set, first, count), found);
        }
}

TEST_MAIN(periods_are_found_again, blocks_of_a_range_are_counted,
          other_sets_have_no_period,
          text_is_read_and_written, what_is_no_block_is_refused)
