/* SPDX-License-Identifier: Apache-2.0 */
/* search_layouts.h - the layouts of a search: all that are legal are counted,
 * those that fit are kept with a bound of their time. Inside the search alone.
 */
#ifndef LOCKSTEP_PLANNER_SEARCH_LAYOUTS_H
#define LOCKSTEP_PLANNER_SEARCH_LAYOUTS_H

#include "planner/search.h"

/* `out` is zeroed; the caller frees it. */
status search_enumerate(struct search *out,
                        const struct search_request *request);

#endif
