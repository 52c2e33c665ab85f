/* SPDX-License-Identifier: Apache-2.0 */
/* test_signals.c - mirrors src/train/signals.c. */
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>
#include "base/temporaries.h"
#include "tests/test.h"
#include "train/signals.h"

TEST(a_signal_is_asked_for_by_name)
{
    static const struct {
        int number;
        const char *name;
    } rows[] = {{SIGTERM, "SIGTERM"}, {SIGINT, "SIGINT"},
                {SIGUSR1, "SIGUSR1"}, {SIGHUP, "SIGHUP"}};

    for (int i = 0; i < ROWS(rows); i++) {
        signal(rows[i].number, SIG_DFL); /* also where nohup runs this */
        IS_OK(signals_install(false));
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
    temporaries_guard(); /* whose handler would end it */
    IS_OK(signals_install(false));
    raise(SIGPIPE);
    EQUAL_INT(signals_asked(), 0);
    signals_restore();
    raise(SIGPIPE); /* its last lines */
}

/* The exit of a child that raises `first`, then `second`, then returns 75. */
static int ends(bool launched, int first, int second)
{
    int how = 0;
    const pid_t child = fork();

    if (child == 0) {
        signal(SIGHUP, SIG_DFL);
        signal(SIGINT, SIG_DFL);
        if (signals_install(launched) != OK) _exit(1);
        signals_stepping();
        raise(first);
        if (second != 0) raise(second);
        _exit(75);
    }
    CHECK(waitpid(child, &how, 0) == child);
    return WIFSIGNALED(how) ? 128 + WTERMSIG(how) : WEXITSTATUS(how);
}

TEST(a_second_one_ends_the_process)
{
    EQUAL_INT(ends(false, SIGTERM, 0), 75);
    EQUAL_INT(ends(false, SIGTERM, SIGTERM), 128 + SIGTERM);
    EQUAL_INT(ends(false, SIGINT, SIGINT), 128 + SIGINT);
    EQUAL_INT(ends(false, SIGTERM, SIGINT), 128 + SIGINT);
    EQUAL_INT(ends(false, SIGINT, SIGTERM), 128 + SIGTERM);
    EQUAL_INT(ends(false, SIGTERM, SIGUSR1), 75);
    EQUAL_INT(ends(false, SIGHUP, SIGINT), 75);
    EQUAL_INT(ends(false, SIGUSR1, SIGUSR1), 75); /* batch systems repeat it */
    EQUAL_INT(ends(false, SIGUSR1, SIGTERM), 75);
    EQUAL_INT(ends(false, SIGHUP, SIGHUP), 75); /* of shell and kernel */
}

/* A launcher and the batch system above it both send it. */
TEST(under_a_launcher_a_second_one_changes_nothing)
{
    EQUAL_INT(ends(true, SIGTERM, SIGTERM), 75);
    EQUAL_INT(ends(true, SIGINT, SIGINT), 75);
}

TEST(a_library_does_not_keep_a_signal)
{
    signal(SIGHUP, SIG_DFL);
    IS_OK(signals_install(true));
    signal(SIGHUP, SIG_IGN);
    IS_OK(signals_claim());
    raise(SIGHUP);
    EQUAL_INT(signals_asked(), SIGHUP);
    signals_restore();
}

TEST(a_late_warning_does_not_end_the_process)
{
    signal(SIGUSR1, SIG_DFL);
    IS_OK(signals_install(true));
    raise(SIGUSR1);
    EQUAL_INT(signals_asked(), SIGUSR1);
    signals_restore();
    raise(SIGUSR1);
    EQUAL_INT(signals_asked(), 0);
}

TEST(nohup_is_respected)
{
    signal(SIGHUP, SIG_IGN);
    IS_OK(signals_install(false));
    raise(SIGHUP);
    EQUAL_INT(signals_asked(), 0);
    signals_restore();
    signal(SIGHUP, SIG_DFL);
}

/* A process whose parent has ended: what it asks for. */
static int orphan_asks(bool launched)
{
    int ends[2], found = -1;
    char byte = 0;

    CHECK(pipe(ends) == 0);
    const pid_t parent = fork();

    if (parent == 0) {
        const pid_t self = getpid();

        if (fork() > 0) { /* until the child has seen this one live, or ends */
            close(ends[1]);
            (void)!read(ends[0], &byte, 1);
            _exit(0);
        }
        if (signals_install(launched) != OK || signals_asked() != 0) _exit(1);
        (void)!write(ends[1], &byte, 1);
        while (getppid() == self) usleep(1000);
        found = signals_asked();
        (void)!write(ends[1], &found, sizeof found);
        _exit(0);
    }
    CHECK(waitpid(parent, NULL, 0) == parent);
    CHECK(read(ends[0], &found, sizeof found) == (ssize_t)sizeof found);
    close(ends[0]);
    close(ends[1]);
    return found;
}

/* mpirun that is killed sends nothing: its ranks went on. */
TEST(a_run_stops_without_its_launcher)
{
    EQUAL_INT(orphan_asks(true), SIGNALS_LAUNCHER);
    EQUAL_INT(orphan_asks(false), 0);
    EQUAL_TEXT(signals_name(SIGNALS_LAUNCHER), "the end of its launcher");
}

TEST_MAIN(a_run_stops_without_its_launcher, a_signal_is_asked_for_by_name,
          a_broken_pipe_does_not_end_the_process,
          a_second_one_ends_the_process,
          under_a_launcher_a_second_one_changes_nothing,
          a_library_does_not_keep_a_signal,
          a_late_warning_does_not_end_the_process, nohup_is_respected)
