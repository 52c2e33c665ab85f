/* SPDX-License-Identifier: Apache-2.0 */
/* timeline.h - the measured or predicted actions of a step, and their
 * picture. */
#ifndef LOCKSTEP_SCHEDULE_TIMELINE_H
#define LOCKSTEP_SCHEDULE_TIMELINE_H

#include "schedule/schedule.h"

/* Actions of one bundle share its time in proportion to what each would
 * take. */
struct timeline_span {
    struct action action;
    int rank;
    int64_t begin_ns, end_ns;
    int instruction;    /* of the rank's list of a step, the last piece; 0 of a
                         * prediction */
};

struct timeline {
    struct timeline_span *spans; /* owned */
    int count, capacity;
};

/* Room for `count` spans in all. */
status timeline_reserve(struct timeline *timeline, int count);
status timeline_add(struct timeline *timeline, struct timeline_span span);
int64_t timeline_end_ns(const struct timeline *timeline);
void timeline_free(struct timeline *timeline);

/* One line a rank of at most `columns` letters, and a legend. */
status timeline_draw_text(const struct timeline *timeline,
                          const struct schedule *schedule, int columns,
                          struct text *out);
/* The title stands above; under each rank's row one of what was predicted, if
 * anything was. */
struct timeline_drawing {
    const struct timeline *timeline, *predicted; /* NULL: none */
    const char *title;
};
status timeline_draw_svg(const struct timeline_drawing *drawing,
                         const struct schedule *schedule, struct text *out);

#endif
