/* SPDX-License-Identifier: Apache-2.0 */
/* pareto.h - layouts that were timed, as a picture: time, memory headroom and
 * bytes over the network. */
#ifndef LOCKSTEP_CLI_PARETO_H
#define LOCKSTEP_CLI_PARETO_H

#include "planner/search.h"

status pareto_draw(const struct search *search,
                   const struct search_request *request, const char *path);

#endif
