/* SPDX-License-Identifier: Apache-2.0 */
/* rope.h - the frequencies of rotary positions and what stretches them to
 * longer sequences. */
#ifndef LOCKSTEP_NN_ROPE_H
#define LOCKSTEP_NN_ROPE_H

#include <stdbool.h>
#include <stdint.h>

/* DYNAMIC is plain up to the old length; sequences that are longer turn by
 * their own. */
enum rope_kind {
    ROPE_PLAIN, ROPE_LINEAR, ROPE_LLAMA3, ROPE_YARN, ROPE_DYNAMIC,
    ROPE_LONG, ROPE_KINDS
};

/* A head has at most 256 elements (HEAD_WIDTH_MAX). */
enum { ROPE_PAIRS_MAX = 128 };

/* Zeroed: plain. What a kind does not use is 0. */
struct rope_scaling {
    enum rope_kind kind;
    double factor;          /* new length over old, from 1 on */
    double low, high;       /* llama3: turns within the old length */
    double original;        /* llama3, yarn, dynamic, long: the old length in
                             * tokens */
    double attention;       /* yarn, long: of cos and sin; 0: from factor,
                             * mscale */
    double beta_fast, beta_slow;    /* yarn: turns within the old length */
    double mscale, mscale_all;      /* yarn: 0: not given */
    double near_scale, far_scale;   /* long: of cos and sin in sequences of the
                             * old length and in longer ones; 0: attention */
    double truncate;        /* yarn: 1: bounds of the ramp are integers */
    int pairs;              /* long: how many factors */
    double near[ROPE_PAIRS_MAX], far[ROPE_PAIRS_MAX]; /* long: of the pairs'
                             * wave lengths, in sequences of the old length
                             * and in longer ones */
};

bool rope_scaling_same(const struct rope_scaling *a,
                       const struct rope_scaling *b);
/* The angle per position of pair `pair` of rotary / 2, in sequences of at most
 * `length` tokens. Float64. */
double rope_frequency(const struct rope_scaling *scaling, double base,
                      int rotary, int pair, int64_t length);
/* The factor of every cos and sin: 1 except for yarn and long. */
double rope_attention_factor(const struct rope_scaling *scaling,
                             int64_t length);

#endif
