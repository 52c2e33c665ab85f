/* SPDX-License-Identifier: Apache-2.0 */
/* evaluate.h - tasks put to a model: `lockstep eval`. */
#ifndef LOCKSTEP_INFERENCE_EVALUATE_H
#define LOCKSTEP_INFERENCE_EVALUATE_H

#include "observe/progress.h"
#include "inference/session.h"
#include "inference/task_score.h"

struct evaluate_request {
    const char *model;        /* a path, session.h */
    enum device_kind device;  /* where it is computed; zeroed: cpu */
    bool average;             /* the moving average of its weights */
    const char *const *paths; /* [count] files of tasks */
    const enum task_kind *kinds; /* [count]; TASK_KINDS: what the first record
                               * looks like */
    int count;
    int shots;                /* answered items before each */
    const char *examples;     /* file of them; NULL: the task's own */
    const char *field;        /* of documents, task.h; NULL: "text" */
    int64_t limit;            /* items of each, at most; 0: all */
    int64_t batch;            /* rows at once; 0: some thousand tokens */
    int64_t context;          /* most tokens of a request; 0: the model's */
    bool special;             /* the tokenizer's first tokens before texts */
    enum dtype dtype;         /* of what is computed */
    int threads;              /* of a rank; 0: its share of the cores */
    int ranks;                /* that share the requests; 0: as many as were
                               * launched, or 1 */
    FILE *progress;           /* NULL: silent */
};

struct evaluate_task {
    struct task task;            /* owned */
    struct task_answers answers; /* owned */
    struct task_scores scores;
    int64_t from;                /* first request */
};

struct evaluation_of {
    struct evaluate_task *tasks; /* owned [count] */
    int count;
    struct task_requests requests; /* owned */
    int64_t context;             /* most tokens of a request */
    int64_t tokens, computed;    /* of all requests; without what several of an
                                  * item begin with */
    int ranks;
    int64_t length, batch;       /* tokens: of a row, at once */
    double seconds;
    char notice[512];            /* about damage that was passed over; "" */
};

/* Each rank has the whole model and a share of the items; their number does not
 * show in a bit. Ranks are threads, or the processes of a launcher, of which
 * only the first gets the result: the others an empty one. ERR_MISSING: no
 * tokenizer; ERR_CONFIG, ERR_FORMAT: see task.h and task_request.h. */
status evaluate(const struct evaluate_request *request,
                struct evaluation_of *out);
void evaluation_free(struct evaluation_of *evaluation);

#endif
