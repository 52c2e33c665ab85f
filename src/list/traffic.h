/* SPDX-License-Identifier: Apache-2.0 */
/* traffic.h - the messages of a list, one by one. */
#ifndef LOCKSTEP_LIST_TRAFFIC_H
#define LOCKSTEP_LIST_TRAFFIC_H

#include "list/list.h"
#include "plan/exchange.h"

/* One message, or several calls of one kind, of this rank. */
typedef status traffic_visit(void *argument, const struct exchange *row);

/* Leaves of gradients that the micro-batch of an instruction completes, of uses
 * of the head or of others, but for the other ranks' tokens. */
int64_t list_leaves_completed(const struct pipeline *pipeline,
                              const struct instruction *instruction, bool head);
/* Calls `visit` for the messages that layers send in one event of F, B or W,
 * and for those of the leaves of gradients that the event completes. */
status list_event_traffic(const struct stage *stage,
                          const struct exchange_case *at,
                          traffic_visit *visit, void *argument);

/* Like list_event_traffic, for all messages of one instruction of a training
 * step: its own, or, of F, B and W, those of its events. */
status list_traffic(const struct pipeline *pipeline,
                    const struct instruction *instruction,
                    traffic_visit *visit, void *argument);

#endif
