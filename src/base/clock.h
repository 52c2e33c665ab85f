/* SPDX-License-Identifier: Apache-2.0 */
/* clock.h - the clocks: one that only goes forward, for durations and
 * deadlines, that of the wall, for what people and files read, and the
 * processor's. */
#ifndef LOCKSTEP_BASE_CLOCK_H
#define LOCKSTEP_BASE_CLOCK_H

#include <stdint.h>
#include <time.h>

static inline int64_t clock_read_ns(clockid_t which)
{
    struct timespec t;

    clock_gettime(which, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static inline double clock_read_s(clockid_t which)
{
    struct timespec t;

    clock_gettime(which, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* From some moment on; nobody can set it. */
static inline int64_t clock_ns(void)
{
    return clock_read_ns(CLOCK_MONOTONIC);
}

static inline double clock_s(void)
{
    return clock_read_s(CLOCK_MONOTONIC);
}

/* Since 1970. */
static inline int64_t clock_wall_ns(void)
{
    return clock_read_ns(CLOCK_REALTIME);
}

static inline double clock_wall_s(void)
{
    return clock_read_s(CLOCK_REALTIME);
}

/* Processor time of this thread. */
static inline double clock_thread_s(void)
{
    return clock_read_s(CLOCK_THREAD_CPUTIME_ID);
}

#endif
