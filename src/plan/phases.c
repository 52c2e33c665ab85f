/* SPDX-License-Identifier: Apache-2.0 */
/* phases.c - divided weights that are gathered once for all micro-batches. */
#include "plan/phases.h"

#include "nn/buffer_offsets.h"

enum { PHASE_ALIGN = 64 /* elements */ };

/* First and last F, B or W of a chunk, in the order of the rank's. */
struct extent { int first, last; };

static void find_extents(const struct pipeline *p, int chunk,
                         struct extent extents[2])
{
    const struct action_list *list = &p->schedule.lists[p->rank];
    int at = 0;

    for (int i = 0; i < 2; i++) extents[i] = (struct extent){-1, -1};
    for (int i = 0; i < list->count; i++) {
        const struct action a = list->items[i];
        struct extent *extent = &extents[a.kind != ACTION_FORWARD];

        if (a.kind >= ACTION_COMPUTE_COUNT) continue;
        if (pipeline_chunk(p, a.stage, a.microbatch) == chunk) {
            if (extent->first < 0) extent->first = at;
            extent->last = at;
        }
        at++;
    }
}

/* Rooms [2 * chunks]: of F, of B and W; of a chunk with one phase the second is
 * empty. */
static void fill_rooms(struct pipeline *p, struct placed_buffer *rooms)
{
    for (int i = 0; i < p->count; i++) {
        struct stage *stage = &p->stages[i];
        const int64_t elements =
            (shards_rooms(&stage->shards) + PHASE_ALIGN - 1) / PHASE_ALIGN *
            PHASE_ALIGN;
        struct extent extents[2];

        find_extents(p, i, extents);
        stage->phases.merged = extents[1].first <= extents[0].last + 1;
        if (stage->phases.merged) extents[0].last = extents[1].last;
        for (int phase = 0; phase < 2; phase++)
            rooms[2 * i + phase] = (struct placed_buffer){
                phase > 0 && stage->phases.merged ? 0 : elements,
                extents[phase].first, extents[phase].last, 0};
    }
}

status phases_plan(struct pipeline *pipeline)
{
    const struct action_list *list =
        &pipeline->schedule.lists[pipeline->rank];
    const struct stage *first = &pipeline->stages[0];
    struct placed_buffer *rooms;
    void *memory = NULL;
    int64_t elements;
    status result;

    if (!stage_gathers_once(first)) return OK;
    TRY(memory_take((size_t)pipeline->count, 2 * sizeof *rooms, &memory));
    rooms = memory;
    fill_rooms(pipeline, rooms);
    result = buffers_place(rooms, 2 * pipeline->count, list->count + 1,
                           &elements);
    for (int i = 0; i < 2 * pipeline->count; i++)
        pipeline->stages[i / 2].phases.at[i % 2] = rooms[i].offset;
    memory_free(memory);
    TRY(result);
    for (int i = 0; i < pipeline->count; i++)
        stage_reserve(&pipeline->stages[i], MEMORY_GATHERED,
                      i > 0 ? 0 : (size_t)(elements *
                                           dtype_bytes(first->program.dtype)));
    return OK;
}
