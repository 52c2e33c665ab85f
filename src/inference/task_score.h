/* SPDX-License-Identifier: Apache-2.0 */
/* task_score.h - the scores of a model in a task, from the likelihoods of its
 * requests.
 *
 *   acc              share of items whose likeliest choice is the right one;
 *                    lambada: whose last word is what greedy decoding writes
 *   acc_norm         likeliest by log-likelihood over characters of the choice
 *   acc_bytes        ... over its bytes in UTF-8
 *   perplexity       exp(- mean log-likelihood of an item)
 *   word_perplexity  exp(- log-likelihood of all documents / their words)
 *   byte_perplexity  ... / their bytes
 *   bits_per_byte    its logarithm to the base 2
 *
 * Standard errors: of a mean the root of the sample's variance over n; of a
 * perplexity that of its exponent, a ratio of sums, carried through the
 * exponential (the harness draws samples for it). Source: lm-evaluation-harness
 * 0.4, api/task.py and api/metrics.py. */
#ifndef LOCKSTEP_INFERENCE_TASK_SCORE_H
#define LOCKSTEP_INFERENCE_TASK_SCORE_H

#include "inference/likelihood.h"

struct task_metric {
    const char *name;
    double value, error; /* error NaN: unknown */
};

enum { TASK_METRICS_MAX = 3 };

struct task_scores {
    struct task_metric items[TASK_METRICS_MAX];
    int count;
};

/* Log-likelihoods of choices. */
struct task_answers {
    int64_t *first;   /* owned [items + 1]: of an item, in sums */
    double *sums;     /* owned: nats */
    bool *greedy;     /* owned; NULL unless the likelihoods have it */
};

/* From the requests that the task added, in their order. */
struct request_range { int64_t first, last; /* one behind */ };
status task_answers_build(struct task_answers *answers,
                          const struct task *task,
                          const struct task_requests *requests,
                          struct request_range range,
                          const struct likelihoods *likelihoods);
void task_answers_free(struct task_answers *answers);

/* The normalization of a choice's log-likelihood. */
enum task_norm { NORM_NONE, NORM_CHARACTERS, NORM_BYTES };
/* The likeliest choice of an item; of equal ones the first. */
int task_prediction(const struct task *task,
                    const struct task_answers *answers, int64_t item,
                    enum task_norm norm);
/* Whether likelihoods must say what is greedy. */
bool task_wants_greedy(enum task_kind kind);
void task_score(struct task_scores *scores, const struct task *task,
                const struct task_answers *answers);

#endif
