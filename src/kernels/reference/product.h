/* SPDX-License-Identifier: Apache-2.0 */
/* product.h - a product of one expert: operands whose rows lie where their
 * tokens do. */
#ifndef LOCKSTEP_KERNELS_REFERENCE_PRODUCT_H
#define LOCKSTEP_KERNELS_REFERENCE_PRODUCT_H

#include "kernels/element.h"
#include "kernels/narrow_product.h"
#include "kernels/reference/real.h"

/* Element `i` of an operand that may be narrow. */
static inline real get(const struct tensor *t, int64_t i)
{
#if REAL_BITS == 32
    return element_get(t->data, t->dtype, i);
#else
    return ((const real *)t->data)[i];
#endif
}

static inline void set(const struct tensor *t, int64_t i, real value)
{
#if REAL_BITS == 32
    element_set(t->data, t->dtype, i, value);
#else
    ((real *)t->data)[i] = value;
#endif
}

/* Rows of one expert. Where `contracted`, the product's contracted dimension
 * counts them, for a and b alike, and segments count tokens; else rows of a
 * do. */
struct gathered {
    const struct expert_groups *groups;
    int expert;
    const struct expert_rows *a, *b; /* b NULL unless contracted */
    bool contracted;
};

/* p->a, and p->b where b's rows are gathered, say shape and type alone. */
void NAME(matmul_gathered)(struct stream *stream, const struct matmul *p,
                           enum granule_kind kind, const struct gathered *rows);

#endif
