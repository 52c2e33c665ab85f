/* SPDX-License-Identifier: Apache-2.0 */
/* thread_clock.h - how long the system kept the threads of a process from
 * running: they waited for a processor, for a disk, or for pages of memory.
 *
 * A rank's first thread may wait for another one, so all of them are looked at;
 * the one that was kept for longest counts, between each two looks. Threads for
 * which no step waits have the name THREAD_ASIDE (base/threads.h). */
#ifndef LOCKSTEP_COMM_THREAD_CLOCK_H
#define LOCKSTEP_COMM_THREAD_CLOCK_H

#include <stdint.h>
#include <sys/types.h>

enum { THREADS_SEEN = 256 /* of a process, the first ones */ };

/* The system's view of a thread, so far. */
struct thread_times {
    int64_t thread;
    int64_t own_ns;       /* processor time outside of the system */
    int64_t ran_ns;       /* processor time */
    int64_t delay_ns;     /* waited for a processor, until it got one */
    int64_t turns;        /* how often it got one; -1: the system does not say
                           * these three */
    int32_t faults;       /* pages that it waited for: from a disk */
    char state;           /* as ps prints it; 0: there is no such thread */
};

struct kept_time {
    int64_t kept_ns, faults; /* so far; pages that it waited for meanwhile */
};

struct thread_clock {
    pid_t process;
    int64_t looked_ns;
    struct kept_time kept;
    int count;
    struct thread_times threads[THREADS_SEEN];
};

/* How much of `window_ns` a thread wanted to run and could not. One that
 * computes without end has all of the time; one that waits for another thread
 * or process, or is stopped, does not want to. */
int64_t thread_kept_ns(const struct thread_times *now,
                       const struct thread_times *before, int64_t window_ns);
/* Adds the time since the last look to clock->kept, if that was a moment ago.
 * Zeroed: no look yet. Looks that follow too soon do nothing. */
void thread_clock_look(struct thread_clock *clock, pid_t process,
                       int64_t now_ns);
/* Field `field` of the text of a stat file, from 3 on; NULL: it has fewer. */
const char *stat_field(const char *text, int field);

#endif
