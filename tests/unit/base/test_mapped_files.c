/* SPDX-License-Identifier: Apache-2.0 */
/* test_mapped_files.c - mirrors src/base/mapped_files.c: a mapped file that
 * shrinks is a status, on whichever thread it is read, and nothing is committed
 * after it. */
#include "base/mapped_files.h"

#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>
#include "base/file.h"
#include "tests/test.h"

enum { BYTES = 64 << 10 };

static void make_file(char path[PATH_BYTES], char directory[PATH_BYTES])
{
    static char bytes[BYTES];

    memset(bytes, 7, sizeof bytes);
    test_directory(directory);
    IS_OK(path_join(path, PATH_BYTES, directory, "mapped"));
    IS_OK(file_write_atomic(path, bytes, sizeof bytes));
}

static void *sum_of(void *argument)
{
    const struct file_map *map = argument;
    uintptr_t sum = 0;

    for (size_t i = 0; i < map->length; i++) sum += map->bytes[i];
    return (void *)sum; /* NOLINT */
}

TEST(a_file_that_shrinks_is_a_status_on_any_thread)
{
    char path[PATH_BYTES], directory[PATH_BYTES], other[PATH_BYTES];
    struct file_map maps[3];
    pthread_t threads[3];
    void *sum;

    mapped_forget();
    make_file(path, directory);
    for (int i = 0; i < 3; i++) IS_OK(file_map_open(&maps[i], path));
    IS_OK(mapped_check());
    EQUAL_INT(truncate(path, BYTES / 4), 0);
    for (int i = 0; i < 3; i++)
        EQUAL_INT(pthread_create(&threads[i], NULL, sum_of, &maps[i]), 0);
    for (int i = 0; i < 3; i++) {
        EQUAL_INT(pthread_join(threads[i], &sum), 0);
        EQUAL_INT((uintptr_t)sum, 7 * BYTES / 4); /* zeros for the rest */
    }
    CHECK(!mapped_is_whole());
    FAILS(mapped_check(), ERR_FORMAT,
          "mapped: the file was cut while it was read: it had 65536 bytes and "
          "has 16384");
    status_clear();
    /* A file that was made of zeros gets no name. */
    IS_OK(path_join(other, PATH_BYTES, directory, "made"));
    FAILS(file_write_atomic(other, "x", 1), ERR_FORMAT, "was cut");
    CHECK(!file_exists(other));
    status_clear();
    for (int i = 0; i < 3; i++) file_map_close(&maps[i]);
    FAILS(mapped_check(), ERR_FORMAT, "mapped: the file was cut");
    status_clear();
    mapped_forget();
    IS_OK(mapped_check());
    IS_OK(directory_remove(directory));
}

static void *sum_ahead(void *argument)
{
    mapped_read_ahead();
    return sum_of(argument);
}

/* Guards a step that was made before a batch that nobody has used yet. */
TEST(a_file_that_shrinks_under_who_reads_ahead_spoils_nothing_made)
{
    char path[PATH_BYTES], directory[PATH_BYTES];
    struct file_map map;
    pthread_t thread;

    mapped_forget();
    make_file(path, directory);
    IS_OK(file_map_open(&map, path));
    EQUAL_INT(truncate(path, BYTES / 4), 0);
    EQUAL_INT(pthread_create(&thread, NULL, sum_ahead, &map), 0);
    EQUAL_INT(pthread_join(thread, NULL), 0);
    IS_OK(mapped_check_used());
    FAILS(mapped_check(), ERR_FORMAT, "mapped: the file was cut");
    status_clear();
    file_map_close(&map);
    mapped_forget();
    IS_OK(mapped_check());
    IS_OK(directory_remove(directory));
}

/* Guards slots: one that is free again is taken, more than a block work. */
TEST(a_thousand_files_are_known)
{
    static struct file_map maps[1000];
    char path[PATH_BYTES], directory[PATH_BYTES];

    mapped_forget();
    make_file(path, directory);
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < ROWS(maps); i++)
            IS_OK(file_map_open(&maps[i], path));
        for (int i = 0; i < ROWS(maps); i++) {
            CHECK(maps[i].ticket > 0 && maps[i].ticket <= 1010);
            if (round == 0 || i % 2 == 0) file_map_close(&maps[i]);
        }
    }
    EQUAL_INT(truncate(path, 0), 0);
    EQUAL_INT((uintptr_t)sum_of(&maps[999]), 0);
    FAILS(mapped_check(), ERR_FORMAT, "has 0;");
    status_clear();
    for (int i = 1; i < ROWS(maps); i += 2) file_map_close(&maps[i]);
    mapped_forget();
    IS_OK(directory_remove(directory));
}

/* Guards what is not ours: it ends the process, as it did. */
TEST(another_bus_error_ends_the_process)
{
    char path[PATH_BYTES], directory[PATH_BYTES];
    struct file_map map;
    pid_t child;
    int ended;

    make_file(path, directory);
    IS_OK(file_map_open(&map, path));
    child = fork();
    if (child == 0) {
        signal(SIGBUS, SIG_DFL);
        mapped_forget();
        raise(SIGBUS);
        _exit(0);
    }
    EQUAL_INT(waitpid(child, &ended, 0), child);
    CHECK(WIFSIGNALED(ended) && WTERMSIG(ended) == SIGBUS);
    file_map_close(&map);
    IS_OK(directory_remove(directory));
}

TEST_MAIN(a_file_that_shrinks_is_a_status_on_any_thread,
          a_file_that_shrinks_under_who_reads_ahead_spoils_nothing_made,
          a_thousand_files_are_known, another_bus_error_ends_the_process)
