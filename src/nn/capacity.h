/* SPDX-License-Identifier: Apache-2.0 */
/* capacity.h - choices that find no place in their expert: each expert has so
 * many places in a sequence, taken by position, then choice.
 *
 * Context and tensor ranks have parts of a sequence. Every row of a part (a
 * context chunk of a sequence on this rank, or a tensor rank's share of it) is
 * one run of positions; ranks tell each other how many of its choices went to
 * each expert, so each knows how many places are taken before its own tokens:
 *
 *   positions   0 .. 7 | 8 .. 15 | 16 .. 23 | 24 .. 31
 *   rank        0      | 1       | 1        | 0
 *   expert 3    2      | 4       | 1        | 3      -> taken: 0, 2, 6, 7 */
#ifndef LOCKSTEP_NN_CAPACITY_H
#define LOCKSTEP_NN_CAPACITY_H

#include "nn/choice.h"

/* Whether choices may be dropped while training. */
bool capacity_drops(const struct program *p, const struct router_form *form);
/* ERR_CONFIG: ranks have tokens that are no runs of positions. */
status capacity_check(const struct program *p);
/* Scratch of a step that chooses: 0 where nothing is dropped. */
size_t capacity_scratch(const struct step *step, const struct program *p);
/* Drops what has no place; only counts for other ranks where the pass is of no
 * training. *dropped: by this rank's tokens. Collective over tensor and context
 * ranks. */
status capacity_drop(const struct step *step, struct run *run,
                     const struct choice *choice, void *scratch,
                     int64_t *dropped);
void capacity_exchanges(const struct step *step, const struct program *p,
                        const struct exchange_case *at,
                        struct layer_exchanges *out);

#endif
