/* SPDX-License-Identifier: Apache-2.0 */
/* products.h - the algorithms of the library of products (device/product.h)
 * that a GPU's products have.
 *
 * One is chosen for each form, the first time that a product has it: the first
 * one that the library offers and whose elements do not depend on how many rows
 * and columns are computed at once, which is tried. That choice is a function
 * of the form, the kind of GPU and the library's version alone, so all ranks
 * make the same one without telling each other. Inside device/ and for
 * kernels/cuda. */
#ifndef LOCKSTEP_DEVICE_PRODUCTS_H
#define LOCKSTEP_DEVICE_PRODUCTS_H

#include "base/status.h"
#include "device/plugin.h"

enum {
    PRODUCT_TRIED = 96,        /* rows and columns of a product that is tried */
    PRODUCT_LONGEST = 16384,   /* elements that one product sums */
    PRODUCT_FORMS = 1024,      /* a sentence of products_find names it, too */
    PRODUCT_NUMBERS = 1 << 16, /* bytes of operands that are made at once */
    PRODUCT_ROOM = 32 << 20,   /* bytes for the library */
    PRODUCT_ALIGNED = 256      /* where they begin: cublasLtMatmul wants it */
};

struct product_choice {
    struct gpu_form form;
    struct gpu_algorithm algorithm;
    bool is_made;              /* false: by our own kernels */
    int refused;               /* offers whose elements did depend on that */
};

struct gpu_products {
    bool is_on, aligned;
    enum gpu_number number;    /* of operands whose products it makes */
    const struct cuda_plugin *plugin; /* borrowed */
    struct gpu *gpu;           /* borrowed */
    int64_t version;           /* of the library */
    struct gpu_room room;      /* borrowed: of the library */
    struct gpu_room own;       /* borrowed: of sums that wait */
    struct product_choice choices[PRODUCT_FORMS];
    int count;
    struct {                   /* of products that are tried */
        char numbers[PRODUCT_NUMBERS];
        float sums[2][PRODUCT_TRIED * PRODUCT_TRIED]; /* of the whole, of
                                                       * parts */
    } host;
};

/* Bytes of the GPU for both rooms, where the widest matrix has so many columns
 * and so many sums of a row wait at once. */
size_t products_bytes(int64_t widest, int sums);
/* Opens the library. NULL, or one sentence. */
const char *products_build(struct gpu_products *products,
                           const struct cuda_plugin *plugin, struct gpu *gpu);
void products_place(struct gpu_products *products, void *at, size_t bytes);
/* *out = NULL: our own kernels make products of that form. */
const char *products_find(struct gpu_products *products,
                          const struct gpu_form *form,
                          const struct gpu_algorithm **out);

#endif
