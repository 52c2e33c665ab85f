/* SPDX-License-Identifier: Apache-2.0 */
/* staging.c - rows of memory on a device that is apart from the host, and what
 * the host sees of them. */
#include "plan/stage.h"

bool memory_is_host(enum memory_owner owner)
{
    switch (owner) {
    case MEMORY_BATCH: case MEMORY_AHEAD: case MEMORY_NORM:
    case MEMORY_MESSAGES: case MEMORY_BACKGROUND: case MEMORY_SNAPSHOT:
    case MEMORY_STAGING:
        return true;
    default: return false;
    }
}

/* Outside of steps the host reads, and partly writes, these. */
static bool has_copy(const struct stage *stage, int owner)
{
    return stage_saves(stage, (enum memory_owner)owner) ||
           owner == MEMORY_GRADIENTS || owner == (int)stage_reads(stage);
}

static size_t choice_bytes(const struct stage *stage)
{
    return arena_aligned((size_t)(stage->program.tokens *
                                  stage->request.model->moe.top_k) *
                         sizeof(int32_t));
}

/* Behind the copies: room for lists that layers make, and for choices of
 * experts that the host reads. */
size_t stage_staging_bytes(const struct stage *stage,
                           const struct memory_row *rows)
{
    size_t bytes = 0;

    if (!device_about(stage->request.machine.device)->apart) return 0;
    for (int i = 0; i < MEMORY_OWNERS; i++)
        if (has_copy(stage, i)) bytes += arena_aligned(rows[i].bytes);
    return bytes + arena_aligned(rows[MEMORY_LAYER_SCRATCH].bytes) +
           choice_bytes(stage);
}

void stage_place_staging(struct stage *stage)
{
    char *at = stage->memory[MEMORY_STAGING].data;

    for (int i = 0; i < MEMORY_OWNERS; i++) {
        const struct memory_row *row = &stage->memory[i];

        stage->host[i] = row->data;
        if (stage->device == NULL || memory_is_host((enum memory_owner)i))
            continue;
        stage->host[i] = has_copy(stage, i) && row->bytes > 0 ? at : NULL;
        if (stage->host[i] != NULL) at += row->bytes;
    }
    stage->run.lists = stage->device == NULL ? stage->run.scratch : at;
    if (stage->device != NULL) /* at the end: what it begins with may vary */
        stage->run.choices = (int32_t *)(void *)(
            (char *)stage->memory[MEMORY_STAGING].data +
            stage->memory[MEMORY_STAGING].bytes - choice_bytes(stage));
}

/* Every row that has a copy on the host, in one direction. */
static status stages_copy(const struct stage *stages, int count, bool to_host)
{
    for (int i = 0; i < count; i++) {
        const struct stage *stage = &stages[i];
        struct stream stream = stage->stream;

        for (int j = 0; j < MEMORY_OWNERS && stage->device != NULL; j++) {
            const struct memory_row *row = &stage->memory[j];
            void *host = stage->host[j];

            if (host == row->data || host == NULL) continue;
            if (to_host)
                TRY(device_read(&stream, host, row->data, row->bytes));
            else
                TRY(device_write(&stream, row->data, host, row->bytes));
        }
    }
    return OK;
}

status stages_fetch(const struct stage *stages, int count)
{
    return stages_copy(stages, count, true);
}

status stages_store(const struct stage *stages, int count)
{
    return stages_copy(stages, count, false);
}
