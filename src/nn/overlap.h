/* SPDX-License-Identifier: Apache-2.0 */
/* overlap.h - messages between tensor ranks while products are made
 * (asynchronous tensor parallelism).
 *
 * A micro-batch is taken in sub-batches, of whole sequences. A gather starts
 * the messages of all its sub-batches in the background; the product after it
 * begins with the first sub-batch that is there. A product before a scatter
 * hands over each sub-batch of its sums as it is made. What a sub-batch is does
 * not touch a sum, so the bits are those of the whole calls. Source: Wang et
 * al. 2023, "Overlap communication with dependent computation via
 * decomposition", section 4; PyTorch's asynchronous tensor parallelism. */
#ifndef LOCKSTEP_NN_OVERLAP_H
#define LOCKSTEP_NN_OVERLAP_H

#include "comm/progress.h"
#include "nn/program.h"

enum { OVERLAP_BATCHES_MAX = 8 };

struct run;

/* The messages of one gather or of one sum. */
struct overlap {
    const void *data[OVERLAP_BATCHES_MAX]; /* where each sub-batch goes; NULL:
                                            * it is not under way */
    int64_t *counts; /* elements of each rank's tokens of a context chunk */
    struct comm_handle handles[OVERLAP_BATCHES_MAX];
};
enum { OVERLAP_GATHER, OVERLAP_SUM, OVERLAP_KINDS };

/* Sub-batches of a micro-batch; 1: calls are made at once. */
int overlap_batches(const struct program *p);
/* The first context chunk of sequences that F works on (run->window). */
int64_t overlap_first(const struct run *run);
/* Rows of one sub-batch, of a matrix with all tokens or with this rank's. */
struct tensor overlap_rows(const struct program *p, struct tensor matrix,
                           int number);

/* whole [all tokens, width] of part [own tokens, width], under way: all
 * sub-batches, or the one that F works on (run->window). */
status overlap_gather(struct run *run, struct tensor whole,
                      struct tensor part);
/* Rows of one sub-batch of part = the sum over ranks of those of whole. */
status overlap_sum(struct run *run, struct tensor part, struct tensor whole,
                   int number);
/* Waits until the transfer into `data` has ended; returns at once if there is
 * none. */
status overlap_wait(struct run *run, const void *data);
/* Waits for all sub-batches of the view. */
status overlap_wait_all(struct run *run, struct tensor view);
/* Waits for all messages, those of rows of experts too. */
status overlap_finish(struct run *run);
/* Like overlap_finish, after an error, which is `result` and keeps its
 * sentence. */
status overlap_fail(struct run *run, status result);

#endif
