/* SPDX-License-Identifier: Apache-2.0 */
/* groups.c - the groups whose messages instructions make, and the facts about a
 * stage that passes share. */
#include "list/passes.h"

#include <stdio.h>

#include "nn/exchange.h"

static struct list_group named(struct group_id id, const char *name, int size,
                               int rank)
{
    struct list_group group = {.id = id, .size = size, .rank = rank};

    snprintf(group.name, sizeof group.name, "%s", name);
    return group;
}

/* The ranks that divide a class of parameters, or those with copies of
 * a shard. */
static struct list_group sharing(const struct stage *stage, int class,
                                 bool copies)
{
    const struct stage_request *r = &stage->request;
    const struct shard_class *c = &stage->shards.classes[class];
    const axis_set axes = copies ? c->copied & ~c->divided : c->divided;
    const struct batch_place at =
        mesh_batch_place(&r->layout.mesh, &r->layout.place, axes);

    return named(at.id, at.label, at.size, at.rank);
}

static struct list_group axis_group(const struct stage *stage, enum axis axis)
{
    const struct stage_request *r = &stage->request;

    return named(mesh_axis_group_id(&r->layout.mesh, axis),
                 mesh_axis_group_name(&r->layout.mesh, axis),
                 mesh_axis_group_size(&r->layout.mesh, axis),
                 mesh_axis_group_rank(&r->layout.mesh, &r->layout.place, axis));
}

struct list_group list_group(const struct pipeline *p,
                             const struct instruction *i)
{
    const int chunk = i->chunk >= 0 ? i->chunk : 0;
    const struct stage *stage = &p->stages[chunk];
    const struct chunk *c = &p->chunks[chunk];
    const struct matrices *m = &stage->states.matrices;
    const int class = i->unit >= 0 ? stage->shards.units[i->unit].class : 0;

    switch ((enum resource)i->resource) {
    case RESOURCE_PIPE:
        return named((struct group_id){GROUP_AXIS, AXIS_PIPE},
                     axis_name(AXIS_PIPE),
                     p->schedule.ranks, p->rank);
    case RESOURCE_SHARD: return sharing(stage, class, false);
    case RESOURCE_COPIES: return sharing(stage, class, true);
    case RESOURCE_TENSOR: return axis_group(stage, AXIS_TENSOR);
    case RESOURCE_CONTEXT: return axis_group(stage, AXIS_CONTEXT);
    case RESOURCE_EXPERT: return axis_group(stage, AXIS_EXPERT);
    case RESOURCE_PEER:
        return named((struct group_id){GROUP_STAGE, c->number}, c->label,
                     c->copies, c->copy);
    case RESOURCE_MATRICES:
        return named((struct group_id){GROUP_MATRICES, 0}, "matrices",
                     m->ranks, m->rank);
    case RESOURCE_WORLD:
        return named((struct group_id){GROUP_WORLD, 0}, "world",
                     p->world_size, p->world_rank);
    case RESOURCE_COMPUTE: case RESOURCE_HOST: case RESOURCE_COUNT:
        break;
    }
    return (struct list_group){.size = 1};
}

bool stage_gathers(const struct stage *stage)
{
    return stage_divides(stage, stage_reads(stage));
}

int stage_phase(const struct stage *stage, const struct instruction *i)
{
    if (!stage_gathers_once(stage)) return -1;
    return i->kind != DO_FORWARD && !stage->phases.merged;
}

bool stage_idles(const struct stage *stage, const struct residence *item,
                 bool forward)
{
    return !forward &&
           residency_is_idle(item, &stage->program, &stage->frame);
}

bool stage_averages(const struct stage *stage)
{
    return stage->memory[MEMORY_STATE_0 + STATE_AVERAGE].bytes > 0;
}

int64_t list_sum_bytes(int64_t elements, enum dtype dtype,
                       struct list_group group)
{
    return exchange_all_reduce(elements, group.size, group.rank) *
           dtype_bytes(dtype);
}

int list_encodes(const struct stage *stage, int unit)
{
    if (coded_peaks(&stage->coded, unit) == 0) return 0;
    return 1 + (stage->coded.kept &&
                shard_class(&stage->shards, unit)->parts > 1);
}

/* Whether ranks add anything up, or divide it. */
static bool has_peers(const struct stage *stage)
{
    for (int i = 0; i < stage->shards.class_count; i++)
        if (sharing(stage, i, false).size > 1 ||
            sharing(stage, i, true).size > 1)
            return true;
    return false;
}

bool stage_overlaps(const struct pipeline *pipeline, int chunk)
{
    const struct stage *stage = &pipeline->stages[chunk];
    const struct stage_request *r = &stage->request;

    return r->backward == BACKWARD_FUSED &&
           has_peers(stage) &&
           ((r->layout.mesh.size[AXIS_TENSOR] == 1 &&
             r->layout.mesh.size[AXIS_CONTEXT] == 1) ||
            stage_divides(stage, MEMORY_GRADIENTS)) &&
           pipeline->chunks[chunk].copies == 1;
}
