/* SPDX-License-Identifier: Apache-2.0 */
/* fields.h - the fields that an instruction of each kind must have, and whether
 * what they name is there. The verifier asks before it looks anything up. */
#ifndef LOCKSTEP_LIST_FIELDS_H
#define LOCKSTEP_LIST_FIELDS_H

#include "list/list.h"

/* Why an instruction cannot be of its kind: its resource, stage, micro-batch,
 * round, frame, unit, room or phase is none of this rank, or contradicts
 * another of its fields. NULL: it can. begun [chunks]: rounds of each chunk
 * that have begun before it. */
const char *list_fields_wrong(const struct step_list *list,
                              const struct pipeline *pipeline,
                              const struct instruction *instruction,
                              const int *begun);

#endif
