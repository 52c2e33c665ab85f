/* SPDX-License-Identifier: Apache-2.0 */
/* search_families.h - families of a search: all candidates with one value of
 * one choice. Inside the search alone. */
#ifndef LOCKSTEP_PLANNER_SEARCH_FAMILIES_H
#define LOCKSTEP_PLANNER_SEARCH_FAMILIES_H

#include "planner/search.h"

enum choice { CHOICE_TENSOR, CHOICE_CONTEXT, CHOICE_PIPE, CHOICE_EXPERT,
              CHOICE_FOLD, CHOICE_MICRO, CHOICE_ZERO, CHOICE_RECOMPUTE,
              CHOICE_SCHEDULE, CHOICES };

/* How a schedule's pipeline idles: in the share that its chunks leave; with
 * late W in the gaps; not where micro-batches are as many as fill a V; or
 * hardly. */
enum idle { IDLE_CHUNKS, IDLE_LATE, IDLE_V, IDLE_NOT };
struct search_schedule {
    const char *name;
    int chunks;
    bool whole_rounds;     /* of micro-batches, one for each rank */
    enum idle idle;
    bool named;            /* tried only where the request names it */
};
enum { SEARCH_SCHEDULES = 19 };
extern const struct search_schedule search_schedules[SEARCH_SCHEDULES];
/* The row of a layout's schedule. */
int search_schedule_of(const struct layout *layout);

/* ZeRO 0 to 3; sets of shards follow. */
enum { PRESETS_LAST = 3 };

/* Axes whose ranks divide the experts, too. */
enum fold { FOLD_TENSOR = 1, FOLD_CONTEXT = 2, FOLDS = 4 };

/* The layout's value of each choice; `schedule`: its row. */
void families_values(const struct layout *layout, int schedule,
                     int out[CHOICES]);
/* NULL: no candidate had the value yet. */
struct family *families_find(struct search *search, int choice, int value);
/* The families of such a layout, made where they are missing; without experts
 * those of experts stay NULL. `out`: those of the layout before, or NULL. */
void families_of(struct search *search, const struct layout *layout,
                 int schedule, bool experts, struct family *out[CHOICES]);
/* Adds what another search counted; the family of this one. */
struct family *families_join(struct search *search,
                             const struct family *from);
/* Forgets those without a candidate. */
void families_close(struct search *search);

#endif
