/* SPDX-License-Identifier: Apache-2.0 */
/* test_temporaries.c - mirrors src/base/temporaries.c: a signal that ends a
 * process takes with it what was noted, and nothing else. */
#include "base/temporaries.h"

#include <signal.h>
#include <sys/wait.h>
#include "tests/test.h"

struct room {
    char directory[PATH_BYTES], file[PATH_BYTES], other[PATH_BYTES],
        folder[PATH_BYTES], inner[PATH_BYTES], kept[PATH_BYTES];
};

/* A file and a folder to be noted, one file that is not. */
static void make_room(struct room *room)
{
    char many[PATH_BYTES];

    test_directory(room->directory);
    IS_OK(path_join(room->file, PATH_BYTES, room->directory, "file"));
    IS_OK(path_join(room->other, PATH_BYTES, room->directory, "other"));
    IS_OK(path_join(room->kept, PATH_BYTES, room->directory, "kept"));
    IS_OK(path_join(room->folder, PATH_BYTES, room->directory, "folder"));
    IS_OK(path_join(room->inner, PATH_BYTES, room->folder, "a/b/c"));
    IS_OK(file_write_atomic(room->file, "x", 1));
    IS_OK(file_write_atomic(room->other, "x", 1));
    IS_OK(file_write_atomic(room->kept, "x", 1));
    IS_OK(directory_make(room->inner));
    for (int i = 0; i < 300; i++) { /* more than one look shows */
        snprintf(many, sizeof many, "%.3000s/a/%060d", room->folder, i);
        IS_OK(file_write_cache(many, "x", 1));
    }
    /* A link goes, and not what it points to. */
    snprintf(many, sizeof many, "%.3000s/link", room->folder);
    EQUAL_INT(symlink(room->directory, many), 0);
}

/* How a process ends that noted file, other and folder, and forgot other. */
static int end_by(const struct room *room, int number, bool guarded)
{
    const pid_t child = fork();
    int ended = 0;

    if (child == 0) {
        signal(number, SIG_DFL);
        if (guarded) temporaries_guard();
        temporary_note(room->file);
        temporary_note(room->other);
        temporary_note(room->folder);
        temporary_forget(room->other);
        raise(number);
        _exit(0);
    }
    EQUAL_INT(waitpid(child, &ended, 0), child);
    return ended;
}

TEST(a_signal_takes_what_was_noted_with_it)
{
    static const int ending[] = {SIGINT, SIGTERM, SIGHUP, SIGPIPE};

    for (int i = 0; i < ROWS(ending); i++) {
        struct room room;
        const int ended = (make_room(&room), end_by(&room, ending[i], true));

        CHECK(WIFSIGNALED(ended) && WTERMSIG(ended) == ending[i]);
        CHECK(!file_exists(room.file) && !file_exists(room.folder));
        CHECK(file_exists(room.other) && file_exists(room.kept));
        IS_OK(directory_remove(room.directory));
    }
}

TEST(without_a_guard_nothing_is_removed)
{
    struct room room;
    int ended;

    make_room(&room);
    ended = end_by(&room, SIGTERM, false);
    CHECK(WIFSIGNALED(ended) && WTERMSIG(ended) == SIGTERM);
    CHECK(file_exists(room.file) && file_exists(room.folder));
    IS_OK(directory_remove(room.directory));
}

/* A background program of a shell ignores SIGINT: it goes on doing so. */
TEST(a_signal_that_is_ignored_stays_so)
{
    struct room room;
    pid_t child;
    int ended;

    make_room(&room);
    child = fork();
    if (child == 0) {
        signal(SIGINT, SIG_IGN);
        temporaries_guard();
        temporary_note(room.file);
        raise(SIGINT);
        _exit(7);
    }
    EQUAL_INT(waitpid(child, &ended, 0), child);
    CHECK(WIFEXITED(ended) && WEXITSTATUS(ended) == 7);
    CHECK(file_exists(room.file));
    IS_OK(directory_remove(room.directory));
}

/* A process that was forked is not the one that noted it. */
TEST(a_child_leaves_alone_what_its_parent_noted)
{
    struct room room;
    pid_t child;
    int ended;

    make_room(&room);
    temporary_note(room.file);
    child = fork();
    if (child == 0) {
        signal(SIGTERM, SIG_DFL);
        temporaries_guard();
        temporary_note(room.other);
        raise(SIGTERM);
        _exit(0);
    }
    EQUAL_INT(waitpid(child, &ended, 0), child);
    CHECK(WIFSIGNALED(ended) && WTERMSIG(ended) == SIGTERM);
    CHECK(file_exists(room.file) && !file_exists(room.other));
    temporary_forget(room.file);
    IS_OK(directory_remove(room.directory));
}

TEST_MAIN(a_signal_takes_what_was_noted_with_it,
          without_a_guard_nothing_is_removed,
          a_signal_that_is_ignored_stays_so,
          a_child_leaves_alone_what_its_parent_noted)
