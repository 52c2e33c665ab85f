/* SPDX-License-Identifier: Apache-2.0 */
/* test_log.c - mirrors src/base/log.c. */
#include "base/log.h"

#include <pthread.h>

#include "tests/test.h"

/* Runs `body` with stderr in a file; returns what it printed. */
static const char *captured(void (*body)(void))
{
    static char text[8192];
    FILE *file = tmpfile();
    const int saved = dup(STDERR_FILENO);
    size_t length;

    CHECK(file != NULL && saved >= 0);
    fflush(stderr);
    CHECK(dup2(fileno(file), STDERR_FILENO) >= 0);
    body();
    CHECK(dup2(saved, STDERR_FILENO) >= 0);
    close(saved);
    rewind(file);
    length = fread(text, 1, sizeof text - 1, file);
    text[length] = '\0';
    fclose(file);
    return text;
}

static void say(void)
{
    LOG(DEBUG, "test", "small %d", 1);
    LOG(INFO, "test", "medium %d", 2);
    LOG(WARNING, "test", "large %d", 3);
}

TEST(rank_zero_prints_from_its_level_on)
{
    static const struct {
        int rank;
        const char *level, *printed;
    } rows[] = {
        {0, "", "info test: medium 2\nwarning test: large 3\n"},
        {0, "debug",
         "debug test: small 1\ninfo test: medium 2\nwarning test: large 3\n"},
        {0, "warning", "warning test: large 3\n"},
        {1, "debug", ""},
    };

    for (int i = 0; i < ROWS(rows); i++) {
        setenv("LOCKSTEP_LOG", rows[i].level, 1);
        IS_OK(log_start(rows[i].rank, NULL));
        EQUAL_TEXT(captured(say), rows[i].printed);
        log_stop();
    }
    setenv("LOCKSTEP_LOG", "loud", 1);
    FAILS(log_start(0, NULL), ERR_CONFIG, "LOCKSTEP_LOG is \"loud\"");
    unsetenv("LOCKSTEP_LOG");
    log_stop();
}

TEST(every_rank_writes_its_file)
{
    char directory[PATH_BYTES], path[PATH_BYTES];
    struct text text;
    long year, day;

    test_directory(directory);
    IS_OK(path_join(path, sizeof path, directory, "rank-1.log"));
    IS_OK(log_start(1, path));
    EQUAL_TEXT(captured(say), "");
    log_stop();
    (void)captured(say); /* rank 0 again, no file */
    IS_OK(log_start(1, path)); /* appends */
    LOG(INFO, "test", "again");
    log_stop();
    IS_OK(file_read(path, 4096, &text));
    CHECK(sscanf(text.bytes, "%4ld-%*2d-%2ldT", &year, &day) == 2);
    CHECK(year >= 2024 && day >= 1);
    CHECK(strstr(text.bytes, "Z rank 1 debug test: small 1\n") != NULL);
    CHECK(strstr(text.bytes, "Z rank 1 info test: again\n") != NULL);
    text_free(&text);
    FAILS(log_start(1, directory), ERR_FORMAT, "expected a regular file");
    log_stop();
    IS_OK(directory_remove(directory));
}

struct writer { int rank; char path[PATH_BYTES]; };

static void *write_log(void *argument)
{
    const struct writer *writer = argument;

    IS_OK(log_start(writer->rank, writer->path));
    LOG(DEBUG, "test", "I am %d", writer->rank);
    log_stop();
    return NULL;
}

TEST(ranks_that_are_threads_have_a_file_each)
{
    char directory[PATH_BYTES], found[64];
    struct writer writers[4];
    pthread_t threads[4];
    struct text text;

    test_directory(directory);
    for (int i = 0; i < 4; i++) {
        writers[i].rank = i;
        snprintf(found, sizeof found, "rank-%d.log", i);
        IS_OK(path_join(writers[i].path, PATH_BYTES, directory, found));
        CHECK(pthread_create(&threads[i], NULL, write_log, &writers[i]) == 0);
    }
    for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
    for (int i = 0; i < 4; i++) {
        IS_OK(file_read(writers[i].path, 4096, &text));
        snprintf(found, sizeof found, "Z rank %d debug test: I am %d\n", i, i);
        CHECK(strstr(text.bytes, found) != NULL);
        EQUAL_INT(strchr(text.bytes, '\n') - text.bytes, text.length - 1);
        text_free(&text);
    }
    IS_OK(directory_remove(directory));
}

static void say_much(void)
{
    LOG(INFO, "test", "%04000d", 7);
}

TEST(long_lines_are_cut)
{
    const char *text = captured(say_much);

    EQUAL_INT(strlen(text), 2048);
    EQUAL_INT(text[2047], '\n');
}

TEST_MAIN(rank_zero_prints_from_its_level_on, every_rank_writes_its_file,
          ranks_that_are_threads_have_a_file_each, long_lines_are_cut)
