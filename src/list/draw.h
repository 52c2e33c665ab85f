/* SPDX-License-Identifier: Apache-2.0 */
/* draw.h - the picture of a list: a row for each resource, instructions from
 * left to right in their order; one in the background reaches to the
 * instruction that waits for it. */
#ifndef LOCKSTEP_LIST_DRAW_H
#define LOCKSTEP_LIST_DRAW_H

#include "base/text.h"
#include "list/list.h"

enum { DRAW_MOST = 20000 /* instructions */ };

/* Appends an SVG. ERR_CONFIG: more than DRAW_MOST instructions. */
status list_draw(const struct step_list *list, const char *title,
                 struct text *out);

#endif
