/* SPDX-License-Identifier: Apache-2.0 */
/* trainer.c - a run from its configuration to its last checkpoint. */
#include "train/trainer.h"

#include <string.h>

#include "base/log.h"
#include "base/status_kept.h"
#include "checkpoint/history.h"
#include "checkpoint/mirror.h"
#include "comm/launch.h"
#include "comm/patience.h"
#include "control/board.h"
#include "control/lease.h"
#include "device/graphs.h"
#include "setup/suggest.h"
#include "train/auto_mesh.h"
#include "train/signals.h"
#include "train/slow_storage.h"
#include "train/summary.h"
#include "train/trainer_state.h"

static void free_all(struct trainer *t)
{
    trainer_close_files(t);
    ledger_close(&t->ledger);
    carried_free(&t->carried);
    policy_free(&t->policy);
    observe_close(&t->observer);
    log_stop();
    validation_close(&t->validation);
    trace_free(&t->trace);
    step_prediction_free(&t->predicted);
    memory_copy_close(&t->copy);
    background_close(&t->background);
    trainer_check_free(t);
    keeper_free(&t->keeper);
    train_step_free(&t->step);
    feed_close(&t->feed);
    team_leave_library(&t->team);
    pipeline_free(&t->pipeline); /* its device may count until then */
    profiler_free(&t->profiler);
    setup_free(&t->setup);
    run_tokenizer_free(&t->tokenizer);
    run_dir_close(&t->files.run);
    local_close(&t->files.local);
    team_free(&t->team);
}

static status send_last(void *argument)
{
    const struct trainer *t = argument;

    struct counters saved = t->counters;

    saved.step = t->saves.step;
    return keeper_mirror(&t->keeper, &saved);
}

/* The last checkpoint, for which all ranks stay. Collective. */
static status mirror_last(struct trainer *t, status result)
{
    const char *url = t->request->set->values.checkpoint.mirror;
    struct status_trace kept;

    if (url[0] == '\0' || t->saves.step < 0 ||
        (result != OK && result != ERR_STOPPED))
        return result;
    status_keep(&kept);
    const status sent = attend_work(t->team.world, send_last, t);

    if (result == OK) return sent;
    if (sent != OK && trainer_leads(t))
        fprintf(stderr, "warning   step %lld is whole on the disk, but not in "
                        "%s: %s\n", (long long)t->saves.step, url,
                status_message());
    return status_again(result, &kept);
}

static void tell_graphs(const struct trainer *t)
{
    char text[160];

    if (device_graphs(trainer_first_stage(t)->device, text, sizeof text))
        LOG(INFO, "train", "%s", text);
}

/* Opens everything, trains, and reports however it ended. */
static status train(struct trainer *t)
{
    status result;

    TRY(trainer_open(t));
    trainer_measure_peak(t);
    if (trainer_leads(t) && board_generation() <= 1)
        closing_print_start(&t->setup, &t->pipeline, &t->feed,
                            t->counters.step);
    progress_begin(&t->progress, trainer_leads(t) ? stderr : NULL, "step", "",
                   1);
    result = trainer_loop(t);
    if (result == OK) /* all ranks are here, and will not step again */
        result = profiler_finish(&t->profiler, &t->team, trainer_first_stage(t),
                                 t->flops.peak);
    if (result == OK) result = team_part(&t->team);
    progress_end(&t->progress);
    tell_graphs(t);
    memory_copy_tell(&t->copy);
    LOG(DEBUG, "train", "ended after step %lld: %s",
        (long long)t->counters.step,
        result == OK ? "finished" : status_message());
    result = mirror_last(t, result);
    if (!trainer_leads(t)) return result;
    struct report_prediction prediction;

    step_prediction_compare(&t->predicted, t->profiler.profile, &prediction);
    const struct closing closing = {
        .prediction = t->predicted.there ? &prediction : NULL,
        .setup = &t->setup, .text = t->tokenizer.vocabulary.size > 0,
        .pipeline = &t->pipeline, .run = &t->files.run,
        .step = t->counters.step, .result = result,
        .profiler = &t->profiler, .observer = &t->observer,
        .json = t->request->json};
    const status reported = closing_report(&closing);

    return result != OK ? result : reported;
}

static status live_once(const struct trainer_request *request,
                        struct group *world)
{
    struct trainer trainer = {.request = request, .team.world = world};
    status result;

    if (launch_rank() >= 0 && !request->dry_run)
        TRY_GOTO(done, result, signals_claim());
    if (world != NULL)
        TRY_GOTO(done, result, auto_mesh_agree(request->set, world));
    TRY_GOTO(done, result, trainer_plan(&trainer, world));
    if (!request->dry_run)
        TRY_GOTO(done, result, train(&trainer));
    else if (trainer_leads(&trainer))
        TRY_GOTO(done, result, closing_print_plan(&trainer.setup,
                                                  &trainer.pipeline,
                                                  request->json));
done:
    free_all(&trainer);
    return result;
}

/* A run that has lost its checkpoints. */
struct loss {
    const char *run, *mirror;
    status result;
    struct status_trace why;
};

/* Rank 0 fetches the newest step of the mirror if none is whole here. */
static status mend(void *argument)
{
    const struct loss *loss = argument;
    int64_t step;

    if (!checkpoint_none_is_whole(loss->run))
        return status_again(loss->result, &loss->why);
    TRY(lease_holds(loss->run, true));
    fprintf(stderr, "notice    %s; fetching the newest of %s\n",
            loss->why.message, loss->mirror);
    TRY(mirror_restore(loss->mirror, loss->run, &step));
    fprintf(stderr, "%s has the checkpoint of step %lld\n", loss->run,
            (long long)step);
    return OK;
}

/* One rank's whole life; world NULL: the only one. A run none of whose
 * checkpoints is whole goes on from its mirror, once. */
static status rank_run(void *argument, struct group *world)
{
    const struct trainer_request *request = argument;
    const struct options *o = &request->set->values;
    const status result = live_once(request, world);

    if ((result != ERR_FORMAT && result != ERR_MISSING) || request->dry_run ||
        !request->resume || request->from_scratch ||
        o->checkpoint.mirror[0] == '\0')
        return result;
    struct loss loss = {.run = o->run.dir, .mirror = o->checkpoint.mirror,
                        .result = result};

    status_keep(&loss.why);
    TRY(attend_work(world, mend, &loss));
    return live_once(request, world);
}

status trainer_check_layout(const struct trainer_request *request)
{
    struct vocabulary vocabulary;
    struct setup setup;
    status result;

    TRY(auto_mesh_choose(&(struct auto_mesh){
        .set = request->set, .ranks = request->ranks, .nodes = 1}));
    TRY(run_vocabulary(&vocabulary, &request->set->values));
    result = setup_resolve_or_suggest(&setup, request->set, &vocabulary,
                                      request->ranks, 0);

    setup_free(&setup);
    return result;
}

static status run_ranks(struct trainer_request *request)
{
    const int64_t limit_ms = 1000 * request->set->values.comm.limit;
    const struct launch launch = {request->ranks, limit_ms};

    patience_set(1000 * request->set->values.comm.silence);
    if (request->ranks > 1 && launch_rank() < 0)
        TRY(trainer_check_layout(request));
    if (request->ranks <= 1 && launch_rank() < 0) {
        TRY(auto_mesh_choose(&(struct auto_mesh){
            .set = request->set, .ranks = 1, .nodes = 1}));
        return rank_run(request, NULL);
    }
    return launch_run(&launch, rank_run, request);
}

/* Every process of the run watches signals, before MPI, data and weights. */
status trainer_run(const struct trainer_request *request)
{
    struct trainer_request copy = *request;
    status result;

    if (request->dry_run) return run_ranks(&copy);
    TRY_GOTO(done, result, signals_install(launch_rank() >= 0));
    board_limit(1000 * request->set->values.comm.limit);
    board_phase(BOARD_OPENS);
    result = run_ranks(&copy);
done:
    signals_restore();
    return result;
}

/* Whether a run stands for its own architecture. */
static bool has_config(const char *run)
{
    char path[PATH_BYTES];

    if (path_join(path, sizeof path, run, "config.json") == OK)
        return file_exists(path);
    status_clear();
    return false;
}

/* Beside model.from these had no effect once, and config.yaml may have others
 * than the files: the files count. */
static status forget_choices(struct options_set *set)
{
    static const char *const names[] = {
        "family", "activation", "tied", "attention_bias", "mlp_bias",
        "parallel", "rope_base", "norm_epsilon", "query_scale",
        "attention_softcap", "head_softcap", "rope_local_base"};
    struct options_set defaults = {0};
    struct text text = {0};
    char name[64];
    status result;

    TRY_GOTO(done, result, options_init(&defaults));
    TRY_GOTO(done, result, text_append_string(&text, "model:\n"));
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        snprintf(name, sizeof name, "model.%s", names[i]);
        TRY_GOTO(done, result, text_printf(&text, "  %s: ", names[i]));
        TRY_GOTO(done, result, options_get_text(&defaults, name, &text));
        TRY_GOTO(done, result, text_append_string(&text, "\n"));
    }
    result = options_read_text(set, text.bytes, text.length, "defaults",
                               ORIGIN_DEFAULT);
done:
    text_free(&text);
    options_free(&defaults);
    return result;
}

status trainer_options(struct options_set *set, const char *run,
                       const char *const *assignments, int count)
{
    struct run_dir place = {0};
    struct text text = {0};
    char name[128], tokenizer[PATH_BYTES], assignment[PATH_BYTES + 32];
    status result;

    TRY_GOTO(done, result, run_dir_read(&place, run));
    TRY_GOTO(done, result, file_read_regular(place.config, (size_t)1 << 20,
                                             &text));
    TRY_GOTO(done, result, options_read_text(set, text.bytes, text.length,
                                             place.config, ORIGIN_RUN));
    options_read_origins(set, text.bytes, text.length);
    if (set->values.data.train.count == 0 &&
        set->values.data.mixture.count == 0)
        FAIL_GOTO(done, result, ERR_CONFIG,
                  "%s: was imported and names no data; begin a run from it: "
                  "lockstep train %s/config.yaml --set init.from=%s --set "
                  "data.train=[FILE] --set train.steps=N --run NEW", run, run,
                  run);
    if (tokenizer_file(run, tokenizer)) { /* the run's own copy */
        snprintf(assignment, sizeof assignment, "tokenizer.from=%s",
                 tokenizer);
        TRY_GOTO(done, result, options_assign(set, assignment, ORIGIN_RUN));
    }
    if (set->values.model.from[0] != '\0' && has_config(run)) {
        snprintf(assignment, sizeof assignment, "model.from=%s", run);
        TRY_GOTO(done, result, options_assign(set, assignment, ORIGIN_RUN));
        TRY_GOTO(done, result, forget_choices(set));
    }
    snprintf(assignment, sizeof assignment, "run.dir=%s", run);
    TRY_GOTO(done, result, options_assign(set, assignment, ORIGIN_RUN));
    for (int i = 0; i < count; i++) {
        const size_t length = strcspn(assignments[i], "=");

        snprintf(name, sizeof name, "%.*s",
                 (int)(length < sizeof name ? length : sizeof name - 1),
                 assignments[i]);
        if (!options_may_change(name))
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
