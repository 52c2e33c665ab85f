/* SPDX-License-Identifier: Apache-2.0 */
/* attention_graph.h - attention as a graph of cuDNN's operations, and the plan
 * that the library makes of it. It needs the library, but no driver: plans for
 * a GPU that is only described can be made anywhere. */
#ifndef LOCKSTEP_KERNELS_CUDA_PLUGIN_ATTENTION_GRAPH_H
#define LOCKSTEP_KERNELS_CUDA_PLUGIN_ATTENTION_GRAPH_H

#include "device/attended.h"
#include "kernels/cuda/plugin/cudnn.h"

enum { ATTENTION_MADE = 256, ATTENTION_OPERATIONS = 40, ATTENTION_OFFERS = 8 };

/* The GPU: of a handle of the library, or described. */
struct dnn_target {
    void *handle;
    dnn_descriptor properties;
};

/* An engine of the library, the best first. */
struct attention_offer {
    int64_t engine;          /* its number */
    size_t room;             /* bytes that it needs */
    bool is_ordered;         /* it says that its sums have one order */
    int answer;              /* to its plan; DNN_NOT_SUPPORTED: not asked for */
};

struct attention_plan {
    dnn_descriptor plan;     /* of the last offer; NULL: there is none */
    struct attention_offer offers[ATTENTION_OFFERS];
    int offered, operations; /* operations: of the graph */
    dnn_descriptor made[ATTENTION_MADE]; /* owned */
    int count;
};

/* The first plan that the library offers, whose sums have one order and which
 * needs at most `room` bytes. Returns an answer of the library; DNN_SUCCESS:
 * there is a plan, or there is none. */
int attention_plan_make(const struct dnn *dnn, const struct dnn_target *on,
                        const struct attended_form *form, size_t room,
                        struct attention_plan *out);
void attention_plan_free(const struct dnn *dnn, struct attention_plan *plan);
/* room: attended_room bytes. */
int attention_plan_run(const struct dnn *dnn, void *handle,
                       const struct attention_plan *plan,
                       const struct gpu_attended *call, void *room);

#endif
