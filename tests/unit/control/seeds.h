/* SPDX-License-Identifier: Apache-2.0 */
/* seeds.h - many seeds of a simulation: SEED=N runs one, SEEDS=N so many. */
#ifndef LOCKSTEP_TESTS_UNIT_CONTROL_SEEDS_H
#define LOCKSTEP_TESTS_UNIT_CONTROL_SEEDS_H

#include <stdio.h>
#include <stdlib.h>

#include "tests/test.h"

struct seeds {
    uint64_t usual;                /* how many */
    bool (*holds)(uint64_t seed);  /* prints what does not */
    const int *incidents, *generations; /* of the seed that ran last */
    uint64_t only, most;           /* what was asked for */
    int failed, all_incidents, all_generations;
};

static inline uint64_t seeds_number(const char *name, uint64_t other)
{
    const char *text = getenv(name);

    return text != NULL ? strtoull(text, NULL, 10) : other;
}

static inline void seeds_run(struct seeds *of)
{
    of->only = seeds_number("SEED", 0);
    of->most = seeds_number("SEEDS", of->usual);
    for (uint64_t seed = of->only > 0 ? of->only : 1;
         seed <= (of->only > 0 ? of->only : of->most) && of->failed < 5;
         seed++) {
        of->failed += !of->holds(seed);
        of->all_incidents += *of->incidents;
        of->all_generations += *of->generations;
    }
}

/* Once clocks are real again. */
static inline void seeds_check(const struct seeds *of)
{
    printf("%d incidents, %d generations\n", of->all_incidents,
           of->all_generations);
    EQUAL_INT(of->failed, 0);
    CHECK(of->only > 0 || of->all_incidents > (int)of->most);
}

#endif
