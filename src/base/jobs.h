/* SPDX-License-Identifier: Apache-2.0 */
/* jobs.h - work that threads take as they become free. */
#ifndef LOCKSTEP_BASE_JOBS_H
#define LOCKSTEP_BASE_JOBS_H

#include "base/threads.h"

/* Calls body(argument, job, index) for each of so many jobs, on whichever
 * thread is free (index: its number): results must not depend on which one
 * that is, nor on which job is done first. Not reentrant, as threads_run. */
void jobs_run(struct threads *threads, int jobs,
              void (*body)(void *argument, int job, int index),
              void *argument);

#endif
