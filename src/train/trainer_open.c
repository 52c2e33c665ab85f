/* SPDX-License-Identifier: Apache-2.0 */
/* trainer_open.c - a run up to its next step: the plan, memory, data, weights
 * or a checkpoint, the files of the run. */
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/room.h"
#include "comm/compare_ranks.h"
#include "comm/message.h"
#include "control/board.h"
#include "control/journal.h"
#include "device/library.h"
#include "checkpoint/history.h"
#include "checkpoint/mirror.h"
#include "inference/companions.h"
#include "train/changes.h"
#include "train/checks.h"
#include "setup/suggest.h"
#include "setup/cores.h"
#include "setup/hosts.h"
#include "train/launch_record.h"
#include "setup/ramp_plans.h"
#include "setup/agreement.h"
#include "observe/trace_file.h"
#include "train/trainer_state.h"

enum { LOCK_MOST_S = 120 };

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
    const struct tokenizer *tokenizer = run_tokenizer_of(&t->tokenizer);
    struct text yaml = {0};
    status result;

    TRY_GOTO(done, result, options_write_yaml(t->request->set, &yaml));
    TRY_GOTO(done, result, file_write_atomic(t->files.run.config, yaml.bytes,
                                             yaml.length));
    TRY_GOTO(done, result, store_text(t->files.run.path, "config.json",
                                      t->keeper.config.bytes,
                                      t->keeper.config.length));
    if (tokenizer != NULL)
        TRY_GOTO(done, result, store_text(t->files.run.path,
                                          tokenizer->file_name,
                                          tokenizer->json,
                                          tokenizer->json_length));
    if (tokenizer != NULL)
        TRY_GOTO(done, result, companions_copy(tokenizer->source,
                                               t->files.run.path,
                                               t->setup.model.context));
done:
    text_free(&yaml);
    return result;
}

static status start_weights(struct trainer *t)
{
    const struct inventory_of of = {t->pipeline.stages, t->pipeline.count,
                                    &t->team};
    const struct options *o = &t->request->set->values;

    t->saves.step = -1;
    board_resume(0, BOARD_BEGINNING);
    TRY(session_start_weights(&of, o->init.from, (uint64_t)o->seed));
    return train_step_start(&t->step);
}

/* The order of samples is a function of the data: with other data the cursor
 * would point anywhere. */
static status check_data(struct trainer *t)
{
    const int64_t tokens = feed_tokens(&t->feed);
    struct counters *c = &t->counters;
    uint32_t crc;

    if (c->data_tokens != 0) TRY(feed_settle(&t->feed));
    crc = feed_crc(&t->feed, c->samples); /* a new run's: when it is saved */
    if (c->data_tokens != 0 &&
        (c->data_tokens != tokens || c->data_crc != crc))
        FAIL(ERR_CONFIG, "data.train: is not what %s was trained on so far "
                         "(%lld tokens then, %lld now)%s; bring the old data "
                         "back, or start a new run with init.from=%s",
             t->files.run.path, (long long)c->data_tokens, (long long)tokens,
             t->feed.rows.count > 0 ? ", or phases of its past changed" : "",
             t->files.run.path);
    c->data_tokens = tokens;
    c->data_crc = crc;
    return OK;
}

static status restore(struct trainer *t)
{
    struct text notice = {0};
    status result;

    if (local_leads(&t->files.local, team_rank(&t->team)))
        TRY_GOTO(done, result,
                 checkpoint_clean(t->files.local.used ? t->files.local.store
                                                      : t->files.run.path));
    TRY_GOTO(done, result, keeper_restore(&t->keeper, &t->counters, &notice));
    TRY_GOTO(done, result, train_step_return(&t->step));
    if (notice.length > 0) LOG(WARNING, "checkpoint", "%s", notice.bytes);
    LOG(DEBUG, "train", "resumed after step %lld",
        (long long)t->counters.step);
    t->saves.step = t->counters.step;
    board_resume(t->counters.step, BOARD_CHECKPOINT);
done:
    text_free(&notice);
    return result;
}

/* Rank 0 looks. A run that was killed before its first checkpoint begins again;
 * one whose checkpoints are gone does not, unless it is told to. */
static status may_begin(const struct trainer *t, int64_t *begins)
{
    const char *run = t->files.run.path;
    char command[PATH_BYTES + 64];
    const bool told = t->request->from_scratch;
    status result;
    int count;
    bool none;

    TRY(checkpoint_count(run, &count, &none));
    if (t->files.local.used && count == 0)
        TRY(local_count(&t->files.local, &count, &none));
    *begins = count == 0;
    if (count > 0 && told)
        FAIL(ERR_CONFIG, "%s has %d checkpoints, and --from-scratch would give "
                         "them up: leave it out to go on from the newest, or "
                         "move %s/ckpt away first", run, count, run);
    if (count > 0 || none || told) return OK;
    result = status_fail(ERR_MISSING, __FILE__, __LINE__,
                         "%s/ckpt: has no checkpoint, though the run had begun "
                         "to save or is an older one; nothing was changed",
                         run);
    launch_record_resume(command, sizeof command, run, team_size(&t->team));
    return status_hint(result, "bring the directory back (is its disk "
                               "mounted?), or begin again at step 0 with: "
                               "%s --from-scratch", command);
}

static status restore_or_begin(struct trainer *t)
{
    int64_t begins = 0, step;

    TRY(trainer_copy_restore(t, &step));
    if (step >= 0) return OK;
    /* Copies that only some ranks have would outlast those that come. */
    memory_copy_begin(&t->copy);
    TRY(team_agree(&t->team, trainer_leads(t) ? may_begin(t, &begins) : OK));
    if (t->team.world != NULL)
        TRY(comm_broadcast(t->team.world, tensor_1d(&begins, DTYPE_I64, 1),
                           0));
    if (!begins) return restore(t);
    if (trainer_leads(t))
        fprintf(stderr, "%s has no checkpoint%s: beginning again at step 0\n",
                t->files.run.path, t->request->from_scratch ? "" : " yet");
    return start_weights(t);
}

/* Ranks that are threads of this process share its address space. Memory of a
 * device apart takes none of it. */
static status plan_that_fits(struct trainer *t, int64_t values)
{
    const struct group *world = t->team.world;
    const size_t here = world != NULL && world->ops->borrows
                            ? (size_t)world->size : 1;

    TRY(ramp_plan(&t->pipeline, &t->setup, &t->team, values));
    if (device_about(trainer_first_stage(t)->request.machine.device)->apart)
        return OK;
    return room_check(here * t->pipeline.bytes);
}

/* Sizes, mesh and grid. */
static status resolve(struct trainer *t, const struct group *world)
{
    const struct options *o = &t->request->set->values;

    TRY(run_tokenizer_read(&t->tokenizer, o));
    if (world == NULL)
        TRY(setup_resolve_or_suggest(&t->setup, t->request->set,
                                     &t->tokenizer.vocabulary, 1, 0));
    else
        TRY(setup_resolve(&t->setup, t->request->set,
                          &t->tokenizer.vocabulary, world->size,
                          world->rank));
    if (o->run.dir[0] == 0)
        FAIL(ERR_CONFIG, "run.dir: say where the run goes, in the file or with "
                         "--run DIR");
    if (t->tokenizer.vocabulary.size == 0 && t->setup.model.vocab == 0)
        FAIL(ERR_CONFIG, "tokenizer.from is empty and model.vocab is 0: one of "
                         "them must give the vocabulary");
    return OK;
}

/* Everything that is decided, in order, before memory is taken. */
status trainer_plan(struct trainer *t, struct group *world)
{
    const struct options *o = &t->request->set->values;
    struct grid grid;
    status result;
    bool found;
    struct hosts_found hosts;

    TRY(same_options(world, t->request->set));
    result = resolve(t, world);
    TRY(world != NULL ? comm_agree(world, result) : result);
    TRY(hosts_find(world, &hosts));
    TRY(setup_use_node(&t->setup, hosts.node));
    t->setup.request.machine.local_rank = hosts.local_rank;
    TRY(cores_share(world, (int)o->train.threads,
                    &t->setup.request.machine.threads));
    TRY(team_build(&t->team, world, &t->setup.mesh, &t->setup.order,
                   o->comm.limit));
    TRY(local_open(&t->files.local, o, world));
    if (t->request->resume) {
        found = false;
        if (t->files.local.used)
            TRY(local_newest_grid(&t->files.local, world, &grid, &found));
        if (!found)
            TRY(checkpoint_newest_grid(o->run.dir, &grid, &found));
        if (found) TRY(setup_take_grid(&t->setup, &grid));
    }
    TRY(team_agree(&t->team, checks_run(&t->setup,
                                        run_tokenizer_of(&t->tokenizer))));
    TRY(trainer_policy_plan(t));
    TRY(same_schedule(world, &t->setup));
    int64_t values = profiler_values(&t->setup.mesh);

    if (validation_values(o) > values) values = validation_values(o);
    if (observe_values(o, mesh_ranks(&t->setup.mesh)) > values)
        values = observe_values(o, mesh_ranks(&t->setup.mesh));
    return team_agree(&t->team, plan_that_fits(t, values));
}

/* One file for each rank, with who it is. */
static status open_log(struct trainer *t, const char *directory)
{
    const int rank = team_rank(&t->team);
    const struct stage *stage = trainer_first_stage(t);
    char path[PATH_BYTES], mesh[MESH_TEXT_BYTES];

    TRY(run_dir_log(directory, rank, path));
    TRY(log_start(rank, path));
    mesh_text(&t->setup.mesh, mesh, sizeof mesh);
    LOG(DEBUG, "mesh", "rank %d of %s: pipe %d, data %d, shard %d, context %d, "
        "tensor %d; process %ld", rank, mesh, t->setup.place.at[AXIS_PIPE],
        t->setup.place.at[AXIS_DATA], t->setup.place.at[AXIS_SHARD],
        t->setup.place.at[AXIS_CONTEXT], t->setup.place.at[AXIS_TENSOR],
        (long)getpid());
    if (t->setup.mesh.node > 0)
        LOG(DEBUG, "mesh", "nodes of %d ranks; rows of experts go %s",
            t->setup.mesh.node,
            t->setup.mesh.relays ? "once to each" : "straight");
    board_plan(t->pipeline.bytes);
    LOG(DEBUG, "plan", "%zu bytes, %d threads, device %s%s%s",
        t->pipeline.bytes, stage->request.machine.threads,
        device_about(stage->request.machine.device)->name,
        stage->chosen[0] != '\0' ? ", chosen: " : "", stage->chosen);
    return OK;
}

static status open_data(struct trainer *t)
{
    TRY(feed_open(&t->feed, &t->setup, run_tokenizer_of(&t->tokenizer),
                  t->files.run.path));
    return validation_open(&t->validation, &t->feed);
}

/* Before there is a run: a port that is taken leaves no directory behind. */
static status try_address(struct trainer *t)
{
    const char *address = t->request->set->values.observe.prometheus;
    const char *mirror = t->request->set->values.checkpoint.mirror;

    if (address[0] != '\0') TRY(prometheus_try(address));
    /* A run that goes on does so without it, too. A start that take_run will
     * refuse takes the place in the storage from nobody. */
    if (mirror[0] == '\0' || t->request->resume ||
        run_dir_exists(t->request->set->values.run.dir))
        return OK;
    return mirror_check(mirror, &t->writer);
}

/* A generation that ended before its supervisor heard of its first step. */
static bool begins_again(const struct trainer *t, const char *directory)
{
    return t->files.local.used && board_generation() > 1 &&
           run_dir_exists(directory);
}

/* A rank of an earlier generation whose machine nobody reaches may hold the
 * directory until its lease ends, and a file server for longer. */
static status take_run(struct trainer *t, const char *directory)
{
    const int64_t limit = t->request->set->values.comm.limit / 2;
    const double end = clock_s() + (double)(limit > 0 && limit < LOCK_MOST_S
                                                ? limit : LOCK_MOST_S);
    const struct timespec pause = {0, 50000000};
    status result;

    if (board_mine() == NULL) TRY(journal_unclaimed(directory));
    if (!t->request->resume && begins_again(t, directory))
        return run_dir_resume(&t->files.run, directory);
    if (!t->request->resume) return run_dir_create(&t->files.run, directory);
    result = run_dir_resume(&t->files.run, directory);
    while (result == ERR_CONFIG && board_has_agent() &&
           board_generation() > 1 && clock_s() < end) {
        status_clear();
        board_phase(BOARD_OPENS); /* this is no hang */
        nanosleep(&pause, NULL);
        result = run_dir_resume(&t->files.run, directory);
    }
    return result;
}

/* The first rank of another machine makes there what rank 0 made here. */
static status open_machine(struct trainer *t, const char *directory)
{
    snprintf(t->files.run.path, sizeof t->files.run.path, "%s", directory);
    TRY(path_join(t->files.run.config, sizeof t->files.run.config, directory,
                  "config.yaml"));
    TRY(directory_make_private(directory));
    TRY(open_log(t, directory));
    return open_data(t);
}

/* A new run's folders are empty. */
static status check_store(const struct trainer *t)
{
    int count = 0;
    bool none;

    if (t->request->resume || board_generation() > 1) return OK;
    TRY(checkpoint_count(t->files.local.store, &count, &none));
    if (count == 0) return OK;
    FAIL(ERR_CONFIG, "checkpoint.local: %s holds checkpoints of a run; a new "
                     "run needs another directory", t->files.local.store);
}

static status open_local(struct trainer *t, const char *directory)
{
    const bool makes = local_leads(&t->files.local, team_rank(&t->team));
    status result = makes ? check_store(t) : OK;

    if (result == OK && makes && !trainer_leads(t))
        result = open_machine(t, directory);
    TRY(team_agree(&t->team, result));
    return local_bring_records(&t->files.local, t->team.world);
}

/* The run's directory and its data: rank 0 first, the others find them made. */
static status open_run(struct trainer *t)
{
    const char *directory = t->request->set->values.run.dir;
    const bool makes = local_leads(&t->files.local, team_rank(&t->team));
    status result = OK;

    if (trainer_leads(t)) {
        result = try_address(t);
        if (result == OK)
            result = step_prediction_open(&t->predicted, &t->setup,
                                          mesh_ranks(&t->setup.mesh));
        if (result == OK && t->predicted.there)
            board_planned(t->predicted.step_s);
        if (result == OK) result = take_run(t, directory);
        if (result == OK) result = open_log(t, directory);
        if (result == OK) result = open_data(t);
    }
    TRY(team_agree(&t->team, result));
    if (t->files.local.used) TRY(open_local(t, directory));
    if (trainer_leads(t) || (t->files.local.used && makes)) return OK;
    snprintf(t->files.run.path, sizeof t->files.run.path, "%s", directory);
    TRY(open_log(t, directory));
    return open_data(t);
}

void trainer_restore_scale(struct trainer *t)
{
    struct loss_scale *scaling = &t->step.scaling;
    const struct counters *c = &t->counters;

    *scaling = t->setup.scaling;
    if (c->loss_scale > 0 && scaling->dynamic) scaling->value = c->loss_scale;
    scaling->good = c->good;
    scaling->skipped = c->skipped;
    t->step.rates = c->rates;
}

/* The learning rate that the run planned for its next step when it was last
 * started. */
static status old_rate(const struct trainer *t, int64_t *steps, double *rate)
{
    struct setup old = t->setup; /* everything else cannot change */
    struct options_set set = {0};
    const struct options *o = &set.values;
    struct text text = {0};
    status result;

    TRY_GOTO(done, result, options_init(&set));
    TRY_GOTO(done, result, file_read_regular(t->files.run.config,
                                             (size_t)1 << 20, &text));
    TRY_GOTO(done, result, options_read_text(&set, text.bytes, text.length,
                                             t->files.run.config, ORIGIN_RUN));
    old.set = &set;
    TRY_GOTO(done, result, setup_read_rate(&old, o));
    TRY_GOTO(done, result, setup_length(&old, t->feed.samples));
    *steps = old.rate.steps;
    *rate = setup_rate(&old, t->counters.step);
done:
    options_free(&set);
    text_free(&text);
    return result;
}

/* A longer run stretches its curve: the rate jumps up where the old curve had
 * come down. */
static void tell_length(const struct trainer *t)
{
    const int64_t step = t->counters.step, steps = t->setup.rate.steps;
    const double rate = setup_rate(&t->setup, step);
    int64_t before;
    double was;

    if (step == steps) {
        fprintf(stderr, "notice    %s has done all of its %lld steps: nothing "
                        "is left to train; --set train.steps=N makes it "
                        "longer\n", t->files.run.path, (long long)steps);
        return;
    }
    if (old_rate(t, &before, &was) != OK) {
        status_clear();
        return;
    }
    if (before == steps || rate <= 1.001 * was) return;
    fprintf(stderr, "warning   the learning rate rises from %.3g to %.3g at "
                    "step %lld: %s was to end after %lld steps, and ends "
                    "after %lld now. ", was, rate, (long long)step + 1,
            t->setup.set->values.optimizer.schedule, (long long)before,
            (long long)steps);
    if (was > 0)
        fprintf(stderr, "The old rate goes on with --set "
                        "optimizer.schedule=constant --set optimizer.lr=%.3g. ",
                was);
    fprintf(stderr, "A run whose length is open trains with "
                    "optimizer.schedule=wsd and is made longer from a "
                    "checkpoint before its rate falls "
                    "(docs/checkpoints.md)\n");
}

/* A range of data.skip may name samples that were read before: nothing takes
 * them out of the weights. */
static void tell_late_ranges(const struct trainer *t)
{
    const int64_t step = t->counters.step, place = t->counters.samples;
    const int64_t left = place - ramp_samples(&t->setup.ramp, step);
    const int64_t late = ranges_count(&t->feed.left_out, 0, place) - left;

    if (late <= 0) return;
    fprintf(stderr, "notice    data.skip: %lld of its samples were read by "
                    "step %lld and stay in the weights; only a new run leaves "
                    "them out\n", (long long)late, (long long)step);
}

/* Names who makes the products of this rank where their bits depend on that,
 * else nobody. */
static void name_maker(const struct trainer *t, char *out, size_t bytes)
{
    const struct stage *stage = trainer_first_stage(t);

    if (!stage->request.machine.fast) out[0] = '\0';
    else device_maker(stage->device, out, bytes);
}

static status same_maker(const struct trainer *t)
{
    char maker[MAKER_BYTES];

    name_maker(t, maker, sizeof maker);
    if (maker[0] == '\0' || team_size(&t->team) == 1) return OK;
    return comm_same_text(t->team.world, "library of products or GPU "
                          "(numerics.gpu=fast)", maker, strlen(maker));
}

/* Says who computes attention, where a library may. */
static void tell_attention(const struct stage *stage)
{
    char text[320];
    const char *why;

    if (!stage_products_fast(stage)) return;
    why = stage_attention(stage).why;
    if (why == NULL) device_attention(stage->device, text, sizeof text);
    else snprintf(text, sizeof text, "by own kernels: %s", why);
    LOG(INFO, "train", "attention %s", text);
}

/* Weights, then what rank 0 writes down about the run. */
static status begin(struct trainer *t)
{
    char maker[MAKER_BYTES];

    if (!t->request->resume) memory_copy_begin(&t->copy);
    if (t->request->resume) TRY(restore_or_begin(t));
    else TRY(start_weights(t));
    TRY(trainer_copy_begin(t));
    TRY(train_step_refresh(&t->step));
    trainer_restore_scale(t);
    TRY(check_data(t));
    if (t->counters.step > t->setup.rate.steps)
        FAIL(ERR_CONFIG, "train.steps: %s has done %lld steps already, %lld "
                         "are fewer; start a new run for a shorter one",
             t->files.run.path, (long long)t->counters.step,
             (long long)t->setup.rate.steps);
    if (local_leads(&t->files.local, team_rank(&t->team)) &&
        t->files.local.used) {
        TRY(directory_make_private(t->files.local.store));
        if (t->saves.step < 0) TRY(checkpoint_announce(t->files.local.store));
        if (!trainer_leads(t)) TRY(store_configuration(t));
    }
    if (!trainer_leads(t)) return OK;
    if (t->files.local.used) TRY(local_raise_records(&t->files.local));
    checks_note_schedule(&t->setup);
    checks_note_threads(t->setup.request.machine.threads);
    tell_attention(trainer_first_stage(t));
    checks_note_warmup(t->setup.set->values.optimizer.warmup,
                       t->setup.rate.steps);
    checks_note_decay(&t->setup);
    if (t->request->resume) {
        tell_length(t);
        tell_late_ranges(t);
    }
    /* Before config.yaml makes a run of it. */
    if (t->saves.step < 0 && !t->files.local.used)
        TRY(checkpoint_announce(t->files.run.path));
    /* They were written before the first copy in memory was made. */
    if (t->copy.resumed)
        return trainer_open_files(t, t->counters.step);
    if (t->request->resume)
        changes_note(t->files.run.path, t->files.run.config, t->request->set,
                     t->counters.step);
    TRY(store_configuration(t));
    TRY(step_prediction_store(&t->request->set->values, t->files.run.path));
    name_maker(t, maker, sizeof maker);
    if (t->request->resume)
        launch_record_compare_maker(t->files.run.path, maker);
    TRY(launch_record_write(t->files.run.path, team_size(&t->team), maker));
    return trainer_open_files(t, t->counters.step > 0 ? t->counters.step : -1);
}

/* Counts the work of this rank in a step. */
static void count_work(struct trainer *t)
{
    double flops = 0;

    for (int i = 0; i < t->pipeline.count; i++)
        flops += (double)t->pipeline.chunks[i].count *
                 stage_repeats(&t->pipeline.stages[i]) *
                 program_training_flops(
                     &t->pipeline.stages[i].program);
    t->flops.step = flops;
}

/* A run that begins again at step 0 discards its earlier observations. */
static status observe(struct trainer *t)
{
    const bool goes_on = t->request->resume && t->counters.step > 0;

    return observe_open(&t->observer, t->request->set, &t->step,
                        &t->keeper.inventory,
                        goes_on ? t->counters.step : -1);
}

/* Builds everything that depends on a plan. */
static status use_pipeline(struct trainer *t)
{
    const struct inventory_of of = {t->pipeline.stages, t->pipeline.count,
                                    &t->team};

    count_work(t);
    t->step.asks = trainer_says;
    t->step.asks_argument = t;
    t->step.turn.act = memory_copy_turn;
    t->step.turn.ready = memory_copy_ready;
    t->step.turn.argument = &t->copy;
    t->step.executor.used = feed_use;
    t->step.executor.used_argument = &t->feed;
    TRY(keeper_build(&t->keeper, &t->setup, &of, t->files.run.path));
    t->keeper.tokenizer = run_tokenizer_of(&t->tokenizer);
    t->keeper.local = t->files.local.used ? &t->files.local : NULL;
    t->keeper.writer = &t->writer;
    TRY(trainer_check_build(t));
    if (t->request->set->values.checkpoint.async)
        TRY(background_use(&t->background, &t->keeper));
    trainer_policy_open(t);
    return OK;
}

status trainer_use_batch(struct trainer *t, int64_t batch)
{
    if (batch == t->setup.batch) return OK;
    TRY(trainer_settle(t));
    background_leave(&t->background);
    trainer_check_leave(t);
    keeper_free(&t->keeper);
    TRY(ramp_switch(&t->pipeline, &t->step, &t->setup, batch));
    TRY(step_prediction_watch(&t->predicted, &t->step.executor, batch));
    TRY(step_prediction_share(&t->predicted, &t->step.executor, &t->team,
                              batch));
    LOG(DEBUG, "train", "a batch of %lld from step %lld on",
        (long long)batch, (long long)t->counters.step + 1);
    return use_pipeline(t);
}

/* Whether the folder of a file is the run's, or one above it: it will be there
 * when the run is. */
static bool run_brings_folder(const char *run, const char *path)
{
    const char *slash = strrchr(path, '/');
    const size_t length = slash != NULL ? (size_t)(slash - path) : 0;

    return length > 0 && strncmp(run, path, length) == 0 &&
           (run[length] == '/' || run[length] == 0);
}

/* Checks this rank's trace file before anything is made. */
static status trace_may_be_written(const struct trainer *t)
{
    char path[PATH_BYTES];
    status result;

    if (t->request->trace == NULL) return OK;
    TRY(trace_file_name(t->request->trace, team_rank(&t->team),
                        team_size(&t->team), path, sizeof path));
    result = file_may_replace(path);
    if (result != ERR_MISSING ||
        !run_brings_folder(t->request->set->values.run.dir, path))
        return result;
    status_clear();
    return OK;
}

status trainer_open(struct trainer *t)
{
    status result = OK;

    TRY(team_agree(&t->team, trace_may_be_written(t)));
    TRY(open_run(t));
    TRY(team_agree(&t->team, setup_length(&t->setup, t->feed.samples)));
    trainer_copy_plan(t);
    TRY(pipeline_open(&t->pipeline));
    const struct memory_row *rows = trainer_first_stage(t)->memory;

    team_use_scratch(&t->team, rows[MEMORY_MESSAGES].data,
                     rows[MEMORY_MESSAGES].bytes);
    TRY(team_use_library(&t->team, t->request->set->values.comm.library,
                         trainer_first_stage(t)->device));
    TRY(train_step_build(&t->step, &t->pipeline, &t->team));
    setup_update(&t->setup, &t->step.update);
    if (t->request->set->values.checkpoint.async)
        TRY(background_open(&t->background, t->team.world));
    TRY(use_pipeline(t));
    TRY(trainer_policy_read(t));
    TRY(trainer_copy_open(t));
    TRY(same_maker(t));
    TRY(team_agree(&t->team, begin(t)));
    if (trainer_leads(t)) result = run_dir_clean(&t->files.run);
    TRY(team_agree(&t->team, result));
    TRY(trainer_policy_load(t));
    TRY(team_agree(&t->team, observe(t)));
    trainer_carry(t);
    TRY(step_prediction_watch(&t->predicted, &t->step.executor,
                              t->setup.batch));
    TRY(step_prediction_share(&t->predicted, &t->step.executor, &t->team,
                              t->setup.batch));
    t->traces = t->predicted.numbered || t->setup.mesh.size[AXIS_PIPE] > 1;
    TRY(team_most(&t->team, &t->traces));
    t->profiler.trace = t->request->trace;
    t->profiler.device = trainer_first_stage(t)->device != NULL;
    t->profiler.title = t->request->set->values.run.dir;
    return profiler_build(&t->profiler, &t->team,
                          t->setup.rate.steps - t->counters.step);
}
