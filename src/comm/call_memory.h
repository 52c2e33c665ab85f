/* SPDX-License-Identifier: Apache-2.0 */
/* call_memory.h - the memory that a call reads and writes, run by run. */
#ifndef LOCKSTEP_COMM_CALL_MEMORY_H
#define LOCKSTEP_COMM_CALL_MEMORY_H

#include "comm/message.h"

enum call_side { CALL_READS, CALL_WRITES };

typedef void call_visit_span(void *argument, char *data, int64_t bytes);

/* Where roots of `in` do not touch, only the first is visited. */
void call_visit(const struct group *group, const struct comm_call *call,
                enum call_side side, call_visit_span *visit, void *argument);

#endif
