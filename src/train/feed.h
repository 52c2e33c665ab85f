/* SPDX-License-Identifier: Apache-2.0 */
/* feed.h - the data of a run as sources of sequences for steps. */
#ifndef LOCKSTEP_TRAIN_FEED_H
#define LOCKSTEP_TRAIN_FEED_H

#include "data/loader.h"
#include "train/setup.h"
#include "train/step.h"

struct feed {
    const struct setup *setup;   /* borrowed */
    struct loader train, valid;  /* owned */
    char train_path[PATH_BYTES], valid_path[PATH_BYTES]; /* token files */
    int64_t samples;             /* of an epoch of train */
    int64_t valid_samples;       /* there are, at most validate.sequences */
    int64_t dropped;             /* incomplete last samples, per epoch */
    int64_t first;               /* sample of the order with which the next
                                  * step begins */
    int64_t touched;             /* samples read since pages were given back */
    int64_t valid_next;          /* sample to be counted next: they come in
                                  * order, to each stage of the rank */
    int64_t valid_bytes;         /* of text that the validated targets stand
                                  * for; counted while validation reads */
};

/* Tokenizes what is not in the cache yet, with progress on stderr. */
status feed_open(struct feed *feed, const struct setup *setup,
                 const char *run);
void feed_close(struct feed *feed);
struct sample_source feed_train(struct feed *feed, int64_t first);
struct sample_source feed_valid(struct feed *feed);

#endif
