/* SPDX-License-Identifier: Apache-2.0 */
/* cudnn.h - graphs of the cuDNN for tests (cudnn.c), and what computes them. */
#ifndef LOCKSTEP_TESTS_DRIVER_CUDNN_H
#define LOCKSTEP_TESTS_DRIVER_CUDNN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "kernels/cuda/plugin/cudnn.h"

enum { TENSORS = 96, OPERATIONS = 64, DIMENSIONS = 4 };

struct dnn_tensor {
    int64_t id, of[DIMENSIONS], stride[DIMENSIONS], aligned;
    int numbers;
    bool is_virtual, by_value;
};

/* y = x; or of two or three: c = a b has a in x, b in b and c in y. */
struct dnn_operation {
    int kind;                /* enum dnn_descriptor */
    int mode, compute;
    int64_t axis;
    int x, b, t, y;          /* of tensors; -1: none */
};

struct dnn_graph {
    struct dnn_tensor tensors[TENSORS];
    int tensors_count;
    struct dnn_operation operations[OPERATIONS];
    int count;
};

static inline int64_t dnn_elements(const struct dnn_tensor *t)
{
    return t->of[0] * t->of[1] * t->of[2] * t->of[3];
}

/* Whether shapes and types of each operation go together. */
bool dnn_graph_fits(const struct dnn_graph *graph);
/* Computes it. at [tensors]: memory of those that are not virtual; block: so
 * many products, and one more for each head, are added at once. */
void dnn_graph_run(const struct dnn_graph *graph, void *const *at, int block);

#endif
