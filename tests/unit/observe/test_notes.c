/* SPDX-License-Identifier: Apache-2.0 */
/* test_notes.c - mirrors src/observe/notes.c: notes stay, in order, whatever
 * they hold and however a line was torn. */
#include "observe/notes.h"

#include <fcntl.h>
#include <sys/wait.h>

#include "observe/metrics.h"
#include "tests/test.h"

static char room[] = "/tmp/lockstep-notes-XXXXXX";

static void path_in(char path[PATH_BYTES], const char *name)
{
    IS_OK(path_join(path, PATH_BYTES, room, name));
}

static void put(const char *name, const char *text)
{
    char path[PATH_BYTES];
    FILE *file;

    path_in(path, name);
    file = fopen(path, "a");
    CHECK(file != NULL);
    fputs(text, file);
    fclose(file);
}

static int64_t count_and_last(char last[NOTE_BYTES_MOST + 1], int64_t *step)
{
    struct notes notes;
    struct arena arena;
    int64_t count;

    arena_init(&arena, "notes", 0);
    IS_OK(notes_read(&notes, &arena, room));
    count = notes.count;
    if (count > 0) {
        snprintf(last, NOTE_BYTES_MOST + 1, "%s", notes.items[count - 1].text);
        *step = notes.items[count - 1].step;
    }
    arena_free(&arena);
    return count;
}

TEST(notes_stay)
{
    static char last[NOTE_BYTES_MOST + 1], large[NOTE_BYTES_MOST + 2];
    struct metrics_row row = metrics_blank(METRICS_STEP);
    struct text lines = {0};
    int64_t step = -1;

    CHECK(mkdtemp(room) != NULL);
    EQUAL_INT(count_and_last(last, &step), 0);
    IS_OK(note_add(room, "the first"));
    EQUAL_INT(count_and_last(last, &step), 1);
    EQUAL_INT(step, 0);
    IS_OK(note_add(room, "\"quotes\"\nand lines \\ \xc3\xa9"));
    EQUAL_INT(count_and_last(last, &step), 2);
    EQUAL_TEXT(last, "\"quotes\"\nand lines \\ \xc3\xa9");
    put("notes.jsonl", "{\"time\": 12, \"st"); /* a crash */
    EQUAL_INT(count_and_last(last, &step), 2);
    IS_OK(note_add(room, "after the crash"));
    EQUAL_INT(count_and_last(last, &step), 3);
    EQUAL_TEXT(last, "after the crash");
    FAILS(note_add(room, " \n"), ERR_CONFIG, "no text");
    FAILS(note_add(room, "\xff"), ERR_CONFIG, "UTF-8");
    memset(large, 'x', sizeof large - 1);
    FAILS(note_add(room, large), ERR_CONFIG, "at most 4096");
    large[NOTE_BYTES_MOST] = '\0';
    IS_OK(note_add(room, large));
    EQUAL_INT(count_and_last(last, &step), 4);
    EQUAL_INT(step, 0);
    for (row.step = 6; row.step <= 7; row.step++)
        IS_OK(metrics_format(&lines, &row, true));
    put("metrics.jsonl", lines.bytes);
    text_free(&lines);
    IS_OK(note_add(room, "of a step"));
    EQUAL_INT(count_and_last(last, &step), 5);
    EQUAL_INT(step, 7);
}

TEST(people_write_at_once)
{
    static char last[NOTE_BYTES_MOST + 1];
    int64_t step;
    int ended;

    for (int i = 0; i < 6; i++) {
        fflush(NULL);
        if (fork() == 0) {
            for (int j = 0; j < 20; j++)
                if (note_add(room, "one of many") != OK) _exit(1);
            _exit(0);
        }
    }
    for (int i = 0; i < 6; i++) {
        wait(&ended);
        EQUAL_INT(ended, 0);
    }
    EQUAL_INT(count_and_last(last, &step), 5 + 120);
    IS_OK(directory_remove(room));
}

TEST_MAIN(notes_stay, people_write_at_once)
