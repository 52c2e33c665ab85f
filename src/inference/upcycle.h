/* SPDX-License-Identifier: Apache-2.0 */
/* upcycle.h - a dense model as a mixture of experts: every expert begins as a
 * copy of the block's feed-forward part, the router with random weights.
 * Source: Komatsuzaki et al. 2023, arXiv:2212.05055, section 2.
 *
 * Gates of the chosen experts sum to one in the families that are made here, so
 * the first outputs are those of the dense model, up to rounding. */
#ifndef LOCKSTEP_INFERENCE_UPCYCLE_H
#define LOCKSTEP_INFERENCE_UPCYCLE_H

#include "inference/session.h"

struct upcycle {
    int experts;   /* 0: the model stays as it is */
    int top_k;     /* 0: two */
    uint64_t seed; /* of the routers' weights */
};

/* Makes the session's model, of a Hugging Face directory, a mixture; before
 * session_stage. ERR_CONFIG: the family has no mixture here, the model has what
 * the mixture cannot have, or sizes that cannot be. */
status session_upcycle(struct session *session, const struct upcycle *how);
/* Random weights for the routers of an open stage. */
status session_start_routers(const struct stage *stage, uint64_t seed);

/* The name in the dense file of a tensor of the mixture, in `out` [bytes];
 * `name` itself where both call it the same. *copy: it is the feed-forward part
 * of an expert after the first, which reads what the first has read. NULL: the
 * file has no such tensor (a router). */
const char *upcycle_name(const struct model *model,
                         const struct model_kind *dense, const char *name,
                         char *out, size_t bytes, bool *copy);

#endif
