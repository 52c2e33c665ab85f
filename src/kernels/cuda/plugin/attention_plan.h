/* SPDX-License-Identifier: Apache-2.0 */
/* attention_plan.h - the plan that cuDNN makes of a graph of attention, and
 * calls of it. */
#ifndef LOCKSTEP_KERNELS_CUDA_PLUGIN_ATTENTION_PLAN_H
#define LOCKSTEP_KERNELS_CUDA_PLUGIN_ATTENTION_PLAN_H

#include "kernels/cuda/plugin/attention_graph.h"

enum { ATTENTION_OFFERS = 8 };

/* An engine of the library, the best first. */
struct attention_offer {
    int64_t engine;          /* its number */
    size_t room;             /* bytes that it needs */
    bool is_ordered;         /* it says that its sums have one order */
    int answer;              /* to its plan; DNN_NOT_SUPPORTED: not asked for */
};

struct attention_plan {
    dnn_descriptor plan;     /* of the last offer; NULL: there is none */
    bool is_refused;         /* the last offer's engine does not take rows as
                              * they lie in this layout */
    struct attention_offer offers[ATTENTION_OFFERS];
    int offered, operations; /* operations: of the graph */
    struct dnn_builder builder;
};

/* The first plan that the library offers, whose sums have one order and which
 * needs at most `room` bytes. No stride of the form decides which. Returns an
 * answer of the library; DNN_SUCCESS: there is a plan, or there is none. */
int attention_plan_make(const struct dnn *dnn, const struct dnn_target *on,
                        const struct attended_form *form, size_t room,
                        struct attention_plan *out);
void attention_plan_free(struct attention_plan *plan);
/* room: attended_room bytes. */
int attention_plan_run(const struct dnn *dnn, void *handle,
                       const struct attention_plan *plan,
                       const struct gpu_attended *call, void *room);

#endif
