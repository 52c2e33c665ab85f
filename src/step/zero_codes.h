/* SPDX-License-Identifier: Apache-2.0 */
/* zero_codes.h - divided weights that are gathered as codes (plan/coded.h). */
#ifndef LOCKSTEP_STEP_ZERO_CODES_H
#define LOCKSTEP_STEP_ZERO_CODES_H

#include "step/zero.h"

/* This rank's shard of a unit as codes, from its weights; collective over the
 * ranks that divide the unit, whose largest magnitudes are joined. */
status zero_codes_make(struct zero *zero, int unit);
/* Scratch of the messages of it, of units of a class. */
size_t zero_codes_scratch(const struct zero *zero, int class);
/* The gather of an instruction's unit into its room. */
struct comm_call zero_codes_gather(const struct zero *zero,
                                   const struct instruction *gather,
                                   void *room);
/* Kernels read the instruction's unit at `data`; NULL: no more. */
void zero_codes_place(struct zero *zero, const struct instruction *place,
                      void *data);

#endif
