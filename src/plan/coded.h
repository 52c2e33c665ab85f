/* SPDX-License-Identifier: Apache-2.0 */
/* coded.h - weights that ranks divide and gather as codes of the recipe
 * (docs/precision.md): those that nobody but products of the recipe reads.
 *
 *   own shard, bfloat16   --largest magnitudes of blocks, joined--> scales
 *                         --encode--> own shard, codes      once a step
 *   room of a unit        [codes of w1 | norm | codes of w2]  gathered
 *   product               reads w1 decoded
 *
 * Shards are cut where those of the numbers are, which is between bytes. Every
 * rank that divides a unit has the scales of all of it, so only codes travel.
 * A block may lie in several shards. Where blocks of dx are not those of y
 * (1x32 along what is summed), there are two sets of codes, and the room has
 * that of the pass. */
#ifndef LOCKSTEP_PLAN_CODED_H
#define LOCKSTEP_PLAN_CODED_H

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
    int sets;                /* 1: both products read the same */
    struct coded_param *params; /* owned, [parameters]; NULL: none is */
    int64_t *sizes;          /* owned, [units][shards->most]: bytes of shards */
    int64_t *own;            /* owned, [units]: first byte of this rank's in
                              * the first set; -1: nothing of the unit is
                              * coded; its weights are gathered as they are */
    int64_t *peaks;          /* owned, [units]: blocks of all sets */
    int64_t bytes;           /* of this rank's shards, all sets */
    int64_t scale_bytes;     /* of all scales */
    int64_t most_peaks;      /* of a unit */
};

/* Why the weights of a recipe cannot be gathered as codes; NULL: they can. */
const char *coded_refusal(const struct precision_use *use);
/* How many sets of codes they have. */
int coded_sets(const struct precision_use *use);
/* The program's weights are divided. Rooms of units in `shards` become those of
 * codes. */
status coded_plan(struct coded *coded, const struct program *program,
                  struct shards *shards);
void coded_free(struct coded *coded);

/* Parts of the arena, in this order: shards, scales, peaks. */
struct coded_parts { size_t scales, peaks, bytes; };
struct coded_parts coded_parts(const struct coded *coded);
/* The first byte of this rank's shard of a unit in a set. */
int64_t coded_own(const struct coded *coded, const struct shards *shards,
                  int unit, int set);
/* Blocks whose largest magnitudes are joined for the unit. */
static inline int64_t coded_peaks(const struct coded *coded, int unit)
{
    return coded->params == NULL ? 0 : coded->peaks[unit];
}
/* Bytes that this rank sends each other in a gather of the unit; 0, with none
 * coded. */
int64_t coded_own_bytes(const struct coded *coded, const struct shards *shards,
                        int unit);

#endif
