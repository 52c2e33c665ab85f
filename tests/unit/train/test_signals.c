/* SPDX-License-Identifier: Apache-2.0 */
/* test_signals.c - mirrors src/train/signals.c. */
#include <signal.h>
#include <sys/wait.h>
#include "tests/test.h"
#include "train/signals.h"

TEST(a_signal_is_asked_for_by_name)
{
    static const struct {
        int number;
        const char *name;
    } rows[] = {{SIGTERM, "SIGTERM"}, {SIGINT, "SIGINT"},
                {SIGUSR1, "SIGUSR1"}};

    for (int i = 0; i < ROWS(rows); i++) {
        IS_OK(signals_install());
        EQUAL_INT(signals_asked(), 0);
        raise(rows[i].number);
        EQUAL_INT(signals_asked(), rows[i].number);
        EQUAL_TEXT(signals_name(signals_asked()), rows[i].name);
        signals_restore();
        EQUAL_INT(signals_asked(), 0);
    }
}

TEST(a_broken_pipe_does_not_end_the_process)
{
    IS_OK(signals_install());
    raise(SIGPIPE);
    EQUAL_INT(signals_asked(), 0);
    signals_restore();
}

/* How a child ends that raises `first`, then `second`, then returns 75. */
static int ends(int first, int second)
{
    int how = 0;
    const pid_t child = fork();

    if (child == 0) {
        if (signals_install() != OK) _exit(1);
        raise(first);
        if (second != 0) raise(second);
        _exit(75);
    }
    CHECK(waitpid(child, &how, 0) == child);
    return WIFSIGNALED(how) ? 128 + WTERMSIG(how) : WEXITSTATUS(how);
}

TEST(a_second_one_ends_the_process)
{
    EQUAL_INT(ends(SIGTERM, 0), 75);
    EQUAL_INT(ends(SIGTERM, SIGTERM), 128 + SIGTERM);
    EQUAL_INT(ends(SIGINT, SIGINT), 128 + SIGINT);
    EQUAL_INT(ends(SIGUSR1, SIGUSR1), 75); /* batch systems repeat it */
    EQUAL_INT(ends(SIGUSR1, SIGTERM), 75);
}

TEST_MAIN(a_signal_is_asked_for_by_name,
          a_broken_pipe_does_not_end_the_process,
          a_second_one_ends_the_process)
