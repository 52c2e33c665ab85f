/* SPDX-License-Identifier: Apache-2.0 */
/* validation_tasks.c - tasks that a run answers whenever it validates. */
#include "train/validation_tasks.h"

#include <string.h>

static const struct named_form exam_form = {"validate.tasks",
                                            "NAME KIND PATH", 2, 2};

static status find_kind(const struct named_row *row, int index,
                        enum task_kind *kind)
{
    char where[96];

    snprintf(where, sizeof where, "validate.tasks, row %d", index + 1);
    return task_kind_find(where, row->words[0], kind);
}

status validation_tasks_check(const struct setup *setup,
                              const struct tokenizer *tokenizer)
{
    const struct option_list *list = &setup->set->values.validate.tasks;
    struct named_rows rows = {0};
    enum task_kind kind;
    status result;

    TRY_GOTO(done, result,
             named_read(&rows, &exam_form, list->items, list->count));
    if (list->count > 0 && tokenizer == NULL)
        FAIL_GOTO(done, result, ERR_CONFIG,
                  "validate.tasks: the run has no tokenizer, so text cannot "
                  "become tokens; set tokenizer.from");
    for (int i = 0; i < rows.count; i++)
        TRY_GOTO(done, result, find_kind(&rows.items[i], i, &kind));
done:
    named_free(&rows);
    return result;
}

static status open_task(struct validation_tasks *exam, int index,
                        const struct setup *setup,
                        const struct tokenizer *tokenizer)
{
    const struct options *o = &setup->set->values;
    const struct named_row *row = &exam->rows.items[index];
    struct validation_task *task = &exam->items[index];
    struct task_encoding encoding = {
        .tokenizer = tokenizer, .context = o->data.sequence,
        .special = true,
        .shots = (int)o->validate.shots};
    struct task_source source = {.path = row->words[1],
                                 .limit = o->validate.items,
                                 .field = o->data.field};

    task->name = row->name;
    TRY(find_kind(row, index, &source.kind));
    TRY(task_read(&task->task, &source));
    TRY(task_prefix(tokenizer, setup->model.ends.bos, setup->model.ends.eos,
                    &encoding.prefix));
    if (source.kind == TASK_TEXT) encoding.shots = 0;
    TRY(task_requests_add(&task->requests, &task->task, &encoding));
    return request_rows_build(&task->rows, &task->requests, o->data.sequence);
}

status validation_tasks_open(struct validation_tasks *exam,
                             const struct setup *setup,
                             const struct tokenizer *tokenizer)
{
    const struct option_list *list = &setup->set->values.validate.tasks;
    void *memory;

    *exam = (struct validation_tasks){0};
    TRY(validation_tasks_check(setup, tokenizer));
    TRY(named_read(&exam->rows, &exam_form, list->items, list->count));
    if (list->count == 0) return OK;
    TRY(memory_take((size_t)list->count, sizeof *exam->items, &memory));
    memset(memory, 0, (size_t)list->count * sizeof *exam->items);
    exam->items = memory;
    for (int i = 0; i < list->count; i++) {
        exam->count = i + 1; /* so that it is closed in any case */
        TRY(open_task(exam, i, setup, tokenizer));
    }
    return OK;
}

void validation_tasks_close(struct validation_tasks *exam)
{
    for (int i = 0; i < exam->count; i++) {
        request_rows_free(&exam->items[i].rows);
        task_requests_free(&exam->items[i].requests);
        task_free(&exam->items[i].task);
    }
    memory_free(exam->items);
    named_free(&exam->rows);
    *exam = (struct validation_tasks){0};
}

status validation_tasks_answer(const struct validation_task *task,
                               struct train_step *step,
                               struct task_scores *scores)
{
    const struct likelihood_call call = {
        .rows = &task->rows, .greedy = task_wants_greedy(task->task.kind)};
    const struct request_range all = {0, task->requests.count};
    struct task_answers answers = {0};
    struct likelihoods likelihoods = {0};
    status result;

    TRY_GOTO(done, result, likelihood_ranks(&likelihoods, step, &call));
    TRY_GOTO(done, result, task_answers_build(&answers, &task->task,
                                              &task->requests, all,
                                              &likelihoods));
    task_score(scores, &task->task, &answers);
done:
    task_answers_free(&answers);
    likelihoods_free(&likelihoods);
    return result;
}
