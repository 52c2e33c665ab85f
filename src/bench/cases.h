/* SPDX-License-Identifier: Apache-2.0 */
/* cases.h - kernels with their operands at the shapes of training. */
#ifndef LOCKSTEP_BENCH_CASES_H
#define LOCKSTEP_BENCH_CASES_H

#include "kernels/kernels.h"

enum { CASE_TENSORS = 9, CASE_OPERANDS = 16, CASE_INTEGERS = 8192,
       CASE_SEGMENTS = 64 };

/* Operands of one call, filled with numbers that follow from nothing but their
 * order. Those that a narrow table has narrow are of `dtype`; of a float32
 * number that it has too where `dtype` is float32 but `narrow` is not. */
enum case_work { CASE_OTHER, CASE_ATTENTION, CASE_PRODUCT, CASE_EXPERTS };
struct operands {
    enum case_work work;   /* set by prepare; EXPERTS: products of them */
    float *data;           /* borrowed, [capacity] */
    int64_t used, capacity;
    enum dtype dtype, narrow;
    struct tensor all[CASE_OPERANDS]; /* 1-D, in order */
    bool rounds[CASE_OPERANDS];       /* narrow, or would be */
    int count;
    int32_t integers[CASE_INTEGERS]; /* positions, indices, targets */
    double doubles[CASE_INTEGERS];
    struct tensor t[CASE_TENSORS];
    double flops, bytes;   /* of one call: work that cannot be avoided */
    double lane_flops;     /* of flops, what is no product */
    int64_t segment;       /* case_product_w: tokens of a leaf */
    int64_t every; /* of a product, row 0, that many rows on, and so on are
                    * made, and the last one; 0: all */
    const struct accumulator *accumulator; /* of products; NULL: float32 */
    /* Before results of a narrow table are compared; NULL: nothing. */
    void (*settle)(struct operands *o);
};

/* Whether a call makes that row of its product. */
static inline bool product_row_is_made(const struct operands *o, int64_t row)
{
    return o->every == 0 || row % o->every == 0 ||
           row + 1 == o->t[0].shape[0];
}

struct bench_case {
    const char *kernel, *shape;
    int64_t size[5];
    void (*prepare)(struct operands *o, const int64_t *size);
    status (*run)(const struct kernels *k, struct stream *stream,
                  struct operands *o);
};

/* x as a kernel of this narrow type sees it. */
float case_rounded(enum dtype narrow, float x);
static inline struct tensor case_vector(struct tensor matrix)
{
    return tensor_1d(matrix.data, matrix.dtype, tensor_count(&matrix));
}

/* The next operand of the case at hand. */
struct tensor case_operand(struct operands *o, int64_t rows, int64_t cols);
struct tensor case_operand_real(struct operands *o, int64_t rows,
                                int64_t cols);
/* Products [m, n, k], c at 0, a at 1, b at 2. */
void case_product_nn(struct operands *o, const int64_t *size);
void case_product_nt(struct operands *o, const int64_t *size);
void case_product_tn(struct operands *o, const int64_t *size);
/* tn as W makes it: c is float32, and sequences of size[3] tokens are leaves
 * (0, or where that does not divide k: one leaf). */
void case_product_w(struct operands *o, const int64_t *size);
status case_product_w_run(const struct kernels *k, struct stream *stream,
                          struct operands *o);
status case_product_run(const struct kernels *k, struct stream *stream,
                        struct operands *o);

/* Updates (cases_updates.c). adamw: weights at 0, moments at 1 and 2, gradient
 * at 3, copy at 4. update: the same, with the scales of 8-bit states at 4 and
 * 5; what it is says the second size. apart: new numbers at 0, 1 and 2, and
 * behind them the old ones. descend: weights at 0, step at 1, copy at 4. */
void case_adamw(struct operands *o, const int64_t *size);
status case_adamw_run(const struct kernels *k, struct stream *stream,
                      struct operands *o);
void case_update(struct operands *o, const int64_t *size);
status case_adamw8_run(const struct kernels *k, struct stream *stream,
                       struct operands *o);
status case_lion_run(const struct kernels *k, struct stream *stream,
                     struct operands *o);
status case_free_run(const struct kernels *k, struct stream *stream,
                     struct operands *o);
void case_apart(struct operands *o, const int64_t *size);
status case_apart_run(const struct kernels *k, struct stream *stream,
                      struct operands *o);
void case_descend(struct operands *o, const int64_t *size);
status case_descend_run(const struct kernels *k, struct stream *stream,
                        struct operands *o);

/* Rounding of operands: out at 0, in at 1 (cases_quantize.c). */
void case_quantize(struct operands *o, const int64_t *size);
status case_quantize_run(const struct kernels *k, struct stream *stream,
                         struct operands *o);

/* Codes of operands: numbers at 0, in at 1, codes at 2, scales at 3, peaks at
 * 4. */
void case_codes(struct operands *o, const int64_t *size);
status case_encode_run(const struct kernels *k, struct stream *stream,
                       struct operands *o);
status case_decode_run(const struct kernels *k, struct stream *stream,
                       struct operands *o);

/* y of bitnet. */
void case_integers(struct operands *o, const int64_t *size);
status case_integers_run(const struct kernels *k, struct stream *stream,
                         struct operands *o);

/* Integers of numbers and, with 1 as the second size, numbers of their sums:
 * sums at 0, numbers at 1. */
void case_fixed(struct operands *o, const int64_t *size);
status case_fixed_add_run(const struct kernels *k, struct stream *stream,
                          struct operands *o);
status case_fixed_read_run(const struct kernels *k, struct stream *stream,
                           struct operands *o);

/* Split masters: values at 0, weights at 1, lower halves at 2, ties at 3. */
void case_masters(struct operands *o, const int64_t *size);
status case_join_run(const struct kernels *k, struct stream *stream,
                     struct operands *o);
status case_split_run(const struct kernels *k, struct stream *stream,
                      struct operands *o);

extern const struct bench_case bench_cases[];
extern const int bench_case_count;
extern const struct bench_case bench_expert_cases[]; /* and these, of experts
                                                      * and integers */
extern const int bench_expert_case_count;
enum { CASE_FLOATS = (5 << 23) + (1 << 20) }; /* the largest case's operands */

#endif
