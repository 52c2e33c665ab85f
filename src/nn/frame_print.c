/* SPDX-License-Identifier: Apache-2.0 */
/* frame_print.c - prints the buffers of a frame, and finishes its plan. */
#include "nn/frame.h"

void frame_plan_free(struct frame_plan *plan)
{
    memory_free(plan->events);
    memory_free(plan->buffers);
    memory_free(plan->activation);
    memory_free(plan->again);
    memory_free(plan->gradient);
    memory_free(plan->sums);
    memory_free(plan->gradient_sums);
    memory_free(plan->codes);
    *plan = (struct frame_plan){0};
}

status frame_plan_print(const struct frame_plan *plan,
                        const struct program *program, struct text *out)
{
    char amount[32];

    TRY(text_printf(out, "frame of %s (%lld bytes), %d events, %d buffers\n",
                    text_bytes(amount, (uint64_t)plan->bytes),
                    (long long)plan->bytes, plan->event_count,
                    plan->buffer_count));
    if (plan->pass_bytes > 0)
        TRY(text_printf(out, "room of a pass, which all frames share: %s "
                             "(%lld bytes)\n",
                        text_bytes(amount, (uint64_t)plan->pass_bytes),
                        (long long)plan->pass_bytes));
    for (int i = 0; i < plan->buffer_count; i++) {
        const struct frame_buffer *buffer = &plan->buffers[i];
        const struct slot_info *info = &program->slots[buffer->slot];

        TRY(text_printf(out,
                        "%11s %12lld bytes at %12lld%s, events %4d to %4d: "
                        "%s%s%s s%d, %s, ",
                        text_bytes(amount, (uint64_t)buffer->bytes),
                        (long long)buffer->bytes, (long long)buffer->offset,
                        buffer->shared ? " of the room" : "",
                        buffer->first, buffer->last,
                        buffer->codes  ? "codes of "
                        : buffer->sums ? "sums of the " : "",
                        buffer->gradient ? "gradient of " : "", info->name,
                        buffer->slot,
                        buffer->codes ? number_formats[buffer->format].name
                                      : dtype_name(buffer->dtype)));
        if (info->block < 0)
            TRY(text_append_string(out, "outside the blocks\n"));
        else
            TRY(text_printf(out, "block %d\n", info->block));
    }
    return OK;
}
