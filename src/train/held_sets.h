/* SPDX-License-Identifier: Apache-2.0 */
/* held_sets.h - named validation sets: the rows of validate.sets.
 *
 * Each is read, tokenized and cut into samples as data.valid is, and measured
 * on its own: the first validate.sequences samples in the order of the files,
 * so that a number of one validation can be laid beside that of another. */
#ifndef LOCKSTEP_TRAIN_HELD_SETS_H
#define LOCKSTEP_TRAIN_HELD_SETS_H

#include "data/named_rows.h"
#include "train/feed.h"

struct held_set {
    const char *name;
    struct data_parts parts; /* owned */
    struct loader loader;    /* owned */
    int64_t samples;         /* that are measured */
};

struct held_sets {
    const struct feed *feed;  /* borrowed */
    struct named_rows rows;   /* owned */
    struct held_set *items;   /* owned [count] */
    int count;
    struct held_set *current; /* that is being read */
    int64_t next;             /* sample to be counted next: each rank may read
                               * one for several stages */
    int64_t bytes;            /* of text that the targets read so far stand
                               * for */
};

/* Rows, without the files. ERR_CONFIG. */
status held_sets_check(const struct options *options);
/* Tokenizes what is not in the cache yet. ERR_CONFIG: a row is none. */
status held_sets_open(struct held_sets *sets, const struct feed *feed);
void held_sets_close(struct held_sets *sets);
/* Most samples of one. */
int64_t held_sets_samples(const struct held_sets *sets);
/* Samples of set `index`; the bytes begin at 0. */
struct sample_source held_sets_source(struct held_sets *sets, int index);

#endif
