/* SPDX-License-Identifier: Apache-2.0 */
/* product.h - products of matrices that a library of the GPU makes
 * (numerics.gpu=fast): what is said about one.
 *
 * c [m, n], float32, = a [m, k] times b [k, n]. One stride of a and b is 1. */
#ifndef LOCKSTEP_DEVICE_PRODUCT_H
#define LOCKSTEP_DEVICE_PRODUCT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The type of the operands. Float32 ones are rounded to TF32, which has 10 bits
 * behind the point. */
enum gpu_number { GPU_FLOAT32, GPU_BFLOAT16, GPU_FLOAT16 };

/* An algorithm is chosen by it: not by how many rows and columns there are. */
struct gpu_form {
    enum gpu_number number;
    bool a_turned;       /* a[row stride 1] */
    bool b_turned;       /* b[column stride k's]: a matrix [n, k] */
    bool aligned;        /* all begin, and rows do, at multiples of 16 bytes */
    int64_t k;
};

enum { GPU_ALGORITHM_WORDS = 8, GPU_OFFERS = 8,
       PRODUCT_UNIT = 2048 /* tokens that one product sums at most */ };

/* As the library has it; for the same version and kind of GPU. */
struct gpu_algorithm {
    uint64_t words[GPU_ALGORITHM_WORDS];
    uint64_t bytes;      /* of room that it needs */
};

struct gpu_product {
    struct gpu_form form;
    const void *a, *b;
    void *c;
    int64_t m, n;
    int64_t a_stride, b_stride, c_stride; /* from row to row, as they lie */
    bool adds;           /* to c */
};

/* Memory of the GPU for the library. */
struct gpu_room {
    void *data;
    size_t bytes;
};

/* Sums that wait at once while the tree over so many leaves is made. */
static inline int products_sums(int leaves)
{
    int sums = 1;

    for (int n = 1; n < leaves; n *= 2) sums++;
    return sums;
}

#endif
