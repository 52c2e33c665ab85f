/* SPDX-License-Identifier: Apache-2.0 */
/* matmul.cu - products in the order of struct sum_order.
 *
 * A block computes TILE x TILE elements, a thread PATCH x PATCH of them. The
 * granule of an element is one chain of FMAs in a register. Leaves meet in a
 * binary tree that is kept as a counter: level l holds the finished node of 2^l
 * leaves that waits for its right neighbour, in registers. So there is a kernel
 * for each number of levels. */
#include "kernels/cuda/product.h"

CUDA_KERNEL(matmul_1)
{
    product_tile(&p->product, BLOCK, 0);
}

CUDA_KERNEL(matmul_8)
{
    product_tile(&p->product, BLOCK, 3);
}

CUDA_KERNEL(matmul_64)
{
    product_tile(&p->product, BLOCK, 6);
}
