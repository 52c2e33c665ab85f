/* SPDX-License-Identifier: Apache-2.0 */
/* signals.c - what the operator or the batch system asks of a running loop. */
#include "train/signals.h"

#include <errno.h>
#include <signal.h>
#include <string.h>

static const int watched[] = {SIGTERM, SIGINT, SIGUSR1, SIGPIPE};
enum { WATCHED = (int)(sizeof watched / sizeof *watched) };

static struct sigaction before[WATCHED];
static int installed; /* how many of `before` are filled */
static volatile sig_atomic_t asked;

/* The default action comes back for this signal, so that a second one ends
 * the process even while a step hangs. SIGUSR1 is no demand for haste: batch
 * systems repeat it. */
static void on_signal(int number)
{
    if (asked == 0) asked = number;
    if (number != SIGUSR1) signal(number, SIG_DFL);
}

status signals_install(void)
{
    asked = 0;
    installed = 0;
    for (int i = 0; i < WATCHED; i++) {
        struct sigaction action = {0};

        sigemptyset(&action.sa_mask);
        action.sa_flags = SA_RESTART; /* file writes are not cut short */
        action.sa_handler = watched[i] == SIGPIPE ? SIG_IGN : on_signal;
        if (sigaction(watched[i], &action, &before[i]) != 0)
            FAIL(ERR_IO, "cannot watch signal %d: %s", watched[i],
                 strerror(errno));
        installed = i + 1;
    }
    return OK;
}

int signals_asked(void)
{
    return asked;
}

const char *signals_name(int number)
{
    switch (number) {
    case 0: return "";
    case SIGTERM: return "SIGTERM";
    case SIGINT: return "SIGINT";
    case SIGUSR1: return "SIGUSR1";
    default: return "a signal";
    }
}

void signals_restore(void)
{
    for (int i = 0; i < installed; i++) sigaction(watched[i], &before[i], NULL);
    installed = 0;
    asked = 0;
}
