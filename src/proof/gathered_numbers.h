/* SPDX-License-Identifier: Apache-2.0 */
/* gathered_numbers.h - the numbers of all ranks in one place, as one rank would
 * have them: for proofs only, since a run never gathers its model.
 *
 * Rank 0 collects the parts of all ranks. The first copy of an element sets it,
 * other copies must have the same bits, and every element must arrive. This
 * checks that replicas agree and that nothing is missing. */
#ifndef LOCKSTEP_PROOF_GATHERED_NUMBERS_H
#define LOCKSTEP_PROOF_GATHERED_NUMBERS_H

#include "step/inventory.h"

struct gathered_numbers {
    int64_t elements;             /* of a flat arena of one rank */
    enum dtype dtype;
    void *data[INVENTORY_KINDS];  /* owned, [elements]; gaps are zero */
};

/* Collective over the team's world; out is filled on rank 0 alone.
 * ERR_VERIFY: two ranks hold different bits (names parameter, place and
 * ranks), or nobody holds an element. */
status gathered_numbers_gather(struct gathered_numbers *out,
                               const struct inventory *inventory,
                               struct team *team);
void gathered_numbers_free(struct gathered_numbers *whole);

#endif
