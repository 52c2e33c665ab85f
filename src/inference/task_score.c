/* SPDX-License-Identifier: Apache-2.0 */
/* task_score.c - the scores of a model in a task. */
#include "inference/task_score.h"

#include <math.h>
#include <string.h>

#include "base/arena.h"
#include "kernels/math.h"

bool task_wants_greedy(enum task_kind kind)
{
    return kind == TASK_LAMBADA;
}

/* ---- answers ---- */

static status number(struct task_answers *answers, const struct task *task)
{
    void *memory;
    int64_t at = 0;

    TRY(memory_take((size_t)task->count + 1, sizeof *answers->first,
                    &memory));
    answers->first = memory;
    for (int64_t i = 0; i < task->count; i++) {
        answers->first[i] = at;
        at += task->items[i].choice_count;
    }
    answers->first[task->count] = at;
    return OK;
}

status task_answers_build(struct task_answers *answers,
                          const struct task *task,
                          const struct task_requests *requests,
                          struct request_range range,
                          const struct likelihoods *likelihoods)
{
    void *memory;
    int64_t count;

    *answers = (struct task_answers){0};
    TRY(number(answers, task));
    count = answers->first[task->count];
    TRY(memory_take((size_t)count, sizeof *answers->sums, &memory));
    answers->sums = memory;
    for (int64_t i = 0; i < count; i++) answers->sums[i] = 0;
    if (likelihoods->greedy != NULL) {
        TRY(memory_take((size_t)count, sizeof *answers->greedy, &memory));
        answers->greedy = memory;
        for (int64_t i = 0; i < count; i++) answers->greedy[i] = true;
    }
    for (int64_t i = range.first; i < range.last; i++) {
        const struct task_request *r = &requests->items[i];
        const int64_t at = answers->first[r->item] + r->choice;

        answers->sums[at] += likelihoods->sums[i];
        if (answers->greedy != NULL)
            answers->greedy[at] = answers->greedy[at] &&
                                  likelihoods->greedy[i];
    }
    return OK;
}

void task_answers_free(struct task_answers *answers)
{
    memory_free(answers->first);
    memory_free(answers->sums);
    memory_free(answers->greedy);
    *answers = (struct task_answers){0};
}

static double norm_of(struct task_text choice, enum task_norm norm)
{
    if (norm == NORM_CHARACTERS) return (double)task_characters(choice);
    if (norm == NORM_BYTES) return (double)choice.length;
    return 1;
}

int task_prediction(const struct task *task,
                    const struct task_answers *answers, int64_t item,
                    enum task_norm norm)
{
    const struct task_item *t = &task->items[item];
    const double *sums = answers->sums + answers->first[item];
    double best = 0;
    int which = 0;

    for (int i = 0; i < t->choice_count; i++) {
        const double weighed = sums[i] / norm_of(t->choices[i], norm);

        if (i > 0 && !(weighed > best)) continue;
        best = weighed;
        which = i;
    }
    return which;
}

/* ---- scores ---- */

static void add(struct task_scores *scores, const char *name, double value,
                double error)
{
    scores->items[scores->count++] =
        (struct task_metric){name, value, error};
}

/* The standard error of n numbers with this sum of squared differences from
 * their mean. */
static double error_of(double squares, int64_t n)
{
    return n > 1 ? sqrt(squares / (double)(n - 1)) / sqrt((double)n)
                 : (double)NAN;
}

/* A share of items that are right. */
static void add_share(struct task_scores *scores, const char *name,
                      int64_t right, int64_t count)
{
    const double mean = (double)right / (double)count;
    const double squares = (double)right * (1 - mean) * (1 - mean) +
                           (double)(count - right) * mean * mean;

    add(scores, name, mean, error_of(squares, count));
}

static void score_choices(struct task_scores *scores, const struct task *task,
                          const struct task_answers *answers)
{
    static const char *const names[] = {"acc", "acc_norm", "acc_bytes"};

    for (int norm = NORM_NONE; norm <= NORM_BYTES; norm++) {
        int64_t right = 0;

        for (int64_t i = 0; i < task->count; i++)
            right += task_prediction(task, answers, i, (enum task_norm)norm) ==
                     task->items[i].answer;
        add_share(scores, names[norm], right, task->count);
    }
}

/* Minus the sum of log-likelihoods over that of weights, and its error. */
struct ratio { double value, error; };

static double weight_of(const struct task *task, int64_t item, bool words)
{
    const struct task_text text = task->items[item].choices[0];

    if (task->kind != TASK_TEXT) return 1;
    return words ? (double)task_words(text) : (double)text.length;
}

static struct ratio ratio_of(const struct task *task,
                             const struct task_answers *answers, bool words)
{
    double sum = 0, weights = 0, squares = 0;
    struct ratio ratio;

    for (int64_t i = 0; i < task->count; i++) {
        sum -= answers->sums[i];
        weights += weight_of(task, i, words);
    }
    ratio.value = sum / weights;
    for (int64_t i = 0; i < task->count; i++) {
        const double rest = -answers->sums[i] -
                            ratio.value * weight_of(task, i, words);

        squares += rest * rest;
    }
    ratio.error = error_of(squares, task->count) * (double)task->count /
                  weights;
    return ratio;
}

static void add_perplexity(struct task_scores *scores, const char *name,
                           struct ratio ratio)
{
    const double value = math_exp(ratio.value);

    add(scores, name, value, value * ratio.error);
}

void task_score(struct task_scores *scores, const struct task *task,
                const struct task_answers *answers)
{
    int64_t right = 0;

    *scores = (struct task_scores){0};
    if (task->kind == TASK_TEXT) {
        const struct ratio bytes = ratio_of(task, answers, false);

        add_perplexity(scores, "word_perplexity",
                       ratio_of(task, answers, true));
        add_perplexity(scores, "byte_perplexity", bytes);
        add(scores, "bits_per_byte", bytes.value / math_log(2),
            bytes.error / math_log(2));
    } else if (task->kind == TASK_LAMBADA) {
        add_perplexity(scores, "perplexity", ratio_of(task, answers, false));
        for (int64_t i = 0; i < task->count; i++) right += answers->greedy[i];
        add_share(scores, "acc", right, task->count);
    } else {
        score_choices(scores, task, answers);
    }
}
