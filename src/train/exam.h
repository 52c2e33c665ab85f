/* SPDX-License-Identifier: Apache-2.0 */
/* exam.h - tasks that a run answers whenever it validates: the rows of
 * validate.tasks.
 *
 * Requests are made once. Their rows are as long as the run's sequences, which
 * is the most that a request may have. The program that trains answers them, on
 * all ranks, so nothing is copied and no memory is taken but for the table of
 * losses; the numbers are those of `lockstep eval` with that context, in every
 * bit, under every layout that the grid holds. */
#ifndef LOCKSTEP_TRAIN_EXAM_H
#define LOCKSTEP_TRAIN_EXAM_H

#include "data/named_rows.h"
#include "setup/setup.h"
#include "tokenizer/tokenizer.h"
#include "inference/task_score.h"

struct exam_task {
    const char *name;
    struct task task;              /* owned */
    struct task_requests requests; /* owned */
    struct request_rows rows;      /* owned */
};

struct exam {
    struct named_rows rows;   /* owned */
    struct exam_task *items;  /* owned [count] */
    int count;
};

/* Rows and kinds, without the files. ERR_CONFIG: no tokenizer, a row that is
 * none. */
status exam_check(const struct setup *setup,
                  const struct tokenizer *tokenizer);
/* As exam_check, and what the files are. */
status exam_open(struct exam *exam, const struct setup *setup,
                 const struct tokenizer *tokenizer);
void exam_close(struct exam *exam);
/* Collective; the same on every rank. */
status exam_answer(const struct exam_task *task, struct train_step *step,
                   struct task_scores *scores);

#endif
