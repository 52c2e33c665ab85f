/* SPDX-License-Identifier: Apache-2.0 */
/* zero_codes.h - weights that are kept or gathered as codes
 * (plan/coded_weights.h). */
#ifndef LOCKSTEP_STEP_ZERO_CODES_H
#define LOCKSTEP_STEP_ZERO_CODES_H

#include "step/zero.h"

/* Products find scales where the stage has them. */
void zero_codes_begin(struct zero *zero);
/* This rank's shard of a unit as codes, from its weights; collective over the
 * ranks that divide the unit, whose largest magnitudes are joined. Of kept
 * codes: of the part that it updates, from the masters. */
status zero_codes_make(struct zero *zero, int unit);
/* Like zero_codes_make, in two instructions, where parts have largest
 * magnitudes: joined over the ranks with copies of a shard (RESOURCE_COPIES),
 * then the rest. */
status zero_codes_act(struct zero *zero, const struct instruction *instruction);
/* Scratch of the messages of it, of units of a class. */
size_t zero_codes_scratch(const struct zero *zero, int class);
/* The gather of an instruction's unit into its room. */
struct comm_call zero_codes_gather(const struct zero *zero,
                                   const struct instruction *gather,
                                   void *room);
/* Kept codes of the other ranks' parts of a shard, of their shards of the unit.
 */
struct comm_call zero_codes_parts(const struct zero *zero, int unit);
struct comm_call zero_codes_shards(const struct zero *zero, int unit);
/* Kernels read all units where they are kept. */
void zero_codes_place_whole(struct zero *zero);
/* Kernels read the instruction's unit, codes or not, at `data`; NULL: no more.
 */
void zero_codes_place(struct zero *zero, const struct instruction *place,
                      void *data);

#endif
