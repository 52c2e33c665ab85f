/* SPDX-License-Identifier: Apache-2.0 */
/* jobs.c - the next job is a number that threads count up. */
#include "base/jobs.h"

#include <stdatomic.h>

struct jobs {
    _Atomic int next;
    int count;
    void (*body)(void *argument, int job, int index);
    void *argument;
};

static void take_jobs(void *argument, int index, int count)
{
    struct jobs *jobs = argument;
    int job;

    (void)count;
    while ((job = atomic_fetch_add(&jobs->next, 1)) < jobs->count)
        jobs->body(jobs->argument, job, index);
}

void jobs_run(struct threads *threads, int count,
              void (*body)(void *argument, int job, int index),
              void *argument)
{
    struct jobs jobs = {0, count, body, argument};

    threads_run(threads, take_jobs, &jobs);
}
