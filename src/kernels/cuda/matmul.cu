/* SPDX-License-Identifier: Apache-2.0 */
/* matmul.cu - products in the order of struct sum_order.
 *
 * A block computes PRODUCT_TILE x PRODUCT_TILE elements, a thread PATCH x PATCH
 * of them. The granule of an element is one chain of FMAs in a register. Leaves
 * meet in a binary tree that is kept as a counter: level l holds the finished
 * node of 2^l leaves that waits for its right neighbour. */
#include "kernels/cuda/product.h"

/* One leaf. */
CUDA_KERNEL(matmul_leaf)
{
    product_tile(&p->product, BLOCK, true);
}

CUDA_KERNEL(matmul_tree)
{
    product_tile(&p->product, BLOCK, false);
}
