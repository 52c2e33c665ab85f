/* SPDX-License-Identifier: Apache-2.0 */
/* layouts.h - the rows of `verify`: layouts under which the same steps are
 * trained. A layout is a line of words: ranks=4 mesh.tensor=2 zero=zero1. */
#ifndef LOCKSTEP_CLI_LAYOUTS_H
#define LOCKSTEP_CLI_LAYOUTS_H

#include "base/options.h"
#include "cli/command.h"
#include "proof/trial.h"

enum { LAYOUT_BYTES = 512 };

enum verdict {
    VERDICT_EXACT,   /* every bit */
    VERDICT_WITHIN,  /* what the layout claims, outside the grid */
    VERDICT_DIFFERS,
    VERDICT_FAILED,  /* did not run: see reason */
    VERDICT_REFUSED  /* is not legal here, and need not be */
};

struct layout {
    char text[LAYOUT_BYTES];
    int ranks;
    bool optional;        /* counts only where it is legal ("?" before it) */
    bool own;             /* the mesh of the configuration stays */
    char schedule[32], zero[96]; /* "" without a pipeline */
    struct trial trial;   /* the first layout keeps the whole, others losses */
    struct trial_difference difference;
    double claims;        /* largest difference; 0: EXACT */
    enum verdict verdict;
    char reason[480];
    bool illegal;         /* refused before anything ran */
};

struct layouts {
    struct layout *items; /* owned (memory_grow) */
    int count, capacity;
};

status layouts_add(struct layouts *layouts, bool optional, const char *format,
                   ...) __attribute__((format(printf, 3, 4)));
/* One layout a line; # begins a comment. */
status layouts_read(struct layouts *layouts, const char *path);
/* A covering set for up to `ranks` ranks: every axis alone, every schedule,
 * every preset of zero, and mixtures. All optional. only: layouts of fewer
 * ranks are left out. */
status layouts_usual(struct layouts *layouts, int ranks, bool only);
void layouts_free(struct layouts *layouts);
/* The layout without what the reader of a legend knows: "ranks=4 tensor=2
 * zb-h1". */
void layout_label(const struct layout *layout, char out[LAYOUT_BYTES]);

/* The layout that the configuration itself has, if that is more than one
 * rank. */
status layouts_own(struct layouts *layouts, struct arguments *arguments);
/* The configuration with the words of the layout, which replace its mesh unless
 * the layout is its own. OK with layout->reason: the layout has a word that is
 * no option, or is not legal here. */
status layout_options(struct layout *layout, struct arguments *arguments,
                      const char *cache, struct options_set *set);

#endif
