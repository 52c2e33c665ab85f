/* SPDX-License-Identifier: Apache-2.0 */
/* found_lines.c - layouts that a search found, as configuration lines. */
#include "train/found_layouts.h"

#include <string.h>

#include "planner/memory.h"
#include "schedule/build.h"

enum { GRID_AUTO = 64 /* data leaves, when options do not say */ };

static const char *zero_name(const struct layout *l)
{
    static const char *const names[] = {"ddp", "zero1", "zero2", "fsdp"};

    if (!l->whole_shards) return names[l->zero];
    if (l->zero == 1) return "{states: [shard]}";
    if (l->zero == 2)
        return l->parts[1] ? "{gradients: [shard], states: [data, shard]}"
                           : "{gradients: [shard], states: [shard]}";
    if (l->parts[2])
        return "{weights: [shard], gradients: [data, shard], states: "
               "[data, shard]}";
    return l->parts[1] ? "{weights: [shard], gradients: [shard], states: "
                         "[data, shard]}" : "hsdp";
}

/* Whether ranks that share the batch need other leaves of it. */
static bool needs_data_grid(const struct layout *l)
{
    const int sharing = layout_sharing(l);

    return sharing > GRID_AUTO ||
           (l->grid_data > 0 && l->grid_data % sharing != 0);
}

/* "7, 8, 8, 7": blocks of each stage. */
static void list_blocks(const struct layout *l, const struct shape *shape,
                        char out[HUNTED_BLOCKS])
{
    size_t used = 0;

    for (int i = 0; i < l->pipe * l->chunks && used < HUNTED_BLOCKS; i++)
        used += (size_t)snprintf(out + used, HUNTED_BLOCKS - used, "%s%d",
                                 i > 0 ? ", " : "", layout_blocks(l, shape, i));
}

int found_settings(const struct layout *l, const struct shape *shape,
                   bool grid, char out[][HUNTED_SETTING])
{
    char blocks[HUNTED_BLOCKS];
    int n = 0;

    snprintf(out[n++], HUNTED_SETTING, "mesh.tensor=%d", l->tensor);
    snprintf(out[n++], HUNTED_SETTING, "mesh.context=%d", l->context);
    snprintf(out[n++], HUNTED_SETTING, "mesh.pipe=%d", l->pipe);
    snprintf(out[n++], HUNTED_SETTING, "mesh.data=%d", l->data);
    snprintf(out[n++], HUNTED_SETTING, "mesh.expert=%d", l->expert);
    snprintf(out[n++], HUNTED_SETTING, "mesh.expert_tensor=%d",
             l->expert_tensor);
    snprintf(out[n++], HUNTED_SETTING, "mesh.expert_context=%d",
             l->expert_context);
    snprintf(out[n++], HUNTED_SETTING, "mesh.shard=%d", l->shard);
    snprintf(out[n++], HUNTED_SETTING, "zero=%s", zero_name(l));
    snprintf(out[n++], HUNTED_SETTING, "train.micro_batch=%lld",
             (long long)l->micro_batch);
    snprintf(out[n++], HUNTED_SETTING, "train.recompute=[%s]",
             recompute_names[l->recompute]);
    if (grid) {
        snprintf(out[n++], HUNTED_SETTING, "numerics.grid_tensor=%d",
                 l->tensor);
        snprintf(out[n++], HUNTED_SETTING, "numerics.grid_context=%d",
                 l->context);
        if (needs_data_grid(l))
            snprintf(out[n++], HUNTED_SETTING, "numerics.grid_data=%d",
                     layout_sharing(l));
    }
    if (l->pipe > 1)
        snprintf(out[n++], HUNTED_SETTING, "schedule.name=%s", l->schedule);
    snprintf(out[n++], HUNTED_SETTING, "schedule.chunks=%d",
             l->pipe > 1 && schedule_takes_chunks(l->schedule) ? l->chunks : 0);
    if (l->head_blocks > 0) {
        list_blocks(l, shape, blocks);
        snprintf(out[n++], HUNTED_SETTING, "mesh.layers=[%s]", blocks);
    }
    return n;
}

void found_yaml(const struct layout *l, const struct shape *shape, bool grid,
                char *out)
{
    char expert[80] = "", shard[32] = "", blocks[HUNTED_BLOCKS] = "";
    size_t used = 0;

    if (l->expert > 1)
        used = (size_t)snprintf(expert, sizeof expert, ", expert: %d",
                                l->expert);
    if (l->expert_tensor > 0)
        used += (size_t)snprintf(expert + used, sizeof expert - used,
                                 ", expert_tensor: %d", l->expert_tensor);
    if (l->expert_context)
        snprintf(expert + used, sizeof expert - used, ", expert_context: true");
    if (l->head_blocks > 0) list_blocks(l, shape, blocks);
    if (l->shard > 1)
        snprintf(shard, sizeof shard, ", shard: %d", l->shard);
    used = (size_t)snprintf(
        out, HUNTED_LINES, "zero: %s\nmesh: {tensor: %d, context: %d, pipe: "
        "%d, data: %d%s%s%s%s%s}\n"
        "train: {micro_batch: %lld, recompute: [%s]}\n",
        zero_name(l), l->tensor, l->context, l->pipe, l->data, shard, expert,
        blocks[0] != 0 ? ", layers: [" : "", blocks, blocks[0] != 0 ? "]" : "",
        (long long)l->micro_batch, recompute_names[l->recompute]);

    if (grid && needs_data_grid(l))
        used += (size_t)snprintf(out + used, HUNTED_LINES - used,
                                 "numerics: {grid_tensor: %d, grid_context: "
                                 "%d, grid_data: %d}\n", l->tensor,
                                 l->context, layout_sharing(l));
    else if (grid)
        used += (size_t)snprintf(out + used, HUNTED_LINES - used,
                                 "numerics: {grid_tensor: %d, grid_context: "
                                 "%d}\n", l->tensor, l->context);
    if (l->pipe == 1) return;
    used += (size_t)snprintf(out + used, HUNTED_LINES - used,
                             "schedule: {name: %s", l->schedule);
    if (schedule_takes_chunks(l->schedule))
        used += (size_t)snprintf(out + used, HUNTED_LINES - used,
                                 ", chunks: %d", l->chunks);
    snprintf(out + used, HUNTED_LINES - used, "}\n");
}
