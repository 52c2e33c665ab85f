/* SPDX-License-Identifier: Apache-2.0 */
/* frame_place.c - offsets of a frame's buffers.
 *
 * A micro-batch in flight keeps between its passes only what one pass leaves
 * for another: the rest is alive inside one F, B or W. Passes of a stage run
 * one after the other, so where several micro-batches are in flight the rest
 * lies in one room that all frames share:
 *
 *   frame 0 | frame 1 | ... | room of a pass
 *   F to B    F to B          inside F, B or W of any of them */
#include "nn/frame.h"

#include "base/sizes.h"
#include "nn/buffer_offsets.h"

static int pass_at(const struct frame_plan *plan, int event)
{
    return (event >= plan->forward_end) + (event >= plan->backward_end) +
           (event >= plan->event_count);
}

/* A stage's borders are filled and read between passes. */
static bool is_border(const struct frame_plan *plan,
                      const struct program *program, int buffer)
{
    const slot entry = program->slice.entry, exit = program->slice.exit;

    return (entry >= 0 && (buffer == plan->activation[entry] ||
                           buffer == plan->gradient[entry])) ||
           (exit >= 0 && (buffer == plan->activation[exit] ||
                          buffer == plan->gradient[exit]));
}

static bool is_within_pass(const struct frame_plan *plan,
                           const struct program *program, int buffer)
{
    const struct frame_buffer *b = &plan->buffers[buffer];

    return pass_at(plan, b->first) == pass_at(plan, b->last) &&
           !is_border(plan, program, buffer);
}

/* Buffers that live inside one pass, buffers that outlive one, or both. */
enum part { PART_WITHIN = 1, PART_KEPT = 2, PART_ALL = 3 };

static status place(const struct frame_plan *plan,
                    const struct program *program, enum part part,
                    struct placed_buffer *rooms, int64_t *bytes)
{
    for (int i = 0; i < plan->buffer_count; i++) {
        const struct frame_buffer *b = &plan->buffers[i];
        const enum part of = is_within_pass(plan, program, i) ? PART_WITHIN
                                                              : PART_KEPT;

        rooms[i] = (struct placed_buffer){of & part ? b->bytes : 0, b->first,
                                          b->last, 0};
    }
    /* The last event may be followed by a reader. */
    return buffers_place(rooms, plan->buffer_count, plan->event_count + 1,
                         bytes);
}

static void use(struct frame_plan *plan, const struct program *program,
                const struct placed_buffer *kept,
                const struct placed_buffer *within)
{
    for (int i = 0; i < plan->buffer_count; i++) {
        struct frame_buffer *b = &plan->buffers[i];

        b->shared = within != NULL && is_within_pass(plan, program, i);
        b->offset = b->shared ? within[i].offset : kept[i].offset;
    }
}

/* In one frame what lives inside B takes the place of what F left; several have
 * a room, where that is less or other stages of the rank have it anyway. */
static bool has_room(const struct frame_sizes *sizes, struct frame_count count)
{
    return count.shares ||
           (count.frames > 1 &&
            size_product(sizes->joint, count.frames) >
                size_sum(size_product(sizes->kept, count.frames),
                         sizes->within));
}

void frame_plan_count(struct frame_plan *plan, struct frame_count count)
{
    const bool room = has_room(&plan->sizes, count);

    plan->bytes = room ? plan->sizes.kept : plan->sizes.joint;
    plan->pass_bytes = room ? plan->sizes.within : 0;
}

static status split(struct frame_plan *plan, const struct program *program,
                    struct frame_count count, struct placed_buffer *kept,
                    struct placed_buffer *within)
{
    struct frame_sizes *sizes = &plan->sizes;

    TRY(place(plan, program, PART_KEPT, kept, &sizes->kept));
    TRY(place(plan, program, PART_WITHIN, within, &sizes->within));
    if (!has_room(sizes, count)) return OK;
    use(plan, program, kept, within);
    frame_plan_count(plan, count);
    return OK;
}

status frame_plan_place(struct frame_plan *plan, const struct program *program,
                        struct frame_count count)
{
    struct placed_buffer *rooms = NULL;
    void *memory = NULL;
    status result;

    if (plan->buffer_count == 0) return OK;
    TRY(memory_take(2 * (size_t)plan->buffer_count, sizeof *rooms, &memory));
    rooms = memory;
    result = place(plan, program, PART_ALL, rooms, &plan->sizes.joint);
    if (result == OK) {
        use(plan, program, rooms, NULL);
        plan->bytes = plan->sizes.joint;
        if (count.frames > 1 || count.shares)
            result = split(plan, program, count, rooms,
                           rooms + plan->buffer_count);
    }
    memory_free(memory);
    return result;
}
