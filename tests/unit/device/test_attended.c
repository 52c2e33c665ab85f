/* SPDX-License-Identifier: Apache-2.0 */
/* test_attended.c - mirrors src/device/attended.h: how many query heads a call
 * of a library has, and the room that it takes. */
#include "device/attended.h"

#include "tests/test.h"

enum { SCORES_MOST = 256 << 20 };

/* Scores of bfloat16: of 8192 tokens two heads fill 256 MiB. */
TEST(a_call_has_as_many_heads_as_have_scores_in_the_room)
{
    static const struct { int64_t length; int heads, group, call; } rows[] = {
        {8192, 32, 1, 2},  {4096, 32, 1, 8},  {1024, 32, 1, 32},
        {8192, 32, 4, 4},    /* a group stays whole */
        {4096, 24, 4, 8},    /* 6 groups: 3 calls of 2 */
        {4096, 20, 4, 4},    /* 5 groups: only 5 calls divide them */
        {16384, 8, 1, 1},    /* one head has more, and is not divided */
        {1 << 20, 8, 2, 2},
        {8192, 2, 4, 2}};    /* a leaf has half a group */

    for (int i = 0; i < ROWS(rows); i++)
        EQUAL_INT(attended_heads(rows[i].length, rows[i].heads, rows[i].group),
                  rows[i].call);
}

TEST(calls_divide_the_heads_into_whole_groups)
{
    for (int64_t length = 512; length <= 32768; length *= 2)
        for (int group = 1; group <= 8; group++)
            for (int groups = 1; groups <= 12; groups++) {
                const int heads = group * groups;
                const int call = attended_heads(length, heads, group);

                CHECK(call >= group && call % group == 0);
                CHECK(heads % call == 0);
                CHECK(call == group ||
                      2 * length * length * call <= SCORES_MOST);
            }
}

static struct attended_form form(int64_t length, int heads, int kv_heads,
                                 bool backward)
{
    return (struct attended_form){.length = length, .heads = heads,
                                  .kv_heads = kv_heads, .width = 64,
                                  .backward = backward};
}

TEST(a_row_of_numbers_begins_where_rooms_do)
{
    const struct attended_form forward = form(100, 3, 3, false);
    const struct attended_form backward = form(100, 3, 3, true);

    EQUAL_INT((int)attended_sums(&forward), 0);
    EQUAL_INT((int)attended_sums(&backward), 1280); /* 1200, rounded up */
    EQUAL_INT((int)(attended_sums(&backward) % ATTENDED_ALIGNED), 0);
}

/* Forward: a MiB. Backward: sums, scores of 128 rows for 100, and, where heads
 * share keys, their gradients of each query head. */
TEST(the_room_has_scores_and_shared_keys_of_a_backward_pass)
{
    const struct attended_form forward = form(100, 4, 2, false);
    const struct attended_form alone = form(100, 4, 4, true);
    const struct attended_form shared = form(100, 4, 2, true);
    const int mib = 1 << 20;

    EQUAL_INT((int)attended_room(&forward), mib);
    EQUAL_INT((int)attended_room(&alone),
              (int)attended_sums(&alone) + 4 * 128 * 128 * 2 + mib);
    EQUAL_INT((int)(attended_room(&shared) - attended_room(&alone)),
              4 * 128 * 2 * 64 * 2);
}

TEST_MAIN(a_call_has_as_many_heads_as_have_scores_in_the_room,
          calls_divide_the_heads_into_whole_groups,
          a_row_of_numbers_begins_where_rooms_do,
          the_room_has_scores_and_shared_keys_of_a_backward_pass)
