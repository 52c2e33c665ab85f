/* SPDX-License-Identifier: Apache-2.0 */
/* policy.h - decisions about a step that went wrong: its loss or gradient norm
 * is not finite, or far above that of earlier steps.
 *
 * A window holds loss and gradient norm of the last W updates. With
 *
 *   mean, sigma  of its losses: sums in float64, oldest first, divided by W;
 *                sigma = sqrt(sum of (loss - mean)^2 / W), at least mean / 100
 *   median       of its norms: the middle one, or (a + b) / 2 of the two
 *
 * a step is a spike when loss > mean + k sigma or norm > factor median, as soon
 * as the window is full. These are functions of the loss and the norm of steps
 * alone, which are the same on every rank and in every layout: so is what is
 * decided. Steps that were undone or skipped leave nothing in the window.
 * Source of the remedy (go back, leave out the batches): Chowdhery et al. 2022,
 * arXiv:2204.02311, section 5.1. */
#ifndef LOCKSTEP_STEP_POLICY_H
#define LOCKSTEP_STEP_POLICY_H

#include <stdbool.h>
#include <stdint.h>
#include "base/json.h"
#include "base/options.h"
#include "base/status.h"

enum policy_action {
    POLICY_NONE, POLICY_STOP, POLICY_WARN, POLICY_SKIP, POLICY_REWIND,
    POLICY_REPLAY /* the step gave other numbers when it was made again: the
                   * machine was wrong, not the data. No option asks for it */
};

struct policy {
    enum policy_action on_nan, on_spike;
    int64_t window;     /* steps */
    double sigma, norm; /* k, factor; 0: not looked at */
    int64_t limit;      /* steps that are skipped or rewound in a run */
    double *losses, *norms, *sorted; /* owned, [window]; oldest first */
    int64_t count;      /* of them there are */
};

/* Why a step is judged; replays have the last two, too
 * (train/trainer_check.c). */
enum policy_cause {
    POLICY_CAUSE_NONE, POLICY_CAUSE_NAN, POLICY_CAUSE_SPIKE,
    POLICY_CAUSE_REPLICA, POLICY_CAUSE_REPEAT, POLICY_CAUSES
};
/* The numbers that were wrong; TARGETS: no token of the batch counts. */
enum policy_subject {
    POLICY_LOSS, POLICY_NORM, POLICY_TARGETS, POLICY_WEIGHTS, POLICY_STATES,
    POLICY_GRADIENTS, POLICY_SUBJECTS
};
extern const char *const policy_causes[POLICY_CAUSES + 1];     /* "nan" */
extern const char *const policy_subjects[POLICY_SUBJECTS + 1]; /* "loss" */

/* The decision about one step, and the reason. */
struct policy_verdict {
    enum policy_action action;
    enum policy_cause cause;
    enum policy_subject what;
    double value, threshold; /* threshold NaN: it is not finite */
};

/* ERR_CONFIG: an action that there is not (names the nearest). */
status policy_build(struct policy *policy, const struct options *options);
void policy_free(struct policy *policy);
const char *policy_action_name(enum policy_action action);
/* Whether the window is of use. */
static inline bool policy_watches(const struct policy *policy)
{
    return policy->on_spike != POLICY_NONE;
}
/* Whether a step may be undone. */
static inline bool policy_rewinds(const struct policy *policy)
{
    return policy->on_nan == POLICY_REWIND ||
           policy->on_spike == POLICY_REWIND;
}

/* The option that asks for rewinding ("train.on_nan"), or NULL. */
const char *policy_rewind_option(const struct options *options);

/* Before the update of a step. */
void policy_judge(const struct policy *policy, double loss, double norm,
                  struct policy_verdict *out);
/* After it: the step is part of the window. */
void policy_accept(struct policy *policy, double loss, double norm);

/* The window, for a checkpoint; nothing unless it is watched. Reading takes
 * the last of what is there. ERR_FORMAT. */
void policy_write(const struct policy *policy, struct json_writer *writer);
status policy_read(struct policy *policy, const struct json *state,
                   const char *source);

#endif
