/* SPDX-License-Identifier: Apache-2.0 */
/* traffic.h - the messages of a list, added up. */
#ifndef LOCKSTEP_LIST_TRAFFIC_H
#define LOCKSTEP_LIST_TRAFFIC_H

#include "list/list.h"
#include "plan/exchange.h"

/* One message, or several calls of one kind, of this rank. */
typedef status traffic_visit(void *argument, const struct exchange *row);

/* Calls `visit` for the messages of one instruction: its own, then, of F, B and
 * W, those that layers send inside, event by event, and those of the leaves of
 * gradients that the piece completes. */
status list_traffic(const struct pipeline *pipeline,
                    const struct instruction *instruction,
                    traffic_visit *visit, void *argument);

/* All messages of a list, by group, purpose and kind. */
status list_exchanges(struct exchanges *out, const struct step_list *list,
                      const struct pipeline *pipeline);

#endif
