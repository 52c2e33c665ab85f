/* SPDX-License-Identifier: Apache-2.0 */
/* draft.h - the plan of one rank, its memory and its messages, made without the
 * other ranks and without taking memory. `plan` prints it. */
#ifndef LOCKSTEP_TRAIN_DRAFT_H
#define LOCKSTEP_TRAIN_DRAFT_H

#include "plan/exchange.h"
#include "setup/setup.h"
#include "step/team.h"

struct draft {
    struct group world;  /* owned; size 0: alone */
    struct team team;    /* owned */
    struct pipeline pipeline; /* owned, planned, never opened */
    struct exchanges exchanges; /* of a step */
};

/* Plans rank `rank`. The setup, whose place it changes, must outlive it. */
status draft_build(struct draft *draft, struct setup *setup, int rank);
/* Like draft_build, had the run no other batch than setup->batch. */
status draft_build_alone(struct draft *draft, struct setup *setup, int rank);
void draft_free(struct draft *draft);

#endif
