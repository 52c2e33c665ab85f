/* SPDX-License-Identifier: Apache-2.0 */
/* launch.c - `lockstep launch`: any command as ranks that are processes. */
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>
#include "base/clock.h"
#include "cli/run.h"
#include "comm/crew.h"
#include "comm/launch.h"

enum { GRACE_MS = 5000, LOOK_MS = 200 };

static void pass_signals_on(int descriptor, const struct crew *crew)
{
    struct signalfd_siginfo info;

    /* A terminal has sent its signals to the ranks, too: nobody minds two. */
    while (read(descriptor, &info, sizeof info) == (ssize_t)sizeof info)
        crew_signal(crew, (int)info.ssi_signo);
}

static status run_program(int *signals, const char *const *words, int count)
{
    char *argv[512];

    if (count > 510)
        FAIL(ERR_USAGE, "%d words are too many for a command", count);
    crew_unwatch(signals);
    signal(SIGPIPE, SIG_DFL);
    for (int i = 0; i < count; i++) argv[i] = (char *)(uintptr_t)words[i];
    argv[count] = NULL;
    execvp(argv[0], argv);
    FAIL(ERR_MISSING, "%s: cannot be started: %s", argv[0], strerror(errno));
}

/* The first rank that ended badly explains the others. */
struct outcome { int rank, code; char story[CREW_STORY_BYTES]; };

static void note_end(const struct crew *crew, int rank,
                     struct outcome *outcome)
{
    const struct crew_member *m = &crew->members[rank];

    if (m->ended == 0 || outcome->rank >= 0) return;
    outcome->rank = rank;
    outcome->code = WIFEXITED(m->ended) ? WEXITSTATUS(m->ended) : 0;
    crew_story(m, outcome->story);
}

static status wait_for_all(struct crew *crew, int signals,
                           struct outcome *outcome)
{
    int64_t end = 0;
    int changed;

    while (crew_living(crew) > 0) {
        struct pollfd poll_one = {.fd = signals, .events = POLLIN};

        TRY(crew_wait(crew, &poll_one, 1, LOOK_MS, &changed));
        if (poll_one.revents != 0) pass_signals_on(signals, crew);
        if (changed >= 0) note_end(crew, changed, outcome);
        if (outcome->rank < 0) continue;
        if (end == 0) end = clock_ns() + (int64_t)GRACE_MS * 1000000;
        if (clock_ns() > end) crew_fence(crew);
    }
    return OK;
}

/* The same exit code as the rank, whose own words are printed. */
static status tell(const struct outcome *outcome)
{
    status code = ERR_PEER;

    if (outcome->rank < 0) return OK;
    for (int i = 1; i < STATUS_COUNT; i++)
        if (outcome->code == status_exit_code((status)i)) code = (status)i;
    FAIL(code, "rank %d %s", outcome->rank, outcome->story);
}

static status launch(struct crew *crew, int *signals,
                     const struct arguments *arguments)
{
    struct outcome outcome = {.rank = -1};
    bool child = false;
    status result;

    TRY(crew_begin(crew, 1));
    for (int rank = 0; rank < crew->size; rank++) {
        result = crew_start(crew, rank, &child);
        if (child && result == OK)
            return run_program(signals, arguments->operands,
                               arguments->operand_count);
        if (result == OK) continue;
        if (!child) crew_fence(crew);
        return status_pass(result, __FILE__, __LINE__);
    }
    result = wait_for_all(crew, *signals, &outcome);
    crew_fence(crew);
    TRY(result);
    return tell(&outcome);
}

status command_launch(struct arguments *arguments)
{
    struct crew crew = {0};
    int64_t ranks = 0;
    status result;
    int signals;

    TRY(arguments_integer(arguments, "ranks", 1, PROCESSES_MOST, &ranks));
    if (ranks == 0)
        FAIL(ERR_USAGE, "launch: how many ranks? For example: lockstep launch "
             "--ranks 4 -- lockstep train config.yaml");
    if (launch_rank() >= 0)
        FAIL(ERR_USAGE, "launch: this process is a rank itself");
    TRY(crew_watch(&signals));
    result = crew_open(&crew, (int)ranks, "127.0.0.1:0", NULL);
    if (result == OK) result = launch(&crew, &signals, arguments);
    crew_close(&crew);
    crew_unwatch(&signals);
    return result == OK ? OK : status_pass(result, __FILE__, __LINE__);
}
