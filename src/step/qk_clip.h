/* SPDX-License-Identifier: Apache-2.0 */
/* qk_clip.h - QK-clip: after an update, a head whose largest attention score of
 * the step was S > tau has its scores scaled back by g = tau / S.
 * Source: Kimi Team 2025 (Kimi K2), arXiv:2507.20534, section 2.1, algorithm 1.
 *
 *   keys of its own      rows of W_q and of W_k of the head times sqrt(g)
 *   keys that heads      rows of W_q times g; the keys stay, since scaling them
 *   share (groups)       would touch heads that are within the bound (as the
 *                        paper leaves its shared rotary keys alone)
 *
 * and biases as the rows that they belong to. S is a maximum, so it is exact,
 * and every rank scales what it holds: the layout does not show. */
#ifndef LOCKSTEP_STEP_QK_CLIP_H
#define LOCKSTEP_STEP_QK_CLIP_H

#include "optimizer/update.h"
#include "plan/pipeline.h"
#include "step/team.h"

struct qk_clip {
    struct pipeline *pipeline; /* borrowed */
    const struct model *model; /* borrowed */
    double bound;              /* tau; 0: off, and nothing below does a thing */
    double *table;             /* owned, [blocks][heads]: largest scores */
};

/* ERR_CONFIG: a family whose scores the rows of W_q do not scale. */
status qk_clip_check(const struct model *model);

status qk_clip_build(struct qk_clip *clip, struct pipeline *pipeline);
void qk_clip_free(struct qk_clip *clip);
/* Before the first F of a step. */
void qk_clip_begin(struct qk_clip *clip);
/* After the last; collective. most: the largest score of all, NaN: off. */
status qk_clip_share(struct qk_clip *clip, struct team *team, double *most);
/* The weights of a chunk, and their copy, after its update. */
status qk_clip_apply(const struct qk_clip *clip, int chunk,
                     const struct update *update);

#endif
