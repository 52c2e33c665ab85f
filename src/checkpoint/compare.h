/* SPDX-License-Identifier: Apache-2.0 */
/* compare.h - whether two models are the same, and if not, where first.
 *
 * Either side is a checkpoint's directory or a Hugging Face directory. Two
 * checkpoints are compared with the optimizer's state, otherwise weights
 * alone. Order: weights by name, then the other kinds. Bits count: -0 differs
 * from 0; any NaN equals any NaN. Tensors of different floating types are
 * compared by value. */
#ifndef LOCKSTEP_CHECKPOINT_COMPARE_H
#define LOCKSTEP_CHECKPOINT_COMPARE_H

#include <stdbool.h>
#include <stdint.h>
#include "base/text.h"
#include "tensor/tensor.h"

enum { COMPARE_NAME_BYTES = 640 };

struct compare_report {
    bool equal;
    int64_t tensors;      /* that both have */
    int64_t differing;    /* of these */
    /* The first that differs; "" if none. */
    char name[COMPARE_NAME_BYTES];
    bool shapes_differ;   /* then there are no numbers */
    char shape_a[192], shape_b[192];
    enum dtype dtype_a, dtype_b;
    int64_t elements;     /* of it */
    int64_t count;        /* elements that differ */
    int64_t first;        /* index of the first of these, row-major */
    double value_a, value_b; /* there */
    double max_abs;       /* largest |a - b| */
    double max_scale;     /* largest |b| of the tensor */
    uint64_t max_ulp;     /* units in the last place, if the types agree */
    int64_t only_a, only_b; /* tensors that one side alone has */
    char first_only[COMPARE_NAME_BYTES]; /* the first of these, "" if none */
};

/* The comparison of one tensor of both: name, elements, count, first, values,
 * max_abs, max_scale, max_ulp, or shapes that differ. */
struct compare_visit {
    status (*tensor)(void *argument, const struct compare_report *one);
    void *argument;
};

/* OK also when they differ: see report->equal. visit: called for each tensor
 * that differs, in order; NULL: nobody asks. */
status weights_compare(const char *a, const char *b,
                       struct compare_report *report,
                       const struct compare_visit *visit);
/* The report as one or two sentences. */
status compare_describe(const struct compare_report *report,
                        struct text *out);

#endif
