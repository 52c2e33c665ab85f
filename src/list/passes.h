/* SPDX-License-Identifier: Apache-2.0 */
/* passes.h - the passes that make a step's list, and what they share. */
#ifndef LOCKSTEP_LIST_PASSES_H
#define LOCKSTEP_LIST_PASSES_H

#include "list/list.h"

#define PASS(name)                                                            \
    status pass_##name(struct step_list *out, const struct step_list *before, \
                       const struct list_request *request)
PASS(compute);
PASS(transfers);
PASS(samples);
PASS(beside);
PASS(gathers);
PASS(reductions);
PASS(tail);
PASS(needs);
#undef PASS
bool pass_beside_idle(const struct list_request *request);
bool pass_gathers_idle(const struct list_request *request);

/* ---- frames ---- */

/* The schedule's list decides this about the micro-batches of a chunk. */
struct allotment {
    int *frame;     /* owned, [micro-batches] */
    int *returned;  /* owned, [micro-batches]: buffer of its gradient on the way
                     * back */
    bool *early;    /* owned, [micro-batches]: its frame is free when its
                     * receive stands in the schedule */
};
/* One for every chunk: *out [pipeline->count]. */
status allotments_build(struct allotment **out,
                        const struct pipeline *pipeline);
void allotments_free(struct allotment *allotments, int count);

/* ---- cutting F, B and W ---- */

/* A compute instruction that is put part by part. */
struct cutter {
    struct step_list *out;
    struct instruction whole; /* what is left of it */
    bool begun;               /* a part has been put */
};
/* Puts the events before `event` that are left, if any are. */
status cut_before(struct cutter *cutter, int event);
/* Puts the rest. An instruction without events is put as it is. */
status cut_rest(struct cutter *cutter);

/* ---- facts ---- */

/* Divided weights are gathered when F, B and W need them. */
bool stage_gathers(const struct stage *stage);
/* The phase of F, B or W of a stage whose weights are gathered once
 * (plan/phases.h): 0, 1; else -1. */
int stage_phase(const struct stage *stage, const struct instruction *i);
/* In training F leaves the loss to B. */
bool stage_idles(const struct stage *stage, const struct residence *item,
                 bool forward);
/* Whether the optimizer keeps a moving average of the weights. */
bool stage_averages(const struct stage *stage);
/* Bytes that a rank sends in a sum of `elements` over a group. */
int64_t list_sum_bytes(int64_t elements, enum dtype dtype,
                       struct list_group group);
/* Instructions that make codes of a unit. */
int list_encodes(const struct stage *stage, int unit);
/* Units are reduced while B goes on. */
bool stage_overlaps(const struct pipeline *pipeline, int chunk);

#endif
