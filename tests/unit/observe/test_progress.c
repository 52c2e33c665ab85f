/* SPDX-License-Identifier: Apache-2.0 */
/* test_progress.c - mirrors src/observe/progress.c. */
#include <math.h>
#include "tests/test.h"
#include "observe/progress.h"

static void read_back(FILE *file, char *out, size_t size)
{
    rewind(file);
    out[fread(out, 1, size - 1, file)] = '\0';
    fclose(file);
}

TEST(a_file_gets_plain_lines_first_and_last)
{
    struct progress progress;
    FILE *file = tmpfile();
    char text[512];

    progress_begin(&progress, file, "step", "steps", 1);
    for (int step = 1; step <= 300; step++)
        progress_step(&progress, &(struct progress_step){
                                     .step = step, .steps = 300,
                                     .loss = 3.2144, .tokens_per_s = 123456});
    progress_end(&progress);
    read_back(file, text, sizeof text);
    CHECK(strstr(text, "step 1/300  loss 3.214  1.23e5 tok/s") ==
          text);
    CHECK(strstr(text, "\nstep 300/300  loss 3.214") != NULL);
    CHECK(strstr(text, "step 150/300") == NULL); /* not every step */
    CHECK(strchr(text, '\r') == NULL && strchr(text, '\033') == NULL);
}

TEST(what_is_unknown_is_left_out)
{
    struct progress progress;
    FILE *file = tmpfile();
    char text[512];

    progress_begin(&progress, file, "step", "steps", 1);
    progress_step(&progress, &(struct progress_step){
                                 .step = 3, .steps = 3,
                                 .loss = (double)NAN, .tokens_per_s = 950});
    progress_end(&progress);
    read_back(file, text, sizeof text);
    EQUAL_TEXT(text, "step 3/3  950 tok/s\n");
}

TEST(the_routing_stands_beside_the_speed)
{
    struct progress progress;
    FILE *file = tmpfile();
    char text[512];

    progress_begin(&progress, file, "step", "steps", 1);
    progress_step(&progress, &(struct progress_step){
                                 .step = 3, .steps = 3, .loss = 2,
                                 .tokens_per_s = 950, .busiest = 1.254});
    progress_end(&progress);
    read_back(file, text, sizeof text);
    EQUAL_TEXT(text, "step 3/3  loss 2.000  950 tok/s  "
                     "busiest expert 1.25 x mean\n");
}

TEST(bytes_are_told_in_their_unit)
{
    struct progress progress;
    FILE *file = tmpfile();
    char text[512];

    progress_begin(&progress, file, "tokenize", "MB", 1e6);
    progress_count(&progress, 1e6, 40e6); /* short work is silent */
    progress.began_s -= 10;
    progress.last_s -= 10;
    progress_count(&progress, 12.3e6, 40e6);
    progress_end(&progress);
    read_back(file, text, sizeof text);
    CHECK(strncmp(text, "tokenize 12.3/40.0 MB  ", 23) == 0);
    CHECK(strstr(text, " left\n") != NULL);
}

TEST(silence_is_possible)
{
    struct progress progress;

    progress_begin(&progress, NULL, "step", "steps", 1);
    progress_count(&progress, 1, 2);
    progress_note(&progress, "nobody reads this");
    progress_end(&progress);
}

TEST(times_read_like_a_clock)
{
    static const struct {
        double seconds;
        const char *text;
    } rows[] = {{0, "0:00"},     {36.6, "0:37"},       {725, "12:05"},
                {3599.7, "1:00:00"}, {10921, "3:02:01"}, {-1, "?"},
                {(double)NAN, "?"},  {1e300, "?"}};
    char out[32];

    for (int i = 0; i < ROWS(rows); i++)
        EQUAL_TEXT(progress_clock(out, rows[i].seconds), rows[i].text);
}

TEST_MAIN(a_file_gets_plain_lines_first_and_last, what_is_unknown_is_left_out,
          the_routing_stands_beside_the_speed,
          bytes_are_told_in_their_unit, silence_is_possible,
          times_read_like_a_clock)
