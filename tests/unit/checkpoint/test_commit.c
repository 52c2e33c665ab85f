/* SPDX-License-Identifier: Apache-2.0 */
/* test_commit.c - mirrors src/checkpoint/commit.c: a sweep over every point
 * at which a save can fail or be killed. */
#include "tests/unit/checkpoint/room.h"
#include <signal.h>
#include <sys/wait.h>
#include "base/fault.h"
#include "checkpoint/history.h"

static const char *const points[] = {"checkpoint.tensor", "checkpoint.sync",
                                     "checkpoint.rename", "checkpoint.latest",
                                     "file.write",        "file.rename"};

enum { PASSES_MAX = 64, CODE_FAILED = 3 };

/* Some hundred saves: in memory where that is possible, as fsync is not what
 * is tested. */
static void memory_room_open(void)
{
    if (access("/dev/shm", W_OK) == 0) setenv("TMPDIR", "/dev/shm", 0);
    room_open();
}

/* Saves step 20 in a process of its own, with a fault. False when the save
 * went through, so there is no such passing. */
static bool save_with_fault(const char *fault, bool kill)
{
    int code = 0;
    const pid_t child = fork();

    CHECK(child >= 0);
    if (child == 0) {
        struct small *small = small_make(2);
        status result;

        small->plan.step = 20;
        if (fault_arm(fault) != OK) _exit(1);
        result = checkpoint_save(&small->plan);
        _exit(result == OK ? 0 : result == ERR_IO ? CODE_FAILED : 1);
    }
    EQUAL_INT(waitpid(child, &code, 0), child);
    if (WIFEXITED(code) && WEXITSTATUS(code) == 0) return false;
    if (kill)
        CHECK(WIFSIGNALED(code) && WTERMSIG(code) == SIGKILL);
    else
        CHECK(WIFEXITED(code) && WEXITSTATUS(code) == CODE_FAILED);
    return true;
}

/* Whatever happened: a whole checkpoint is found at once, without notice, and
 * it is one of the two, never a mixture. */
static void check_recovery(const char *fault)
{
    struct checkpoint checkpoint;
    struct text notice = {0};
    int64_t *steps = NULL;
    int count = 0;

    IS_OK(checkpoint_open_newest_valid(&checkpoint, room, NULL, &notice));
    EQUAL_INT(notice.length, 0);
    struct small *small = small_make(checkpoint.manifest.step == 20 ? 2 : 1);
    float read[7];
    struct saved_part part = small->parts[6];
    part.data = read;
    IS_OK(checkpoint_read_tensor(&checkpoint, &part));
    EQUAL_BYTES(read, small->parts[6].data, sizeof read);
    free(small);
    /* Until the rename there is no step 20 under its name. */
    IS_OK(checkpoint_steps(room, &steps, &count));
    if (!strstr(fault, "latest") && !strstr(fault, "file."))
        EQUAL_INT(count, 1);
    memory_free(steps);
    checkpoint_close(&checkpoint);
}

static void sweep(const char *point, const char *action)
{
    const bool kill = strcmp(action, "kill") == 0;

    for (int passing = 1; passing <= PASSES_MAX; passing++) {
        char fault[80];
        char **names = NULL;
        int count = 0;

        IS_OK(directory_remove(room_path("ckpt")));
        small_save(1, 10);
        snprintf(fault, sizeof fault, "%s:%d:%s", point, passing, action);
        if (!save_with_fault(fault, kill)) {
            CHECK(passing > 1); /* the point exists */
            return;
        }
        check_recovery(fault);
        /* A failed save cleans up behind it; after a kill the next start
         * does. */
        if (kill) IS_OK(checkpoint_clean(room));
        IS_OK(directory_list(room_path("ckpt"), &names, &count));
        for (int i = 0; i < count; i++) CHECK(!strstr(names[i], "tmp"));
        directory_list_free(names, count);
        if (passing > 1) continue;
        small_save(2, 20); /* and the next save is as good as any */
        check_recovery("latest");
    }
    const bool the_sweep_ends = false;

    CHECK(the_sweep_ends);
}

TEST(a_save_that_fails_anywhere)
{
    memory_room_open();
    small_save(1, 10);
    for (int i = 0; i < ROWS(points); i++) sweep(points[i], "fail");
    sweep("checkpoint.tensor", "full");
    room_close();
}

TEST(a_save_that_is_killed_anywhere)
{
    memory_room_open();
    small_save(1, 10);
    for (int i = 0; i < ROWS(points); i++) sweep(points[i], "kill");
    room_close();
}

/* Replacing a step that exists: at no moment is it missing. */
TEST(a_replacement_that_is_killed)
{
    static const char *const faults[] = {"checkpoint.rename:1:kill",
                                         "checkpoint.latest:1:kill",
                                         "checkpoint.tensor:3:kill"};

    memory_room_open();
    for (int i = 0; i < ROWS(faults); i++) {
        small_save(1, 20);
        CHECK(save_with_fault(faults[i], true));
        CHECK(file_exists(room_path("ckpt/step-00000020/manifest.json")));

        struct checkpoint checkpoint;

        IS_OK(checkpoint_open(&checkpoint, room_path("ckpt/step-00000020"),
                              NULL));
        IS_OK(checkpoint_verify(&checkpoint));
        checkpoint_close(&checkpoint);
        IS_OK(checkpoint_clean(room));
    }
    room_close();
}

/* Killed while it removes an old one: the rest is no checkpoint. */
TEST(a_removal_that_is_killed)
{
    char path[PATH_BYTES];
    int64_t step = 0;
    int code = 0;
    pid_t child;

    memory_room_open();
    small_save(1, 10);
    small_save(1, 20);
    child = fork();
    if (child == 0) {
        if (fault_arm("checkpoint.remove:1:kill") != OK) _exit(1);
        _exit(checkpoint_prune(room, 1, 0, -1) == OK ? 0 : 1);
    }
    EQUAL_INT(waitpid(child, &code, 0), child);
    CHECK(WIFSIGNALED(code));
    CHECK(!file_exists(room_path("ckpt/step-00000010")));
    CHECK(file_exists(room_path("ckpt/.tmp-old-step-00000010")));
    IS_OK(checkpoint_find_newest(room, path, &step));
    EQUAL_INT(step, 20);
    IS_OK(checkpoint_clean(room));
    CHECK(!file_exists(room_path("ckpt/.tmp-old-step-00000010")));
    room_close();
}

TEST_MAIN(a_save_that_fails_anywhere, a_save_that_is_killed_anywhere,
          a_replacement_that_is_killed, a_removal_that_is_killed)
