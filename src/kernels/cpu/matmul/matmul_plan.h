/* SPDX-License-Identifier: Apache-2.0 */
/* matmul_plan.h - how a product is cut: into blocks, slabs, groups of panels,
 * and among threads. */
#ifndef LOCKSTEP_KERNELS_CPU_MATMUL_MATMUL_PLAN_H
#define LOCKSTEP_KERNELS_CPU_MATMUL_MATMUL_PLAN_H

#include "kernels/cpu/matmul/matmul.h"

/* Rows of experts, an operand's rows or, where it is `contracted`, those that
 * the contracted dimension counts. They are copied in pieces of one slab just
 * before they are packed. */
struct matmul_apart {
    const struct expert_groups *groups;
    const struct expert_rows *rows;
    int64_t first;   /* row of the groups that is the operand's first */
    int64_t column;  /* of the matrix that is the operand's first */
    bool contracted;
};
enum { STAGING_FLOATS = 64 * 1024 };

/* A product cut into blocks; the same in every thread. */
struct plan {
    struct matmul p;
    const struct matmul_format *format;
    struct threads *threads;
    uint32_t *a_packed, *b_packed;
    uint32_t *b_least; /* matmul_least of the strips of a slab; NULL: nobody
                        * asks */
    float *slots;
    int64_t b_floats; /* of b_packed */
    int64_t c_count;  /* elements of all results that are read next, of which
                       * c may be a part */
    const struct matmul_apart *a_apart, *b_apart; /* or NULL */
    void *staging;    /* [STAGING_FLOATS], for them */
    int64_t columns; /* of a block, a multiple of TILE_COLUMNS */
    int64_t rows;    /* of a block, a multiple of the format's */
    int words;       /* of the largest slab */
    int slab_words; /* of a slab, at most */
    bool few;        /* rows: a is packed whole, strips are outermost */
    bool direct;     /* and b is read where it lies */
    bool whole;      /* strips are read where they lie */
    bool in_place;   /* so is a, */
    bool b_in_place; /* and all of b */
    bool past_caches;    /* c goes past the caches */
    int panels;      /* of a, packed at a time */
    bool keep_first;
    int waiting;     /* slots that wait between slabs */
    bool dense;      /* each as a whole tile, used where it lies */
    bool by_columns; /* threads share columns */
    int parts, part; /* or leaves: into so many parts, of which this is one */
    float *partials; /* roots of the parts, [m, n] each, without the
                      * first if it is in c */
    int64_t slot_floats; /* of a part */
};

static inline int64_t ceil_div(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}

static inline int64_t smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* From the start of the contracted dimension. */
static inline void plan_cursor(const struct plan *plan,
                               struct matmul_cursor *cursor)
{
    CPU(matmul_cursor_init)(cursor, plan->format, plan->slab_words,
                            plan->p.order, plan->p.continues);
    if (plan->parts > 1) {
        const int leaves = plan->p.order->leaves / plan->parts;

        CPU(matmul_cursor_leaves)(cursor, plan->part * leaves, leaves);
    }
}

/* Builds the plan from the product, its format, the room that it has and the
 * number of threads. */
void CPU(matmul_plan_build)(struct plan *plan, int threads);
/* On this thread alone; room and product are set. */
void CPU(matmul_plan_run)(struct plan *plan);
const struct matmul_format *CPU(matmul_format_of)(enum dtype dtype,
                                                  enum product product);

/* Panels [first, last) of a, counted from `row`, and a strip of b: packed from
 * rows that lie apart. */
struct matmul_part {
    int64_t row;      /* or column */
    int64_t count;    /* of rows or columns that are present */
};
void CPU(matmul_apart_panels)(const struct plan *plan, uint32_t *out,
                              struct matmul_part part,
                              const struct matmul_slab *slab);
void CPU(matmul_apart_strip)(const struct plan *plan, uint32_t *out,
                             struct matmul_part part,
                             const struct matmul_slab *slab);

#endif
