/* SPDX-License-Identifier: Apache-2.0 */
/* schedule.h - one training step of a pipeline, as plain data.
 *
 * For each pipeline rank, the actions it performs, in order. A schedule knows
 * no model, stream or communicator, so the executor, the simulator and the
 * pictures read the very same object.
 *
 *   stage      contiguous part of the model, 0 .. stages - 1 in forward order
 *   rank       pipeline rank; may run several stages (chunks of the model)
 *   direction  a micro-batch goes through places[0] or, from the micro-batch
 *              `turned` on, through places[1]: DualPipe keeps each stage on
 *              two ranks and sends half of the micro-batches the other way
 *   bundle     actions that run together: they begin when all that any of
 *              them needs is there, and what they make is there when all end
 *
 * Text form, one line a rank, actions separated by spaces (docs/schedules.md):
 *
 *   F0.2       forward of stage 0, micro-batch 2
 *   B0.2 W0.2  its backward for inputs, for weights
 *   F0.2<      the same for a micro-batch of direction 1
 *   B0.2+W0.2  two actions of one bundle
 *   SF RF      send what F made; receive what F needs (likewise SB, RB) */
#ifndef LOCKSTEP_SCHEDULE_SCHEDULE_H
#define LOCKSTEP_SCHEDULE_SCHEDULE_H

#include <stdbool.h>
#include <stdint.h>
#include "base/status.h"
#include "base/text.h"

enum action_kind {
    ACTION_FORWARD,          /* F  activations of a stage */
    ACTION_BACKWARD_INPUT,   /* B  gradient of the stage's input */
    ACTION_BACKWARD_WEIGHT,  /* W  gradient of the stage's parameters */
    ACTION_SEND_FORWARD,     /* SF from here on: added by schedule_lower */
    ACTION_RECEIVE_FORWARD,  /* RF stage is the one that receives */
    ACTION_SEND_BACKWARD,    /* SB */
    ACTION_RECEIVE_BACKWARD, /* RB */
    ACTION_KIND_COUNT
};
enum { ACTION_COMPUTE_COUNT = ACTION_SEND_FORWARD }; /* F, B and W */

struct action {
    int8_t kind;        /* enum action_kind */
    bool joined;        /* of the same bundle as the action before it */
    int16_t stage;
    int32_t microbatch;
};
struct action_list { struct action *items; int count, capacity; };

enum { STAGES_MAX = INT16_MAX, MICROBATCHES_MAX = 1 << 24 };

struct schedule {
    int ranks, stages, microbatches;
    int turned;                /* first micro-batch of direction 1;
                                * microbatches: there is none */
    bool lowered;              /* transfers are in the lists */
    bool verified;             /* as it is; schedule_add ends that */
    bool borrowed;             /* its places and lists are another one's, and
                                * nobody changes them */
    int returns;               /* schedule_returns; 0: nobody asked yet */
    int *places[2];            /* owned, [stages]; the second may be NULL */
    struct action_list *lists; /* owned, [ranks] */
};

/* From the row `name` of the table in build.c with its default chunks and
 * costs F = B = W (build.h takes more). The same on every rank: nothing is
 * sent. ERR_CONFIG: no such row (names the nearest), or it cannot serve these
 * numbers. */
status schedule_build(struct schedule *out, const char *name, int ranks,
                      int microbatches);
/* Complete (each action once, on its rank), ordered (B and W of a stage in
 * order of micro-batches, as sums take them) and free of deadlock. ERR_CONFIG
 * names the first action that is missing, doubled, misplaced, out of order or
 * can never start. */
status schedule_verify(const struct schedule *schedule);

/* Empty lists and unset places. ERR_CONFIG: numbers out of range. */
status schedule_begin(struct schedule *out, int ranks, int stages,
                      int microbatches);
/* The same lists and places again. */
status schedule_copy(struct schedule *out, const struct schedule *schedule);
/* Adds direction 1, all places unset, for micro-batches from `turned` on. */
status schedule_turn(struct schedule *schedule, int turned);
/* Room for `count` actions in the list of `rank`. */
status schedule_reserve(struct schedule *schedule, int rank, int count);
/* Appends to the list of `rank`. */
status schedule_add(struct schedule *schedule, int rank, struct action action);
void schedule_free(struct schedule *schedule);

static inline int schedule_direction(const struct schedule *schedule,
                                     int microbatch)
{
    return microbatch >= schedule->turned;
}

/* The rank that runs `stage` of `microbatch`. */
static inline int schedule_rank(const struct schedule *schedule, int stage,
                                int microbatch)
{
    return schedule->places[schedule_direction(schedule, microbatch)][stage];
}

/* Actions of the bundle that begins at items[first]. */
int schedule_bundle(const struct action_list *list, int first);

/* The rules, stated once: the 0 to 2 actions that must be complete before
 * `action` starts. Returns how many. */
int schedule_needs(const struct schedule *schedule, struct action action,
                   struct action needs[2]);

/* Most pairs of stage and micro-batch between their F and their W on any
 * rank. */
int schedule_held(const struct schedule *schedule);
/* Whether on `rank` each W stands right after the B of its micro-batch. */
bool schedule_fused(const struct schedule *schedule, int rank);

/* "F0.2<"; writes at most ACTION_BYTES. */
enum { ACTION_BYTES = 32 };
const char *action_text(char out[ACTION_BYTES],
                        const struct schedule *schedule, struct action action);
status schedule_write(const struct schedule *schedule, struct text *out);

#endif
