/* SPDX-License-Identifier: Apache-2.0 */
/* snapshot.c - a copy of what a checkpoint keeps of this rank. */
#include "train/snapshot.h"

#include <string.h>

/* Whether the copy of a row has numbers in place of halves. */
static bool joins(const struct stage *stage, int row)
{
    return row == MEMORY_WEIGHTS && stage_splits(stage);
}

/* Where the copy of `at` lies; of masters that are split, of which it is a
 * lower half, the number. */
static void *copied(const struct snapshot *snapshot, const void *at)
{
    const char *sought = at;

    for (int i = 0; i < snapshot->count; i++) {
        const struct stage *stage = &snapshot->stages[i];
        char *to = stage->memory[MEMORY_SNAPSHOT].data;

        for (int j = 0; j < MEMORY_OWNERS; j++) {
            const struct memory_row *row = &stage->memory[j];
            const char *from = stage->host[j];

            if (!stage_saves(stage, (enum memory_owner)j)) continue;
            if (row->bytes > 0 && sought >= from &&
                sought < from + row->bytes) {
                CHECK(stage->memory[MEMORY_SNAPSHOT].bytes > 0);
                return to + (sought - from) *
                                (joins(stage, j) ? 2 : 1);
            }
            to += stage_copied_bytes(stage, (enum memory_owner)j,
                                     stage->memory);
        }
    }
    CHECK(false); /* each part of a checkpoint lies in a row that is copied */
    return NULL;
}

/* States in 8 bits: their description points to codes and to scales. Split
 * masters are numbers in the copy. */
static status copy_codes(struct snapshot *snapshot, struct saved_part *part)
{
    const struct state_codes *from = part->data;
    struct state_codes *to;
    void *memory;

    if (from->codes == NULL) {
        part->data = copied(snapshot, from->masters.lower.data);
        part->decode = NULL;
        return OK;
    }
    TRY(arena_take(&snapshot->arena, sizeof *to, &memory));
    to = memory;
    *to = *from;
    to->codes = copied(snapshot, from->codes);
    to->scales = copied(snapshot, from->scales);
    part->data = to;
    return OK;
}

status snapshot_build(struct snapshot *snapshot, const struct stage *stages,
                      int count, const struct session_parts *parts)
{
    void *memory;

    *snapshot = (struct snapshot){.stages = stages, .count = count};
    arena_init(&snapshot->arena, "parts of a snapshot", 0);
    TRY(arena_take_array(&snapshot->arena, (size_t)parts->count + 1,
                         sizeof *snapshot->parts, &memory));
    snapshot->parts = memory;
    if (parts->count > 0)
        memcpy(memory, parts->items,
               (size_t)parts->count * sizeof *parts->items);
    for (int i = 0; i < parts->count; i++) {
        struct saved_part *part = &snapshot->parts[i];

        if (part->data == NULL) continue; /* another rank answers for it */
        if (part->decode != NULL) TRY(copy_codes(snapshot, part));
        else part->data = copied(snapshot, part->data);
    }
    return OK;
}

void snapshot_free(struct snapshot *snapshot)
{
    arena_free(&snapshot->arena);
    *snapshot = (struct snapshot){.stages = NULL};
}

struct copying { const char *from; char *to; size_t bytes; };

static void copy_share(void *argument, int index, int count)
{
    const struct copying *copying = argument;
    int64_t first, last;

    threads_split((int64_t)copying->bytes, 4096, index, count, &first, &last);
    memcpy(copying->to + first, copying->from + first,
           (size_t)(last - first));
}

size_t snapshot_take(const struct snapshot *snapshot)
{
    size_t bytes = 0;

    for (int i = 0; i < snapshot->count; i++) {
        const struct stage *stage = &snapshot->stages[i];
        char *to = stage->memory[MEMORY_SNAPSHOT].data;

        if (stage->memory[MEMORY_SNAPSHOT].bytes == 0) continue;
        for (int j = 0; j < MEMORY_OWNERS; j++) {
            const struct memory_row *row = &stage->memory[j];
            struct copying copying = {stage->host[j], to, row->bytes};

            if (!stage_saves(stage, (enum memory_owner)j)) continue;
            if (row->bytes > 0 && joins(stage, j))
                stage_join_masters(stage, to);
            else if (row->bytes > 0)
                threads_run(stage->threads, copy_share, &copying);
            const size_t copied = stage_copied_bytes(
                stage, (enum memory_owner)j, stage->memory);

            to += copied;
            bytes += copied;
        }
    }
    return bytes;
}
