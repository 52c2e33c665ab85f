/* SPDX-License-Identifier: Apache-2.0 */
/* attention_graph.h - attention as a graph of cuDNN's operations, and a builder
 * of the library's descriptors. It needs the library, but no driver: graphs for
 * a GPU that is only described can be made anywhere. */
#ifndef LOCKSTEP_KERNELS_CUDA_PLUGIN_ATTENTION_GRAPH_H
#define LOCKSTEP_KERNELS_CUDA_PLUGIN_ATTENTION_GRAPH_H

#include "device/attended.h"
#include "kernels/cuda/plugin/cudnn.h"

enum { DNN_MADE = 256 };

/* The GPU: of a handle of the library, or described. */
struct dnn_target {
    void *handle;
    dnn_descriptor properties;
};

/* Makes descriptors; after the first error nothing happens. */
struct dnn_builder {
    const struct dnn *dnn;
    int answer;                     /* the first that is no success */
    dnn_descriptor made[DNN_MADE];  /* owned */
    int count;
};

struct dnn_values {
    int type;                       /* enum dnn_type */
    int64_t count;
    const void *of;
};

dnn_descriptor dnn_make(struct dnn_builder *builder, int kind);
void dnn_set(struct dnn_builder *builder, dnn_descriptor at, int attribute,
             int type, const void *value);
void dnn_set_all(struct dnn_builder *builder, dnn_descriptor at, int attribute,
                 const struct dnn_values *values);
void dnn_set_number(struct dnn_builder *builder, dnn_descriptor at,
                    int attribute, int type, int number);
/* part NULL: nothing happens. */
void dnn_set_part(struct dnn_builder *builder, dnn_descriptor at,
                  int attribute, dnn_descriptor part);
void dnn_finish(struct dnn_builder *builder, dnn_descriptor at);
void dnn_free(struct dnn_builder *builder);

/* Tensors that a graph reads and writes. */
enum attention_id {
    ID_Q = 1, ID_K, ID_V, ID_OUT, ID_STATISTICS, ID_DOUT, ID_DQ, ID_DK, ID_DV,
    ID_SUMS, ID_SCALE, ID_NEVER, ID_ONE, ID_WINDOW, ID_DOCUMENTS,
    ID_VIRTUAL = 100
};

/* The form's graph, finished; *operations: how many it has. */
dnn_descriptor attention_graph(struct dnn_builder *builder,
                               const struct attended_form *form,
                               const struct dnn_target *on, int *operations);

#endif
