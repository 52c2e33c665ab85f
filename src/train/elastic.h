/* SPDX-License-Identifier: Apache-2.0 */
/* elastic.h - the layouts of a run that loses ranks and gets them back: all of
 * them train the same bits. */
#ifndef LOCKSTEP_TRAIN_ELASTIC_H
#define LOCKSTEP_TRAIN_ELASTIC_H

#include "control/supervisor.h"
#include "setup/setup.h"

/* The answer of elastic_layout; settings NULL: it was not asked, or was
 * unsure. */
struct elastic_known {
    char *settings;
    int ranks;
};

struct elastic {
    struct options_set *set; /* borrowed; its mesh is changed */
    struct elastic_known *known; /* [ranks + 1]: for so many at most; in set's
                              * arena, which each search makes larger */
    char blocks[LAYOUT_WORDS_BYTES]; /* "1,3,4,0" of mesh.layers; "": none */
    const char *file;        /* of schedule.name; NULL: it is none, or there is
                              * no pipe */
    int chunks;              /* schedule.chunks */
    struct vocabulary vocabulary;
    int ranks;               /* of the whole layout */
    struct mesh mesh;        /* of the whole layout */
    struct grid grid;
};

/* The layout of the options for that many ranks. ERR_CONFIG: it is none,
 * numerics.mode makes it show in the bits, or its settings are too long to be
 * taken from layout to layout. */
status elastic_open(struct elastic *elastic, struct options_set *set,
                    int ranks);
/* The layout of the most ranks, at most `most`, that the setup and the plan
 * accept with the run's grid; of several the one that changes least: pipe,
 * context and tensor ranks divide those of the whole layout. Blocks that
 * mesh.layers names are for the whole pipe; a shorter one divides them evenly.
 * A schedule from a file is for the whole pipe and its micro-batches; another
 * layout takes 1f1b. settings: "mesh.pipe=1 mesh.data=2 ...". *ranks 0: there
 * is none. */
status elastic_layout(const struct elastic *elastic, int most,
                      char settings[LAYOUT_WORDS_BYTES], int *ranks);

#endif
