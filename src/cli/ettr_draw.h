/* SPDX-License-Identifier: Apache-2.0 */
/* ettr_draw.h - the share of time that runs train over their ranks, as a
 * picture. */
#ifndef LOCKSTEP_CLI_ETTR_DRAW_H
#define LOCKSTEP_CLI_ETTR_DRAW_H

#include "planner/ettr.h"

struct ettr_picture {
    const struct ettr_way *ways; /* borrowed */
    int way_count, per_node;
    bool published; /* with what others report */
};

status ettr_draw(const struct ettr_picture *picture, const char *path);

#endif
