/* SPDX-License-Identifier: Apache-2.0 */
/* test_fault.c - mirrors src/base/fault.c. */
#include "base/fault.h"

#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include "tests/test.h"

TEST(a_fault_happens_at_its_passing_and_only_then)
{
    IS_OK(fault_arm("a:2,b:1:full"));
    IS_OK(fault_point("a"));
    IS_OK(fault_point("c"));
    FAILS(fault_point("a"), ERR_IO, "fault a, passing 2: failed as armed");
    IS_OK(fault_point("a"));
    FAILS(fault_point("b"), ERR_IO, "disk full");
    IS_OK(fault_arm("a:1"));
    CHECK(fault_due("a") && !fault_due("a") && !fault_due("b"));
    IS_OK(fault_arm(NULL));
    IS_OK(fault_point("a"));
}

TEST(a_fault_that_lasts_happens_from_its_passing_on)
{
    IS_OK(fault_arm("a:2"));
    CHECK(!fault_lasts("b") && !fault_lasts("a") && fault_lasts("a") &&
          fault_lasts("a"));
    IS_OK(fault_arm(NULL));
    CHECK(!fault_lasts("a"));
}

TEST(a_stopped_process_goes_on_when_it_is_told)
{
    int state = 0;
    pid_t child = fork();

    if (child == 0)
        _exit(fault_arm("a:1:stop") == OK && fault_point("a") == OK ? 3 : 4);
    CHECK(waitpid(child, &state, WUNTRACED) == child);
    CHECK(WIFSTOPPED(state) && WSTOPSIG(state) == SIGSTOP);
    CHECK(kill(child, SIGCONT) == 0);
    CHECK(waitpid(child, &state, 0) == child);
    CHECK(WIFEXITED(state) && WEXITSTATUS(state) == 3);
}

TEST(a_fault_of_a_rank_happens_in_its_first_generation)
{
    setenv("LOCKSTEP_RANK", "2", 1);
    setenv("LOCKSTEP_GENERATION", "1", 1);
    IS_OK(fault_arm("a@1:1,a@2:2"));
    IS_OK(fault_point("a"));
    FAILS(fault_point("a"), ERR_IO, "fault a, passing 2");
    setenv("LOCKSTEP_GENERATION", "2", 1);
    IS_OK(fault_arm("a@2:1"));
    IS_OK(fault_point("a"));
    unsetenv("LOCKSTEP_RANK");
    setenv("LOCKSTEP_GENERATION", "1", 1);
    IS_OK(fault_point("a"));
    unsetenv("LOCKSTEP_GENERATION");
    IS_OK(fault_arm(NULL));
}

TEST(a_kill_leaves_no_time_for_anything)
{
    int state = 0;
    pid_t child = fork();

    if (child == 0) {
        if (fault_arm("a:1:kill") == OK) (void)fault_point("a");
        _exit(3);
    }
    CHECK(waitpid(child, &state, 0) == child);
    CHECK(WIFSIGNALED(state) && WTERMSIG(state) == SIGKILL);
}

TEST(what_cannot_be_armed_is_said)
{
    static const char *const rows[] = {
        "a",      ":1",      "a:",     "a:0",     "a:x",
        "a:1x",   "a:1:die", "a:-1",   "a:1,b",   "a:1:",
        "a@:1", "a@x:1", "a@-1:1", "@1:1", "a@1b:1",
        "a:1,b:1,c:1,d:1,e:1,f:1,g:1,h:1,i:1",
    };

    for (int i = 0; i < ROWS(rows); i++)
        FAILS(fault_arm(rows[i]), ERR_CONFIG, "fault");
    IS_OK(fault_arm(""));
}

TEST_MAIN(a_fault_happens_at_its_passing_and_only_then,
          a_fault_that_lasts_happens_from_its_passing_on,
          a_stopped_process_goes_on_when_it_is_told,
          a_fault_of_a_rank_happens_in_its_first_generation,
          a_kill_leaves_no_time_for_anything, what_cannot_be_armed_is_said)
