/* SPDX-License-Identifier: Apache-2.0 */
/* instruction_facts.h - facts about an instruction that follow from the plan,
 * as text: the key of its cost and the memory that it frees. */
#ifndef LOCKSTEP_LIST_INSTRUCTION_FACTS_H
#define LOCKSTEP_LIST_INSTRUCTION_FACTS_H

#include "base/text.h"
#include "list/list.h"

enum { COST_KEY_BYTES = 96 };

/* Instructions with the same key cost a machine the same time: F, B and W by
 * chunk and range of events, "B1 [17, 30)"; messages by kind, group and bytes,
 * "all-gather data 4096"; the rest by kind and chunk. */
const char *list_cost_key(char out[COST_KEY_BYTES],
                          const struct pipeline *pipeline,
                          const struct instruction *instruction);

/* Appends the memory that is free after the instruction, "frame 0, batch 0":
 * it writes there and leaves no content (list/access.h). Nothing: none is. */
status list_frees(const struct pipeline *pipeline, bool forward,
                  const struct instruction *instruction, struct text *out);

#endif
