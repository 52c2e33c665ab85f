/* SPDX-License-Identifier: Apache-2.0 */
/* mixture.h - which source each sample of a run comes from.
 *
 * Sources have weights, and the weights may change at given samples (phases).
 * Sample i belongs to the source in whose part of [0, 1), as long as its
 * weight, the point (offset + i golden) mod 1 falls. So the samples of a
 * source are spread evenly, and after n samples each source is within some
 * log n of its share. How many samples a source has given before sample i is
 * counted in closed form, in some sixty steps: there is no state, a restart
 * at any sample goes on exactly, and no layout changes anything.
 * Sources: Steinhaus's three-gap theorem (van Ravenstein 1988) for the even
 * spread; Graham, Knuth, Patashnik, "Concrete Mathematics", 3.5, for the sums
 * of floors. */
#ifndef LOCKSTEP_DATA_MIXTURE_H
#define LOCKSTEP_DATA_MIXTURE_H

#include <stdint.h>
#include "base/status.h"

struct mixture {
    int sources, phases;
    int64_t *from;     /* owned [phases]: first sample; ascending, from 0 */
    uint64_t *edges;   /* owned [phases, sources + 1], parts of 2^62 */
    int64_t *before;   /* owned [phases, sources]: samples of a source before
                        * the phase */
    uint64_t offset;
};

/* weights [phases, sources], not negative, each phase with a positive sum. */
status mixture_build(struct mixture *mixture, int sources, int phases,
                     const double *weights, const int64_t *from,
                     uint64_t seed);
void mixture_free(struct mixture *mixture);
/* The source of sample `sample`, and which of that source's samples it is. */
void mixture_at(const struct mixture *mixture, int64_t sample, int *source,
                int64_t *index);
/* How many of the samples [0, sample) come from the source. */
int64_t mixture_taken(const struct mixture *mixture, int source,
                      int64_t sample);

#endif
