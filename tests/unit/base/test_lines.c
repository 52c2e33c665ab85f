/* SPDX-License-Identifier: Apache-2.0 */
/* test_lines.c - files that a run appends to: what waits, and what is cut. */
#include "base/lines.h"

#include <fcntl.h>
#include <string.h>
#include <unistd.h>
#include "base/fault.h"
#include "base/file.h"
#include "tests/test.h"

static char room[PATH_BYTES], path[PATH_BYTES], beside[PATH_BYTES];

static void begin(const char *content)
{
    test_directory(room);
    IS_OK(path_join(path, sizeof path, room, "a.jsonl"));
    IS_OK(path_join(beside, sizeof beside, room, "a.jsonl.cut"));
    if (content != NULL)
        IS_OK(file_write_atomic(path, content, strlen(content)));
}

static void end(void)
{
    IS_OK(directory_remove(room));
}

static void holds(const char *file, const char *expected)
{
    struct text text = {0};

    IS_OK(file_read(file, 1 << 20, &text));
    EQUAL_TEXT(text.length > 0 ? text.bytes : "", expected);
    text_free(&text);
}

#define L(n) "{\"step\": " #n "}\n"

TEST(only_what_is_beyond_goes)
{
    begin(L(1) L(2) L(3));
    IS_OK(lines_cut(path, 3, NULL));
    CHECK(!file_exists(beside));
    IS_OK(lines_cut(path, 1, NULL));
    holds(path, L(1));
    holds(beside, L(2) L(3));
    IS_OK(lines_cut(path, -1, NULL)); /* begins again: nothing is deleted */
    holds(path, "");
    holds(beside, L(2) L(3) L(1));
    end();
}

/* Guards against lines that stand twice in .cut: a process that is killed after
 * it kept them, and before it cut the file, keeps them again. */
TEST(lines_that_were_kept_are_not_kept_again)
{
    begin(L(1) L(2) L(3));
    IS_OK(lines_cut(path, 2, NULL));
    IS_OK(file_write_atomic(path, L(1) L(2) L(3), strlen(L(1) L(2) L(3))));
    IS_OK(lines_cut(path, 2, NULL)); /* as after the kill */
    holds(path, L(1) L(2));
    holds(beside, L(3));
    IS_OK(lines_cut(path, 1, NULL));
    holds(beside, L(3) L(2));
    end();
}

/* Steps 3 to 30 were lost when line 2 was damaged. */
TEST(a_damaged_line_takes_no_other_with_it)
{
    begin(L(1) "{\"stap\x01\n" L(3) L(4) L(5));
    IS_OK(lines_cut(path, 4, NULL));
    holds(path, L(1) L(3) L(4));
    holds(beside, "{\"stap\x01\n" L(5));
    end();
}

/* A flipped digit makes a line one of a later step. */
TEST(a_line_that_claims_a_later_step_takes_no_other_with_it)
{
    begin(L(1) L(92) L(3));
    IS_OK(lines_cut(path, 10, NULL));
    holds(path, L(1) L(3));
    holds(beside, L(92));
    end();
}

TEST(a_torn_line_goes)
{
    begin(L(1) L(2) "{\"step\": 3");
    IS_OK(lines_cut(path, 10, NULL));
    holds(path, L(1) L(2));
    holds(beside, "{\"step\": 3\n");
    end();
}

TEST(what_cannot_be_written_waits)
{
    struct lines lines;

    begin(NULL);
    IS_OK(lines_open(&lines, path, "lines.test", 0));
    IS_OK(fault_arm("lines.test:2:full,lines.test:3:fail"));
    IS_OK(lines_put(&lines, L(1), strlen(L(1))));
    IS_OK(lines_put(&lines, L(2), strlen(L(2))));
    IS_OK(lines_put(&lines, L(3), strlen(L(3))));
    holds(path, L(1));
    IS_OK(lines_put(&lines, L(4), strlen(L(4))));
    holds(path, L(1) L(2) L(3) L(4));
    IS_OK(fault_arm("lines.test:1,lines.test:2,lines.test:3,lines.test:4,"
                    "lines.test:5,lines.test:6"));
    IS_OK(lines_put(&lines, L(5), strlen(L(5))));
    FAILS(lines_finish(&lines), ERR_IO, "lines.test");
    IS_OK(fault_arm("lines.test:1"));
    IS_OK(lines_finish(&lines));
    holds(path, L(1) L(2) L(3) L(4) L(5));
    IS_OK(fault_arm(""));
    lines_close(&lines);
    end();
}

/* A disk that is full for days: memory does not grow for ever. */
TEST(what_waits_is_bounded)
{
    struct lines lines;
    static char record[1 << 20];

    begin(NULL);
    memset(record, 'x', sizeof record);
    IS_OK(lines_open(&lines, path, "lines.test", 0));
    close(lines.descriptor);
    lines.descriptor = open("/dev/full", O_WRONLY);
    for (int i = 0; i < 20; i++)
        IS_OK(lines_put(&lines, record, sizeof record));
    EQUAL_INT(lines.lost, 4);
    CHECK(lines.waiting.length <= LINES_WAITING_MOST);
    FAILS(lines_finish(&lines), ERR_IO, "disk full");
    lines_close(&lines);
    end();
}

TEST_MAIN(only_what_is_beyond_goes, lines_that_were_kept_are_not_kept_again,
          a_damaged_line_takes_no_other_with_it,
          a_line_that_claims_a_later_step_takes_no_other_with_it,
          a_torn_line_goes, what_cannot_be_written_waits,
          what_waits_is_bounded)
