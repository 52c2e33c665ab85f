/* SPDX-License-Identifier: Apache-2.0 */
/* feed.h - the data of a run as sources of sequences for steps.
 *
 * One source (data.train) or several with weights (data.mixture). Which source
 * a sample comes from, and which of its samples it is, are functions of the
 * sample's number (mixture.h, loader.h): no state to keep or to lose. */
#ifndef LOCKSTEP_TRAIN_FEED_H
#define LOCKSTEP_TRAIN_FEED_H

#include "corpus/prepare.h"
#include "data/loader.h"
#include "data/mixture.h"
#include "data/mixture_rows.h"
#include "data/ranges.h"
#include "observe/consumed.h"
#include "observe/progress.h"
#include "setup/setup.h"
#include "step/step.h"
#include "tokenizer/tokenizer.h"

struct feed_source {
    const char *name;            /* of the mixture; "train" */
    struct data_parts parts;     /* owned */
    struct loader train, valid;  /* owned; valid.samples 0: none held out */
};

struct feed {
    const struct setup *setup;   /* borrowed */
    const struct tokenizer *tokenizer; /* borrowed; NULL: none */
    char cache[PATH_BYTES];
    struct mixture_rows rows;    /* owned; none without data.mixture */
    struct feed_source *sources; /* owned [count] */
    int count;
    struct mixture mixture;      /* owned: of the training samples */
    struct mixture held_out;     /* owned: of the validation samples */
    struct ranges left_out;      /* owned: samples of the order */
    struct data_parts valid_parts; /* owned: data.valid */
    struct loader valid;         /* owned: of them; closed without data.valid */
    int64_t samples;             /* of an epoch: of all sources together */
    int64_t valid_samples;       /* there are, at most validate.sequences */
    int64_t dropped;             /* incomplete last samples, per epoch */
    struct feed_batch {
        struct feed *feed;       /* borrowed */
        int64_t first, last;     /* samples of the order: with which the step
                                  * begins, and that of index batch_most - 1 */
        uint32_t *checksums;     /* owned [batch_most]: of the tokens of this
                                  * rank's samples of the step */
        uint64_t content;        /* number of the batch, from 1; 0: none */
    } batches[2];                /* of a step, and of one that is read ahead */
    int now;                     /* which is the step's */
    uint64_t made;               /* batches so far */
    int64_t batch_most;
    int64_t used;                /* of the step: samples whose losses this rank
                                  * computed; then sums of their marks and
                                  * checksums (observe/consumed.h) */
    uint64_t used_order, used_tokens;
    int64_t touched;             /* samples read since pages were given back */
    int64_t valid_next;          /* sample to be counted next: they come in
                                  * order, to each stage of the rank */
    struct progress packing;     /* of documents by best fit */
    int64_t valid_bytes;         /* of text that the validated targets stand
                                  * for; counted while validation reads */
};

/* Checks everything that can be checked without the data: packing, templates,
 * tokens for filling in, rows of the mixture, its phases and omitted samples.
 * ERR_CONFIG. */
status feed_check(const struct setup *setup,
                  const struct tokenizer *tokenizer);
/* ERR_CONFIG: no data is named. */
status feed_check_named(const struct options *options);
/* Tokenizes what is not in the cache yet, with progress on stderr. */
status feed_open(struct feed *feed, const struct setup *setup,
                 const struct tokenizer *tokenizer, const char *run);
void feed_close(struct feed *feed);
/* The samples of the next step, of which `first` is the first in the order; and
 * those of the step after it, for a thread that reads them meanwhile. The same
 * samples are the same content (step/read_ahead.h). */
struct sample_source feed_train(struct feed *feed, int64_t first);
struct sample_source feed_ahead(struct feed *feed, int64_t first);
/* Counts the sequences whose losses entered the step (execute.h). feed_count
 * joins all ranks' counts and begins again; feed_forget drops those of a step
 * that was refused. */
void feed_use(void *argument, int64_t first, int64_t count);
void feed_forget(struct feed *feed);
/* Collective. */
status feed_count(struct feed *feed, struct team *team, struct consumed *out);
struct sample_source feed_valid(struct feed *feed);

/* For other data of the run: token files of a list of sources, made now or
 * found; a loader of all their documents, opened while stderr tells how far
 * files are read; and the bytes of text that targets stand for (an end token
 * is no text), 0 without a tokenizer. */
status feed_prepare(const struct feed *feed, const char *const *sources,
                    int count, struct data_parts *parts);
struct loader_request feed_request(const struct feed *feed,
                                   const struct data_parts *parts);
status feed_load(struct loader *loader, const struct loader_request *request);
int64_t feed_text_bytes(const struct feed *feed, const struct loader *loader,
                        const int32_t *targets);

/* The identity of the training data: the tokens of all sources, and a checksum
 * of them and of the number of samples that each source of a mixture
 * contributed to the first `samples`. */
int64_t feed_tokens(const struct feed *feed);
/* Waits until large files that were opened unread are read (token_check.h),
 * with progress on stderr: before the checksum is compared or kept. ERR_FORMAT,
 * ERR_CONFIG: a file that no run should go on with. */
status feed_settle(struct feed *feed);
/* Like feed_settle, for those that are read by now: an error as soon as it is
 * known. */
status feed_poll(struct feed *feed);
uint32_t feed_crc(const struct feed *feed, int64_t samples);

#endif
