/* SPDX-License-Identifier: Apache-2.0 */
/* frame_bytes.c - frames of models of a few blocks. */
#include "planner/frame_bytes.h"

#include <string.h>

#include "base/arena.h"
#include "plan/stage.h"
#include "planner/layout.h"

/* A model of so many blocks of each kind; middle: of a pipeline's stage that
 * has neither the embedding nor the head. */
struct few { int plain, mixed; bool middle; };

enum { PARTS = 3 }; /* joint, kept, within */
struct sizes {
    double frame[PARTS], scratch, fixed, each, leaf;
    struct frame_codes codes;
};

static void make_few(struct model *model, const struct shape *shape,
                     struct few few)
{
    *model = shape->model;
    model->layers = few.plain + few.mixed;
    model->moe.dense = (struct blocks){{0}};
    for (int i = 0; i < few.plain; i++) blocks_put(&model->moe.dense, i);
    if (few.middle) model->mtp_depth = 0;
}

/* The models that are measured; later ones have a block more than the first. */
enum { FEW_WHOLE, FEW_MIDDLE, FEW_PLAIN, FEW_MIXED, FEW_MODELS };

struct frame_models {
    struct model models[FEW_MODELS];
    struct stage stages[FEW_MODELS];
    bool made[FEW_MODELS];
};

enum { WORDS = 2 };

/* The words of the layout's recomputation, and how many there are. */
static int words_of(const struct layout *l, const char *words[WORDS])
{
    words[0] = recompute_names[l->recompute];
    words[1] = "latent";
    return l->again_latent ? 2 : 1;
}

static status make_stage(struct stage *stage, const struct model *model,
                         const struct layout *l, const struct shape *shape,
                         bool middle)
{
    const char *recompute[WORDS];
    const int words = words_of(l, recompute);
    struct stage_request r = {
        .model = model, .mode = PROGRAM_TRAIN,
        .dtype = l->bits == 32 ? DTYPE_F32 : DTYPE_BF16,
        .mtp_depth = model->mtp_depth, .size.batch = 1, .size.micro_batch = 1,
        .size.frames = 2, .size.length = shape->sequence,
        .regular = shape->regular,
        .backward = layout_defers(l) ? BACKWARD_SPLIT : BACKWARD_FUSED,
        .machine.threads = l->threads > 0 ? l->threads : 1,
        .recomputation.policy = recompute,
        .recomputation.count = words, .slice = {.last = model->layers}};

    r.precision = shape->precision;
    r.precision.first = 0; /* of other blocks fewer are coded */
    r.precision.end = model->layers;
    r.precision.kept = shape_has_codes(shape);
    r.reduction.sums.integer = shape->integer_sums;
    /* Frozen matrices have no W; codes are those of masters. */
    r.training.choice.groups.adapters = model->lora.rank > 0;
    r.training.optimizer = model->lora.rank > 0 || r.precision.kept;
    r.slice.begins = r.slice.ends = !middle;
    TRY(layout_mesh(l, &r.layout.mesh));
    TRY(layout_grid(l, shape, 1, &r.layout.grid));
    return stage_plan(stage, &r);
}

static struct frame_codes codes_of(const struct stage *stage)
{
    const struct coded *c = &stage->coded;
    const struct param_table *params = &stage->program.params;
    const int bits =
        number_formats[stage->program.precision.recipe.weights.format].bits;
    struct frame_codes codes = {
        .bytes = c->sets > 0 ? (double)c->bytes / c->sets : 0,
        .scales = (double)c->scale_bytes, .lacks = (double)c->lacks,
        .peaks = (double)c->most_peaks};

    for (int i = 0; c->params != NULL && i < params->count; i++)
        if (c->params[i].is && params->items[i].spec.expert > 0)
            codes.experts += (double)params->items[i].elements * bits / 8;
    return codes;
}

/* Scratch of kernels for a sequence, where there are many of them. */
static double kernels_of_many(const struct stage *stage)
{
    enum { MANY = 64 };
    const struct stage_request *r = &stage->request;

    return (double)kernels_scratch_bytes(&stage->kernels, r->machine.threads,
                                         0, MANY * stage->program.size.tokens) /
           MANY;
}

/* Plans model `which`, which is made when it is first asked for. */
static status plan_few(struct frame_models *m, int which, struct sizes *out,
                       const struct layout *l, const struct shape *shape,
                       struct few few)
{
    const char *recompute[WORDS];
    const int words = words_of(l, recompute);
    struct stage *stage = &m->stages[which];

    if (m->made[which]) {
        TRY(stage_plan_again(stage, recompute, words,
                             layout_defers(l) ? BACKWARD_SPLIT
                                              : BACKWARD_FUSED));
    } else {
        make_few(&m->models[which], shape, few);
        const status result = make_stage(stage, &m->models[which], l, shape,
                                         few.middle);

        if (result != OK) stage_free(stage);
        TRY(result);
        m->made[which] = true;
    }
    *out = (struct sizes){
        {(double)stage->frame.sizes.joint, (double)stage->frame.sizes.kept,
         (double)stage->frame.sizes.within},
        (double)stage->memory[MEMORY_LAYER_SCRATCH].bytes,
        (double)(stage->memory[MEMORY_KERNEL_SCRATCH].bytes +
                 stage->memory[MEMORY_ROTARY].bytes),
        kernels_of_many(stage),
        (double)stage->memory[MEMORY_PARTIALS].bytes, codes_of(stage)};
    return OK;
}

static status measure(struct frame_models *m, struct frames *f,
                      const struct layout *l, const struct shape *shape)
{
    const double mixed = shape->layers * shape->expert_blocks;
    const struct few few = {mixed < shape->layers - 0.5, mixed > 0.5, false};
    const struct few inside = {few.plain, few.mixed, true};
    const struct few more[] = {{few.plain + 1, few.mixed, false},
                               {few.plain, few.mixed + 1, false}};
    struct frame_parts *const parts[PARTS] = {&f->joint, &f->kept,
                                              &f->within};
    const bool there[] = {few.plain > 0, few.mixed > 0};
    struct sizes whole, middle, longer;
    double leaf = 0; /* that blocks have of their own */

    TRY(plan_few(m, FEW_WHOLE, &whole, l, shape, few));
    TRY(plan_few(m, FEW_MIDDLE, &middle, l, shape, inside));
    for (int i = 0; i < PARTS; i++)
        *parts[i] = (struct frame_parts){whole.frame[i], middle.frame[i], 0,
                                         0};
    for (int kind = 0; kind < 2; kind++) {
        if (!there[kind]) continue;
        TRY(plan_few(m, FEW_PLAIN + kind, &longer, l, shape, more[kind]));
        leaf += longer.leaf - whole.leaf;
        *(kind == 0 ? &f->plain : &f->mixed) = (struct frame_codes){
            longer.codes.bytes - whole.codes.bytes,
            longer.codes.experts - whole.codes.experts,
            longer.codes.scales - whole.codes.scales,
            longer.codes.lacks - whole.codes.lacks, longer.codes.peaks};
        for (int i = 0; i < PARTS; i++) {
            const double more_bytes = longer.frame[i] - whole.frame[i];

            *(kind == 0 ? &parts[i]->plain : &parts[i]->mixed) = more_bytes;
            parts[i]->ends -= more_bytes;
            parts[i]->middle -= more_bytes;
        }
    }
    f->leaf = middle.leaf - leaf;
    f->head_leaf = whole.leaf - leaf;
    /* The second use of a tied table has a sum, which is counted elsewhere. */
    if (shape->tied)
        f->head_leaf -= 8 * (double)shape->width * (double)shape->vocab /
                        l->tensor;
    if (f->head_leaf < f->leaf) f->head_leaf = f->leaf;
    f->each = whole.each;
    f->scratch = middle.scratch;
    f->head = whole.scratch;
    f->fixed = whole.fixed;
    return OK;
}

status frames_ask(struct frame_models **models, struct frames *frames,
                  const struct layout *layout, const struct shape *shape)
{
    void *memory = NULL;

    *frames = (struct frames){0};
    if (*models == NULL) {
        TRY(memory_take(1, sizeof **models, &memory));
        *models = memory;
    }
    return measure(*models, frames, layout, shape);
}

void frame_models_free(struct frame_models **models)
{
    for (int i = 0; *models != NULL && i < FEW_MODELS; i++)
        if ((*models)->made[i]) stage_free(&(*models)->stages[i]);
    memory_free(*models);
    *models = NULL;
}

status frames_of(struct frames *frames, const struct layout *layout,
                 const struct shape *shape)
{
    struct frame_models *models = NULL;
    const status result = frames_ask(&models, frames, layout, shape);

    frame_models_free(&models);
    return result;
}
