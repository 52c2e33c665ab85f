/* SPDX-License-Identifier: Apache-2.0 */
/* table.c - the rows of a table that kernels of CUDA fill. */
#include "kernels/cuda/rows.h"

const char *kernels_cuda(struct kernels *table)
{
    const char *missing = NULL;
    struct kernels cuda = {.backend = "cuda", .dtype = table->dtype,
                           .product = table->product};

#define FILL(row) cuda.row = cuda_##row;
    if (table->dtype == DTYPE_F32) {
        KERNELS_CUDA_ROWS(FILL)
    } else if (dtype_is_narrow(table->dtype)) {
        KERNELS_CUDA_NARROW_ROWS(FILL)
        cuda.cross_entropy = table->dtype == DTYPE_BF16
                                 ? cuda_cross_entropy_bf16
                                 : cuda_cross_entropy_f16;
    }
#define LOOK(row)                                                          \
    if (missing == NULL && cuda.row == NULL) missing = #row;
    KERNELS_ROWS(LOOK)
    *table = cuda;
    return missing;
}
