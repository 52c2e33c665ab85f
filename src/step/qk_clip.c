/* SPDX-License-Identifier: Apache-2.0 */
/* qk_clip.c - QK-clip: queries and keys scaled back after an update. */
#include "step/qk_clip.h"

#include <math.h>

#include "base/range_sum.h"
#include "models/decoder.h"
#include "nn/layer.h"
#include "nn/score_peaks.h"

status qk_clip_check(const struct model *model)
{
    const struct decoder *d =
        model->decoder != NULL ? model->decoder : model->kind->decoder;

    if (d != NULL && d->attention.q_norm.weight != NULL)
        FAIL(ERR_CONFIG, "optimizer.qk_clip: %s norms queries and keys, so "
                         "that scaling their weights changes no score; set it "
                         "to 0", model->kind->name);
    if (model->mla.rank > 0)
        FAIL(ERR_CONFIG, "optimizer.qk_clip: heads of %s share a key's rotary "
                         "part, so that no weight scales the scores of one "
                         "head; set it to 0", model->kind->name);
    if (model->softcap.attention > 0)
        FAIL(ERR_CONFIG, "optimizer.qk_clip: %s caps its scores at %g already; "
                         "set it, or model.attention_softcap, to 0",
             model->kind->name, model->softcap.attention);
    if (model->alibi)
        FAIL(ERR_CONFIG, "optimizer.qk_clip: %s has linear biases of scores, "
                         "so that scaling weights does not scale them; set "
                         "it, or model.alibi, to 0", model->kind->name);
    if (model->lora.rank > 0)
        FAIL(ERR_CONFIG, "optimizer.qk_clip: with lora.rank %d queries and "
                         "keys are frozen weights and adapters, and to scale "
                         "one of them scales no score; set it to 0",
             model->lora.rank);
    return OK;
}

static int64_t count_of(const struct qk_clip *clip)
{
    return (int64_t)model_blocks(clip->model) * clip->model->heads;
}

status qk_clip_build(struct qk_clip *clip, struct pipeline *pipeline)
{
    const struct stage_request *r = &pipeline->stages[0].request;
    void *table = NULL;

    *clip = (struct qk_clip){.pipeline = pipeline, .model = r->model,
                             .bound = r->qk_clip};
    if (clip->bound == 0) return OK;
    TRY(memory_take((size_t)count_of(clip), sizeof *clip->table, &table));
    clip->table = table;
    return OK;
}

void qk_clip_free(struct qk_clip *clip)
{
    memory_free(clip->table);
    *clip = (struct qk_clip){0};
}

void qk_clip_begin(struct qk_clip *clip)
{
    if (clip->bound == 0) return;
    for (int64_t i = 0; i < count_of(clip); i++)
        clip->table[i] = -(double)INFINITY;
    for (int i = 0; i < clip->pipeline->count; i++)
        score_peaks_reset(&clip->pipeline->stages[i].run);
}

status qk_clip_share(struct qk_clip *clip, struct team *team, double *most)
{
    *most = (double)NAN;
    if (clip->bound == 0) return OK;
    TRY(pipeline_finish(clip->pipeline));
    for (int i = 0; i < clip->pipeline->count; i++)
        score_peaks_collect(&clip->pipeline->stages[i].run, clip->model->heads,
                            clip->table);
    TRY(team_largest(team, clip->table, count_of(clip)));
    for (int64_t i = 0; i < count_of(clip); i++)
        if (!(*most > clip->table[i])) *most = clip->table[i];
    return OK;
}

/* ---- the weights ---- */

/* The share of a weight in what its update adds up; 0: it has none. */
static uint64_t sum_of(const struct update_item *item)
{
    if (item->sum == NULL) return 0;
    return range_sum_of(item->sum, item->weight.data, item->weight.data,
                        (size_t)tensor_bytes(&item->weight));
}

static status scale_part(const struct update *u, const struct update_item *item,
                         const void *factor)
{
    const uint64_t before = sum_of(item);

    TRY(u->kernels->scale(u->stream, item->weight, item->weight,
                          *(const double *)factor));
    if (item->sum != NULL) range_sum_add(item->sum, sum_of(item) - before);
    return item->copy.data == NULL
               ? OK
               : u->kernels->scale(u->stream, item->copy, item->weight, 1.0);
}

/* Scales the part of rows [row, row + rows) of a parameter that this rank
 * updates. */
static status scale_rows(const struct update *u, int index, int64_t row,
                         int64_t rows, double factor)
{
    const struct update_call call = {.factor = 1};
    const struct update_item item = update_item(u, index, &call);
    const int64_t width =
        item.param->spec.vector ? 1 : item.param->cols;
    int64_t first = row * width, last = first + rows * width;

    if (item.rule->frozen) return OK;
    if (first < item.range.first) first = item.range.first;
    if (last > item.range.last) last = item.range.last;
    if (first >= last) return OK;
    const struct update_item part =
        update_part(&item, first - item.range.first, last - first);

    return update_in_parts(u, &part, WEIGHT_CHANGES, scale_part, &factor);
}

/* The product that made queries and keys. */
static const struct step *projection_of(const struct program *p,
                                        const struct step *attention)
{
    const struct step *step = p->steps;

    while (step->output != attention->input) step++;
    return step;
}

/* Head `head` of this rank's, whose scores are to be times g. */
static status scale_head(const struct update *u, const struct step *attention,
                         const struct step *from, int head, bool own_keys,
                         double g)
{
    const int64_t width = attention->set.attention.head_width;
    const int heads = attention->set.attention.heads;
    const double factor = own_keys ? sqrt(g) : g;

    for (int i = 0; i < STEP_PARAMS_MAX; i++) {
        if (from->param[i] < 0) continue;
        TRY(scale_rows(u, from->param[i], head * width, width, factor));
        if (own_keys)
            TRY(scale_rows(u, from->param[i], (heads + head) * width, width,
                           factor));
    }
    return OK;
}

status qk_clip_apply(const struct qk_clip *clip, int chunk,
                     const struct update *update)
{
    const struct program *p = &clip->pipeline->stages[chunk].program;
    const bool own_keys = clip->model->heads == clip->model->kv_heads;

    for (int i = 0; i < p->step_count && clip->bound > 0; i++) {
        const struct step *step = &p->steps[i];
        const int own = step->set.attention.heads;
        const double *row =
            clip->table + (int64_t)step->block * clip->model->heads +
            p->layout.place.at[AXIS_TENSOR] * own;

        if (step->layer != &layer_attention) continue;
        for (int h = 0; h < own; h++)
            if (row[h] > clip->bound)
                TRY(scale_head(update, step, projection_of(p, step), h,
                               own_keys, clip->bound / row[h]));
    }
    return OK;
}
