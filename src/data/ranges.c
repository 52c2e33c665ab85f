/* SPDX-License-Identifier: Apache-2.0 */
/* ranges.c - samples of a run's order that are left out. */
#include "data/ranges.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"

void ranges_free(struct ranges *ranges)
{
    memory_free(ranges->items);
    *ranges = (struct ranges){0};
}

static status make_room(struct ranges *ranges)
{
    const int capacity = 2 * ranges->capacity + 4;
    void *memory;

    if (ranges->count < ranges->capacity) return OK;
    TRY(memory_take((size_t)capacity, sizeof *ranges->items, &memory));
    if (ranges->count > 0)
        memcpy(memory, ranges->items,
               (size_t)ranges->count * sizeof *ranges->items);
    memory_free(ranges->items);
    ranges->items = memory;
    ranges->capacity = capacity;
    return OK;
}

status ranges_add(struct ranges *ranges, int64_t first, int64_t end)
{
    struct range *items;
    int at = 0, after;

    if (first >= end) return OK;
    TRY(make_room(ranges));
    items = ranges->items;
    while (at < ranges->count && items[at].end < first) at++;
    for (after = at; after < ranges->count && items[after].first <= end;
         after++) {
        if (items[after].first < first) first = items[after].first;
        if (items[after].end > end) end = items[after].end;
    }
    memmove(items + at + 1, items + after,
            (size_t)(ranges->count - after) * sizeof *items);
    items[at] = (struct range){first, end};
    ranges->count += 1 - (after - at);
    return OK;
}

int64_t ranges_at(const struct ranges *ranges, int64_t from, int64_t index)
{
    int64_t place = from + index;

    for (int i = 0; i < ranges->count; i++) {
        const struct range *range = &ranges->items[i];
        const int64_t first = range->first > from ? range->first : from;

        if (range->end <= from) continue;
        if (first > place) break;
        place += range->end - first;
    }
    return place;
}

int64_t ranges_count(const struct ranges *ranges, int64_t first, int64_t end)
{
    int64_t count = 0;

    for (int i = 0; ranges != NULL && i < ranges->count; i++) {
        const struct range *range = &ranges->items[i];
        const int64_t a = range->first > first ? range->first : first;
        const int64_t b = range->end < end ? range->end : end;

        if (a < b) count += b - a;
    }
    return count;
}

/* ---- rows ---- */

static bool read_row(const char *row, int64_t *first, int64_t *count)
{
    char *end;

    errno = 0;
    *first = strtoll(row, &end, 10);
    if (end == row || *first < 0) return false;
    row = end;
    *count = strtoll(row, &end, 10);
    if (end == row || *count < 1 || errno != 0) return false;
    return end[strspn(end, " \t")] == '\0' && *first <= INT64_MAX / 2 &&
           *count <= INT64_MAX / 2;
}

status ranges_read(struct ranges *ranges, const char *const *rows, int count)
{
    int64_t first, length;

    for (int i = 0; i < count; i++) {
        if (!read_row(rows[i], &first, &length))
            FAIL(ERR_CONFIG, "data.skip, row %d: '%s' is not FIRST COUNT, a "
                 "sample of the order from 0 and how many are left out",
                 i + 1, rows[i]);
        TRY(ranges_add(ranges, first, first + length));
    }
    return OK;
}

void ranges_write(const struct ranges *ranges, struct json_writer *writer)
{
    json_write_array(writer);
    for (int i = 0; i < ranges->count; i++) {
        const struct range *range = &ranges->items[i];

        json_write_array(writer);
        json_write_integer(writer, range->first);
        json_write_integer(writer, range->end - range->first);
        json_write_array_end(writer);
    }
    json_write_array_end(writer);
}

static bool is_pair(const struct json *pair)
{
    return pair->kind == JSON_ARRAY && pair->count == 2 &&
           pair->items[0].kind == JSON_INTEGER &&
           pair->items[1].kind == JSON_INTEGER &&
           pair->items[0].integer >= 0 && pair->items[1].integer > 0 &&
           pair->items[0].integer <= INT64_MAX / 2 &&
           pair->items[1].integer <= INT64_MAX / 2;
}

status ranges_join(struct ranges *ranges, const struct json *object,
                   const char *source, const char *key)
{
    const struct json *list = json_get(object, key);

    if (list == NULL) return OK;
    if (list->kind != JSON_ARRAY)
        FAIL(ERR_FORMAT, "%s: %s is not an array of ranges", source, key);
    for (int i = 0; i < list->count; i++) {
        const struct json *pair = &list->items[i];

        if (!is_pair(pair))
            FAIL(ERR_FORMAT, "%s: %s, item %d is not [first, count]", source,
                 key, i);
        TRY(ranges_add(ranges, pair->items[0].integer,
                       pair->items[0].integer + pair->items[1].integer));
    }
    return OK;
}
