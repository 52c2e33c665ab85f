/* SPDX-License-Identifier: Apache-2.0 */
/* trainer_validate.c - a validation of a run: data.valid, then what the
 * options of `validate` name. */
#include <math.h>
#include <string.h>

#include "base/clock.h"
#include "base/fault.h"
#include "train/trainer_state.h"

static status measure_valid(struct trainer *t, struct measure *out)
{
    const struct sample_source source = feed_valid(&t->feed);
    char bits[BITS_BYTES];

    *out = (struct measure){.loss = (double)NAN, .bits_per_byte = (double)NAN};
    if (t->feed.valid_samples == 0) return OK;
    TRY(validation_measure(&t->validation, &t->step, &source,
                           t->feed.valid_samples, &t->feed.valid_bytes, out));
    if (out->targets == 0) return OK;
    progress_note(&t->progress,
                  "step %lld: validation loss %.4f%s (%lld sequences)",
                  (long long)t->counters.step, out->loss,
                  validation_bits(bits, out->bits_per_byte),
                  (long long)t->feed.valid_samples);
    return OK;
}

/* All ranks have the same sums, so they have the same best. */
static void note_best(struct trainer *t, const struct measure *valid)
{
    struct counters *c = &t->counters;

    if (!t->setup.set->values.checkpoint.keep_best || !isfinite(valid->loss))
        return;
    c->valid = (struct valid_loss){c->step, valid->loss};
    if (c->best.step > 0 && c->best.loss <= valid->loss) return;
    c->best = c->valid;
    t->saves.best = true;
}

static bool averages(const struct trainer *t)
{
    return strcmp(t->setup.set->values.validate.weights, "ema") == 0;
}

static status measure_all(struct trainer *t, struct measure *valid)
{
    struct validation *v = &t->validation;

    TRY(measure_valid(t, valid));
    TRY(validation_sets(v, &t->step, &t->progress, t->counters.step));
    TRY(validation_tasks(v, &t->step, &t->progress, t->counters.step));
    return prompts_continue(&v->prompts, &t->step);
}

/* Writes and prints the texts that continue the prompts. */
static status tell_samples(struct trainer *t)
{
    const struct prompts *prompts = &t->validation.prompts;
    struct text text = {0};
    status result;

    if (!trainer_leads(t) || prompts->count == 0) return OK;
    TRY_GOTO(done, result, prompts_write(prompts, &t->files.samples,
                                         t->counters.step));
    TRY_GOTO(done, result, prompts_text(prompts, &text));
    TRY_GOTO(done, result, observe_sample(&t->observer, t->counters.step,
                                          "prompts", text.bytes));
done:
    text_free(&text);
    return result;
}

status trainer_validate(struct trainer *t)
{
    struct validation *v = &t->validation;
    const double began = clock_s();
    struct measure valid;

    v->extra_count = 0;
    arena_reset(&v->names);
    memory_copy_lend(&t->copy, averages(t) || train_step_averages(&t->step));
    if (averages(t)) TRY(train_step_swap(&t->step));
    TRY(train_step_average(&t->step));
    TRY(fault_point("validate.measure"));
    TRY(measure_all(t, &valid));
    TRY(train_step_return(&t->step));
    if (averages(t)) TRY(train_step_swap(&t->step));
    memory_copy_give_back(&t->copy);
    note_best(t, &valid);
    TRY(tell_samples(t));
    if (!trainer_leads(t) || (valid.targets == 0 && v->extra_count == 0))
        return OK;
    struct metrics_row row = metrics_blank(METRICS_VALIDATION);

    row.step = t->counters.step;
    row.tokens = t->counters.tokens;
    row.epoch = (double)t->counters.samples / (double)t->feed.samples;
    row.val_loss = valid.loss;
    row.val_targets = valid.targets;
    row.val_bits_per_byte = valid.bits_per_byte;
    if (t->setup.set->values.checkpoint.keep_best)
        row.val_best_step = t->counters.best.step;
    row.val_ms = 1e3 * (clock_s() - began);
    row.time_s = clock_wall_s();
    row.extras = v->extras;
    row.extra_count = v->extra_count;
    TRY(observe_row(&t->observer, &row, true));
    return metrics_append(&t->files.metrics, &row);
}
