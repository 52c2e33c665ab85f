/* SPDX-License-Identifier: Apache-2.0 */
/* test_read.c - mirrors src/schedule/read.c. */
#include "schedule/read.h"

#include "tests/test.h"

static status read_text(struct schedule *out, const char *text)
{
    return schedule_read(out, text, strlen(text), "mine.txt");
}

static const char by_hand[] =
    "# two ranks, the second micro-batch goes the other way\n"
    "F0.0 F1.1<\tB1.1<+W1.1< B0.0   W0.0 # rank 0\r\n"
    "\n"
    "F0.1< F1.0+B0.1<+W0.1< B1.0 W1.0";

TEST(a_stage_on_two_ranks_is_read)
{
    struct schedule s = {0};
    struct text text = {0};

    /* F1.0 needs F0.0 of the other rank, B0.1< needs B1.1<. */
    IS_OK(read_text(&s, by_hand));
    EQUAL_INT(s.ranks, 2);
    EQUAL_INT(s.stages, 2);
    EQUAL_INT(s.turned, 1);
    EQUAL_INT(schedule_rank(&s, 0, 0), 0);
    EQUAL_INT(schedule_rank(&s, 0, 1), 1);
    EQUAL_INT(schedule_bundle(&s.lists[1], 1), 3);
    IS_OK(schedule_write(&s, &text));
    EQUAL_TEXT(text.bytes, "F0.0 F1.1< B1.1<+W1.1< B0.0 W0.0\n"
                           "F0.1< F1.0+B0.1<+W0.1< B1.0 W1.0\n");
    text_free(&text);
    schedule_free(&s);
}

TEST(what_is_wrong_with_a_text_is_said)
{
    static const struct {
        const char *text;
        status code;
        const char *words;
    } rows[] = {
        {"", ERR_FORMAT, "no actions found"},
        {" # nothing\n\n", ERR_FORMAT, "no actions found"},
        {"F0.0\nf1.0", ERR_FORMAT, "mine.txt, line 2: f1.0 is not an action"},
        {"f0.0", ERR_FORMAT, "such as F0.2"},
        {"rf0.0", ERR_FORMAT, "such as RF0.2"},
        {"FB0.0", ERR_FORMAT, "FB0.0 is not an action"},
        {"F", ERR_FORMAT, "line 1:  as the stage"},
        {"F.0", ERR_FORMAT, ".0 as the stage"},
        {"F0", ERR_FORMAT, "a point and the micro-batch, such as F0.0"},
        {"F0,1", ERR_FORMAT, "stands \",1\""},
        {"F0.", ERR_FORMAT, "as the micro-batch"},
        {"F00.1", ERR_FORMAT, "leading zeros"},
        {"F0.-1", ERR_FORMAT, "-1 as the micro-batch"},
        {"F99999.0", ERR_FORMAT, "99999 of an action is above 32766"},
        {"F0.99999999999999999999", ERR_FORMAT, "is above 16777215"},
        {"F0.0x", ERR_FORMAT, "followed by \"x\""},
        {"+F0.0", ERR_FORMAT, "+ stands before the first action"},
        {"F0.0\n+B0.0", ERR_FORMAT, "line 2: + stands before"},
        {"F0.0+", ERR_FORMAT, "not an action"},
        {"F0.0 B0.0 W0.0 \x01", ERR_FORMAT, "not an action"},
        {"F0.0< F0.1 B0.0<", ERR_FORMAT, "must come after all others"},
        {"F0.0 B0.0 W0.0\nF0.1 B0.1 W0.1\nF1.0 F1.1 B1.1 B1.0 W1.0 W1.1",
         ERR_CONFIG, "3 lines with actions and 2 stages"},
        {"F0.0 B0.0 W0.0\nF1.0 B1.0 F0.0", ERR_CONFIG,
         "F0.0 is on rank 1, and stage 0 is already on rank 0"},
        {"F0.0 B0.0 W0.0 F2.0 B2.0 W2.0", ERR_CONFIG,
         "stage 1 is on no rank"},
        {"F0.0 B0.0 W0.0 F0.0", ERR_CONFIG, "F0.0 stands twice"},
        {"F0.0 B0.0", ERR_CONFIG, "W0.0 is missing on rank 0"},
        {"F0.0 F0.1 B0.0 W0.0 W0.1", ERR_CONFIG, "B0.1 is missing on rank 0"},
        {"B0.0 F0.0 W0.0", ERR_CONFIG,
         "rank 0 waits forever at B0.0, which needs F0.0"},
        {"F0.0 F0.1 B0.0 B0.1 W0.1 W0.0", ERR_CONFIG,
         "W0.0, action 6 of rank 0, comes after W0.1"},
        /* norms, biases and the loss are summed in B */
        {"F0.0 F0.1 B0.1 B0.0 W0.0 W0.1", ERR_CONFIG,
         "B0.0, action 4 of rank 0, comes after B0.1"},
        {"F0.0 B0.0 W0.0 F0.1 B0.1 W0.1 F0.2 B0.2 W0.2\n"
         "F1.0 F1.1 F1.2 B1.0 B1.2 B1.1 W1.0 W1.1 W1.2", ERR_CONFIG,
         "B1.1, action 6 of rank 1, comes after B1.2"},
        {"F0.0 B0.0 W0.0\nB1.0 F1.0 W1.0", ERR_CONFIG,
         "rank 1 waits forever at B1.0, which needs F1.0"},
        /* a cycle over two ranks */
        {"F0.0 B0.0 W0.0 F0.1 B0.1 W0.1\n"
         "F1.0 F1.1 B1.0 B1.1 W1.0 W1.1", ERR_CONFIG, "waits forever"},
        {"F0.0 SF0.0 RB0.0 B0.0 W0.0\nF1.0 B1.0 SB1.0 W1.0", ERR_CONFIG,
         "RF1.0 is missing on rank 1"},
        {"F0.0 RB0.0 B0.0 W0.0\nRF1.0 F1.0 B1.0 SB1.0 W1.0", ERR_CONFIG,
         "SF0.0 is missing on rank 0"},
        {"F0.0+RF0.0 B0.0 W0.0", ERR_CONFIG, "runs together with nothing"},
        {"F32766.16777215", ERR_CONFIG, "32767 stages of 16777216"},
    };

    for (int i = 0; i < ROWS(rows); i++) {
        struct schedule s;

        FAILS(read_text(&s, rows[i].text), rows[i].code, rows[i].words);
        schedule_free(&s);
    }
}

/* Every action of a schedule taken out, doubled or moved to the other rank is
 * noticed. */
TEST(no_change_of_a_schedule_goes_unnoticed)
{
    static const char *const names[] = {"1f1b", "interleaved", "zb-v",
                                        "dualpipe"};

    for (int n = 0; n < ROWS(names); n++)
        for (int rank = 0; rank < 2; rank++)
            for (int at = 0; at < 12; at++) {
                struct schedule s = {0};
                struct action_list *list, *other;
                struct action taken;

                IS_OK(schedule_build(&s, names[n], 2, 4));
                list = &s.lists[rank];
                other = &s.lists[1 - rank];
                taken = list->items[at];
                IS_OK(schedule_add(&s, rank, taken)); /* doubled */
                CHECK(schedule_verify(&s) == ERR_CONFIG);
                list->count--;
                IS_OK(schedule_verify(&s));
                memmove(&list->items[at], &list->items[at + 1],
                        (size_t)(list->count - at - 1) * sizeof taken);
                list->count--;
                CHECK(schedule_verify(&s) == ERR_CONFIG);
                IS_OK(schedule_add(&s, 1 - rank, taken));
                CHECK(schedule_verify(&s) == ERR_CONFIG);
                CHECK(other->count > 0);
                schedule_free(&s);
            }
}

TEST(a_file_is_read_like_its_text)
{
    char directory[PATH_BYTES], path[PATH_BYTES];
    struct schedule s = {0};

    test_directory(directory);
    IS_OK(path_join(path, sizeof path, directory, "mine.txt"));
    IS_OK(file_write_atomic(path, by_hand, strlen(by_hand)));
    IS_OK(schedule_read_file(&s, path));
    EQUAL_INT(s.microbatches, 2);
    schedule_free(&s);
    IS_OK(path_join(path, sizeof path, directory, "none.txt"));
    FAILS(schedule_read_file(&s, path), ERR_MISSING, "none.txt");
    schedule_free(&s);
    IS_OK(directory_remove(directory));
}

TEST_MAIN(a_stage_on_two_ranks_is_read,
          what_is_wrong_with_a_text_is_said,
          no_change_of_a_schedule_goes_unnoticed,
          a_file_is_read_like_its_text)
