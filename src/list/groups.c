/* SPDX-License-Identifier: Apache-2.0 */
/* groups.c - the groups whose messages instructions make, and the facts about a
 * stage that passes share. */
#include "list/passes.h"

#include "nn/exchange.h"

/* The ranks that divide something, and those with copies of a shard. */
static struct list_group sharing(const struct stage *stage, bool copies)
{
    const struct stage_request *r = &stage->request;
    const struct division *d = &r->division;
    const axis_set axes = d->weights | d->gradients | d->states;
    const int data = r->mesh.size[AXIS_DATA];
    const int shard = r->mesh.size[AXIS_SHARD];
    const struct list_group nobody = {"batch", 1, 0};
    const struct list_group batch = {
        "batch", data * shard,
        r->place.at[AXIS_DATA] * shard + r->place.at[AXIS_SHARD]};

    if (axes == 0) return copies ? batch : nobody;
    if (axes >> AXIS_DATA & 1) return copies ? nobody : batch;
    if (copies)
        return (struct list_group){"data", data, r->place.at[AXIS_DATA]};
    return (struct list_group){"shard", shard, r->place.at[AXIS_SHARD]};
}

static struct list_group axis_group(const struct stage *stage, enum axis axis)
{
    const struct stage_request *r = &stage->request;

    return (struct list_group){axis_name(axis), r->mesh.size[axis],
                               r->place.at[axis]};
}

struct list_group list_group(const struct pipeline *p,
                             const struct instruction *i)
{
    const int chunk = i->chunk >= 0 ? i->chunk : 0;
    const struct stage *stage = &p->stages[chunk];
    const struct chunk *c = &p->chunks[chunk];

    switch ((enum lane)i->lane) {
    case LANE_PIPE:
        return (struct list_group){"pipe", p->schedule.ranks, p->rank};
    case LANE_SHARD: return sharing(stage, false);
    case LANE_COPIES: return sharing(stage, true);
    case LANE_TENSOR: return axis_group(stage, AXIS_TENSOR);
    case LANE_CONTEXT: return axis_group(stage, AXIS_CONTEXT);
    case LANE_EXPERT: return axis_group(stage, AXIS_EXPERT);
    case LANE_PEER:
        return (struct list_group){c->label, c->copies, c->copy};
    case LANE_MATRICES:
        return (struct list_group){"matrices", stage->states.matrices.ranks,
                                   stage->states.matrices.rank};
    case LANE_WORLD:
        return (struct list_group){"world", p->world_size, p->world_rank};
    case LANE_COMPUTE: case LANE_HOST: case LANE_COUNT:
        break;
    }
    return (struct list_group){"", 1, 0};
}

bool stage_gathers(const struct stage *stage)
{
    return stage_divides(stage, stage_reads(stage));
}

bool stage_idles(const struct stage *stage, const struct residence *item,
                 bool forward)
{
    return !forward && item->first < stage->frame.forward_end &&
           residency_is_loss(&stage->program,
                             &stage->frame.events[item->first]);
}

int64_t list_sum_bytes(int64_t elements, enum dtype dtype,
                       struct list_group group)
{
    return exchange_all_reduce(elements, group.size, group.rank) *
           dtype_bytes(dtype);
}

bool stage_overlaps(const struct pipeline *pipeline, int chunk)
{
    const struct stage *stage = &pipeline->stages[chunk];
    const struct stage_request *r = &stage->request;

    return r->backward == BACKWARD_FUSED &&
           (sharing(stage, false).size > 1 || sharing(stage, true).size > 1) &&
           (r->mesh.size[AXIS_TENSOR] == 1 ||
            stage_divides(stage, MEMORY_GRADIENTS)) &&
           r->mesh.size[AXIS_CONTEXT] == 1 &&
           pipeline->chunks[chunk].copies == 1;
}

int64_t stage_own_gradients(const struct stage *stage,
                            const struct residence *item)
{
    const struct shards *shards = &stage->shards;

    return shard_gradient_sizes(shards, item->unit)[shards->rank];
}
