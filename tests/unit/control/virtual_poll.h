/* SPDX-License-Identifier: Apache-2.0 */
/* virtual_poll.h - a clock that a test sets, and a poll that takes its time and
 * finds nothing; whoever is waited for acts then. */
#ifndef LOCKSTEP_TESTS_VIRTUAL_POLL_H
#define LOCKSTEP_TESTS_VIRTUAL_POLL_H

#include <poll.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
#include "tests/test.h"

int64_t virtual_ns; /* 0: the system's clock */

int clock_gettime(clockid_t which, struct timespec *t)
{
    if (virtual_ns == 0) return (int)syscall(SYS_clock_gettime, which, t);
    t->tv_sec = virtual_ns / 1000000000;
    t->tv_nsec = virtual_ns % 1000000000;
    return 0;
}

/* The test's: what happens once that time has passed. */
void others_act(void);

int poll(struct pollfd *fds, nfds_t count, int timeout_ms)
{
    for (nfds_t i = 0; i < count; i++) fds[i].revents = 0;
    virtual_ns += (int64_t)timeout_ms * 1000000;
    others_act();
    return 0;
}

/* poll with checks (-D_FORTIFY_SOURCE). */
int __poll_chk(struct pollfd *fds, nfds_t count, int timeout_ms, size_t bytes);
int __poll_chk(struct pollfd *fds, nfds_t count, int timeout_ms, size_t bytes)
{
    CHECK(count * sizeof *fds <= bytes);
    return poll(fds, count, timeout_ms);
}

#endif
