/* SPDX-License-Identifier: Apache-2.0 */
/* validation_sets.h - named validation sets: the rows of validate.sets.
 *
 * Each is read, tokenized and cut into samples as data.valid is, and measured
 * on its own: the first validate.sequences samples in the order of the files,
 * so that a number of one validation can be laid beside that of another. */
#ifndef LOCKSTEP_TRAIN_VALIDATION_SETS_H
#define LOCKSTEP_TRAIN_VALIDATION_SETS_H

#include "data/named_rows.h"
#include "train/feed.h"

struct validation_set {
    const char *name;
    struct data_parts parts; /* owned */
    struct loader loader;    /* owned */
    int64_t samples;         /* that are measured */
};

struct validation_sets {
    const struct feed *feed;  /* borrowed */
    struct named_rows rows;   /* owned */
    struct validation_set *items;   /* owned [count] */
    int count;
    struct validation_set *current; /* that is being read */
    int64_t next;             /* sample to be counted next: each rank may read
                               * one for several stages */
    int64_t bytes;            /* of text that the targets read so far stand
                               * for */
};

/* Rows, without the files. ERR_CONFIG. */
status validation_sets_check(const struct options *options);
/* Tokenizes what is not in the cache yet. ERR_CONFIG: a row is none. */
status validation_sets_open(struct validation_sets *sets,
                            const struct feed *feed);
void validation_sets_close(struct validation_sets *sets);
/* Most samples of one. */
int64_t validation_sets_samples(const struct validation_sets *sets);
/* Samples of set `index`; the bytes begin at 0. */
struct sample_source validation_sets_source(struct validation_sets *sets,
                                            int index);

#endif
