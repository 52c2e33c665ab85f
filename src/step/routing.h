/* SPDX-License-Identifier: Apache-2.0 */
/* routing.h - where the routers of a mixture of experts sent the tokens of a
 * step: exact counts over all ranks, and what they say. */
#ifndef LOCKSTEP_STEP_ROUTING_H
#define LOCKSTEP_STEP_ROUTING_H

#include <math.h>

#include "base/json.h"
#include "optimizer/update.h"
#include "plan/pipeline.h"
#include "step/team.h"

/* NaN each where the model has no experts. */
struct routing_result {
    double busiest;  /* tokens of the busiest expert of its block over the mean
                      * of the block: of the worst block */
    double mean;     /* the same, mean over blocks */
    double entropy;  /* of the shares of experts, over its largest value: mean
                      * over blocks; 1 where all are equal */
    double idle;     /* experts of all blocks that no token chose */
    double dropped;  /* choices without a place (moe.capacity_factor) */
};

static inline struct routing_result routing_none(void)
{
    const double none = (double)NAN;

    return (struct routing_result){none, none, none, none, none};
}

struct routing {
    struct pipeline *pipeline; /* borrowed */
    int experts;               /* of a block; 0: nothing below does a thing */
    int layers;
    double *table;             /* owned, [layers][experts]: tokens; then
                                * choices that were dropped */
    double *before;            /* owned, [layers][experts]: tokens of the last
                                * step that counts, 0 before the first; NULL: no
                                * loss is made of them (BALANCE_BATCH) */
};

status routing_build(struct routing *routing, struct pipeline *pipeline);
void routing_free(struct routing *routing);
/* The tokens that another knew of the same model's last step. */
void routing_take(struct routing *routing, const struct routing *from);
/* Before the first F of a step. */
void routing_begin(struct routing *routing);
/* After the last; collective. */
status routing_share(struct routing *routing, struct team *team,
                     struct routing_result *out);
/* The step counts: its tokens are those of the last step from now on. */
void routing_keep(struct routing *routing);
/* For a checkpoint, "expert_tokens": a list of numbers for each block; nothing
 * where no loss is made of them. ERR_FORMAT. */
void routing_write(const struct routing *routing, struct json_writer *w);
status routing_read(struct routing *routing, const struct json *state,
                    const char *source);
/* Moves the selection biases of a chunk by the step's counts, in weights and
 * copy: bias += rate * sign(total - experts * count), rate rounded to real
 * once, each sum rounded once. Source: Wang et al. 2024, arXiv:2408.15664,
 * algorithm 1. After routing_share. */
status routing_balance(const struct routing *routing, int chunk,
                     const struct update *update);
/* One block: its tokens, those of its busiest expert, the entropy of shares
 * over its largest value, and experts without a token. */
struct block_routing { double total, most, entropy, idle; };
struct block_routing routing_judge_block(const double *counts, int experts);
/* Judges a table of counts. */
void routing_judge(const double *table, int layers, int experts,
                   struct routing_result *out);

#endif
