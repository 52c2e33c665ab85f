/* SPDX-License-Identifier: Apache-2.0 */
/* search_time.h - the time of a candidate, from a few short steps. */
#ifndef LOCKSTEP_PLANNER_SEARCH_TIME_H
#define LOCKSTEP_PLANNER_SEARCH_TIME_H

#include "planner/search.h"

/* Sets its prediction, by lists of whole stages. A step of many micro-batches
 * is as long as a short one and so many more of what the last fill of the
 * pipeline added. */
status search_time(const struct search_request *request,
                   struct candidate *candidate);

/* search_time of `count` of the candidates, on the request's threads; one
 * without a time has 1e300 seconds. */
void search_time_all(const struct search_request *request,
                     struct candidate *candidates, const int *which,
                     int count);

/* Whether two layouts of Lockstep have the same lists, and so the same time:
 * ZeRO 1 and 2 whose gradients are reduced once. */
bool search_twins(const struct layout *a, const struct layout *b,
                  const struct shape *shape);

#endif
