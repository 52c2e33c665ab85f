/* SPDX-License-Identifier: Apache-2.0 */
/* plan_mesh.h - `plan --explain mesh`: who stands where, with whom, and what
 * they send. */
#ifndef LOCKSTEP_CLI_PLAN_MESH_H
#define LOCKSTEP_CLI_PLAN_MESH_H

#include "train/draft.h"

/* Prints three tables (ranks, groups, messages of a step), or with `json` one
 * object of them. picture, unless NULL: also an SVG of the mesh. */
status plan_mesh(struct setup *setup, bool json, const char *picture);

#endif
