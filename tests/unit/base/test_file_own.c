/* SPDX-License-Identifier: Apache-2.0 */
/* test_file_own.c - mirrors src/base/file_own.c. */
#include "base/file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include "tests/test.h"

static char directory[PATH_BYTES];

static const char *in_directory(const char *name)
{
    static char paths[2][PATH_BYTES];
    static int next;
    char *path = paths[next++ % 2];

    IS_OK(path_join(path, PATH_BYTES, directory, name));
    return path;
}

static int mode_of(const char *name)
{
    struct stat facts;

    return stat(in_directory(name), &facts) == 0 ? (int)facts.st_mode & 07777
                                                 : -1;
}

/* Each way to open stands before a file of somebody else, a pipe and a device;
 * none may change them, and none may wait. */
TEST(links_pipes_and_devices_are_refused)
{
    static const int flags[] = {
        O_RDONLY, O_WRONLY | O_CREAT | O_APPEND, O_RDWR | O_CREAT, O_WRONLY,
        O_RDWR | O_CREAT | O_EXCL};
    static const char *const names[] = {"link", "dangling", "pipe", "to_null"};
    struct file_lock lock = {0};
    struct file_map map;
    struct text text;
    int descriptor;

    test_directory(directory);
    IS_OK(file_write_atomic(in_directory("theirs"), "theirs", 6));
    EQUAL_INT(symlink("theirs", in_directory("link")), 0);
    EQUAL_INT(symlink("nothing", in_directory("dangling")), 0);
    EQUAL_INT(symlink("/dev/null", in_directory("to_null")), 0);
    EQUAL_INT(mkfifo(in_directory("pipe"), 0600), 0);
    for (int i = 0; i < ROWS(flags) * ROWS(names); i++) {
        const char *path = in_directory(names[i % ROWS(names)]);

        CHECK(file_open_own(path, flags[i / ROWS(names)], &descriptor) != OK);
        EQUAL_INT(descriptor, -1);
        status_clear();
    }
    FAILS(file_open_own(in_directory("link"), O_RDONLY, &descriptor),
          ERR_FORMAT, "link: is a link");
    FAILS(file_open_own(in_directory("pipe"), O_RDONLY, &descriptor),
          ERR_FORMAT, "found a named pipe");
    FAILS(file_open_own("/dev/null", O_WRONLY, &descriptor), ERR_FORMAT,
          "found a device");
    FAILS(file_lock_take(&lock, in_directory("link")), ERR_FORMAT, "a link");
    FAILS(file_lock_take(&lock, in_directory("pipe")), ERR_FORMAT, "pipe");
    FAILS(file_cut(in_directory("link"), 0), ERR_FORMAT, "a link");
    FAILS(file_read_regular(in_directory("pipe"), 9, &text), ERR_FORMAT,
          "expected a regular file");
    FAILS(file_map_open(&map, in_directory("pipe")), ERR_FORMAT,
          "expected a regular file");
    IS_OK(file_read_regular(in_directory("link"), 9, &text));
    EQUAL_TEXT(text.bytes, "theirs");
    text_free(&text);
    CHECK(!file_exists(in_directory("nothing")));
    IS_OK(directory_remove(directory));
}

TEST(a_write_takes_the_place_of_a_link_or_a_pipe)
{
    struct text text;

    test_directory(directory);
    IS_OK(file_write_atomic(in_directory("theirs"), "theirs", 6));
    EQUAL_INT(symlink("theirs", in_directory("link")), 0);
    EQUAL_INT(mkfifo(in_directory("pipe"), 0600), 0);
    IS_OK(file_write_atomic(in_directory("link"), "ours", 4));
    IS_OK(file_write_atomic(in_directory("pipe"), "ours", 4));
    IS_OK(file_read(in_directory("theirs"), 9, &text));
    EQUAL_TEXT(text.bytes, "theirs");
    text_free(&text);
    IS_OK(file_read_regular(in_directory("pipe"), 9, &text));
    EQUAL_TEXT(text.bytes, "ours");
    text_free(&text);
    CHECK(!file_is_link(in_directory("link")));
    IS_OK(directory_remove(directory));
}

TEST(nothing_is_more_open_than_its_directory)
{
    const mode_t before = umask(022);
    int descriptor;

    test_directory(directory);
    IS_OK(directory_make_private(in_directory("a/run/")));
    EQUAL_INT(mode_of("a/run"), 0700);
    IS_OK(file_write_atomic(in_directory("a/run/file"), "", 0));
    EQUAL_INT(mode_of("a/run/file"), 0600);
    IS_OK(directory_make(in_directory("a/run/b/c")));
    EQUAL_INT(mode_of("a/run/b/c"), 0700);
    IS_OK(directory_make_own(in_directory("a/run/d")));
    EQUAL_INT(mode_of("a/run/d"), 0700);
    /* Shared with a group: what is made from then on is, too. */
    EQUAL_INT(chmod(in_directory("a/run"), 0750), 0);
    IS_OK(file_open_own(in_directory("a/run/log"), O_WRONLY | O_CREAT,
                        &descriptor));
    close(descriptor);
    EQUAL_INT(mode_of("a/run/log"), 0640);
    IS_OK(directory_make_new(in_directory("a/run/e")));
    EQUAL_INT(mode_of("a/run/e"), 0750);
    FAILS(directory_make_new(in_directory("a/run/e")), ERR_IO, "already");
    umask(before);
    IS_OK(directory_remove(directory));
}

/* The permissions of a plain mkdir are no choice; others are one. */
TEST(a_chosen_permission_is_kept)
{
    const mode_t before = umask(022);

    test_directory(directory);
    EQUAL_INT(mkdir(in_directory("plain"), 0777), 0);
    IS_OK(directory_make_private(in_directory("plain")));
    EQUAL_INT(mode_of("plain"), 0700);
    EQUAL_INT(mkdir(in_directory("group"), 0750), 0);
    IS_OK(directory_make_private(in_directory("group")));
    EQUAL_INT(mode_of("group"), 0750);
    EQUAL_INT(mkdir(in_directory("full"), 0755), 0);
    IS_OK(file_write_atomic(in_directory("full/notes"), "", 0));
    IS_OK(directory_make_private(in_directory("full")));
    EQUAL_INT(mode_of("full"), 0755);
    EQUAL_INT(symlink("group", in_directory("link")), 0);
    IS_OK(directory_make_private(in_directory("link"))); /* the user's name */
    FAILS(directory_make_own(in_directory("link")), ERR_FORMAT, "a link");
    umask(before);
    IS_OK(directory_remove(directory));
}

TEST_MAIN(links_pipes_and_devices_are_refused,
          a_write_takes_the_place_of_a_link_or_a_pipe,
          nothing_is_more_open_than_its_directory,
          a_chosen_permission_is_kept)
