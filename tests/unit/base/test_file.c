/* SPDX-License-Identifier: Apache-2.0 */
/* test_file.c - mirrors src/base/file.c. */
#include "base/file.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include "base/fault.h"
#include "tests/test.h"

static char directory[PATH_BYTES];

static const char *in_directory(const char *name)
{
    static char path[PATH_BYTES];

    IS_OK(path_join(path, sizeof path, directory, name));
    return path;
}

static void write_text(const char *name, const char *text)
{
    IS_OK(file_write_atomic(in_directory(name), text, strlen(text)));
}

static int entries(void)
{
    char **names;
    int count;

    IS_OK(directory_list(directory, &names, &count));
    directory_list_free(names, count);
    return count;
}

TEST(temporary_names_differ_between_writers)
{
    char name[PATH_BYTES], other[PATH_BYTES], far[PATH_BYTES];
    char *tail;

    IS_OK(file_temporary_name("a", name));
    IS_OK(file_temporary_name("a", other));
    CHECK(memcmp(name, "a.tmp-", 6) == 0);
    CHECK(strcmp(name, other) != 0);
    /* A process of the same number elsewhere: what is drawn differs. */
    tail = strrchr(name, '-');
    CHECK(strcmp(tail, strrchr(other, '-')) != 0);
    memset(far, 'x', sizeof far);
    far[PATH_BYTES - 1] = '\0';
    FAILS(file_temporary_name(far, name), ERR_CONFIG, "longer than");
}

TEST(temporary_names_are_known_to_the_last_byte)
{
    static const char *const others[] = {
        "thesis.tmp-draft.txt", "a.tmp-1", "a.tmp-1-2", "a.tmp-1-2-abcd",
        "a.tmp-1-2-0123456789abcdeg", "a.tmp-1-2-0123456789ABCDEF",
        "a.tmp-1-2-0123456789abcdef0", "a.tmp-1-2-0123456789abcdef.txt",
        "a.tmp--2-0123456789abcdef", "a.tmp-1--0123456789abcdef",
        "a.tmp-x1-2-0123456789abcdef", ".tmp-1-2-0123456789abcdef",
        "a.tmq-1-2-0123456789abcdef", "a", ""};
    char name[PATH_BYTES], of[PATH_BYTES];

    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        CHECK(!file_is_temporary(others[i], of));
    IS_OK(file_temporary_name("report.html", name));
    CHECK(file_is_temporary(name, of));
    EQUAL_TEXT(of, "report.html");
    CHECK(file_is_temporary("a.tmp-b.tmp-1-2-0123456789abcdef", of));
    EQUAL_TEXT(of, "a.tmp-b");
}

static bool is_a(const char *name)
{
    return strcmp(name, "a") == 0;
}

TEST(only_temporary_files_that_are_ours_are_removed)
{
    static const char *const stay[] = {
        "a", "a.tmp-draft", "a.tmp-1-2-0123456789abcdef.txt",
        "b.tmp-1-2-0123456789abcdef"};

    test_directory(directory);
    write_text("a.tmp-1-2-0123456789abcdef", "x");
    for (int i = 0; i < 4; i++) write_text(stay[i], "x");
    EQUAL_INT(entries(), 5);
    IS_OK(directory_clean(directory, is_a));
    EQUAL_INT(entries(), 4);
    for (int i = 0; i < 4; i++) CHECK(file_exists(in_directory(stay[i])));
    IS_OK(directory_remove(directory));
}

TEST(what_is_written_is_read)
{
    static char large[300000];
    struct text text;
    int64_t size;

    test_directory(directory);
    for (size_t i = 0; i < sizeof large; i++) large[i] = (char)(i * 31);
    IS_OK(file_write_atomic(in_directory("a"), large, sizeof large));
    IS_OK(file_read(in_directory("a"), sizeof large, &text));
    EQUAL_INT(text.length, sizeof large);
    EQUAL_BYTES(text.bytes, large, sizeof large);
    text_free(&text);
    IS_OK(file_size(in_directory("a"), &size));
    EQUAL_INT(size, sizeof large);
    write_text("a", "short"); /* replaces */
    IS_OK(file_read(in_directory("a"), 5, &text));
    EQUAL_TEXT(text.bytes, "short");
    text_free(&text);
    write_text("empty", "");
    IS_OK(file_read(in_directory("empty"), 0, &text));
    EQUAL_TEXT(text.bytes, "");
    text_free(&text);
    EQUAL_INT(entries(), 2); /* no temporary is left */
    IS_OK(directory_remove(directory));
}

TEST(reading_says_what_is_wrong)
{
    struct text text;
    int64_t size;

    test_directory(directory);
    write_text("a", "12345678");
    FAILS(file_read(in_directory("a"), 7, &text), ERR_FORMAT,
          "/a has 8 bytes; the limit is 7 bytes");
    FAILS(file_read("/dev/zero", 100000, &text), ERR_FORMAT,
          "/dev/zero is larger than 97.7 KiB");
    FAILS(file_read(in_directory("b"), 7, &text), ERR_MISSING,
          "/b: no such file");
    FAILS(file_read(in_directory("a/b"), 7, &text), ERR_MISSING, "");
    FAILS(file_read(directory, 7, &text), ERR_IO, "is a directory");
    FAILS(file_size(in_directory("b"), &size), ERR_MISSING, "");
    CHECK(file_exists(in_directory("a")) && !file_exists(in_directory("b")));
    CHECK(file_is_directory(directory));
    CHECK(!file_is_directory(in_directory("a")));
    IS_OK(directory_remove(directory));
}

TEST(a_limit_of_open_files_is_named)
{
    struct rlimit before, now;
    struct text text;

    test_directory(directory);
    write_text("a", "1");
    CHECK(getrlimit(RLIMIT_NOFILE, &before) == 0);
    now = (struct rlimit){0, before.rlim_max};
    CHECK(setrlimit(RLIMIT_NOFILE, &now) == 0);
    FAILS(file_read(in_directory("a"), 7, &text), ERR_IO, "(ulimit -n)");
    CHECK(setrlimit(RLIMIT_NOFILE, &before) == 0);
    IS_OK(file_read(in_directory("a"), 7, &text));
    text_free(&text);
    IS_OK(directory_remove(directory));
}

TEST(files_are_mapped)
{
    struct file_map map;

    test_directory(directory);
    write_text("a", "12345678");
    write_text("empty", "");
    IS_OK(file_map_open(&map, in_directory("a")));
    EQUAL_INT(map.length, 8);
    EQUAL_BYTES(map.bytes, "12345678", 8);
    file_map_close(&map);
    file_map_close(&map);
    IS_OK(file_map_open(&map, in_directory("empty")));
    CHECK(map.bytes == NULL && map.length == 0);
    file_map_close(&map);
    FAILS(file_map_open(&map, "/dev/null"), ERR_FORMAT, "regular file");
    FAILS(file_map_open(&map, in_directory("b")), ERR_MISSING, "");
    FAILS(file_map_open(&map, directory), ERR_IO, "is a directory");
    IS_OK(directory_remove(directory));
}

TEST(a_failed_write_leaves_the_old_file)
{
    struct text text;

    test_directory(directory);
    write_text("a", "old");
    IS_OK(fault_arm("file.write:1:full,file.rename:1"));
    FAILS(file_write_atomic(in_directory("a"), "new", 3), ERR_IO,
          "disk full");
    FAILS(file_write_atomic(in_directory("a"), "new", 3), ERR_IO,
          "file.rename");
    IS_OK(fault_arm(NULL));
    EQUAL_INT(entries(), 1);
    IS_OK(file_read(in_directory("a"), 9, &text));
    EQUAL_TEXT(text.bytes, "old");
    text_free(&text);
    FAILS(file_write_atomic(in_directory("no/a"), "new", 3), ERR_MISSING,
          "no/a: no such file or directory");
    IS_OK(directory_make(in_directory("taken")));
    FAILS(file_write_atomic(in_directory("taken"), "new", 3), ERR_IO,
          "taken: renaming: ");
    EQUAL_INT(entries(), 2);
    IS_OK(directory_remove(directory));
}

TEST(a_pipe_stays_one)
{
    char bytes[8] = "";
    int pipe;

    test_directory(directory);
    EQUAL_INT(mkfifo(in_directory("pipe"), 0600), 0);
    pipe = open(in_directory("pipe"), O_RDONLY | O_NONBLOCK);
    CHECK(pipe >= 0);
    IS_OK(file_may_write(in_directory("pipe")));
    FAILS(file_may_replace(in_directory("pipe")), ERR_IO,
          "is a pipe or a device");
    status_clear();
    IS_OK(file_may_replace(in_directory("file")));
    IS_OK(file_may_replace(NULL));
    IS_OK(file_write_named(in_directory("pipe"), "new", 3));
    EQUAL_INT(read(pipe, bytes, sizeof bytes), 3);
    EQUAL_TEXT(bytes, "new");
    close(pipe);
    EQUAL_INT(entries(), 1);
    IS_OK(directory_remove(directory));
}

TEST(a_name_to_write_is_one_of_a_file)
{
    test_directory(directory);
    FAILS(file_write_named("", "new", 3), ERR_IO, "has an empty name");
    FAILS(file_write_named(directory, "new", 3), ERR_IO,
          "is a directory, not a file to write");
    status_clear();
    EQUAL_INT(entries(), 0);
    IS_OK(directory_remove(directory));
}

TEST(directories_are_made_listed_and_removed)
{
    char **names, outside[PATH_BYTES];
    int count;

    test_directory(directory);
    test_directory(outside);
    IS_OK(directory_make(in_directory("x/y/z/")));
    IS_OK(directory_make(in_directory("x/y")));
    write_text("x/y/b", "1");
    write_text("x/y/a", "1");
    write_text("x/y/.hidden", "1");
    IS_OK(directory_list(in_directory("x/y"), &names, &count));
    EQUAL_INT(count, 4);
    EQUAL_TEXT(names[0], ".hidden");
    EQUAL_TEXT(names[1], "a");
    EQUAL_TEXT(names[2], "b");
    EQUAL_TEXT(names[3], "z");
    directory_list_free(names, count);
    IS_OK(directory_list(in_directory("x/y/z"), &names, &count));
    EQUAL_INT(count, 0);
    directory_list_free(names, count);
    FAILS(directory_list(in_directory("no"), &names, &count), ERR_MISSING,
          "");
    FAILS(directory_make(in_directory("x/y/a")), ERR_IO,
          "exists and is not a directory");
    FAILS(directory_make(in_directory("x/y/a/b")), ERR_IO,
          "Not a directory");
    FAILS(directory_make(""), ERR_CONFIG, "an empty path");
    /* A link is removed, not what it points to. */
    CHECK(symlink(outside, in_directory("x/link")) == 0);
    CHECK(symlink(outside, in_directory("top")) == 0);
    IS_OK(directory_remove(in_directory("top/")));
    CHECK(!file_is_link(in_directory("top")) && file_exists(outside));
    IS_OK(directory_remove(directory));
    CHECK(!file_exists(directory) && file_exists(outside));
    IS_OK(directory_remove(outside));
    FAILS(directory_remove(outside), ERR_MISSING, "");
}

TEST(temporary_directories_lie_where_they_are_asked_for)
{
    char one[PATH_BYTES], two[PATH_BYTES], *kept = getenv("TMPDIR");
    char long_path[PATH_BYTES + 1];
    size_t length;

    kept = kept != NULL ? strdup(kept) : NULL;
    test_directory(directory);
    length = strlen(directory);
    setenv("TMPDIR", directory, 1);
    IS_OK(directory_make_temporary(one, "x"));
    IS_OK(directory_make_temporary(two, "x"));
    CHECK(strncmp(one, directory, length) == 0 &&
          strncmp(one + length, "/lockstep-x-", 12) == 0);
    CHECK(file_is_directory(one) && file_is_directory(two));
    CHECK(strcmp(one, two) != 0);
    setenv("TMPDIR", in_directory("none"), 1);
    FAILS(directory_make_temporary(one, "x"), ERR_IO,
          "none: cannot make a temporary directory there: No such file");
    EQUAL_TEXT(one, "");
    memset(long_path, '/', sizeof long_path);
    long_path[PATH_BYTES] = '\0';
    setenv("TMPDIR", long_path, 1);
    FAILS(directory_make_temporary(one, "x"), ERR_IO, "the path is too long");
    setenv("TMPDIR", "", 1);
    IS_OK(directory_make_temporary(one, "x"));
    CHECK(strncmp(one, "/tmp/lockstep-x-", 16) == 0);
    IS_OK(directory_remove(one));
    IS_OK(directory_remove(directory));
    if (kept != NULL) setenv("TMPDIR", kept, 1);
    else unsetenv("TMPDIR");
    free(kept);
}

TEST(paths_are_joined_with_one_slash)
{
    static const struct {
        const char *directory, *name, *path;
    } rows[] = {
        {"a", "b", "a/b"},   {"a/", "b", "a/b"}, {"a//", "/b", "a/b"},
        {"/", "b", "/b"},    {"", "b", "b"},     {"", "/b", "/b"},
        {".", "b", "./b"},   {"/a", "b/c", "/a/b/c"},
    };
    char out[PATH_BYTES];

    for (int i = 0; i < ROWS(rows); i++) {
        IS_OK(path_join(out, sizeof out, rows[i].directory, rows[i].name));
        EQUAL_TEXT(out, rows[i].path);
    }
    FAILS(path_join(out, 4, "ab", "c"), ERR_CONFIG, "longer than 3 bytes");
    IS_OK(path_join(out, 5, "ab", "c"));
}

/* A child takes the lock, tells so, and is killed. */
TEST(a_part_of_a_file_is_read_as_far_as_it_goes)
{
    char path[PATH_BYTES], bytes[8] = "";
    size_t got;
    int descriptor;

    test_directory(directory);
    IS_OK(path_join(path, sizeof path, directory, "part"));
    IS_OK(file_write_atomic(path, "abcdef", 6));
    IS_OK(file_open_own(path, O_RDONLY, &descriptor));
    IS_OK(file_get(descriptor, path, bytes, 3, 2, &got));
    CHECK(got == 3 && memcmp(bytes, "cde", 3) == 0);
    IS_OK(file_get(descriptor, path, bytes, 8, 4, &got));
    CHECK(got == 2 && memcmp(bytes, "ef", 2) == 0);
    IS_OK(file_get(descriptor, path, bytes, 8, 9, &got));
    EQUAL_INT(got, 0);
    close(descriptor);
    FAILS(file_get(-1, path, bytes, 3, 0, &got), ERR_IO, "part");
    IS_OK(directory_remove(directory));
}

TEST(a_lock_ends_with_its_process)
{
    struct file_lock lock = {0}, second = {0};
    char path[PATH_BYTES], words[64];
    int told[2], state;
    pid_t child;

    test_directory(directory);
    IS_OK(path_join(path, sizeof path, directory, "lock"));
    CHECK(pipe(told) == 0);
    child = fork();
    if (child == 0) {
        const bool taken = file_lock_take(&lock, path) == OK;

        if (write(told[1], taken ? "y" : "n", 1) == 1) pause();
        _exit(0);
    }
    CHECK(read(told[0], words, 1) == 1 && words[0] == 'y');
    snprintf(words, sizeof words, "/lock: in use by process %ld", (long)child);
    FAILS(file_lock_take(&lock, path), ERR_CONFIG, words);
    FAILS(file_lock_look(path), ERR_CONFIG, words);
    kill(child, SIGKILL);
    CHECK(waitpid(child, &state, 0) == child);
    IS_OK(file_lock_take(&lock, path));
    FAILS(file_lock_take(&second, path), ERR_CONFIG, "in use by process");
    file_lock_drop(&lock);
    IS_OK(file_lock_take(&second, path));
    file_lock_drop(&second);
    file_lock_drop(&second);
    IS_OK(file_lock_look(path)); /* and leaves it free */
    IS_OK(file_lock_take(&lock, path));
    file_lock_drop(&lock);
    IS_OK(file_lock_look(in_directory("never")));
    CHECK(!file_exists(in_directory("never")));
    close(told[0]);
    close(told[1]);
    FAILS(file_lock_take(&lock, in_directory("no/lock")), ERR_IO,
          "its directory does not exist");
    IS_OK(directory_remove(directory));
}

TEST_MAIN(temporary_names_differ_between_writers,
          temporary_names_are_known_to_the_last_byte,
          only_temporary_files_that_are_ours_are_removed,
          what_is_written_is_read, reading_says_what_is_wrong,
          a_limit_of_open_files_is_named, files_are_mapped,
          a_failed_write_leaves_the_old_file,
          a_name_to_write_is_one_of_a_file,
          a_pipe_stays_one, directories_are_made_listed_and_removed,
          temporary_directories_lie_where_they_are_asked_for,
          paths_are_joined_with_one_slash,
          a_part_of_a_file_is_read_as_far_as_it_goes,
          a_lock_ends_with_its_process)
