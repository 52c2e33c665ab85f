/* SPDX-License-Identifier: Apache-2.0 */
/* timeline.c - a list of spans, and how long it is. */
#include "schedule/timeline.h"

#include "base/arena.h"

status timeline_reserve(struct timeline *timeline, int count)
{
    void *spans = timeline->spans;

    if (count <= timeline->capacity) return OK;
    TRY(memory_grow(&spans, (size_t)count, sizeof *timeline->spans));
    timeline->spans = spans;
    timeline->capacity = count;
    return OK;
}

status timeline_add(struct timeline *timeline, struct timeline_span span)
{
    CHECK(timeline->count < 1 << 29);
    if (timeline->count == timeline->capacity)
        TRY(timeline_reserve(timeline, 2 * timeline->count + 256));
    timeline->spans[timeline->count++] = span;
    return OK;
}

int64_t timeline_end_ns(const struct timeline *timeline)
{
    int64_t end = 0;

    for (int i = 0; i < timeline->count; i++)
        if (timeline->spans[i].end_ns > end) end = timeline->spans[i].end_ns;
    return end;
}

void timeline_free(struct timeline *timeline)
{
    memory_free(timeline->spans);
    *timeline = (struct timeline){0};
}
