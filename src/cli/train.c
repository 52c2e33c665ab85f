/* SPDX-License-Identifier: Apache-2.0 */
/* train.c - the commands that train: a new run, and a run that goes on. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/file.h"
#include "checkpoint/history.h"
#include "checkpoint/mirror.h"
#include "cli/config.h"
#include "cli/run.h"
#include "cli/supervise.h"
#include "comm/launch.h"
#include "control/board.h"
#include "control/supervisor.h"
#include "train/launch_record.h"
#include "train/local_run.h"
#include "train/memory_copy.h"
#include "train/trainer.h"

status run_ranks(const struct arguments *arguments, const char *beyond,
                 int64_t *ranks)
{
    const char *value = arguments_text(arguments, "ranks", NULL);
    char *end;

    if (value != NULL && strtoll(value, &end, 10) > RANKS_MOST && *end == '\0')
        FAIL(ERR_USAGE, "--ranks: %s ranks would be as many threads of one "
             "process, and it takes at most %d; %s", value, (int)RANKS_MOST,
             beyond);
    return arguments_integer(arguments, "ranks", 1, RANKS_MOST, ranks);
}

/* The ranks of a supervised run, each a process, or the supervisor: then
 * *done. */
static status go_apart(struct trainer_request *request,
                       struct options_set *set, bool *done)
{
    const struct options *o = &set->values;
    const struct supervision how = {
        .ranks = request->ranks > 0 ? request->ranks : 1, .run = o->run.dir,
        .saved = supervised_saved,
        .limit_ms = 1000 * (o->comm.limit > 0 ? o->comm.limit : 600)};
    bool rank, again = request->resume;
    char run[PATH_BYTES];

    TRY(supervised_check(o));
    request->ranks = how.ranks;
    TRY(trainer_check_layout(request));
    snprintf(run, sizeof run, "%s", o->run.dir);
    TRY(supervise(&how, &rank, &again));
    *done = !rank;
    if (!rank || !again || request->resume) return OK;
    /* The run has begun: from here on its own configuration holds. */
    request->resume = true;
    options_free(set);
    TRY(options_init(set));
    return trainer_options(set, run, NULL, 0);
}

/* --spares S; -1: not said. */
static status spares_of(const struct arguments *arguments, int64_t *spares)
{
    *spares = -1;
    if (arguments_text(arguments, "spares", NULL) == NULL) return OK;
    if (!arguments_has(arguments, "supervised"))
        FAIL(ERR_USAGE, "--spares is for supervised runs; add --supervised");
    return arguments_integer(arguments, "spares", 0, 256, spares);
}

/* Under a supervisor, or not. */
static status train_or_supervise(struct trainer_request *request,
                                 struct options_set *set,
                                 const struct arguments *arguments)
{
    const bool supervised = arguments_has(arguments, "supervised");
    bool done = false;
    status result = OK;
    int64_t spares;

    TRY(spares_of(arguments, &spares));
    if (spares >= 0 && !request->dry_run)
        return supervise_with_spares(&(struct spares){
            .arguments = arguments, .set = set, .count = (int)spares,
            .config = request->resume ? NULL : arguments->operands[0],
            .ranks = request->ranks > 0 ? request->ranks : 1});
    if (!supervised || request->dry_run) return trainer_run(request);
    TRY(go_apart(request, set, &done));
    if (done) return OK;
    result = trainer_run(request);
    supervised_end(result);
    return result;
}

/* --copies K|auto; on its own it would do nothing. */
static status copies_of(const struct arguments *arguments, int64_t *copies)
{
    const char *said = arguments_text(arguments, "copies", NULL);

    *copies = COPIES_AUTO;
    if (said != NULL &&
        !arguments_has(arguments, "supervised") && board_generation() == 0)
        FAIL(ERR_USAGE, "--copies is for supervised runs; add --supervised");
    if (said != NULL && strcmp(said, "auto") == 0) return OK;
    return arguments_integer(arguments, "copies", 0, 1000000, copies);
}

status command_train(struct arguments *arguments)
{
    struct options_set set = {0};
    struct trainer_request request = {
        .set = &set, .dry_run = arguments_has(arguments, "dry-run"),
        .trace = arguments_text(arguments, "trace", NULL),
        .json = arguments_has(arguments, "json")};
    int64_t ranks = 0; /* as many as were launched */
    status result;

    TRY_GOTO(done, result, run_ranks(arguments, RANKS_BEYOND, &ranks));
    request.ranks = (int)ranks;
    TRY_GOTO(done, result, copies_of(arguments, &request.copies));
    TRY_GOTO(done, result, config_read(&set, arguments->operands[0],
                                       arguments));
    TRY_GOTO(done, result,
             train_or_supervise(&request, &set, arguments));
done:
    options_free(&set);
    return result;
}

/* The last "checkpoint.mirror=..." among assignments; NULL: none. */
static const char *named_mirror(const struct assignments *assignments)
{
    static const char START[] = "checkpoint.mirror=";
    const char *found = NULL;

    for (int i = 0; i < assignments->count; i++)
        if (strncmp(assignments->items[i], START, sizeof START - 1) == 0)
            found = assignments->items[i] + sizeof START - 1;
    return found;
}

/* Before ranks begin, so that none waits for another that fetches. */
static status fetch_run(const char *run, const struct assignments *assignments)
{
    const char *mirror = named_mirror(assignments);
    int64_t step;

    if (mirror == NULL || mirror[0] == '\0' || launch_rank() >= 0 ||
        !file_is_gone(run))
        return OK;
    fprintf(stderr, "%s is not there; fetching %s\n", run, mirror);
    TRY(mirror_fetch(mirror, run, &step, NULL));
    fprintf(stderr, "%s has the checkpoint of step %lld\n", run,
            (long long)step);
    return OK;
}

/* Seconds that a storage has to answer: where nothing is without it, and where
 * it is only asked how far it is. */
enum { PATIENT_S = 120, HURRIED_S = 3 };

/* A run that has saved, and whose checkpoints are gone; one that has them, but
 * older ones than the mirror, is told. */
static status fetch_step(const char *run, const struct options *o)
{
    const char *mirror = o->checkpoint.mirror;
    char path[PATH_BYTES];
    int64_t here = -1, there = -1;
    status result;

    if (mirror[0] == '\0' || launch_rank() >= 0) return OK;
    if (checkpoint_find_newest(run, path, &here) != OK) status_clear();
    result = mirror_newest(mirror, here < 0 ? PATIENT_S : HURRIED_S, &there);
    if (result == OK && here < 0) {
        fprintf(stderr, "%s has no checkpoint; fetching step %lld of %s\n", run,
                (long long)there, mirror);
        return mirror_restore(mirror, run, &there);
    }
    if (result == OK && there > here)
        fprintf(stderr, "notice    %s has step %lld, %s has step %lld: "
                        "lockstep fetch %s RUN makes a run that goes on from "
                        "there\n", run, (long long)here, mirror,
                (long long)there, mirror);
    status_clear(); /* it is the run's matter what it lacks */
    return OK;
}

status command_resume(struct arguments *arguments)
{
    struct options_set set = {0};
    struct assignments assignments = {0};
    struct trainer_request request = {
        .set = &set, .resume = true,
        .from_scratch = arguments_has(arguments, "from-scratch"),
        .trace = arguments_text(arguments, "trace", NULL),
        .json = arguments_has(arguments, "json")};
    int64_t ranks = 0; /* as many as were launched, or as last time */
    status result;

    TRY_GOTO(done, result, run_ranks(arguments, RANKS_BEYOND, &ranks));
    request.ranks = (int)ranks;
    TRY_GOTO(done, result, copies_of(arguments, &request.copies));
    TRY_GOTO(done, result, assignments_read(&assignments, arguments));
    TRY_GOTO(done, result, options_init(&set));
    TRY_GOTO(done, result, local_bring_configuration(arguments->operands[0]));
    TRY_GOTO(done, result, fetch_run(arguments->operands[0], &assignments));
    TRY_GOTO(done, result, trainer_options(&set, arguments->operands[0],
                                           assignments.items,
                                           assignments.count));
    if (!request.from_scratch)
        TRY_GOTO(done, result, fetch_step(arguments->operands[0],
                                          &set.values));
    if (request.ranks == 0 && launch_rank() < 0)
        TRY_GOTO(done, result,
                 launch_record_ranks(arguments->operands[0], &set.values,
                                     &request.ranks));
    if (request.ranks > RANKS_MOST)
        FAIL_GOTO(done, result, ERR_CONFIG,
                  "%s ran on %d ranks, and one process takes at most %d: "
                  "lockstep launch --ranks %d -- lockstep resume %s, or "
                  "--ranks N with a mesh for it", arguments->operands[0],
                  request.ranks, (int)RANKS_MOST, request.ranks,
                  arguments->operands[0]);
    TRY_GOTO(done, result,
             train_or_supervise(&request, &set, arguments));
done:
    options_free(&set);
    return result;
}
