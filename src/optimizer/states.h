/* SPDX-License-Identifier: Apache-2.0 */
/* states.h - the rules of a table's parameters, and where the optimizer's
 * states of this rank lie: slot by slot, in each the parameters that have such
 * a state, one after the other.
 *
 *   slot 0  [m of parameter 0 |m of 2 |buffer of 3 |...]   a memory row each
 *   slot 1  [v of parameter 0 |v of 2 |...]
 *
 * Of a state with the shape of the weights a rank has the elements that it
 * updates (shard_range of its own); nobody else has, or asks for, the others.
 * So frozen parameters, and those whose kind has no such state, take nothing.
 */
#ifndef LOCKSTEP_OPTIMIZER_STATES_H
#define LOCKSTEP_OPTIMIZER_STATES_H

#include "mesh/shard.h"
#include "optimizer/kind.h"

/* What this rank has of one state of one parameter. */
struct state_place {
    int64_t elements;     /* 0: nothing */
    size_t at;            /* bytes, in the memory of the slot */
};

struct states {
    struct optimizer_rule *rules;  /* owned, [parameters] */
    struct state_place *places;    /* owned, [parameters][OPTIMIZER_STATES] */
    size_t bytes[OPTIMIZER_STATES];
    const char *titles[OPTIMIZER_STATES]; /* NULL: states_title */
    enum dtype real;
};

status states_plan(struct states *states, const struct param_table *table,
                   const struct shards *shards,
                   const struct optimizer_choice *choice, enum dtype real);
void states_free(struct states *states);

/* Of a slot's memory. */
const char *states_title(const struct states *states, int slot);
const struct state_place *states_place(const struct states *states, int param,
                                       int slot);

#endif
