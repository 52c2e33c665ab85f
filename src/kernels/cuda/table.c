/* SPDX-License-Identifier: Apache-2.0 */
/* table.c - the rows of a table that kernels of CUDA fill. */
#include "kernels/cuda/rows.h"

/* Rows whose operands do not say what they are to do. */
static void fill_narrow(struct kernels *cuda)
{
#define FILL_PRODUCTS(name)                                          \
    {                                                                \
        cuda->matmul = cuda_matmul_##name;                           \
        cuda->experts_product = cuda_experts_product_##name;         \
        cuda->experts_gradient = cuda_experts_gradient_##name;       \
    }
    if (cuda->dtype == DTYPE_F16) FILL_PRODUCTS(f16)
    else if (cuda->product == PRODUCT_TILES) FILL_PRODUCTS(bf16_tiles)
    else FILL_PRODUCTS(bf16_pairs)
    cuda->cross_entropy = cuda->dtype == DTYPE_F16 ? cuda_cross_entropy_f16
                                                   : cuda_cross_entropy_bf16;
}

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
        fill_narrow(&cuda);
    }
#define LOOK(row)                                                          \
    if (missing == NULL && cuda.row == NULL) missing = #row;
    KERNELS_ROWS(LOOK)
    *table = cuda;
    return missing;
}
