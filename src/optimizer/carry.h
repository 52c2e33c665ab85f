/* SPDX-License-Identifier: Apache-2.0 */
/* carry.h - an update that leaves the state of before as it is, and writes the
 * new one elsewhere: what of it no kernel writes there.
 *
 * The old numbers of a place lie update->from bytes behind it. A part of the
 * state, which is the weights or one state of one parameter, as far as this
 * rank updates them, is one of these: */
#ifndef LOCKSTEP_OPTIMIZER_CARRY_H
#define LOCKSTEP_OPTIMIZER_CARRY_H

#include "optimizer/update.h"

enum carry_part {
    CARRY_WRITTEN, /* by the kernel of the update, which adds it to the sum */
    CARRY_COPIED,  /* it is updated in place, so the old numbers are copied */
    CARRY_STILL,   /* frozen: the same before and after */
    CARRY_PARTS
};

/* Before the update: the old numbers of all parts that are copied. */
void carry_copy(const struct update *update);
/* Between updates: copies the bytes of [data, data + bytes), where the state
 * lies, to `update->from` bytes behind their place, except those that the
 * kernels write there. So the copy is complete when the two change places for
 * the next update. */
void carry_rest(const struct update *update, char *data, size_t bytes);
/* The sum of all parts of those kinds (1 << CARRY_...), at `distance` bytes
 * from their place; adds up to update->sum like what kernels write. */
uint64_t carry_sum(const struct update *update, unsigned kinds,
                   int64_t distance);

#endif
