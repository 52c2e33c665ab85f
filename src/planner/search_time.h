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

#endif
