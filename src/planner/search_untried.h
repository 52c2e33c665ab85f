/* SPDX-License-Identifier: Apache-2.0 */
/* search_untried.h - layouts that may be trained and that a search does not
 * try, in words. */
#ifndef LOCKSTEP_PLANNER_SEARCH_UNTRIED_H
#define LOCKSTEP_PLANNER_SEARCH_UNTRIED_H

#include "planner/search.h"

enum { UNTRIED_MOST = 8, UNTRIED_BYTES = 240 };
/* How many there are, for this model on these ranks. */
int search_untried(const struct search_request *request,
                   char out[UNTRIED_MOST][UNTRIED_BYTES]);

#endif
