/* SPDX-License-Identifier: Apache-2.0 */
/* frame_bytes.h - bytes of a micro-batch of Lockstep on a rank: planned for
 * models of a few blocks as the executor plans them, so known for any
 * number. */
#ifndef LOCKSTEP_PLANNER_FRAME_BYTES_H
#define LOCKSTEP_PLANNER_FRAME_BYTES_H

#include "base/status.h"

struct layout;
struct shape;

/* Bytes of a sequence: `ends` or `middle`, and what each of the stage's blocks
 * adds. */
struct frame_parts {
    double ends;         /* of a stage that has the head */
    double middle;       /* of another one */
    double plain, mixed; /* of a block without experts, with them */
};

/* Weights of a block that are codes of the recipe (plan/coded.h): bytes of the
 * codes in one set, with what lies between them; of those, in experts; of
 * scales; elements that kernels do not read any more; numbers that are joined
 * at once. */
struct frame_codes { double bytes, experts, scales, lacks, peaks; };

/* A stage keeps `joint` for its one micro-batch, or `kept` for each of those
 * that wait for their backward passes and `within` once (nn/frame.h). */
struct frames {
    struct frame_parts joint, kept, within;
    double scratch;      /* of one sequence in a block, at most */
    double head;         /* ... in the head */
    double fixed, each;  /* of the rank: for any micro-batch, or, where that is
                          * more, for each of its sequences */
    struct frame_codes plain, mixed; /* of a block without experts, with */
    double leaf, head_leaf; /* numerics.sums=integer: room in which all
                          * products make a leaf in turn; of a stage that has
                          * the head */
};

/* The frames of the layout's tensor, context and expert ranks, of its
 * recomputation and of a schedule that defers as its does. ERR_CONFIG: no rank
 * of Lockstep can divide the model so. */
status frames_of(struct frames *frames, const struct layout *layout,
                 const struct shape *shape);

/* Like frames_of, for layouts that differ only in their recomputation, their
 * schedule and how many ranks share the batch: the models are made once.
 * *models is NULL before the first of them. */
struct frame_models;
status frames_ask(struct frame_models **models, struct frames *frames,
                  const struct layout *layout, const struct shape *shape);
void frame_models_free(struct frame_models **models);

#endif
