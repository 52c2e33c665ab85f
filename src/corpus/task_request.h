/* SPDX-License-Identifier: Apache-2.0 */
/* task_request.h - a task as sequences of tokens whose likelihoods are asked
 * for.
 *
 *   ids       c c c c c k k k      a context, its continuation
 *   inputs    c c c c c k k
 *   targets   - - - - k k k        scored: 3
 *
 * Context and continuation are encoded as one text; the tokens of the context
 * alone say how many belong to it, and white space at its end is moved to the
 * continuation. What is longer than the model's context loses its beginning.
 * A document (TASK_TEXT) is cut into windows that follow one another: each
 * token is scored once, after as many as fit.
 * Source: lm-evaluation-harness 0.4, TemplateLM._encode_pair,
 * HFLM._loglikelihood_tokens, utils.get_rolling_token_windows and
 * make_disjoint_window. */
#ifndef LOCKSTEP_CORPUS_TASK_REQUEST_H
#define LOCKSTEP_CORPUS_TASK_REQUEST_H

#include "corpus/task.h"
#include "tokenizer/tokenizer.h"

struct task_request {
    int64_t first;   /* of length + 1 ids */
    int32_t length;  /* inputs; targets stand one later */
    int32_t scored;  /* the last so many targets */
    int64_t item;    /* of the task */
    int32_t choice;
};

struct task_requests {
    struct token_list ids;      /* owned */
    struct task_request *items; /* owned [capacity]; a document's in order */
    int64_t count, capacity;
    int64_t scored;             /* of all */
    int64_t longest;            /* inputs */
    int64_t truncated;          /* that lost their beginning */
};

struct task_encoding {
    const struct tokenizer *tokenizer;
    int64_t context;  /* most inputs */
    int32_t prefix;   /* token before a text that has none before it */
    bool special;     /* the template's first tokens are put before texts that
                       * do not begin with the first of them */
    int shots;        /* answered items before each: the first of `examples`
                       * but the item itself */
    const struct task *examples; /* NULL: the task's own */
};

/* Adds the requests of every item. ERR_CONFIG: a continuation is longer than
 * the context; too few examples; shots before a document. */
status task_requests_add(struct task_requests *requests,
                         const struct task *task,
                         const struct task_encoding *encoding);
void task_requests_free(struct task_requests *requests);

/* The token that stands before a text: the first of the tokenizer's template,
 * else `bos`, else the end of text, else `eos` (-1: unknown). ERR_CONFIG: there
 * is none. */
status task_prefix(const struct tokenizer *tokenizer, int64_t bos, int64_t eos,
                   int32_t *out);

#endif
