/* SPDX-License-Identifier: Apache-2.0 */
/* frames.c - frames of models of a few blocks. */
#include "planner/frames.h"

#include <string.h>

#include "plan/stage.h"
#include "planner/layout.h"

/* A model of so many blocks of each kind; middle: of a pipeline's stage that
 * has neither the embedding nor the head. */
struct few { int plain, mixed; bool middle; };

struct sizes { double frame, scratch, fixed; };

static void make_few(struct model *model, const struct shape *shape,
                     struct few few)
{
    *model = shape->model;
    model->layers = few.plain + few.mixed;
    model->moe.dense = (struct blocks){{0}};
    for (int i = 0; i < few.plain; i++) blocks_put(&model->moe.dense, i);
    if (few.middle) model->mtp_depth = 0;
}

static status plan_few(struct sizes *out, const struct layout *l,
                       const struct shape *shape, struct few few)
{
    const char *const recompute[] = {recompute_names[l->recompute]};
    struct model model;
    struct stage stage;
    status result;

    make_few(&model, shape, few);
    struct stage_request r = {
        .model = &model, .mode = PROGRAM_TRAIN,
        .dtype = l->bits == 32 ? DTYPE_F32 : DTYPE_BF16,
        .mtp_depth = model.mtp_depth, .size.batch = 1, .size.micro_batch = 1,
        .size.length = shape->sequence, .regular = shape->regular,
        .backward = layout_defers(l) ? BACKWARD_SPLIT : BACKWARD_FUSED,
        .machine.threads = l->threads > 0 ? l->threads : 1,
        .recomputation.policy = recompute,
        .recomputation.count = 1, .layout.slice = {.last = model.layers}};

    r.layout.slice.begins = r.layout.slice.ends = !few.middle;
    TRY(layout_mesh(l, &r.layout.mesh));
    TRY(layout_grid(l, shape, 1, &r.layout.grid));
    result = stage_plan(&stage, &r);
    *out = (struct sizes){
        (double)stage.frame.bytes,
        (double)stage.memory[MEMORY_LAYER_SCRATCH].bytes,
        (double)(stage.memory[MEMORY_KERNEL_SCRATCH].bytes +
                 stage.memory[MEMORY_ROTARY].bytes)};
    stage_free(&stage);
    return result;
}

status frames_of(struct frames *f, const struct layout *l,
                 const struct shape *shape)
{
    const double mixed = shape->layers * shape->expert_blocks;
    const struct few few = {mixed < shape->layers - 0.5, mixed > 0.5, false};
    const struct few inside = {few.plain, few.mixed, true};
    const struct few more[] = {{few.plain + 1, few.mixed, false},
                               {few.plain, few.mixed + 1, false}};
    double *const each[] = {&f->plain, &f->mixed};
    const bool there[] = {few.plain > 0, few.mixed > 0};
    struct sizes whole, middle, longer;

    *f = (struct frames){0};
    TRY(plan_few(&whole, l, shape, few));
    TRY(plan_few(&middle, l, shape, inside));
    f->ends = whole.frame;
    f->middle = middle.frame;
    for (int kind = 0; kind < 2; kind++) {
        if (!there[kind]) continue;
        TRY(plan_few(&longer, l, shape, more[kind]));
        *each[kind] = longer.frame - whole.frame;
        f->ends -= *each[kind];
        f->middle -= *each[kind];
    }
    f->scratch = middle.scratch;
    f->head = whole.scratch;
    f->fixed = whole.fixed;
    return OK;
}
