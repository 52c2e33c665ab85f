/* SPDX-License-Identifier: Apache-2.0 */
/* gradient_parts.h - uses and their buffers, for gradient.c and
 * gradient_plan.c. */
#ifndef LOCKSTEP_NN_GRADIENT_PARTS_H
#define LOCKSTEP_NN_GRADIENT_PARTS_H

#include "nn/gradient.h"

static inline const struct param *use_param(const struct gradients *g, int use)
{
    return &g->program->params.items[g->program->uses[use].param];
}

/* The state of a use for the source of now. */
static inline struct use_state *state_of(const struct gradients *g, int use)
{
    return &g->states[(g->source * g->contexts + g->of) *
                          g->program->use_count + use];
}

/* Rows of a table that a use keeps; other uses: of their parameter. */
static inline int64_t use_rows(const struct gradients *g, int use)
{
    const int64_t named = g->program->uses[use].rows;

    return named > 0 ? named : use_param(g, use)->rows;
}

static inline int64_t padded(int64_t elements)
{
    return (elements + PARAM_ALIGN - 1) / PARAM_ALIGN * PARAM_ALIGN;
}

/* Elements of a buffer of a use, with its gap. */
static inline int64_t buffer_room(const struct gradients *g, int use)
{
    const struct param *param = use_param(g, use);

    return padded(g->program->uses[use].rows > 0
                      ? use_rows(g, use) * param->cols
                      : param->elements);
}

static inline int states_of(const struct gradients *g)
{
    return g->sources * g->contexts * g->program->use_count;
}

static inline char *partial(const struct gradients *g, int64_t offset)
{
    return (char *)g->partials + offset * dtype_bytes(program_real(g->program));
}

/* Whether a product may add its sibling itself: not when the rest of the leaf
 * comes from other ranks first. */
static inline bool takes_left(const struct gradients *g, int use)
{
    const struct use_info *info = &g->program->uses[use];

    return !info->scatter && !g->cut[info->head].shared;
}

/* Whether tensor ranks have parts of the sums of a use. A frozen matrix has
 * no sums. */
static inline bool is_joined(const struct gradients *g, int use)
{
    return g->program->uses[use].local &&
           gradient_made(g->program, use);
}

#endif
