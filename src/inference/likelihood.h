/* SPDX-License-Identifier: Apache-2.0 */
/* likelihood.h - log-likelihoods of requests: of a stage alone, or of a run's
 * ranks while they train.
 *
 * The loss of each scored target goes to its place in one table, from the rank
 * that computed it. The losses of a request are then added in order in float64.
 * The bits do not depend on the batch, the order of requests or the layout. */
#ifndef LOCKSTEP_INFERENCE_LIKELIHOOD_H
#define LOCKSTEP_INFERENCE_LIKELIHOOD_H

#include "inference/request_rows.h"
#include "step/step.h"

enum { LIKELIHOOD_JOIN_MOST = 4096 /* numbers that ranks join at once */ };

struct likelihoods {
    double *sums;     /* owned [requests]: log-likelihood, nats */
    bool *greedy;     /* owned [requests]: every scored target has the largest
                       * logit, ties to the lowest id; NULL unless wanted */
    int64_t requests;
    int64_t tokens;   /* likelihood_alone: computed, of all requests */
};

struct likelihood_call {
    const struct request_rows *rows; /* of likelihood_ranks */
    bool greedy;      /* is wanted */
    /* Called now and then; NULL: nobody listens. */
    void (*progress)(void *argument, double done, double total);
    void *argument;
};

/* Requests that follow one another and begin alike, as the choices of an item
 * do, have their beginning computed once (nn/branches.h); likelihood_alone.c.
 * `stage` is open, forward only, of at least as many tokens as the longest
 * request has. */
status likelihood_alone(struct likelihoods *out, struct stage *stage,
                        const struct task_requests *requests,
                        const struct likelihood_call *call);
/* The length of a run's sequences is that of the rows. Collective; the same on
 * every rank. */
status likelihood_ranks(struct likelihoods *out, struct train_step *step,
                        const struct likelihood_call *call);
/* The largest logit of a row and its id, counted from `first`; ties: the
 * lowest. */
struct top { double logit, id; };
struct top likelihood_top(const struct tensor *logits, int64_t row,
                          int64_t first);
/* *out, a pointer: zeroed room for `count` items, also for none. */
status likelihood_take(int64_t count, size_t bytes, void *out);
/* Adds up all ranks' numbers, a piece at a time. Collective. */
status likelihood_join(struct team *team, double *values, int64_t count);
/* The id of the first logit that a rank of this program makes. */
int64_t likelihood_first_logit(const struct program *program);
void likelihoods_free(struct likelihoods *likelihoods);

#endif
