/* SPDX-License-Identifier: Apache-2.0 */
/* trainer_loop.c - the steps of a run, and what is done between them. */
#include <math.h>
#include <string.h>

#include "base/clock.h"
#include "base/fault.h"
#include "base/log.h"
#include "base/meter.h"
#include "checkpoint/mirror.h"
#include "control/board.h"
#include "control/lease.h"
#include "control/straggler.h"
#include "kernels/isa.h"
#include "kernels/math.h"
#include "train/launch_record.h"
#include "train/signals.h"
#include "train/summary.h"
#include "train/trainer_state.h"

/* A sentence of a layer gains the step. */
static status fail_step(const struct trainer *t, status result)
{
    const struct loss_scale *scaling = &t->step.scaling;
    const int64_t step = t->counters.step + 1;
    char sentence[512];

    snprintf(sentence, sizeof sentence, "%s", status_message());
    if (result != ERR_NUMERIC) return status_pass(result, __FILE__, __LINE__);
    status_clear();
    if (scaling->value > 0 && !scaling->dynamic)
        FAIL(ERR_NUMERIC, "step %lld: %s; a smaller train.loss_scale than %g, "
                          "or auto, may fit", (long long)step, sentence,
             scaling->value);
    if (t->setup.request.reduction.sums.integer && t->step.now.norm.fails)
        FAIL(ERR_NUMERIC, "step %lld: %s, or too large for its integers; a "
                          "smaller numerics.sums_bits than %lld, in a new "
                          "run, leaves more room", (long long)step, sentence,
             (long long)t->setup.set->values.numerics.sums_bits);
    FAIL(ERR_NUMERIC, "step %lld: %s", (long long)step, sentence);
}

int64_t trainer_batch(const struct trainer *t, int64_t step)
{
    return ramp_batch(&t->setup.ramp, step);
}

/* A step that was made. */
struct made_step {
    struct step_result result;
    double lr, seconds;
    double noise, noise_average; /* NaN: not measured */
    int64_t tokens;
};

/* Fills in the values of a step that do not depend on the clock. */
static void exact_row(const struct trainer *t,
                      const struct made_step *made, struct metrics_row *row)
{
    const struct step_result *result = &made->result;

    *row = metrics_blank(METRICS_STEP);
    row->step = t->counters.step;
    row->tokens = t->counters.tokens;
    row->epoch = (double)t->counters.samples / (double)t->feed.samples;
    row->loss = result->loss;
    row->z_loss = result->z_loss;
    row->mtp_loss_1 = result->later[0];
    row->mtp_loss_2 = result->later[1];
    row->max_attention_logit = result->max_score;
    row->expert_busiest = result->routing.busiest;
    row->expert_busiest_mean = result->routing.mean;
    row->expert_entropy = result->routing.entropy;
    row->expert_idle = result->routing.idle;
    row->expert_dropped = result->routing.dropped;
    row->grad_norm = result->norm;
    row->clip_factor = result->factor;
    row->lr = made->lr;
    row->targets = result->targets;
    row->loss_scale = result->loss_scale;
    row->skipped = t->counters.skipped;
    row->samples_dropped =
        t->feed.dropped * (t->counters.samples / t->feed.samples);
    if (ramp_changes(&t->setup.ramp)) row->batch = t->setup.batch;
    observe_roundings(&t->observer, &row->recipe_cut, &row->recipe_zeroed);
    row->noise_scale = made->noise;
    row->noise_scale_ema = made->noise_average;
}

/* The fraction of the machine's peak. A step that exceeds the measured peak
 * shows that other work slowed every probe: it becomes the new peak. */
static double peak_fraction(struct trainer *t, double seconds)
{
    const double flops = t->flops.step / seconds;

    if (t->flops.peak <= 0) return 0;
    if (flops > t->flops.peak) t->flops.peak = flops;
    return flops / t->flops.peak;
}

static status write_row(struct trainer *t, const struct made_step *made)
{
    const struct options *o = &t->request->set->values;
    const double seconds = made->seconds;
    const double of_peak = peak_fraction(t, seconds); /* 0: unknown */
    struct metrics_row row;

    exact_row(t, made, &row);
    row.step_ms = 1e3 * seconds;
    step_prediction_note(&t->predicted, t->setup.batch, seconds,
                         &row.predicted_ms);
    row.tokens_per_s = (double)made->tokens / seconds;
    if (t->setup.model.moe.experts > 0) {
        row.flops_total = 6 * (double)t->setup.parameters * row.tokens_per_s;
        row.flops_active = 6 * (double)setup_active(&t->setup) *
                           row.tokens_per_s;
    }
    row.peak_fraction = of_peak > 0 ? of_peak : (double)NAN;
    row.data_ms = 1e3 * t->step.data_s;
    memory_copy_note(&t->copy, &row.copy_wait_ms, &row.copy_idle_share);
    row.resident_bytes = closing_resident_bytes();
    row.time_s = clock_wall_s();
    const struct progress_step shown = {
        .step = t->counters.step, .steps = t->setup.rate.steps,
        .loss = made->result.loss, .tokens_per_s = row.tokens_per_s,
        .busiest = row.expert_busiest};

    const bool logged = t->counters.step % o->run.log_every == 0 ||
                        t->counters.step == t->setup.rate.steps;

    progress_step(&t->progress, &shown);
    TRY(observe_row(&t->observer, &row, logged));
    if (!logged) return OK;
    return metrics_append(&t->files.metrics, &row);
}

/* The loss scale is part of what a checkpoint keeps. */
static void note_scale(struct trainer *t, const struct step_result *result)
{
    const struct loss_scale *scaling = &t->step.scaling;

    t->counters.loss_scale = scaling->value;
    t->counters.good = scaling->good;
    t->counters.skipped = scaling->skipped;
    t->counters.rates = t->step.rates;
    if (result->skipped)
        progress_note(&t->progress, "step %lld: gradients beyond float16, no "
                                    "update; loss scale %g from here on",
                      (long long)t->counters.step + 1, scaling->value);
}

/* Which samples the ranks consumed in the step that was made. */
static status count_samples(struct trainer *t, int64_t sequences)
{
    const struct ranges *left_out = &t->feed.left_out;
    const int64_t first = t->counters.samples;
    struct consumed consumed = {
        .step = t->counters.step + 1, .from = ranges_at(left_out, first, 0),
        .to = ranges_at(left_out, first, sequences - 1) + 1};
    struct text line = {0};
    status result;

    if (t->feed.batch_most > CONSUMED_BATCH_MOST) return OK;
    TRY(feed_count(&t->feed, &t->team, &consumed));
    if (!trainer_leads(t)) return OK;
    TRY_GOTO(done, result, consumed_write(&consumed, &line));
    result = lines_put(&t->files.consumed, line.bytes, line.length);
done:
    text_free(&line);
    return result;
}

/* A rank for which the others wait is named again after 10 minutes. */
static void watch_stragglers(struct trainer *t)
{
    static const double every_s = 5, again_s = 600;
    const struct board *board = board_mine();
    const double now = clock_s();
    struct straggler found;
    char text[120];

    /* The first step begins where ranks opened their data. */
    if (t->slow.looked_s == 0) t->slow.looked_s = now;
    if (board == NULL || now - t->slow.looked_s < every_s) return;
    t->slow.looked_s = now;
    found = straggler_find(board);
    if (found.rank < 0 || (t->slow.told_s > 0 && found.rank == t->slow.rank &&
                           now - t->slow.told_s < again_s)) return;
    t->slow.rank = found.rank;
    t->slow.told_s = now;
    straggler_text(&found, text);
    LOG(WARNING, "train", "a straggler: %s", text);
}

/* After the update. */
static status finish_step(struct trainer *t, struct made_step *made,
                          double began)
{
    const int64_t sequences = trainer_batch(t, t->counters.step);

    if (t->counters.step == 0)
        progress_note(&t->progress, "first loss %.4f; ln(vocabulary) %.4f",
                      made->result.loss,
                      math_log((double)t->setup.model.vocab));
    if (t->judged.verdict.action == POLICY_WARN) TRY(trainer_warn(t));
    TRY(observe_end(&t->observer));
    note_scale(t, &made->result);
    noise_end(&t->noise, &made->result, &made->noise, &made->noise_average);
    made->tokens =
        sequences * program_sequence(&trainer_first_stage(t)->program);
    TRY(count_samples(t, sequences));
    t->counters.step++;
    t->counters.tokens += made->tokens;
    t->counters.samples = ranges_at(&t->feed.left_out, t->counters.samples,
                                    sequences - 1) + 1;
    t->counters.epoch = t->counters.samples / t->feed.samples;
    if (!trainer_leads(t)) return OK;
    watch_stragglers(t);
    struct meter_track *track = meter_begin();

    made->seconds = clock_s() - began;
    const status written = write_row(t, made);

    meter_end(track, &(struct meter_what){.kind = METER_DATA,
                                          .name = "metrics"});
    return written;
}

/* The samples of the step after this one, which are read while it computes:
 * none after the last step, or where the batch grows. */
static struct sample_source read_ahead(struct trainer *t)
{
    const int64_t step = t->counters.step;
    const int64_t sequences = trainer_batch(t, step);

    if (step + 1 >= t->setup.rate.steps ||
        trainer_batch(t, step + 1) != sequences)
        return (struct sample_source){0};
    return feed_ahead(&t->feed,
                      ranges_at(&t->feed.left_out, t->counters.samples,
                                sequences - 1) + 1);
}

static status plain_step(struct trainer *t)
{
    const double began = clock_s();
    const int64_t step = t->counters.step;
    struct made_step made = {.lr = setup_rate(&t->setup, step) *
                                 trainer_event_rate(t, step)};
    const struct sample_source source =
        feed_train(&t->feed, t->counters.samples);

    TRY(fault_point("train.step"));
    TRY(feed_poll(&t->feed));
    train_step_begin(&t->step, step);
    TRY(noise_begin(&t->noise, &t->step, &source, step,
                    trainer_batch(t, step)));
    observe_begin(&t->observer, step + 1);
    feed_forget(&t->feed);
    t->step.next = read_ahead(t);
    trainer_check_begin(t);
    const status ran = train_step_run(&t->step, &source, made.lr,
                                      step + 1 - t->counters.skipped,
                                      &made.result);

    trainer_check_end(t);
    t->step_s = clock_s() - began;
    if (ran != OK) return fail_step(t, ran);
    TRY(lease_holds(t->files.run.path, false)); /* everything below writes */
    trainer_hear(t, made.result.asked);
    t->made = !made.result.refused;
    return t->made ? finish_step(t, &made, began) : trainer_refuse(t);
}

static status one_step(struct trainer *t)
{
    profiler_begin(&t->profiler);
    TRY(plain_step(t));
    if (profiler_reads(&t->profiler)) TRY(pipeline_finish(&t->pipeline));
    if (profiler_end(&t->profiler) == OK) return OK;
    /* A trace that cannot be written is no reason to lose the run. */
    fprintf(stderr, "notice    no trace: %s\n", status_message());
    status_clear();
    return OK;
}

enum { PROBES = 4 };

/* Seconds of one probe: all together take a quarter of a step, 40 ms at most;
 * before the first step there are only some ms for them. */
static double probe_s(const struct trainer *t)
{
    const double most = t->step_s > 0 ? 0.01 : 0.002, least = 0.0005;
    const double share = t->step_s / (4 * PROBES);

    return t->step_s <= 0 || share > most ? most
           : share > least                ? share
                                          : least;
}

/* The best of a few short probes: other work only ever slows one down. Cores
 * may need a while to reach their speed, so the loop asks again. */
void trainer_measure_peak(struct trainer *t)
{
    const double each_s = probe_s(t);

    for (int i = 0; i < PROBES; i++) {
        struct stage *stage = trainer_first_stage(t);
        const double flops =
            kernels_peak_product(&stage->stream, &stage->host_kernels[0],
                                 t->setup.request.machine.isa, each_s);

        if (flops > t->flops.peak) t->flops.peak = flops;
    }
}

static bool probe_again(int64_t step)
{
    return step == 1 || step == 4 || step == 16 || step == 64;
}

static bool due(int64_t step, int64_t every)
{
    return every > 0 && step % every == 0;
}

/* A step of a pipeline, drawn: RUN/timeline.svg. The first one is slower. */
static status traced_step(struct trainer *t)
{
    const int ranks = t->setup.mesh.size[AXIS_PIPE];
    char path[PATH_BYTES], title[128];

    TRY(trace_begin(&t->trace, &t->step));
    TRY(one_step(t));
    snprintf(title, sizeof title,
             "measured: step %lld, the %d rank%s of rank 0's pipeline, %s",
             (long long)t->counters.step, ranks, ranks > 1 ? "s" : "",
             ranks > 1 ? t->setup.set->values.schedule.name : "no pipeline");
    TRY(path_join(path, sizeof path, t->files.run.path, "timeline.svg"));
    return trace_end(&t->trace, &t->step, &(struct trace_picture){
        title, path, t->predicted.numbered ? &t->predicted.timeline : NULL});
}

static status stopped(const struct trainer *t)
{
    char command[PATH_BYTES + 64];

    launch_record_resume(command, sizeof command, t->files.run.path,
                    team_size(&t->team));
    FAIL(ERR_STOPPED, "stopped on %s after step %lld, saved; go on with: %s",
         signals_name(t->asked), (long long)t->counters.step, command);
}

/* All ranks agree to stop, so that none sends the others its failure: MPICH
 * complains about such messages, which nobody receives. */
static status fail_stopped(struct trainer *t)
{
    return team_agree(&t->team, stopped(t));
}

/* A signal that came while data and weights were opened. */
static status stop_before_steps(struct trainer *t)
{
    bool back;

    t->asked = signals_asked();
    TRY(team_most(&t->team, &t->asked));
    if (t->asked == 0 || t->counters.step >= t->setup.rate.steps) return OK;
    mirror_stop_soon();
    TRY(trainer_check(t, true, &back));
    if (back) return OK; /* the next step hears the signal, too */
    TRY(trainer_save(t));
    return fail_stopped(t);
}

/* Whether a step other than the last is saved. */
static bool is_saved(const struct trainer *t)
{
    return t->asked != 0 || t->saves.due || t->saves.best ||
           due(t->counters.step,
               t->request->set->values.checkpoint.every);
}

/* After a step that was made. */
static status end_step(struct trainer *t)
{
    const struct options *o = &t->request->set->values;
    const bool last = t->counters.step == t->setup.rate.steps;
    const bool validates = last || due(t->counters.step, o->validate.every);
    bool back;

    t->saves.best = false;
    TRY(trainer_check(t, last || is_saved(t) ||
                             (validates && o->checkpoint.keep_best), &back));
    if (back) return OK;
    board_step(t->counters.step);
    trainer_poll_save(t);
    if (validates) {
        board_phase(BOARD_VALIDATES);
        TRY(trainer_validate(t));
    }
    board_phase(BOARD_SAVES);
    if (t->asked != 0 || (last && o->checkpoint.at_end))
        TRY(trainer_save(t));
    else if (is_saved(t))
        TRY(trainer_try_save(t));
    if ((t->asked != 0 || last) && !o->checkpoint.at_end)
        TRY(trainer_settle(t));
    if (t->asked != 0 || last) trainer_tell_saves(t);
    if (t->asked != 0 || last)
        TRY(team_agree(&t->team, trainer_leads(t) ? trainer_finish_files(t)
                                                  : OK));
    /* Last: a rank that goes back to it has completed this step. */
    TRY(trainer_copy(t));
    if (!last) board_phase(BOARD_STEPS);
    return t->asked != 0 && !last ? fail_stopped(t) : OK;
}

/* A step of many, not each: it takes longer. */
static bool adds(int64_t step, int64_t every)
{
    return every > 1 && due(step, every);
}

/* The next step does the work of most, and no save goes on beside it. */
static bool is_alike(const struct trainer *t)
{
    const struct options *o = &t->request->set->values;
    const int64_t step = t->counters.step;

    return !adds(step, t->noise.every) && !adds(step + 1, o->observe.layers) &&
           !adds(step + 1, o->observe.histograms) &&
           !adds(step + 1, o->train.repeat_every) &&
           !background_works(&t->background);
}

status trainer_loop(struct trainer *t)
{
    const int64_t second = t->counters.step + 1;

    signals_stepping();
    trainer_save_begin(t);
    TRY(stop_before_steps(t));
    /* A run that may go back has somewhere to go from its beginning. */
    if (policy_rewinds(&t->policy) &&
        (t->saves.step < 0 || t->saves.none_whole))
        TRY(trainer_save(t));
    board_phase(BOARD_STEPS);
    while (t->counters.step < t->setup.rate.steps) {
        TRY(trainer_use_batch(t, trainer_batch(t, t->counters.step)));
        memory_copy_step_begins(&t->copy, is_alike(t));
        TRY(t->traces && t->counters.step == second ? traced_step(t)
                                                   : one_step(t));
        if (!t->made) continue;
        memory_copy_step_ended(&t->copy, t->counters.step);
        if (probe_again(t->counters.step)) trainer_measure_peak(t);
        step_prediction_watch_cores(&t->predicted,
                                    trainer_first_stage(t)->stream.threads);
        TRY(end_step(t));
    }
    return trainer_name_newest(t);
}
