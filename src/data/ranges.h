/* SPDX-License-Identifier: Apache-2.0 */
/* ranges.h - samples of a run's order that are left out.
 *
 *   order   0 1 2 3 4 5 6 7 8 9 ...
 *   left out      [3, 6)
 *   read    0 1 2       6 7 8 9 ...
 *
 * A range may be added while a run goes on, as long as the run has not come to
 * it. Such a run reads the same samples as one that had the range from its
 * beginning. So a batch can be taken out of the data of a run, as if it had
 * never been there. */
#ifndef LOCKSTEP_DATA_RANGES_H
#define LOCKSTEP_DATA_RANGES_H

#include <stdint.h>
#include "base/json.h"
#include "base/status.h"

struct range { int64_t first, end; };

/* Ascending, with gaps between them. Zeroed: nothing is left out. */
struct ranges {
    struct range *items; /* owned, [count] */
    int count, capacity;
};

/* Rows "FIRST COUNT" (data.skip). ERR_CONFIG names the row. */
status ranges_read(struct ranges *ranges, const char *const *rows, int count);
void ranges_free(struct ranges *ranges);
/* Leaves [first, end) out as well; what touches becomes one range. */
status ranges_add(struct ranges *ranges, int64_t first, int64_t end);
/* Place in the order of read sample `index`, counted from place `from` on. */
int64_t ranges_at(const struct ranges *ranges, int64_t from, int64_t index);
/* Places of [first, end) that are left out; of NULL none. */
int64_t ranges_count(const struct ranges *ranges, int64_t first, int64_t end);

/* As an array of [first, count]. */
void ranges_write(const struct ranges *ranges, struct json_writer *writer);
/* Adds those of object[key], if there is one. ERR_FORMAT. */
status ranges_join(struct ranges *ranges, const struct json *object,
                   const char *source, const char *key);

#endif
