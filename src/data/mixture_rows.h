/* SPDX-License-Identifier: Apache-2.0 */
/* mixture_rows.h - the rows of data.mixture and data.phases, read.
 *
 *   mixture   NAME WEIGHT PATH...        web 0.7 corpora/web
 *                                        code 0.3 field=content corpora/code
 *   phases    STEP NAME=WEIGHT...        2000 web=0.5 code=0.5
 *
 * A phase keeps the weights that it does not name. Words are parted by spaces;
 * a path that has one goes into double quotes. */
#ifndef LOCKSTEP_DATA_MIXTURE_ROWS_H
#define LOCKSTEP_DATA_MIXTURE_ROWS_H

#include "base/arena.h"
#include "base/status.h"

struct mixture_source {
    const char *name;
    const char **paths; /* [path_count] */
    int path_count;
};

struct mixture_rows {
    struct arena arena; /* owns everything */
    struct mixture_source *sources; /* [count] */
    int count, phases;
    double *weights;    /* [phases, count]; phase 0 is the mixture's */
    int64_t *steps;     /* [phases] from which on; the first is 0 */
};

status mixture_rows_read(struct mixture_rows *rows, const char *const *mixture,
                         int count, const char *const *phases, int phase_count);
void mixture_rows_free(struct mixture_rows *rows);

#endif
