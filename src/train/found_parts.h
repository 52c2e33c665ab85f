/* SPDX-License-Identifier: Apache-2.0 */
/* found_parts.h - functions that the files of found_layouts.h share. */
#ifndef LOCKSTEP_TRAIN_FOUND_PARTS_H
#define LOCKSTEP_TRAIN_FOUND_PARTS_H

#include "train/found_layouts.h"

/* Plans or times the candidate, with the numerics grid that the options have or
 * one that the layout needs. */
typedef status found_plan_one(struct forecast *f, struct candidate *c);
status found_plan(struct found_layouts *h, struct candidate *c, bool grid,
                  found_plan_one *plan);
/* The step as `plan --time` predicts it. */
found_plan_one found_time_as_plan;

/* The objective of search.found[i]: smaller is better. */
double found_score(const struct found_layouts *h, int i);
/* Sorts h->kept by it. */
void found_sort(struct found_layouts *h);

/* jobs_run on the search's threads; thread `index` plans with found_copy, which
 * has options and planned stages of its own. */
void found_run_jobs(struct found_layouts *h, int count,
                    void (*body)(void *argument, int job, int index),
                    void *argument);
struct found_layouts *found_copy(struct found_layouts *h, int index);

/* Times the best as `plan` does, for so many instructions in all; the others
 * by shorter steps, or by their likeness. */
void found_time_kept(struct found_layouts *h);

#endif
