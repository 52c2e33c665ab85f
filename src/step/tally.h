/* SPDX-License-Identifier: Apache-2.0 */
/* tally.h - statistics of many numbers: norm, extremes, mean and histogram, the
 * same bits under every layout. */
#ifndef LOCKSTEP_STEP_TALLY_H
#define LOCKSTEP_STEP_TALLY_H

#include "base/threads.h"
#include "step/exact_sum.h"
#include "step/team.h"
#include "tensor/tensor.h"

enum {
    TALLY_LEAST = -40,   /* exponent of the smallest edge */
    TALLY_OCTAVES = 64,  /* two buckets each: [1, 1.5) and [1.5, 2) 2^e */
    TALLY_SIDE = 2 * TALLY_OCTAVES + 1, /* the last: all that is larger */
    TALLY_BUCKETS = 2 * TALLY_SIDE + 1, /* the middle one: |x| < 2^-40 */
    TALLY_VALUES = 2 * EXACT_VALUES + TALLY_BUCKETS + 1
};

struct tally {
    struct exact_sum sum, squares;
    double least, greatest;   /* of finite values; meaningless without any */
    int64_t count;
    int64_t buckets[TALLY_BUCKETS];
};

void tally_reset(struct tally *tally);
/* `count` elements of a floating type; `less` of the same type is taken from
 * each where it is not NULL. Threads share the work. room [threads]: one tally
 * for each. histogram: sum, extremes and buckets too. */
struct tally_of {
    enum dtype dtype;
    const void *data, *less;
    int64_t count;
    bool histogram;
};
void tally_add(struct tally *tally, const struct tally_of *of,
               struct threads *threads, struct tally *room);
/* All ranks' together, on all of them. values [TALLY_VALUES + 2 ranks] is
 * room. Collective over the team's world. */
status tally_join(struct tally *tally, struct team *team, bool histogram,
                  double *values);
double tally_norm(const struct tally *tally);
/* Upper edge of bucket i; that of the last is the largest double. */
double tally_edge(int bucket);

#endif
