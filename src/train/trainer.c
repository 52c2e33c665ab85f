/* SPDX-License-Identifier: Apache-2.0 */
/* trainer.c - a run from its configuration to its last checkpoint. */
#include "train/trainer.h"

#include <math.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/fault.h"
#include "base/log.h"
#include "checkpoint/history.h"
#include "comm/launch.h"
#include "kernels/math.h"
#include "train/closing.h"
#include "train/feed.h"
#include "train/keep.h"
#include "train/metrics.h"
#include "train/profiler.h"
#include "train/progress.h"
#include "train/same.h"
#include "train/session.h"
#include "train/signals.h"
#include "train/trace.h"

struct trainer {
    const struct trainer_request *request;
    struct setup setup;
    struct pipeline pipeline;
    struct feed feed;
    struct team team;
    double *sums;         /* owned, [valid samples]: room for validation */
    struct train_step step;
    struct trace trace;   /* of a pipeline's second step here */
    struct profiler profiler;
    struct keeper keeper;
    struct run_dir run;
    struct metrics_writer metrics;
    struct progress progress;
    struct counters counters;
    double peak_flops;    /* of this machine, all threads; 0: unknown */
    int64_t step_flops;   /* of the model, without recomputation */
    int64_t saved_step;   /* of the newest checkpoint; -1: none */
};

static double now_s(clockid_t clock)
{
    struct timespec t;

    clock_gettime(clock, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Files, lines and signals are the business of rank 0. */
static bool leads(const struct trainer *t)
{
    return team_rank(&t->team) == 0;
}

/* Scratch, stream and threads are its. */
static struct stage *first_stage(const struct trainer *t)
{
    return &t->pipeline.stages[0];
}

/* ---- opening ---- */

static status store_text(const char *directory, const char *name,
                         const char *bytes, size_t length)
{
    char path[PATH_BYTES];

    TRY(path_join(path, sizeof path, directory, name));
    return file_write_atomic(path, bytes, length);
}

/* The resolved configuration, the architecture and the tokenizer: a run stands
 * for itself. */
static status store_configuration(struct trainer *t)
{
    struct text yaml = {0};
    status result;

    TRY_GOTO(done, result, options_write_yaml(t->request->set, &yaml));
    TRY_GOTO(done, result, file_write_atomic(t->run.config, yaml.bytes,
                                             yaml.length));
    TRY_GOTO(done, result, store_text(t->run.path, "config.json",
                                      t->keeper.config.bytes,
                                      t->keeper.config.length));
    if (t->setup.has_tokenizer)
        TRY_GOTO(done, result, store_text(t->run.path,
                                          t->setup.tokenizer.file_name,
                                          t->setup.tokenizer.json,
                                          t->setup.tokenizer.json_length));
done:
    text_free(&yaml);
    return result;
}

static status start_weights(struct trainer *t)
{
    const struct inventory_of of = {t->pipeline.stages, t->pipeline.count,
                                    &t->team};
    const struct options *o = &t->request->set->values;

    t->saved_step = -1;
    return session_start_weights(&of, o->init.from, (uint64_t)o->seed);
}

/* The order of samples is a function of the data: with other data the cursor
 * would point anywhere. */
static status check_data(struct trainer *t)
{
    const int64_t tokens = feed_tokens(&t->feed);
    struct counters *c = &t->counters;
    const uint32_t crc = feed_crc(&t->feed, c->samples);

    if (c->data_tokens != 0 &&
        (c->data_tokens != tokens || c->data_crc != crc))
        FAIL(ERR_CONFIG, "data.train: is not what %s was trained on so far "
                         "(%lld tokens then, %lld now)%s; bring the old data "
                         "back, or start a new run with init.from=%s",
             t->run.path, (long long)c->data_tokens, (long long)tokens,
             t->feed.recipe.count > 0 ? ", or phases of its past changed" : "",
             t->run.path);
    c->data_tokens = tokens;
    c->data_crc = crc;
    return OK;
}

static status restore(struct trainer *t)
{
    struct text notice = {0};
    status result;

    if (leads(t)) TRY_GOTO(done, result, checkpoint_clean(t->run.path));
    TRY_GOTO(done, result, keeper_restore(&t->keeper, &t->counters, &notice));
    if (notice.length > 0) LOG(WARNING, "checkpoint", "%s", notice.bytes);
    LOG(DEBUG, "train", "resumed after step %lld",
        (long long)t->counters.step);
    t->saved_step = t->counters.step;
done:
    text_free(&notice);
    return result;
}

/* A run that was killed before its first checkpoint begins again. */
static status restore_or_begin(struct trainer *t)
{
    int64_t *steps = NULL;
    int count = 0;

    TRY(checkpoint_steps(t->run.path, &steps, &count));
    memory_free(steps);
    if (count > 0) return restore(t);
    fprintf(stderr, "%s has no checkpoint yet: beginning again at step 0\n",
            t->run.path);
    return start_weights(t);
}

/* Everything that is decided, in order, before memory is taken. */
static status plan(struct trainer *t, struct group *world)
{
    const struct options *o = &t->request->set->values;
    struct grid grid;

    TRY(same_options(world, t->request->set));
    TRY(setup_resolve(&t->setup, t->request->set,
                      world == NULL ? 1 : world->size,
                      world == NULL ? 0 : world->rank));
    TRY(team_build(&t->team, world, &t->setup.mesh, &t->setup.order,
                   o->comm.limit));
    if (o->run.dir[0] == 0)
        FAIL(ERR_CONFIG, "run.dir: say where the run goes, in the file or with "
                         "--run DIR");
    if (!t->setup.has_tokenizer && t->setup.model.vocab == 0)
        FAIL(ERR_CONFIG, "tokenizer.from is empty and model.vocab is 0: one of "
                         "them must give the vocabulary");
    if (t->request->resume) {
        if (keeper_grid(o->run.dir, &grid) == OK)
            TRY(setup_use_grid(&t->setup, &grid));
        else
            status_clear(); /* restoring says what is wrong */
    }
    TRY(same_schedule(world, &t->setup));
    const struct pipeline_request request = setup_pipeline(&t->setup);

    TRY(pipeline_plan(&t->pipeline, &request));
    TRY(team_add_chunks(&t->team, &t->pipeline));
    int64_t values = trace_values(&t->pipeline.schedule);

    if (o->validate.sequences > values) values = o->validate.sequences;
    if (profiler_values(&t->setup.mesh) > values)
        values = profiler_values(&t->setup.mesh);
    train_step_reserve(&t->pipeline, &t->team, values);
    return OK;
}

/* One file for each rank, with who it is. */
static status open_log(struct trainer *t, const char *directory)
{
    const int rank = team_rank(&t->team);
    char path[PATH_BYTES], mesh[MESH_TEXT_BYTES];

    TRY(run_dir_log(directory, rank, path));
    TRY(log_start(rank, path));
    mesh_text(&t->setup.mesh, mesh, sizeof mesh);
    LOG(DEBUG, "mesh", "rank %d of %s: pipe %d, data %d, shard %d, context %d, "
        "tensor %d; process %ld", rank, mesh, t->setup.place.at[AXIS_PIPE],
        t->setup.place.at[AXIS_DATA], t->setup.place.at[AXIS_SHARD],
        t->setup.place.at[AXIS_CONTEXT], t->setup.place.at[AXIS_TENSOR],
        (long)getpid());
    LOG(DEBUG, "plan", "%zu bytes, %d threads", t->pipeline.bytes,
        first_stage(t)->request.threads);
    return OK;
}

/* The run's directory and its data: rank 0 first, the others find them made. */
static status open_run(struct trainer *t)
{
    const char *directory = t->request->set->values.run.dir;
    status result = OK;

    if (leads(t)) {
        result = t->request->resume ? run_dir_resume(&t->run, directory)
                                    : run_dir_create(&t->run, directory);
        if (result == OK) result = open_log(t, directory);
        if (result == OK)
            result = feed_open(&t->feed, &t->setup, t->run.path);
    }
    TRY(team_agree(&t->team, result));
    if (leads(t)) return OK;
    snprintf(t->run.path, sizeof t->run.path, "%s", directory);
    TRY(open_log(t, directory));
    return feed_open(&t->feed, &t->setup, t->run.path);
}

static void restore_scale(struct trainer *t)
{
    struct loss_scale *scaling = &t->step.scaling;
    const struct counters *c = &t->counters;

    *scaling = t->setup.scaling;
    if (c->loss_scale > 0 && scaling->dynamic) scaling->value = c->loss_scale;
    scaling->good = c->good;
    scaling->skipped = c->skipped;
}

/* Weights, then what rank 0 writes down about the run. */
static status begin(struct trainer *t)
{
    if (t->request->resume) TRY(restore_or_begin(t));
    else TRY(start_weights(t));
    TRY(train_step_refresh(&t->step));
    restore_scale(t);
    TRY(check_data(t));
    if (t->counters.step > t->setup.rate.steps)
        FAIL(ERR_CONFIG, "train.steps: %s has done %lld steps already, %lld "
                         "are fewer; start a new run for a shorter one",
             t->run.path, (long long)t->counters.step,
             (long long)t->setup.rate.steps);
    if (!leads(t)) return OK;
    TRY(store_configuration(t));
    return metrics_open(&t->metrics, t->run.metrics,
                        t->request->resume ? t->counters.step : -1);
}

/* What all ranks do in a step: F, then B and W at its cost each. */
static status count_work(struct trainer *t)
{
    double flops = 0;

    for (int i = 0; i < t->pipeline.count; i++)
        flops += 3.0 * t->pipeline.chunks[i].count *
                 stage_rounds(&t->pipeline.stages[i]) *
                 (double)program_cost(&t->pipeline.stages[i].program).flops;
    TRY(team_join(&t->team, &flops, 1));
    t->step_flops = (int64_t)flops;
    return OK;
}

static status open_all(struct trainer *t)
{
    const struct inventory_of of = {t->pipeline.stages, t->pipeline.count,
                                    &t->team};
    void *sums = NULL;

    TRY(open_run(t));
    TRY(setup_length(&t->setup, t->feed.samples));
    TRY(memory_take((size_t)t->feed.valid_samples + 1, sizeof *t->sums,
                    &sums));
    t->sums = sums;
    TRY(pipeline_open(&t->pipeline));
    const struct memory_row *rows = first_stage(t)->memory;

    team_use_scratch(&t->team, rows[MEMORY_MESSAGES].data,
                     rows[MEMORY_MESSAGES].bytes);
    TRY(train_step_build(&t->step, &t->pipeline, &t->team));
    setup_update(&t->setup, &t->step.update);
    TRY(count_work(t));
    TRY(keeper_build(&t->keeper, &t->setup, &of, t->run.path));
    TRY(team_agree(&t->team, begin(t)));
    t->profiler.trace = t->request->trace;
    t->profiler.title = t->request->set->values.run.dir;
    return profiler_build(&t->profiler, &t->team,
                          t->setup.rate.steps - t->counters.step);
}

/* ---- the loop ---- */

static status validate(struct trainer *t)
{
    const struct sample_source source = feed_valid(&t->feed);
    const double began = now_s(CLOCK_MONOTONIC);
    struct evaluation evaluation = {.sums = t->sums};

    if (t->feed.valid_samples == 0) return OK;
    TRY(train_evaluate(&t->step, &source, t->feed.valid_samples,
                       &evaluation));
    double bytes = train_step_speaks(&t->step)
                       ? (double)t->feed.valid_bytes : 0;

    TRY(team_join(&t->team, &bytes, 1));
    if (evaluation.targets == 0 || !leads(t)) return OK;
    const double loss = evaluation.sum / (double)evaluation.targets;
    const struct metrics_row row = {
        .kind = METRICS_VALIDATION, .step = t->counters.step,
        .tokens = t->counters.tokens,
        .epoch = (double)t->counters.samples / (double)t->feed.samples,
        .val_loss = loss, .val_targets = evaluation.targets,
        .val_bits_per_byte =
            bytes > 0 ? evaluation.sum / (math_log(2) * bytes) : (double)NAN,
        .val_ms = 1e3 * (now_s(CLOCK_MONOTONIC) - began),
        .time_s = now_s(CLOCK_REALTIME)};

    progress_note(&t->progress,
                  "step %lld: validation loss %.4f, %.4f bits per byte "
                  "(%lld sequences)", (long long)t->counters.step, loss,
                  row.val_bits_per_byte, (long long)t->feed.valid_samples);
    return metrics_append(&t->metrics, &row);
}

static status save(struct trainer *t)
{
    if (t->saved_step == t->counters.step) return OK;
    t->counters.data_crc = feed_crc(&t->feed, t->counters.samples);
    TRY(keeper_save(&t->keeper, &t->counters));
    LOG(DEBUG, "checkpoint", "saved step %lld", (long long)t->counters.step);
    t->saved_step = t->counters.step;
    return OK;
}

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
    FAIL(ERR_NUMERIC, "step %lld: %s", (long long)step, sentence);
}

/* Tokens and sequences of a step, all ranks together. */
static int64_t step_sequences(const struct trainer *t)
{
    return t->setup.set->values.train.batch;
}

static int64_t step_tokens(const struct trainer *t)
{
    return step_sequences(t) * program_sequence(&first_stage(t)->program);
}

static status write_row(struct trainer *t, const struct step_result *result,
                        double lr, double seconds)
{
    const double tokens = (double)step_tokens(t);
    const struct metrics_row row = {
        .kind = METRICS_STEP, .step = t->counters.step,
        .tokens = t->counters.tokens,
        .epoch = (double)t->counters.samples / (double)t->feed.samples,
        .loss = result->loss, .grad_norm = result->norm,
        .clip_factor = result->factor, .lr = lr, .targets = result->targets,
        .loss_scale = result->loss_scale, .skipped = t->counters.skipped,
        .samples_dropped = t->feed.dropped *
                           (t->counters.samples / t->feed.samples),
        .step_ms = 1e3 * seconds, .tokens_per_s = tokens / seconds,
        .peak_fraction = t->peak_flops > 0
                             ? (double)t->step_flops / seconds / t->peak_flops
                             : (double)NAN,
        .data_ms = 1e3 * t->step.data_s,
        .resident_bytes = closing_resident_bytes(),
        .time_s = now_s(CLOCK_REALTIME)};
    const struct progress_step shown = {
        .step = t->counters.step, .steps = t->setup.rate.steps,
        .loss = result->loss, .tokens_per_s = row.tokens_per_s,
        .peak_fraction = t->peak_flops > 0 ? row.peak_fraction : 0};

    progress_step(&t->progress, &shown);
    if (t->counters.step % t->request->set->values.run.log_every != 0 &&
        t->counters.step != t->setup.rate.steps)
        return OK;
    return metrics_append(&t->metrics, &row);
}

/* The loss scale is part of what a checkpoint keeps. */
static void note_scale(struct trainer *t, const struct step_result *result)
{
    const struct loss_scale *scaling = &t->step.scaling;

    t->counters.loss_scale = scaling->value;
    t->counters.good = scaling->good;
    t->counters.skipped = scaling->skipped;
    if (result->skipped)
        progress_note(&t->progress, "step %lld: gradients beyond float16, no "
                                    "update; loss scale %g from here on",
                      (long long)t->counters.step + 1, scaling->value);
}

static status plain_step(struct trainer *t)
{
    const double began = now_s(CLOCK_MONOTONIC);
    const double lr = rate_at(&t->setup.rate, t->counters.step);
    const struct sample_source source =
        feed_train(&t->feed, t->counters.samples);
    struct step_result result;

    TRY(fault_point("train.step"));
    const status ran = train_step_run(&t->step, &source, lr,
                                      t->counters.step + 1 -
                                          t->counters.skipped, &result);

    if (ran != OK) return fail_step(t, ran);
    if (t->counters.step == 0)
        progress_note(&t->progress, "first loss %.4f; ln(vocabulary) %.4f",
                      result.loss, math_log((double)t->setup.model.vocab));
    note_scale(t, &result);
    t->counters.step++;
    t->counters.tokens += step_tokens(t);
    t->counters.samples += step_sequences(t);
    t->counters.epoch = t->counters.samples / t->feed.samples;
    if (!leads(t)) return OK;
    struct meter_track *track = meter_begin();
    const status written =
        write_row(t, &result, lr, now_s(CLOCK_MONOTONIC) - began);

    meter_end(track, &(struct meter_what){.kind = METER_DATA,
                                          .name = "metrics"});
    return written;
}

static status one_step(struct trainer *t)
{
    profiler_begin(&t->profiler);
    TRY(plain_step(t));
    return profiler_end(&t->profiler);
}

/* The best of a few short probes: other work only ever slows one down. Cores
 * may need a while to reach their speed, so the loop asks again; before the
 * first step there are only some ms for it. */
static void measure_peak(struct trainer *t)
{
    const double each_s = t->peak_flops > 0 ? 0.01 : 0.002;

    for (int i = 0; i < 4; i++) {
        struct stage *stage = first_stage(t);
        const double flops =
            kernels_peak_product(&stage->stream, &stage->inner[0],
                                 t->setup.request.isa, each_s);

        if (flops > t->peak_flops) t->peak_flops = flops;
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
    char path[PATH_BYTES], title[128];

    TRY(trace_begin(&t->trace, &t->step));
    TRY(one_step(t));
    snprintf(title, sizeof title, "measured: step %lld, %d ranks, %s",
             (long long)t->counters.step, t->setup.mesh.size[AXIS_PIPE],
             t->setup.set->values.schedule.name);
    TRY(path_join(path, sizeof path, t->run.path, "timeline.svg"));
    return trace_end(&t->trace, &t->step, title, path);
}

static status loop(struct trainer *t)
{
    const struct options *o = &t->request->set->values;
    const int64_t second = t->counters.step + 1;
    const bool pipeline = t->setup.mesh.size[AXIS_PIPE] > 1;

    while (t->counters.step < t->setup.rate.steps) {
        TRY(pipeline && t->counters.step == second ? traced_step(t)
                                                   : one_step(t));
        if (probe_again(t->counters.step)) measure_peak(t);
        const bool last = t->counters.step == t->setup.rate.steps;
        int asked = signals_asked();

        TRY(team_most(&t->team, &asked)); /* all stop after the same step */
        if (last || due(t->counters.step, o->validate.every))
            TRY(validate(t));
        if (asked != 0 || due(t->counters.step, o->checkpoint.every) ||
            (last && o->checkpoint.at_end))
            TRY(save(t));
        if (asked != 0 && !last)
            FAIL(ERR_STOPPED, "stopped on %s after step %lld, saved; go on "
                              "with: lockstep resume %s",
                 signals_name(asked), (long long)t->counters.step,
                 t->run.path);
    }
    return OK;
}

static void free_all(struct trainer *t)
{
    metrics_close(&t->metrics);
    log_stop();
    memory_free(t->sums);
    trace_free(&t->trace);
    keeper_free(&t->keeper);
    train_step_free(&t->step);
    feed_close(&t->feed);
    profiler_free(&t->profiler);
    pipeline_free(&t->pipeline);
    setup_free(&t->setup);
    run_dir_close(&t->run);
    team_free(&t->team);
}

/* Opens everything, trains, and reports however it ended. */
static status train(struct trainer *t)
{
    status result;

    TRY(open_all(t));
    measure_peak(t);
    if (leads(t)) {
        closing_print_start(&t->setup, &t->pipeline, &t->feed,
                            t->counters.step);
        TRY(signals_install());
    }
    progress_begin(&t->progress, leads(t) ? stderr : NULL, "step", "", 1);
    result = loop(t);
    if (result == OK) /* all ranks are here, and will not step again */
        result = profiler_finish(&t->profiler, &t->team, first_stage(t),
                                 t->peak_flops);
    progress_end(&t->progress);
    LOG(DEBUG, "train", "ended after step %lld: %s",
        (long long)t->counters.step,
        result == OK ? "finished" : status_message());
    if (!leads(t)) return result;
    signals_restore();
    const struct closing closing = {
        .setup = &t->setup, .pipeline = &t->pipeline, .run = &t->run,
        .step = t->counters.step, .result = result,
        .profiler = &t->profiler, .json = t->request->json};
    const status reported = closing_report(&closing);

    return result != OK ? result : reported;
}

/* One rank's whole life; world NULL: the only one. */
static status rank_run(void *argument, struct group *world)
{
    const struct trainer_request *request = argument;
    struct trainer trainer = {.request = request, .team.world = world};
    status result;

    TRY_GOTO(done, result, plan(&trainer, world));
    if (!request->dry_run)
        TRY_GOTO(done, result, train(&trainer));
    else if (leads(&trainer))
        TRY_GOTO(done, result, closing_print_plan(&trainer.setup,
                                                  &trainer.pipeline,
                                                  request->json));
done:
    free_all(&trainer);
    return result;
}

/* Before any rank is: what is said then is one sentence with its hint. */
static status check_layout(const struct trainer_request *request)
{
    struct setup setup;
    const status result = setup_resolve(&setup, request->set, request->ranks,
                                        0);

    setup_free(&setup);
    return result;
}

status trainer_run(const struct trainer_request *request)
{
    struct trainer_request copy = *request;
    const int64_t limit_ms = 1000 * request->set->values.comm.limit;

    if (copy.ranks > 1 && launch_rank() < 0) TRY(check_layout(&copy));
    if (copy.ranks <= 1 && launch_rank() < 0) return rank_run(&copy, NULL);
    return launch_run(&(struct launch){copy.ranks, limit_ms}, rank_run, &copy);
}

status trainer_options(struct options_set *set, const char *run,
                       const char *const *assignments, int count)
{
    struct run_dir place = {0};
    struct text text = {0};
    char name[128], tokenizer[PATH_BYTES], assignment[PATH_BYTES + 32];
    status result;

    TRY_GOTO(done, result, run_dir_read(&place, run));
    TRY_GOTO(done, result, file_read(place.config, (size_t)1 << 20, &text));
    TRY_GOTO(done, result, options_read_text(set, text.bytes, text.length,
                                             place.config, ORIGIN_RUN));
    options_read_origins(set, text.bytes, text.length);
    if (set->values.data.train.count == 0 &&
        set->values.data.mixture.count == 0)
        FAIL_GOTO(done, result, ERR_CONFIG,
                  "%s: was imported and names no data; train it with a "
                  "configuration that has init.from and model.from: %s", run,
                  run);
    if (tokenizer_file(run, tokenizer)) { /* the run's own copy */
        snprintf(assignment, sizeof assignment, "tokenizer.from=%s",
                 tokenizer);
        TRY_GOTO(done, result, options_assign(set, assignment, ORIGIN_RUN));
    }
    snprintf(assignment, sizeof assignment, "run.dir=%s", run);
    TRY_GOTO(done, result, options_assign(set, assignment, ORIGIN_RUN));
    for (int i = 0; i < count; i++) {
        const size_t length = strcspn(assignments[i], "=");

        snprintf(name, sizeof name, "%.*s",
                 (int)(length < sizeof name ? length : sizeof name - 1),
                 assignments[i]);
        if (!setup_may_change(name))
            FAIL_GOTO(done, result, ERR_CONFIG,
                      "%s cannot change when a run resumes: it says what was "
                      "trained so far; start a new run with init.from=%s",
                      name, run);
        TRY_GOTO(done, result, options_assign(set, assignments[i],
                                              ORIGIN_COMMAND_LINE));
    }
done:
    text_free(&text);
    run_dir_close(&place);
    return result;
}
