/* SPDX-License-Identifier: Apache-2.0 */
/* elastic.h - the layouts of a run that loses ranks and gets them back: all of
 * them train the same bits. */
#ifndef LOCKSTEP_TRAIN_ELASTIC_H
#define LOCKSTEP_TRAIN_ELASTIC_H

#include "setup/setup.h"

enum { ELASTIC_BLOCKS_BYTES = 320 };

struct elastic {
    struct options_set *set; /* borrowed; its mesh is changed */
    bool uneven;             /* mesh.layers names the blocks of the stages */
    char blocks[ELASTIC_BLOCKS_BYTES]; /* that setting; "": it is too long */
    struct vocabulary vocabulary;
    int ranks;               /* of the whole layout */
    struct mesh mesh;        /* of the whole layout */
    struct grid grid;
};

/* The layout of the options for that many ranks. ERR_CONFIG: it is none, or
 * numerics.mode makes it show in the bits. */
status elastic_open(struct elastic *elastic, struct options_set *set,
                    int ranks);
/* The layout of the most ranks, at most `most`, that the setup and the plan
 * accept with the run's grid; of several the one that changes least: pipe,
 * context and tensor ranks divide those of the whole layout. Blocks that
 * mesh.layers names are for the whole pipe; a shorter one divides them evenly.
 * settings: "mesh.pipe=1 mesh.data=2 ...". *ranks 0: there is none. */
status elastic_layout(const struct elastic *elastic, int most, char *settings,
                      size_t size, int *ranks);

#endif
