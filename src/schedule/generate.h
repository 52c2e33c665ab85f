/* SPDX-License-Identifier: Apache-2.0 */
/* generate.h - the generators behind the rows of build.c, by file. Each begins
 * *out and fills it; build.c frees it after a failure. */
#ifndef LOCKSTEP_SCHEDULE_GENERATE_H
#define LOCKSTEP_SCHEDULE_GENERATE_H

#include "schedule/build.h"

typedef status schedule_fill(struct schedule *out,
                             const struct schedule_request *request);

/* one_stage.c */
schedule_fill fill_gpipe, fill_gpipe_early, fill_1f1b, fill_1f1b_early;
schedule_fill fill_zb_h1, fill_zb_h2;
/* interleaved.c */
schedule_fill fill_interleaved, fill_breadth_first;
/* zero_bubble.c */
schedule_fill fill_zb_1p, fill_zb_2p;
/* vee.c */
schedule_fill fill_zb_v, fill_v_half, fill_v_min;
/* dualpipe.c */
schedule_fill fill_dualpipe, fill_dualpipev;

/* Memory in integers, so that every rank decides alike: one micro-batch that
 * has seen F holds MEMORY_UNIT. */
enum { MEMORY_UNIT = 1 << 20 };

static inline struct action action_of(enum action_kind kind, int stage,
                                      int microbatch, bool joined)
{
    return (struct action){.kind = (int8_t)kind, .joined = joined,
                           .stage = (int16_t)stage, .microbatch = microbatch};
}

/* B and W; together as one bundle, or B first and W after it. */
static inline status add_backward(struct schedule *s, int rank, int stage,
                                  int microbatch, bool together)
{
    TRY(schedule_add(s, rank, action_of(ACTION_BACKWARD_INPUT, stage,
                                        microbatch, false)));
    return schedule_add(s, rank, action_of(ACTION_BACKWARD_WEIGHT, stage,
                                           microbatch, together));
}

#endif
