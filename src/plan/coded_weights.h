/* SPDX-License-Identifier: Apache-2.0 */
/* coded_weights.h - weights that ranks divide and gather as codes of the recipe
 * (docs/precision.md): those that nobody but products of the recipe reads.
 *
 *   own shard, bfloat16   --largest magnitudes of blocks, joined--> scales
 *                           (of means: exact sums of magnitudes)
 *                         --encode--> own shard, codes      once a step
 *   room of a unit        [codes of w1 | norm | codes of w2]  gathered
 *   product               reads w1 decoded
 *
 * Shards are cut where those of the numbers are, which is between bytes. Every
 * rank that divides a unit has the scales of all of it, so only codes travel.
 * A block may lie in several shards. Where blocks of dx are not those of y
 * (1x32 along what is summed), there are two sets of codes, and the room has
 * that of the pass.
 *
 * Codes may also be kept (train.kept_weights): then they are made of the
 * masters of what this rank updates, and units with codes have no bfloat16
 * weights. Where every rank keeps whole weights, it keeps whole units as codes:
 *
 *   own part, float32   --round to bfloat16, encode--> codes of the part
 *   codes of parts      --gathered over copies, then over what divides--> unit
 */
#ifndef LOCKSTEP_PLAN_CODED_WEIGHTS_H
#define LOCKSTEP_PLAN_CODED_WEIGHTS_H

#include "mesh/shard.h"
#include "nn/program.h"

enum { CODED_SETS = 2 }; /* most: for y, for dx */

struct coded_param {
    bool is;                 /* it is gathered as codes */
    int64_t place;           /* its first byte in the room of its unit */
    int64_t peaks[CODED_SETS]; /* its first among those of its unit */
    int64_t scales[CODED_SETS]; /* byte, among those of all */
};

struct coded {
    bool kept;               /* units with codes have no other weights */
    bool whole;              /* ... of which every rank has all */
    int sets;                /* 1: both products read the same */
    bool sums;               /* scales are means: what is said of peaks is true
                              * of the numbers of their sums, int64 */
    struct coded_param *params; /* owned, [parameters]; NULL: none is */
    int64_t *sizes;          /* owned, [units][shards->most]: bytes of shards */
    int64_t *parts;          /* owned, the same of parts of shards */
    int64_t *own;            /* owned, [units]: first byte of this rank's in
                              * the first set; -1: nothing of the unit is
                              * coded; its weights are gathered as they are */
    int64_t *gone;           /* owned, [parameters]: elements before it that
                              * the arena of weights as kernels read them lacks,
                              * because they are kept as codes; -1: so is it */
    int64_t lacks;           /* all of those elements */
    int64_t *peaks;          /* owned, [units]: those of all sets */
    int64_t bytes;           /* of this rank's codes, all sets */
    int64_t scale_bytes;     /* of all scales */
    int64_t most_peaks;      /* of a unit */
    int64_t mosts;           /* parameters; 0: no scale of a weight is late */
};

/* Why the weights of a recipe cannot be gathered as codes; NULL: they can. */
const char *coded_refusal(const struct precision_use *use);
/* How many sets of codes they have. */
int coded_sets(const struct precision_use *use);
/* `coded` says whether codes are kept and whole; else the program's weights are
 * divided. Rooms of units in `shards` become those of codes. */
status coded_plan(struct coded *coded, const struct program *program,
                  struct shards *shards);
void coded_free(struct coded *coded);

/* Parts of the arena, in this order: shards, scales, peaks, and the largest
 * magnitude of each parameter, which late scales of the next steps are of. */
struct coded_parts { size_t scales, peaks, mosts, bytes; };
struct coded_parts coded_parts(const struct coded *coded);
/* Whether codes are the weights of the unit that this rank keeps. */
static inline bool coded_keeps(const struct coded *coded, int unit)
{
    return coded->kept && coded->own[unit] >= 0;
}
/* Elements before a parameter that lie elsewhere, as codes; -1: so does it. */
static inline int64_t coded_gone(const struct coded *coded, int param)
{
    return coded->gone == NULL ? 0 : coded->gone[param];
}
/* The first byte of this rank's codes of a unit in a set: of its shard, or of
 * all of the unit. */
int64_t coded_own(const struct coded *coded, const struct shards *shards,
                  int unit, int set);
/* Numbers that are joined for the unit: largest magnitudes of blocks by their
 * maximum, or sums. */
static inline int64_t coded_peaks(const struct coded *coded, int unit)
{
    return coded->params == NULL ? 0 : coded->peaks[unit];
}
static inline enum dtype coded_peak_dtype(const struct coded *coded)
{
    return coded->sums ? DTYPE_I64 : DTYPE_F32;
}
/* Bytes that this rank sends each other in a gather of the unit; 0, with none
 * coded; the same of a gather of the parts of a shard. */
int64_t coded_own_bytes(const struct coded *coded, const struct shards *shards,
                        int unit);
int64_t coded_part_bytes(const struct coded *coded, const struct shards *shards,
                         int unit);
/* Bytes of the unit before the codes that this rank keeps or sends. */
int64_t coded_before(const struct coded *coded, const struct shards *shards,
                     int unit);

#endif
