/* SPDX-License-Identifier: Apache-2.0 */
/* child.h - a question that a process of its own answers, within a time: what
 * is asked may hang, crash, or leave behind what later processes cannot use. */
#ifndef LOCKSTEP_BASE_CHILD_H
#define LOCKSTEP_BASE_CHILD_H

#include <stddef.h>
#include <stdint.h>

/* Fills *answer, which is zeroed, in the child. */
typedef void child_work(void *answer, const void *of);

enum child_end {
    CHILD_ANSWERED,
    CHILD_NONE,  /* the system starts no process */
    CHILD_ENDED, /* without an answer */
    CHILD_LATE   /* it was ended, after `patience_ms` */
};

/* answer: one write into a pipe, [bytes] <= PIPE_BUF; undefined unless
 * CHILD_ANSWERED. The child lives no longer than the
 * thread that asks. */
enum child_end child_ask(child_work *work, const void *of, void *answer,
                         size_t bytes, int64_t patience_ms);

#endif
