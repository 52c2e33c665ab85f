/* SPDX-License-Identifier: Apache-2.0 */
/* inventory.h - which elements of the whole model's numbers a rank has, where
 * they lie, and for which of them it answers.
 *
 * The only place that knows how a layout divides weights, states and
 * gradients. Checkpoints, imports and proofs walk the spans and runs made
 * here: every element that is held is loaded and compared; of the replicas of
 * an element (on ranks that share the batch, on ranks of the tensor axis, on
 * two stages of a pipeline) exactly one is owned, and that one is saved. */
#ifndef LOCKSTEP_STEP_INVENTORY_H
#define LOCKSTEP_STEP_INVENTORY_H

#include "plan/stage.h"
#include "step/team.h"

enum inventory_kind {
    INVENTORY_WEIGHT, INVENTORY_STATE_0, INVENTORY_STATE_1, INVENTORY_STATE_2,
    INVENTORY_STATE_3, INVENTORY_STATE_4, INVENTORY_GRADIENT,
    INVENTORY_KINDS
};
_Static_assert(INVENTORY_GRADIENT - INVENTORY_STATE_0 ==
               (int)OPTIMIZER_STATES, "a kind for each slot of states");
/* All slots of the optimizer's states, as bits 1 << INVENTORY_.... */
enum { INVENTORY_STATES = (1 << INVENTORY_GRADIENT) -
                          (1 << INVENTORY_STATE_0) };

/* Local elements [first, last) of a parameter of one stage. */
struct inventory_span {
    enum inventory_kind kind;
    const struct param *param;   /* of the stage: order, whole shape */
    const struct mesh *mesh;     /* of the stage */
    const struct place *place;
    int64_t first, last;
    axis_set divided;            /* axes whose ranks hold other elements */
    enum dtype dtype;            /* of data, and of what is saved */
    void *data;                  /* where element `first` lies; codes: NULL */
    bool coded;                  /* in 8 bits: */
    struct state_codes codes;
    bool owned;                  /* no lower rank has the same stretch; but
                                  * for units that two ranks hold */
};

/* A state of one outside tensor that this rank has as a whole. */
struct inventory_whole {
    int order, tensor;    /* of the parameter; of param_outside */
    const struct optimizer_state *state;
    void *data;           /* [elements] */
    bool owned;           /* no lower rank of the pipe has it too */
};

struct inventory {
    struct program whole;   /* owned: the model as one rank would have it */
    struct optimizer_rule *rules; /* owned, of the whole's parameters */
    const char *prefix;     /* of layers' names outside */
    enum dtype dtype;       /* of all that is kept, but for states that are
                             * stored as bfloat16 */
    enum state_type type;   /* of states that may be narrow */
    struct inventory_span *spans;     /* owned */
    int count, capacity;
    struct inventory_whole *wholes;   /* owned */
    int whole_count, whole_capacity;
};

/* The part that one rank trains: its stages of the model, and the ranks that it
 * shares them with. */
struct inventory_of {
    const struct stage *stages; /* [count], open */
    int count;
    struct team *team;          /* NULL: alone */
};

/* Lists the contents of this rank's stages, which must outlive the list.
 * Collective over the team's world. */
status inventory_build(struct inventory *inventory,
                       const struct inventory_of *of);
void inventory_free(struct inventory *inventory);
/* The name of the numbers of a kind, for the parameter with this order:
 * "weight", "gradient" or the name of a state, "m". NULL: the parameter has
 * none of this kind with the shape of the weights. */
const char *inventory_name(const struct inventory *inventory, int order,
                           enum inventory_kind kind);

/* The type that they are saved in. */
enum dtype inventory_dtype(const struct inventory *inventory, int order,
                           enum inventory_kind kind);
/* out [count], of the inventory's type, = elements local, local + 1, ... of the
 * span, counted from its first. */
void inventory_read(const struct inventory *inventory,
                    const struct inventory_span *span, int64_t local,
                    int64_t count, void *out);

/* Runs of the span in the whole parameter; local_first counts from data. With
 * `owned` only those that this rank answers for. Returns how many. */
int inventory_runs(const struct inventory_span *span, bool owned,
              struct layout_run runs[LAYOUT_RUNS_MAX]);

#endif
