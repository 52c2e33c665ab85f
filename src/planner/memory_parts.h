/* SPDX-License-Identifier: Apache-2.0 */
/* memory_parts.h - parts of a rank's memory in closed form, for the files that
 * add them up. */
#ifndef LOCKSTEP_PLANNER_MEMORY_PARTS_H
#define LOCKSTEP_PLANNER_MEMORY_PARTS_H

#include "planner/memory.h"

/* Tokens of a micro-batch on a rank. */
double memory_tokens(const struct layout *layout, const struct shape *shape);
/* Whether a pipeline's weights and gradients are whole on each rank of fsdp. */
bool memory_pipe_whole(const struct layout *layout);
/* Bytes of a gathered weight. */
double memory_gathered_bytes(const struct layout *layout);
/* Adds what another program gathers beside its shards. */
void memory_gather(const struct layout *layout, const struct shape *shape,
                   int position, struct memory *out);
/* Whether weights travel as codes of the recipe. */
bool memory_gathers_codes(const struct layout *layout,
                          const struct shape *shape);
/* Bytes that codes add to the weights of the rank at `position`: less than 0
 * where they take the place of others. */
double memory_codes(const struct layout *layout, const struct shape *shape,
                    int position);
/* Bytes of a unit of a pass: of a block without its experts, of those, of the
 * head. Where all blocks of the position are codes, theirs. */
struct unit_sizes { double dense, experts, head; };
void memory_codes_units(const struct layout *layout,
                        const struct shape *shape, int position,
                        struct unit_sizes *units);

#endif
