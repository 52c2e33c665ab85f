/* SPDX-License-Identifier: Apache-2.0 */
/* predict.h - a step before it runs: seconds, where they go, memory. */
#ifndef LOCKSTEP_PLANNER_PREDICT_H
#define LOCKSTEP_PLANNER_PREDICT_H

#include "mesh/layout.h"
#include "planner/steps.h"

/* The parts of the critical path that are shown by name. */
enum { PATH_PARTS = 12 };
struct path_part {
    enum step_item item;
    int rank, stage;       /* stage -1: of the step */
    double seconds;
    int count;
};

struct prediction {
    double step_s, tokens_per_s;
    double mfu, mfu_noncausal, hfu; /* of the 16-bit or 32-bit peak */
    double bubble_rate;    /* 1 - work / longest span of F, B and W */
    double idle_share;     /* of all ranks' time in the step: not computing */
    double exposed_s[AXIS_COUNT]; /* on the critical path */
    double path_s[CAUSES]; /* the critical path by cause; its sum is step_s */
    double guessed_share;  /* of the critical path */
    double resource_s[CLOCK_RESOURCES];  /* busy, mean over ranks */
    double memory_bytes;   /* of the largest rank */
    int memory_position;   /* of the pipe, where that is */
    double memory_limit;
    double offloaded_bytes; /* of that rank, in host memory or on disk */
    bool fits;
    double sent_network;   /* bytes that a rank sends between nodes */
    struct path_part parts[PATH_PARTS]; /* the longest first */
    int part_count;
    double body_s;         /* from the first F to the last backward pass */
};

/* Conditions beside costs; all may be NULL or 0. */
struct weather {
    const double *slow, *slow_link; /* of each pipe position */
    double memory_bytes;   /* planned to the byte; 0: closed form */
    double max_memory;     /* limit; 0: the machine's */
};
/* `steps` is built by the caller with the same cost, and is left with the
 * times of every item. */
status predict_steps(struct prediction *out, struct steps *steps,
                     const struct cost *cost, const struct weather *weather);
/* Builds, predicts and frees. */
status predict(struct prediction *out, const struct cost *cost,
               const struct weather *weather);

#endif
