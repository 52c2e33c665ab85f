/* SPDX-License-Identifier: Apache-2.0 */
/* kind.h - the table of optimizers, and which of them has which parameter.
 *
 * A kind is one row: its states and what one step does. Everything that must
 * know states (the memory plan, the inventory, checkpoints, proofs) walks that
 * row, so a new optimizer is a file with a struct optimizer_kind, a line in
 * the table of kind.c, and its tests. Hooks, one of apply and whole at least:
 *   start        states of step 0 that are not zero, for one parameter
 *   apply        one step of one parameter: this rank's own elements of it
 *   whole        instead: hooks that see each outside tensor as a whole, on one
 *                of the ranks that share it (optimizer/whole_tensors.h)
 *   average      sets item->weight to the values that validation, checkpoints
 *                and exports get instead of the trained weights; these are kept
 *                in the memory of the gradients meanwhile
 * Each parameter has one rule, computed at start by rules_build from its name
 * and shape alone, so every rank and every layout finds the same. */
#ifndef LOCKSTEP_OPTIMIZER_KIND_H
#define LOCKSTEP_OPTIMIZER_KIND_H

#include "mesh/param.h"

struct update;
struct update_item;
struct update_call;
struct whole_kind;

/* The largest number of states of a parameter; the last is its moving average
 * (average.h). */
enum { OPTIMIZER_STATES = 5, STATE_AVERAGE = OPTIMIZER_STATES - 1 };

enum state_shape {
    STATE_ELEMENTS, /* a number for each weight, divided as what updates it */
    STATE_WHOLE,    /* so many numbers as `elements` says for each outside
                     * tensor, on the one rank that owns it (mesh/matrices.h);
                     * of a vector: 1 row */
    STATE_KEPT      /* the weights that are trained, in checkpoints of kinds
                     * with an average; no memory of its own */
};

/* How a number of a state lies in memory. Arithmetic and checkpoints have the
 * real type in any case. */
enum state_type { STATE_REAL, STATE_BFLOAT16, STATE_INT8 };
/* ERR_CONFIG: not float32, bfloat16 or int8 (names the nearest). */
status state_type_parse(enum state_type *type, const char *name);

struct optimizer_state {
    const char *name;    /* kind of its tensors in checkpoints: "m" */
    const char *title;   /* of its memory: "first moments" */
    enum state_shape shape;
    bool narrow;         /* optimizer.state_dtype says its type */
    bool positive;       /* never below zero */
    int64_t (*elements)(int64_t rows, int64_t cols); /* STATE_WHOLE */
};

/* Which of the rates that a model's width asks for a kind learns at. */
enum rate_rule {
    RATES_ADAM, /* steps do not grow with the gradient */
    RATES_SGD,  /* steps grow as the gradient does */
    RATES_NONE  /* neither, and no rule is known */
};
struct rate_factors {
    double adam, sgd;
    double gradient; /* of what the norm that clips counts, and, over it, of
                      * epsilon */
};

struct optimizer_kind {
    const char *name;    /* of optimizer.name */
    const char *doc;
    struct optimizer_state states[OPTIMIZER_STATES]; /* name NULL: none */
    bool apart;          /* apply can leave old weights and states as they are,
                          * and write new ones elsewhere */
    bool matrices;       /* of blocks only: vectors, embedding and head have
                          * adamw */
    enum rate_rule rates;
    status (*start)(const struct update *, const struct update_item *);
    status (*apply)(const struct update *, const struct update_item *);
    const struct whole_kind *whole;
    status (*average)(const struct update *, const struct update_item *);
};

/* ERR_CONFIG names the nearest. */
status optimizer_find(const struct optimizer_kind **kind, const char *name);
extern const struct optimizer_kind optimizer_adamw, optimizer_lion,
    optimizer_sgd, optimizer_muon,
    optimizer_adafactor, optimizer_soap,
    optimizer_schedule_free;

/* Settings of single parameters (groups.h); zeroed: none. */
struct groups {
    const char *const *rows; /* borrowed, of optimizer.groups */
    int count;
    const char *prefix;      /* borrowed: of layers' names outside */
    const struct rate_factors *rates; /* borrowed, by order: what the model's
                              * width asks for (models/mup.h); NULL: 1 */
    bool adapters;           /* all but low-rank adapters are frozen */
};

/* The options of a run's optimizer; zeroed: adamw everywhere. */
struct optimizer_choice {
    const struct optimizer_kind *kind; /* NULL: adamw */
    enum state_type states;            /* of states that may be narrow */
    bool split;                        /* masters (kernels/masters.h) */
    struct groups groups;
    double average;                    /* decay of a moving average of the
                                        * weights; 0: none */
};

/* How one parameter is updated. Negative: as the run's (struct update). */
struct optimizer_rule {
    const struct optimizer_kind *kind;
    double lr;             /* times the rate of the step */
    double gradient;       /* what its gradient counts in the norm */
    double weight_decay;
    double beta1, beta2;
    double average;        /* decay of its moving average; 0: none */
    bool frozen;           /* no states, no update, no part of the norm */
    bool still;            /* a selection bias that counts do not move */
};

static inline bool writes_apart(const struct optimizer_rule *rule)
{
    return rule->kind->apart && !rule->frozen;
}

/* rules [table->count]. */
status rules_build(struct optimizer_rule *rules,
                   const struct param_table *table,
                   const struct optimizer_choice *choice);
/* The state in a slot of a parameter with this rule; NULL: it has none. */
const struct optimizer_state *rule_state(const struct optimizer_rule *rule,
                                         int slot);

#endif
