/* SPDX-License-Identifier: Apache-2.0 */
/* validation.c - measurements of a run beside data.valid. */
#include "train/validation.h"

#include <math.h>
#include <string.h>

#include "kernels/math.h"

int64_t validation_values(const struct options *options)
{
    const int64_t values = options->validate.sequences;

    if (options->validate.tasks.count == 0 &&
        options->validate.prompts.count == 0)
        return values;
    return values > LIKELIHOOD_JOIN_MOST ? values : LIKELIHOOD_JOIN_MOST;
}

status validation_open(struct validation *v, const struct feed *feed)
{
    int64_t most = feed->valid_samples;
    void *memory;

    arena_init(&v->names, "metrics of a validation", 0);
    TRY(validation_sets_open(&v->sets, feed));
    TRY(validation_tasks_open(&v->exam, feed->setup, feed->tokenizer));
    TRY(prompts_open(&v->prompts, feed->setup, feed->tokenizer));
    if (validation_sets_samples(&v->sets) > most)
        most = validation_sets_samples(&v->sets);
    TRY(memory_take((size_t)most + 1, sizeof *v->sums, &memory));
    v->sums = memory;
    return OK;
}

void validation_close(struct validation *v)
{
    validation_sets_close(&v->sets);
    validation_tasks_close(&v->exam);
    prompts_close(&v->prompts);
    memory_free(v->sums);
    memory_free(v->extras);
    arena_free(&v->names);
    *v = (struct validation){0};
}

status validation_measure(struct validation *v, struct train_step *step,
                          const struct sample_source *source, int64_t count,
                          const int64_t *bytes, struct measure *out)
{
    struct evaluation evaluation = {.sums = v->sums};
    double read;

    TRY(train_evaluate(step, source, count, &evaluation));
    read = train_step_speaks(step) ? (double)*bytes : 0;
    TRY(team_join(step->team, &read, 1));
    *out = (struct measure){.targets = evaluation.targets,
                            .loss = (double)NAN,
                            .bits_per_byte = (double)NAN};
    if (evaluation.targets == 0) return OK;
    out->loss = evaluation.sum / (double)evaluation.targets;
    if (read > 0) out->bits_per_byte = evaluation.sum / (math_log(2) * read);
    return OK;
}

/* Another metric of this validation: "<kind>.<name>.<metric>". */
static status note(struct validation *v, const char *kind, const char *name,
                   const char *metric, double value)
{
    char whole[160], *kept;

    if (v->extra_count == v->extra_room) {
        const int room = 2 * v->extra_room + 16;
        void *grown = v->extras;

        TRY(memory_grow(&grown, (size_t)room, sizeof *v->extras));
        v->extras = grown;
        v->extra_room = room;
    }
    snprintf(whole, sizeof whole, "%s.%s.%s", kind, name, metric);
    TRY(arena_copy_text(&v->names, whole, &kept));
    v->extras[v->extra_count++] = (struct metrics_extra){kept, value};
    return OK;
}

const char *validation_bits(char out[BITS_BYTES], double bits_per_byte)
{
    out[0] = '\0';
    if (isfinite(bits_per_byte))
        snprintf(out, BITS_BYTES, ", %.4f bits per byte", bits_per_byte);
    return out;
}

status validation_sets(struct validation *v, struct train_step *step,
                       struct progress *progress, int64_t at)
{
    for (int i = 0; i < v->sets.count; i++) {
        const struct validation_set *set = &v->sets.items[i];
        const struct sample_source source = validation_sets_source(&v->sets, i);
        char bits[BITS_BYTES];
        struct measure found;

        TRY(validation_measure(v, step, &source, set->samples, &v->sets.bytes,
                               &found));
        TRY(note(v, "val", set->name, "loss", found.loss));
        TRY(note(v, "val", set->name, "bits_per_byte", found.bits_per_byte));
        TRY(note(v, "val", set->name, "targets", (double)found.targets));
        progress_note(progress, "step %lld: %s: loss %.4f%s (%lld sequences)",
                      (long long)at, set->name, found.loss,
                      validation_bits(bits, found.bits_per_byte),
                      (long long)set->samples);
    }
    return OK;
}

/* "facts: acc 0.5312, acc_norm 0.5781 (64 items)" */
static void tell_scores(struct progress *progress, int64_t at,
                        const struct validation_task *task,
                        const struct task_scores *scores)
{
    char text[256] = "";

    for (int i = 0; i < scores->count; i++)
        snprintf(text + strlen(text), sizeof text - strlen(text),
                 "%s%s %.4f", i > 0 ? ", " : "", scores->items[i].name,
                 scores->items[i].value);
    progress_note(progress, "step %lld: %s: %s (%lld items)", (long long)at,
                  task->name, text, (long long)task->task.count);
}

status validation_tasks(struct validation *v, struct train_step *step,
                        struct progress *progress, int64_t at)
{
    for (int i = 0; i < v->exam.count; i++) {
        const struct validation_task *task = &v->exam.items[i];
        struct task_scores scores;
        char error[64];

        TRY(validation_tasks_answer(task, step, &scores));
        for (int j = 0; j < scores.count; j++) {
            const struct task_metric *m = &scores.items[j];

            snprintf(error, sizeof error, "%s_stderr", m->name);
            TRY(note(v, "task", task->name, m->name, m->value));
            TRY(note(v, "task", task->name, error, m->error));
        }
        tell_scores(progress, at, task, &scores);
    }
    return OK;
}
