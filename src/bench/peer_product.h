/* SPDX-License-Identifier: Apache-2.0 */
/* peer_product.h - a matrix product of any type by oneDNN's primitives, of
 * version 2 or 3, found at run time without its headers. */
#ifndef LOCKSTEP_BENCH_PEER_PRODUCT_H
#define LOCKSTEP_BENCH_PEER_PRODUCT_H

#include "kernels/kernels.h"

struct peer_product {
    void *library;       /* borrowed */
    void *engine, *stream, *description, *primitive;
    void *memory[3];     /* a, b, c */
    union peer_description {
        double align;
        char bytes[1024];
    } layout[3];         /* version 2: the description itself */
    void *made[3];       /* version 3: a pointer to it */
};

/* call's operands and result, dense, either way round. False: this version, or
 * this machine, has no such product; close it nevertheless. */
bool peer_product_open(struct peer_product *product, void *library,
                       const struct matmul *call);
bool peer_product_run(struct peer_product *product);
void peer_product_close(struct peer_product *product);
/* As many threads as ours. */
void peer_threads(void *library, int count);

#endif
