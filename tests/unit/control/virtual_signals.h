/* SPDX-License-Identifier: Apache-2.0 */
/* virtual_signals.h - a supervisor that exists only in one test hears no signal
 * of the system. */
#ifndef LOCKSTEP_TESTS_VIRTUAL_SIGNALS_H
#define LOCKSTEP_TESTS_VIRTUAL_SIGNALS_H

#include <fcntl.h>
#include <signal.h>
#include <sys/signalfd.h>

/* Signals are for the test, not for its supervisor: who ends a test that takes
 * too long did not ask a run to stop. */
int signalfd(int descriptor, const sigset_t *set, int flags)
{
    (void)descriptor, (void)set, (void)flags;
    return open("/dev/null", O_RDONLY | O_CLOEXEC);
}

int sigprocmask(int how, const sigset_t *restrict set,
                sigset_t *restrict before)
{
    (void)how, (void)set, (void)before;
    return 0;
}

#endif
