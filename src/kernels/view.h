/* SPDX-License-Identifier: Apache-2.0 */
/* view.h - a tensor as rows of adjacent elements, whatever its shape. */
#ifndef LOCKSTEP_KERNELS_VIEW_H
#define LOCKSTEP_KERNELS_VIEW_H

#include <stdbool.h>
#include "tensor/tensor.h"

/* Element (row, column) is data[row * stride + column]. */
struct view {
    void *data; /* borrowed */
    int64_t rows, width, stride;
    enum dtype dtype;
};

/* The last dimension becomes the width, the others rows; all but the first
 * must be dense. */
static inline struct view view_any(struct tensor tensor)
{
    struct view view = {tensor.data, 1, 1, 1, tensor.dtype};
    int last = tensor.dimensions - 1;

    CHECK(last >= 0);
    CHECK(tensor.stride[last] == 1 || tensor.shape[last] <= 1);
    view.width = tensor.shape[last];
    for (int i = 0; i < last; i++) view.rows *= tensor.shape[i];
    view.stride = last > 0 ? tensor.stride[last - 1] : view.width;
    for (int i = 0; i + 1 < last; i++)
        CHECK(tensor.stride[i] == tensor.stride[i + 1] * tensor.shape[i + 1]);
    return view;
}

/* Like view_any; CHECKs the type. */
static inline struct view view_of(struct tensor tensor, enum dtype dtype)
{
    CHECK(tensor.dtype == dtype);
    return view_any(tensor);
}

static inline bool view_same_shape(struct view a, struct view b)
{
    return a.rows == b.rows && a.width == b.width;
}

#endif
