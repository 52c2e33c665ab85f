/* SPDX-License-Identifier: Apache-2.0 */
/* matmul.cu - products in the order of struct sum_order.
 *
 * A block computes PRODUCT_TILE x PRODUCT_TILE elements, a thread PATCH x PATCH
 * of them. The granule of an element is one chain of FMAs in a register. Leaves
 * meet in a binary tree that is kept as a counter: level l holds the finished
 * node of 2^l leaves that waits for its right neighbour. */
#include "kernels/cuda/product.h"

DEVICE void matmul_tile(const struct tiled *p, enum granule_kind kind, bool one)
{
    const struct product_work w = {p, NULL, kind, one};
    const int64_t tile[2] = {BLOCK / p->column_tiles * PRODUCT_TILE,
                             BLOCK % p->column_tiles * PRODUCT_TILE};
    struct patch sum;

    product_sum(&w, tile, &sum);
    patch_store(&w, tile, &sum);
}

PRODUCT_KERNELS(CUDA_KERNEL, matmul, matmul_tile)
