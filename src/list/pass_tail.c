/* SPDX-License-Identifier: Apache-2.0 */
/* pass_tail.c - after the last round: the loss, the norm, the decision, the
 * update, new weights to all, and nothing under way any more. */
#include "list/passes.h"

static struct instruction of_chunk(const struct pipeline *p,
                                   enum instruction_kind kind, int chunk)
{
    struct instruction i = instruction_of(kind);

    i.chunk = chunk;
    i.stage = (int16_t)p->chunks[chunk].number;
    return i;
}

/* Numbers that all ranks join, each its own part. */
static status put_world(struct step_list *out, const struct pipeline *p,
                        enum instruction_kind kind, int64_t count)
{
    struct instruction i = instruction_of(kind);
    const struct list_group group = list_group(p, &i);

    if (group.size > 1) {
        i.calls = 1;
        i.bytes = list_sum_bytes(count, DTYPE_F64, group);
    }
    return list_put(out, i);
}

static status put_tie(struct step_list *out, const struct pipeline *p,
                      int chunk)
{
    const struct pipeline_share share = pipeline_share(p, chunk);
    struct instruction i = of_chunk(p, DO_TIE, chunk);

    if (share.param == NULL || share.elements == 0) return OK;
    if (share.chunk >= 0)
        return p->chunks[chunk].number == 0 ? list_put(out, i) : OK;
    i.peer = share.peer;
    i.calls = (int32_t)((share.elements + TIED_AT_ONCE - 1) / TIED_AT_ONCE);
    i.bytes = share.elements *
              dtype_bytes(program_real(&p->stages[chunk].program));
    return list_put(out, i);
}

/* The first unit of a class, or -1. */
static int unit_of(const struct shards *shards, int class)
{
    for (int i = 0; i < shards->count; i++)
        if (shards->units[i].class == class) return i;
    return -1;
}

static status put_share(struct step_list *out, const struct pipeline *p,
                        struct instruction i, enum resource resource,
                        int64_t blocks)
{
    i.resource = (uint8_t)resource;
    const struct list_group group = list_group(p, &i);

    if (group.size == 1) return OK;
    i.calls = 1;
    i.bytes = list_sum_bytes(blocks, DTYPE_F64, group);
    return list_put(out, i);
}

/* Blocks of the norm: over the ranks that divide, and over those that divide
 * their shards once more. */
static status put_shares(struct step_list *out, const struct pipeline *p,
                         int chunk)
{
    const struct stage *stage = &p->stages[chunk];
    struct instruction i = of_chunk(p, DO_SHARE, chunk);

    for (int class = 0; class < stage->shards.class_count; class++) {
        const int64_t blocks = shard_class_blocks(
            &stage->program.params, &stage->holding, &stage->shards, class);

        i.unit = unit_of(&stage->shards, class);
        if (blocks == 0) continue;
        TRY(put_share(out, p, i, RESOURCE_SHARD, blocks));
        if (stage->shards.classes[class].parts > 1)
            TRY(put_share(out, p, i, RESOURCE_COPIES, blocks));
    }
    return OK;
}

static status put_matrices(struct step_list *out, const struct pipeline *p,
                           int chunk)
{
    const struct stage *stage = &p->stages[chunk];
    const struct matrices *m = &stage->states.matrices;
    struct instruction i = of_chunk(p, DO_MATRICES, chunk);
    int64_t calls = 0;

    if (m->count == 0) return OK;
    if (m->ranks > 1)
        matrices_traffic(m, dtype_bytes(program_real(&stage->program)),
                         &calls, &i.bytes);
    i.calls = (int32_t)calls;
    return list_put(out, i);
}

static status put_regather(struct step_list *out, const struct pipeline *p,
                           struct instruction i, enum resource resource)
{
    const struct stage *stage = &p->stages[i.chunk];

    i.resource = (uint8_t)resource;
    i.calls = 1;
    const struct list_group group = list_group(p, &i);
    const int64_t own = resource == RESOURCE_SHARD
                            ? stage_gather_bytes(stage, i.unit)
                            : stage_part_bytes(stage, i.unit);

    if (group.size == 1) return OK;
    i.bytes = own * (group.size - 1);
    return list_put(out, i);
}

/* New weights of a unit: the parts of a shard, where several ranks update it,
 * and, one unit later because it needs them, the shards, where every rank keeps
 * all of them. unit: of the parts; the last one's shards come alone. */
static status put_regathers(struct step_list *out, const struct pipeline *p,
                            int chunk, int unit)
{
    const struct stage *stage = &p->stages[chunk];
    const struct shards *s = &stage->shards;
    struct instruction i = of_chunk(p, DO_REGATHER, chunk);

    i.unit = unit - 1;
    if (i.unit >= 0 && shard_class(s, i.unit)->parts > 1 &&
        !stage_gathers(stage))
        TRY(put_regather(out, p, i, RESOURCE_SHARD));
    i.unit = unit;
    if (unit == s->count) return OK;
    if (shard_class(s, unit)->parts > 1)
        return put_regather(out, p, i, RESOURCE_COPIES);
    return stage_gathers(stage) ? OK : put_regather(out, p, i, RESOURCE_SHARD);
}

static status put_encode(struct step_list *out, const struct pipeline *p,
                         struct instruction i, enum resource resource)
{
    const struct coded *coded = &p->stages[i.chunk].coded;

    i.resource = (uint8_t)resource;
    const struct list_group group = list_group(p, &i);

    i.calls = group.size > 1;
    i.bytes = list_sum_bytes(coded_peaks(coded, i.unit),
                             coded_peak_dtype(coded), group);
    return list_put(out, i);
}

/* Once all new weights of a stage are there, they become codes; parts of shards
 * join their largest magnitudes before shards do. */
static status put_encodes(struct step_list *out, const struct pipeline *p,
                          int chunk)
{
    const struct stage *stage = &p->stages[chunk];
    struct instruction i = of_chunk(p, DO_ENCODE, chunk);

    for (i.unit = 0; i.unit < stage->shards.count; i.unit++) {
        if (coded_peaks(&stage->coded, i.unit) == 0) continue;
        if (list_encodes(stage, i.unit) > 1)
            TRY(put_encode(out, p, i, RESOURCE_COPIES));
        TRY(put_encode(out, p, i, RESOURCE_SHARD));
    }
    return OK;
}

static status put_unit(struct step_list *out, const struct pipeline *p,
                       enum instruction_kind kind, int chunk, int unit)
{
    struct instruction i = of_chunk(p, kind, chunk);

    i.unit = unit;
    return list_put(out, i);
}

/* Instructions that change weights of all units after their updates. */
static status put_late(struct step_list *out, const struct pipeline *p,
                       int chunk)
{
    const struct stage_request *r = &p->stages[chunk].request;

    TRY(put_matrices(out, p, chunk));
    if (r->qk_clip > 0) TRY(list_put(out, of_chunk(p, DO_CLIP, chunk)));
    if (r->regular.bias_rate > 0)
        TRY(list_put(out, of_chunk(p, DO_BALANCE, chunk)));
    return OK;
}

static bool updates_late(const struct stage *stage)
{
    const struct stage_request *r = &stage->request;

    return stage->states.matrices.count > 0 || r->qk_clip > 0 ||
           r->regular.bias_rate > 0;
}

/* A unit's new weights go to the other ranks while the next one is updated; or,
 * where something comes after all updates, while the next one is averaged. Kept
 * codes are made once all updates are done, and go then. */
static status put_update(struct step_list *out, const struct pipeline *p,
                         int chunk)
{
    const struct stage *stage = &p->stages[chunk];
    const int units = stage->shards.count;
    const bool late = updates_late(stage), kept = stage->coded.kept;

    for (int unit = 0; unit < units && late; unit++)
        TRY(put_unit(out, p, DO_UPDATE, chunk, unit));
    TRY(put_late(out, p, chunk));
    for (int unit = 0; unit < units; unit++) {
        if (!late) TRY(put_unit(out, p, DO_UPDATE, chunk, unit));
        if (stage_averages(stage))
            TRY(put_unit(out, p, DO_AVERAGE, chunk, unit));
        if (!kept) TRY(put_regathers(out, p, chunk, unit));
    }
    if (kept) TRY(put_encodes(out, p, chunk));
    for (int unit = kept ? 0 : units; unit <= units; unit++)
        TRY(put_regathers(out, p, chunk, unit));
    return kept ? OK : put_encodes(out, p, chunk);
}

static status put_tail(struct step_list *out, const struct pipeline *p)
{
    const struct stage *first = &p->stages[0];

    TRY(put_world(out, p, DO_LOSS, pipeline_loss_values(p)));
    if (first->program.regular.z_loss > 0)
        TRY(put_world(out, p, DO_Z_LOSS, pipeline_loss_values(p)));
    if (first->program.later.depth > 0)
        TRY(put_world(out, p, DO_LATER_LOSSES, pipeline_later_values(p)));
    for (int i = 0; i < p->count; i++)
        TRY(list_put(out, of_chunk(p, DO_SECOND, i)));
    for (int i = 0; i < p->count; i++) TRY(put_tie(out, p, i));
    if (first->request.qk_clip > 0)
        TRY(put_world(out, p, DO_PEAKS, pipeline_peak_values(p)));
    if (pipeline_late_values(p) > 0)
        TRY(put_world(out, p, DO_LATE, pipeline_late_values(p)));
    if (pipeline_route_values(p) > 0)
        TRY(put_world(out, p, DO_ROUTES, pipeline_route_values(p)));
    for (int i = 0; i < p->count; i++)
        TRY(list_put(out, of_chunk(p, DO_BLOCKS, i)));
    for (int i = 0; i < p->count; i++) TRY(put_shares(out, p, i));
    TRY(put_world(out, p, DO_NORM, pipeline_norm_values(p)));
    TRY(list_put(out, instruction_of(DO_DECIDE)));
    for (int i = 0; i < p->count; i++) TRY(put_update(out, p, i));
    return put_world(out, p, DO_ASK, 1);
}

status pass_tail(struct step_list *out, const struct step_list *before,
                 const struct list_request *request)
{
    const int depth = request->pipeline->stages[0].program.later.depth;

    if (request->turns == 0 && depth > 0)
        TRY(put_world(out, request->pipeline, DO_TARGETS, 1 + depth));
    for (int i = 0; i < before->count; i++)
        TRY(list_put(out, before->items[i]));
    if (request->turns == 0) TRY(put_tail(out, request->pipeline));
    return list_put(out, instruction_of(DO_END));
}
