/* SPDX-License-Identifier: Apache-2.0 */
/* validation_tasks.h - tasks that a run answers whenever it validates: the rows
 * of validate.tasks.
 *
 * Requests are made once. Their rows are as long as the run's sequences, which
 * is the most that a request may have. The program that trains answers them, on
 * all ranks, so nothing is copied and no memory is taken but for the table of
 * losses; the numbers are those of `lockstep eval` with that context, in every
 * bit, under every layout that the grid holds. */
#ifndef LOCKSTEP_TRAIN_VALIDATION_TASKS_H
#define LOCKSTEP_TRAIN_VALIDATION_TASKS_H

#include "data/named_rows.h"
#include "inference/task_score.h"
#include "setup/setup.h"
#include "tokenizer/tokenizer.h"

struct validation_task {
    const char *name;
    struct task task;              /* owned */
    struct task_requests requests; /* owned */
    struct request_rows rows;      /* owned */
};

struct validation_tasks {
    struct named_rows rows;   /* owned */
    struct validation_task *items;  /* owned [count] */
    int count;
};

/* Rows and kinds, without the files. ERR_CONFIG: no tokenizer, a row that is
 * none. */
status validation_tasks_check(const struct setup *setup,
                              const struct tokenizer *tokenizer);
/* As validation_tasks_check, and what the files are. */
status validation_tasks_open(struct validation_tasks *exam,
                             const struct setup *setup,
                             const struct tokenizer *tokenizer);
void validation_tasks_close(struct validation_tasks *exam);
/* Collective; the same on every rank. */
status validation_tasks_answer(const struct validation_task *task,
                               struct train_step *step,
                               struct task_scores *scores);

#endif
