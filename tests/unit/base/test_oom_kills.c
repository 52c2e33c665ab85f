/* SPDX-License-Identifier: Apache-2.0 */
/* test_oom_kills.c - mirrors src/base/oom_kills.c. */
#include "base/file.h"
#include "base/oom_kills.h"
#include "tests/test.h"

static char room[PATH_BYTES];

static void put(const char *name, const char *text)
{
    char path[PATH_BYTES];

    IS_OK(path_join(path, sizeof path, room, name));
    for (char *slash = path + strlen(room) + 1;
         (slash = strchr(slash, '/')) != NULL; slash++) {
        *slash = '\0';
        IS_OK(directory_make(path));
        *slash = '/';
    }
    IS_OK(file_write_atomic(path, text, strlen(text)));
}

static int64_t number(bool limit)
{
    char list[PATH_BYTES];

    IS_OK(path_join(list, sizeof list, room, "list"));
    return oom_kills_number(list, room, limit);
}

TEST(both_versions_of_control_groups_tell)
{
    test_directory(room);
    EQUAL_INT(number(false), -1);
    put("list", "5:devices:/\n0::/user/job\n");
    EQUAL_INT(number(false), -1);
    put("user/job/memory.events", "low 0\noom 7\noom_kill 3\n");
    put("user/job/memory.max", "max\n");
    EQUAL_INT(number(false), 3);
    EQUAL_INT(number(true), -1);
    put("user/job/memory.max", "1048576\n");
    EQUAL_INT(number(true), 1048576);
    put("list", "4:cpu,memory:/job\n0::/\n");
    EQUAL_INT(number(false), -1); /* neither there nor at the root */
    put("memory/memory.oom_control", "under_oom 0\noom_kill 9\n");
    EQUAL_INT(number(false), 9);
    put("memory/job/memory.oom_control", "oom_kill_disable 0\noom_kill 1\n");
    put("memory/job/memory.limit_in_bytes", "4096\n");
    EQUAL_INT(number(false), 1);
    EQUAL_INT(number(true), 4096);
    IS_OK(directory_remove(room));
}

TEST(kills_are_taken_once)
{
    oom_kills_watch();
    CHECK(!oom_kills_take());
    CHECK(oom_kills_limit() >= 0);
}

TEST_MAIN(both_versions_of_control_groups_tell, kills_are_taken_once)
