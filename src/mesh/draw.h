/* SPDX-License-Identifier: Apache-2.0 */
/* draw.h - a picture of the mesh (SVG): ranks as boxes in the colour of their
 * pipeline stage, frames around those that work together. */
#ifndef LOCKSTEP_MESH_DRAW_H
#define LOCKSTEP_MESH_DRAW_H

#include "base/text.h"
#include "mesh/group.h"

enum { MESH_DRAWN_MAX = 256 /* ranks */, MESH_NOTE_BYTES = 40,
       MESH_NOTES = 2 };

/* The lines in the box of a rank, below its name. */
struct mesh_note { char line[MESH_NOTES][MESH_NOTE_BYTES]; };

/* notes [ranks]. ERR_CONFIG: more than MESH_DRAWN_MAX ranks. */
status mesh_draw_svg(const struct mesh *mesh, const struct mesh_order *order,
                     const char *title, const struct mesh_note *notes,
                     struct text *out);

#endif
