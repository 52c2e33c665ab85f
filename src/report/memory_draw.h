/* SPDX-License-Identifier: Apache-2.0 */
/* memory_draw.h - the planned memory of a rank over a micro-batch, by owner, as
 * a picture: what is alive at each event, and where in the frame it lies.
 *
 * The plan is the allocation (plan/stage.h), so the picture is what a run has,
 * to the byte. */
#ifndef LOCKSTEP_REPORT_MEMORY_DRAW_H
#define LOCKSTEP_REPORT_MEMORY_DRAW_H

#include "plan/pipeline.h"

/* Appends one svg element for each stage of the rank, for a page that has the
 * report's style. */
status memory_svg(const struct pipeline *pipeline, struct text *out);
/* The same as an SVG file that needs nothing else. */
status memory_draw(const struct pipeline *pipeline, const char *path);

#endif
