/* SPDX-License-Identifier: Apache-2.0 */
/* threads.h - a pinned pool of our own with fixed static splits.
 *
 * threads_run calls body(argument, index, count) once on each of `count`
 * threads and returns when all are done; index 0 is the caller. The
 * work of a thread follows from (index, count) alone, and results never depend
 * on count.
 * Waiting threads spin briefly (0.4 ms on cores of their own, 50 us where pools
 * have more threads than there are cores), then sleep. */
#ifndef LOCKSTEP_BASE_THREADS_H
#define LOCKSTEP_BASE_THREADS_H

#include <stdint.h>
#include "base/status.h"

struct threads;
enum { THREADS_MOST = 1024 /* of a pool: the cores of a cpu_set_t */ };

/* count threads, the caller included; 0: as many as the cores this process
 * may use. Asserts in every thread: round to nearest, no FTZ, no DAZ. */
status threads_build(struct threads **out, int count);
void threads_free(struct threads *threads); /* NULL allowed */
int threads_count(const struct threads *threads); /* NULL: 1 */
/* NULL threads: runs at once, index 0 of 1. Not reentrant. */
void threads_run(struct threads *threads,
                 void (*body)(void *argument, int index, int count),
                 void *argument);
/* Meets all threads of the current threads_run; callable inside a body. */
void threads_barrier(struct threads *threads);
int threads_cores(void); /* cores this process may use */
/* Which machine this is, as long as it runs, and which of its cores this
 * process may use: equal where processes share the same cores. */
enum { BOOT_MARK_BYTES = 40, CORES_MARK_BYTES = 128 /* a cpu_set_t */,
       THREADS_MARK_BYTES = BOOT_MARK_BYTES + CORES_MARK_BYTES };
void threads_mark(unsigned char mark[THREADS_MARK_BYTES]);
/* Other processes use the first `cores` of those cores: pools that are built
 * from now on are pinned behind them. */
void threads_leave_cores(int cores);

/* No step waits for the calling thread: what keeps it from running keeps no
 * rank (comm/thread_clock.h). */
#define THREAD_ASIDE "lockstep:aside" /* the system keeps 15 bytes */
void threads_aside(void);

/* [*first, *last) of [0, total) for thread `index` of `count`, in multiples of
 * `grain` from 0. */
void threads_split(int64_t total, int64_t grain, int index, int count,
                   int64_t *first, int64_t *last);

/* Asserts that this thread rounds to nearest and flushes nothing. ERR_DEVICE
 * says which bit is wrong. */
status threads_check_rounding(void);

#endif
