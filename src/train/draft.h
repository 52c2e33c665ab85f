/* SPDX-License-Identifier: Apache-2.0 */
/* draft.h - what one rank of a run would hold and send, planned without the
 * other ranks and without memory: what `plan` prints. */
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

/* Of rank `rank`; the setup, whose place it changes, must outlive it. */
status draft_build(struct draft *draft, struct setup *setup, int rank);
/* The same, had the run no other batch than setup->batch. */
status draft_build_alone(struct draft *draft, struct setup *setup, int rank);
void draft_free(struct draft *draft);

#endif
