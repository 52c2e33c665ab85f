/* SPDX-License-Identifier: Apache-2.0 */
/* test_lower.c - mirrors src/schedule/lower.c. */
#include "schedule/lower.h"

#include "tests/test.h"

TEST(transfers_stand_around_what_they_serve)
{
    struct schedule s = {0};
    struct text text = {0};

    IS_OK(schedule_build(&s, "1f1b", 2, 2));
    IS_OK(schedule_lower(&s));
    IS_OK(schedule_write(&s, &text));
    EQUAL_TEXT(text.bytes,
               "F0.0 SF0.0 RB0.0 F0.1 SF0.1 RB0.1 B0.0+W0.0 B0.1+W0.1\n"
               "RF1.0 F1.0 RF1.1 B1.0+W1.0 SB1.0 F1.1 B1.1+W1.1 SB1.1\n");
    text_free(&text);
    FAILS(schedule_lower(&s), ERR_CONFIG, "already there");
    schedule_free(&s);
}

static int count_kind(const struct schedule *s, enum action_kind kind)
{
    int count = 0;

    for (int rank = 0; rank < s->ranks; rank++)
        for (int i = 0; i < s->lists[rank].count; i++)
            count += s->lists[rank].items[i].kind == (int)kind;
    return count;
}

/* Each border between stages on two ranks is crossed once there and once back
 * by each micro-batch; the fold of a V is no border. */
TEST(each_border_is_crossed_twice)
{
    static const struct { const char *name; int borders; } rows[] = {
        {"1f1b", 3}, {"zb-2p", 3}, {"interleaved", 7}, {"breadth-first", 7},
        {"zb-v", 6}, {"v-min", 6}, {"dualpipe", 3}, {"dualpipev", 6}};

    for (int i = 0; i < ROWS(rows); i++) {
        struct schedule s = {0};

        IS_OK(schedule_build(&s, rows[i].name, 4, 12));
        IS_OK(schedule_lower(&s));
        for (int kind = ACTION_SEND_FORWARD; kind < ACTION_KIND_COUNT; kind++)
            EQUAL_INT(count_kind(&s, (enum action_kind)kind),
                      12 * rows[i].borders);
        for (int kind = 0; kind < ACTION_COMPUTE_COUNT; kind++)
            EQUAL_INT(count_kind(&s, (enum action_kind)kind), 12 * s.stages);
        schedule_free(&s);
    }
}

/* Without any one of its transfers a schedule stops, and says where. */
TEST(every_transfer_is_needed)
{
    for (int rank = 0; rank < 4; rank++)
        for (int i = 0;; i++) {
            struct schedule s = {0};
            struct action_list *list;

            IS_OK(schedule_build(&s, "zb-v", 4, 4));
            IS_OK(schedule_lower(&s));
            list = &s.lists[rank];
            if (i == list->count) {
                schedule_free(&s);
                break;
            }
            if (list->items[i].kind >= ACTION_COMPUTE_COUNT) {
                memmove(&list->items[i], &list->items[i + 1],
                        (size_t)(list->count - i - 1) *
                            sizeof(struct action));
                list->count--;
                FAILS(schedule_verify(&s), ERR_CONFIG, "is missing on rank");
            }
            schedule_free(&s);
        }
}

TEST_MAIN(transfers_stand_around_what_they_serve,
          each_border_is_crossed_twice,
          every_transfer_is_needed)
