/* SPDX-License-Identifier: Apache-2.0 */
/* memory.c - the memory table of a rank, printed; what a snapshot takes. */
#include "plan/stage.h"

/* Some kinds have an average that takes the place of the weights while they are
 * saved; the weights that are trained then lie where gradients are. */
static bool keeps_in_gradients(const struct stage *stage)
{
    const struct optimizer_kind *kind = stage->request.training.choice.kind;

    for (int i = 0; kind != NULL && i < OPTIMIZER_STATES; i++)
        if (kind->states[i].name != NULL && kind->states[i].shape == STATE_KEPT)
            return true;
    return false;
}

bool stage_saves(const struct stage *stage, enum memory_owner owner)
{
    if (owner == MEMORY_GRADIENTS) return keeps_in_gradients(stage);
    return owner == stage_keeps(stage) ||
           (owner >= MEMORY_STATE_0 && owner <= MEMORY_STATE_4);
}

size_t stage_copied_bytes(const struct stage *stage, enum memory_owner owner,
                          const struct memory_row *rows)
{
    return owner == MEMORY_WEIGHTS && stage_splits(stage)
               ? arena_aligned(stage_saved_bytes(stage))
               : arena_aligned(rows[owner].bytes);
}

size_t stage_snapshot_bytes(const struct stage *stage,
                            const struct memory_row *rows)
{
    const struct stage_request *r = &stage->request;
    /* Whole matrices have owners among the data ranks, under ddp too. */
    const bool replica = r->divided.division.weights == 0 &&
                         r->divided.division.states == 0 &&
                         stage->states.matrices.count == 0 &&
                         r->layout.place.at[AXIS_DATA] > 0;
    size_t bytes = 0;

    if (!r->training.snapshot || replica) return 0;
    for (int i = 0; i < MEMORY_OWNERS; i++)
        if (stage_saves(stage, (enum memory_owner)i))
            bytes += stage_copied_bytes(stage, (enum memory_owner)i, rows);
    return bytes;
}

status memory_print(const struct memory_row *rows, struct text *out)
{
    char bytes[32];
    size_t sum = 0;

    for (int i = 0; i < MEMORY_OWNERS; i++) {
        sum += rows[i].bytes;
        if (rows[i].bytes > 0)
            TRY(text_printf(out, "%-32s %-12s %11s %15zu bytes\n",
                            rows[i].name, rows[i].life,
                            text_bytes(bytes, rows[i].bytes), rows[i].bytes));
    }
    return text_printf(out, "%-32s %-12s %11s %15zu bytes\n", "total", "",
                       text_bytes(bytes, sum), sum);
}

void memory_write(const struct memory_row *rows, struct json_writer *out)
{
    json_write_array(out);
    for (int i = 0; i < MEMORY_OWNERS; i++) {
        if (rows[i].bytes == 0) continue;
        json_write_object(out);
        json_write_key(out, "name");
        json_write_string(out, rows[i].name);
        json_write_key(out, "life");
        json_write_string(out, rows[i].life);
        json_write_key(out, "bytes");
        json_write_integer(out, (int64_t)rows[i].bytes);
        json_write_object_end(out);
    }
    json_write_array_end(out);
}

void stage_use_frame(struct stage *stage, int frame)
{
    stage->run.frame = (char *)stage->memory[MEMORY_FRAME].data +
                       frame * stage->frame.bytes;
    stage->run.choices.frame = frame;
    stage->run.batch = stage->batches[frame];
}
