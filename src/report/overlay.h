/* SPDX-License-Identifier: Apache-2.0 */
/* overlay.h - loss curves of several layouts on top of each other, as one SVG
 * file that needs nothing else. */
#ifndef LOCKSTEP_REPORT_OVERLAY_H
#define LOCKSTEP_REPORT_OVERLAY_H

#include <stdint.h>
#include "base/status.h"

struct overlay_curve {
    const char *name;     /* borrowed */
    const double *losses; /* borrowed, [steps] */
};

/* Each later curve is drawn thinner over the ones before: equal curves show as
 * rings of all colours, a curve that leaves the others as a line of its own. */
status overlay_write(const struct overlay_curve *curves, int count,
                     int64_t steps, const char *path);

#endif
