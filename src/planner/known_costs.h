/* SPDX-License-Identifier: Apache-2.0 */
/* known_costs.h - instructions of a list whose costs are known, by what decides
 * them: a step repeats the same few for each micro-batch. */
#ifndef LOCKSTEP_PLANNER_KNOWN_COSTS_H
#define LOCKSTEP_PLANNER_KNOWN_COSTS_H

#include "list/instruction.h"

/* `seconds` are a part of what decides where equal instructions may differ; 0
 * elsewhere. */
struct known_cost {
    const struct instruction *instruction; /* borrowed, of the list at hand */
    double seconds;
    int kind;              /* of struct steps */
};

struct known_costs {
    struct known_cost *items; /* owned, [capacity], by hash */
    size_t count, capacity;   /* a power of two */
};

/* The kind of an equal instruction; -1: there was none. */
int known_find(const struct known_costs *known,
               const struct instruction *instruction, double seconds);
status known_put(struct known_costs *known, const struct known_cost *cost);
/* Forgets all, for another list. */
void known_clear(struct known_costs *known);
void known_free(struct known_costs *known);

#endif
