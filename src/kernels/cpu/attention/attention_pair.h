/* SPDX-License-Identifier: Apache-2.0 */
/* attention_pair.h - attention backward: the state of a thread, and gradients
 * from one granule of queries against one of keys. */
#ifndef LOCKSTEP_KERNELS_CPU_ATTENTION_ATTENTION_PAIR_H
#define LOCKSTEP_KERNELS_CPU_ATTENTION_ATTENTION_PAIR_H

#include "kernels/cpu/attention/attention.h"
#include "kernels/cpu/attention/attention_panels.h"

enum {
    KEYS = ATTENTION_WEIGHTS_ROWS, /* at most: weights made together, */
    KEYS_CHAINS = 32,              /* and for chains */
    PANELS = ATTENTION_PANELS,
    STRIDE = ATTENTION_WEIGHTS_STRIDE /* of rows of weights */
};

struct backward {
    const struct attention *p;
    int width, padded;
    int64_t query, query_end; /* positions of the window */
    int64_t key, key_end;
    int64_t base, rows;       /* of waiting dq: whole granules */
    int64_t key_base, key_rows;
    float scale, slope;   /* slope: of the head, with linear biases */
    int64_t sequence;
    int head, kv;
    int slot_count;       /* leaves of dk and dv that may wait */
    int64_t slot_floats;
    float *sums, *lse;    /* [rows]: dout . out, log of the denominator */
    float *dq;            /* levels of [rows, padded] */
    float *slots;         /* leaves of dk and dv: [key_rows / G, 2, G,
                           * padded] */
    /* The panels of each granule of queries, made once for a head: q and dout
     * if they had to be copied [2, G, padded], and transposed [2, width, G]; or
     * room [2, G, padded] and the two, packed in both ways, [2, 2, width, G /
     * 2]. */
    float *panels;
    float *q_t, *dout_t;  /* of the granule in work */
    float *copies[2];     /* of a granule of k and v, or packed: [G, padded], */
    int64_t copied[2];    /* of this row and head; -1: none */
    float *leaf;          /* [G, padded] of dq */
    float *pair;          /* [2, G, padded]: dk, dv of a granule pair */
    float *pairs;         /* levels of the same */
    float *weights;       /* [KEYS, STRIDE] */
    float *dscores;       /* [G, STRIDE] */
    struct ahead ahead;
    const struct attention_products *products;
    int step, step_diagonal; /* keys whose weights are made together */
};

/* A granule of queries against one of keys, at positions. */
struct granules {
    int64_t query, key;
    struct span queries, keys;
    struct rows q, dout, k, v;
};

/* dq of a pair of granules into `leaf`, dk and dv into `pair`. */
void CPU(attention_pair)(struct backward *b, const struct granules *g,
                         float *leaf, float *pair);

static inline int64_t larger(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

#endif
