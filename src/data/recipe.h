/* SPDX-License-Identifier: Apache-2.0 */
/* recipe.h - the rows of data.mixture and data.phases, read.
 *
 *   mixture   NAME WEIGHT PATH...        web 0.7 corpora/web
 *                                        code 0.3 field=content corpora/code
 *   phases    STEP NAME=WEIGHT...        2000 web=0.5 code=0.5
 *
 * A phase keeps the weights that it does not name. Words are parted by spaces;
 * a path that has one goes into double quotes. */
#ifndef LOCKSTEP_DATA_RECIPE_H
#define LOCKSTEP_DATA_RECIPE_H

#include "base/arena.h"
#include "base/status.h"

struct recipe_source {
    const char *name;
    const char **paths; /* [path_count] */
    int path_count;
};

struct recipe {
    struct arena arena; /* owns everything */
    struct recipe_source *sources; /* [count] */
    int count, phases;
    double *weights;    /* [phases, count]; phase 0 is the mixture's */
    int64_t *steps;     /* [phases] from which on; the first is 0 */
};

status recipe_read(struct recipe *recipe, const char *const *mixture,
                   int count, const char *const *phases, int phase_count);
void recipe_free(struct recipe *recipe);

#endif
