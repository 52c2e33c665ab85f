/* SPDX-License-Identifier: Apache-2.0 */
/* qk_norm.h - what ranks of the tensor axis send each other where the norm of
 * queries and keys is over all heads. */
#ifndef LOCKSTEP_NN_QK_NORM_H
#define LOCKSTEP_NN_QK_NORM_H

#include "nn/program.h"

/* Elements of a token, of queries (which 0) or keys (1). */
struct qk_share {
    int64_t own, heads;   /* columns of this rank, and where they begin */
    int replicas;         /* ranks that have the same columns */
    int64_t counts[LEAVES_MAX]; /* that each rank sends: replicas, once */
};
struct qk_share qk_norm_share(const struct step *step, const struct program *p,
                              int which);

#endif
