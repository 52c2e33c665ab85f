/* SPDX-License-Identifier: Apache-2.0 */
/* signals.c - requests of the operator or the batch system to a running
 * loop. */
#include "train/signals.h"

#include "control/board.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

static const int watched[] = {SIGTERM, SIGINT, SIGUSR1, SIGHUP, SIGPIPE};
enum { WATCHED = (int)(sizeof watched / sizeof *watched) };

static struct sigaction before[WATCHED];
static int installed; /* how many of `before` are filled */
static volatile sig_atomic_t asked, stepping, insists, quiet;
static pid_t launcher; /* without it a run stops; 0: there is none */

/* A second SIGTERM or SIGINT, after either of them, may end the process even
 * while a step hangs: the default action of both comes back. Batch systems
 * repeat SIGUSR1, and send SIGTERM after it; a closing terminal SIGHUP. */
static bool next_one_ends(int number)
{
    return insists && number != SIGUSR1 && number != SIGHUP;
}

static void on_signal(int number)
{
    static const char opening[] =
        "a signal: stopping before the first step, as soon as data and weights "
        "are open\n";
    const int before_errno = errno;

    if (asked == 0 && !stepping && !quiet)
        if (write(STDERR_FILENO, opening, sizeof opening - 1) < 0)
            errno = before_errno; /* nobody reads it */
    if (asked == 0) asked = number;
    if (next_one_ends(number)) {
        signal(SIGTERM, SIG_DFL);
        signal(SIGINT, SIG_DFL);
    }
    errno = before_errno;
}

/* nohup asks for it. Bash starts background programs with SIGINT ignored,
 * which a run watches anyway. */
static bool stays_ignored(int number, const struct sigaction *now)
{
    return number == SIGHUP && now->sa_handler == SIG_IGN;
}

/* before[i] is known. */
static status watch(int i)
{
    const bool ignored = watched[i] == SIGPIPE ||
                         stays_ignored(watched[i], &before[i]);
    struct sigaction action = {0};

    sigemptyset(&action.sa_mask);
    action.sa_flags = SA_RESTART; /* file writes are not cut short */
    action.sa_handler = ignored ? SIG_IGN : on_signal;
    if (sigaction(watched[i], &action, NULL) != 0)
        FAIL(ERR_IO, "cannot watch signal %d: %s", watched[i],
             strerror(errno));
    return OK;
}

status signals_install(bool launched)
{
    asked = 0;
    stepping = 0;
    insists = !launched;
    quiet = board_has_agent(); /* the supervisor asks, and says so */
    /* Ranks go on without a supervisor, or without the agent while it lets
     * them. */
    launcher = launched && board_mine() == NULL ? getppid() : 0;
    for (installed = 0; installed < WATCHED; installed++) {
        sigaction(watched[installed], NULL, &before[installed]);
        TRY(watch(installed));
    }
    return OK;
}

status signals_claim(void)
{
    for (int i = 0; i < installed; i++) TRY(watch(i));
    return OK;
}

void signals_stepping(void)
{
    stepping = 1;
}

int signals_asked(void)
{
    if (asked == 0 && launcher != 0 && getppid() != launcher)
        return SIGNALS_LAUNCHER;
    return asked;
}

const char *signals_name(int number)
{
    switch (number) {
    case 0: return "";
    case SIGTERM: return "SIGTERM";
    case SIGINT: return "SIGINT";
    case SIGUSR1: return "SIGUSR1";
    case SIGHUP: return "SIGHUP";
    case SIGNALS_LAUNCHER: return "the end of its launcher";
    default: return "a signal";
    }
}

/* A batch system warns one process after another: some have saved and are about
 * to end by then. The default action would take their exit code. */
static bool comes_late(int i)
{
    return watched[i] == SIGUSR1 && before[i].sa_handler == SIG_DFL;
}

void signals_restore(void)
{
    for (int i = 0; i < installed; i++) {
        /* The reader of the output may be gone by the last lines, which are no
         * reason for a run that is whole to fail. */
        if (comes_late(i) || watched[i] == SIGPIPE)
            before[i].sa_handler = SIG_IGN;
        sigaction(watched[i], &before[i], NULL);
    }
    installed = 0;
    asked = 0;
    launcher = 0;
}
