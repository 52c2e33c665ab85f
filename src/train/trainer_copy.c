/* SPDX-License-Identifier: Apache-2.0 */
/* trainer_copy.c - copies of a supervised run's state in memory: made after
 * steps, gone back to by the next generation. */
#include <stdio.h>

#include "base/log.h"
#include "checkpoint/history.h"
#include "control/board.h"
#include "control/lease.h"
#include "control/run_number.h"
#include "train/trainer_state.h"

/* Steps that had been made were undone. */
static bool undoes(const struct ledger_event *event)
{
    return event->verdict.action == POLICY_REWIND ||
           (event->verdict.action == POLICY_REPLAY &&
            event->verdict.cause == POLICY_CAUSE_REPLICA);
}

void trainer_copy_layout(struct trainer *t)
{
    int64_t rewinds = 0;

    for (int64_t i = 0; i < t->ledger.count; i++)
        rewinds += undoes(&t->ledger.events[i]);
    t->copy.layout = crc32c(
        crc32c(crc32c(0, t->setup.mesh.size, sizeof t->setup.mesh.size),
               &rewinds, sizeof rewinds), &t->copies_since,
        sizeof t->copies_since);
}

/* ---- copies of another history ---- */

/* RUN/control/copies: the generation that last began without copies. Memory of
 * a machine that was away meanwhile may have newer steps, whose lines are cut
 * by now. */
static const char since_name[] = "copies";

static status write_since(const struct trainer *t)
{
    char directory[PATH_BYTES];

    /* A rank that was stopped here, and whose lease has ended, writes no older
     * one over a newer. */
    TRY(lease_holds(t->files.run.path, true));
    TRY(path_join(directory, sizeof directory, t->files.run.path, "control"));
    TRY(directory_make_own(directory));
    return run_number_write(t->files.run.path, since_name,
                            (uint64_t)t->copies_since);
}

static bool leads_files(const struct trainer *t)
{
    return local_leads(&t->files.local, team_rank(&t->team));
}

status trainer_copy_begin(struct trainer *t)
{
    if (board_mine() == NULL || t->copy.resumed) return OK;
    t->copies_since = (int64_t)board_generation();
    trainer_copy_layout(t);
    return team_agree(&t->team, leads_files(t) ? write_since(t) : OK);
}

void trainer_copy_plan(struct trainer *t)
{
    const bool apart = memory_copy_turns(&t->pipeline, t->request->copies);

    for (int i = 0; i < t->pipeline.count; i++)
        t->pipeline.stages[i].kept.apart = apart;
}

status trainer_copy_open(struct trainer *t)
{
    double since = board_mine() != NULL && leads_files(t)
                       ? (double)run_number_read(t->files.run.path,
                                                 since_name) : 0;

    TRY(team_largest(&t->team, &since, 1));
    t->copies_since = (int64_t)since;
    trainer_copy_layout(t);
    t->copy.every.threads = t->setup.request.machine.threads;
    t->copy.step = &t->step;
    return memory_copy_open(&t->copy, &t->pipeline, &t->team,
                            t->request->copies);
}

/* The newest checkpoint by its name; what is in it is not asked. */
static int64_t newest_checkpoint(const struct trainer *t)
{
    char directory[PATH_BYTES];
    int64_t step = -1;

    if (!trainer_leads(t)) return -1;
    if (checkpoint_find_newest(t->files.local.used ? t->files.local.store
                                                   : t->files.run.path,
                               directory, &step) == OK)
        return step;
    status_clear();
    return -1;
}

static status restore(struct trainer *t, int64_t step)
{
    const char *state;
    size_t length;

    TRY(memory_copy_restore(&t->copy, step, &state, &length));
    TRY(stages_store(t->pipeline.stages, t->pipeline.count));
    return keeper_read_state(&t->keeper, state, length, step, &t->counters);
}

status trainer_copy_return(struct trainer *t, int64_t step)
{
    return team_agree(&t->team, restore(t, step));
}

/* The newest step that all machines together have whole; -1: none. */
static status find_whole(const struct trainer *t, int64_t *step)
{
    struct local_source source = {.list.count = 0};
    struct text notice = {0};
    status result = local_source_list(&source, &t->files.local, NULL, &notice);

    if (result == OK)
        result = local_source_newest(&source, INT64_MAX, step, &notice);
    local_source_close(&source);
    text_free(&notice);
    return result;
}

static bool is_carried(const struct carried *carried)
{
    return carried->missing[CARRIED_CONSUMED] == 0 &&
           carried->missing[CARRIED_METRICS] == 0;
}

/* Whether the machine with the files of metrics and records is lost, and more
 * lines since the newest checkpoint than copies take along: then what they say
 * is made again. */
static status check_records(struct trainer *t, const char *state,
                            size_t length, bool *lost)
{
    int64_t records = 0, whole = -1;
    int newer;
    status result = OK;

    *lost = false;
    if (!t->files.local.used) return OK;
    if (trainer_leads(t)) {
        result = keeper_state_records(state, length, &records);
        if (result == OK) result = carried_read(&t->carried, state, length);
    }
    newer = result == OK && trainer_leads(t) && !is_carried(&t->carried) &&
            (records > t->files.local.records ||
             (records == t->files.local.records && t->files.local.behind));
    if (newer) result = find_whole(t, &whole);
    TRY(team_agree(&t->team, result));
    if (newer)
        fprintf(stderr, "notice    metrics of the steps since the newest "
                "checkpoint were lost with their machine: %s\n",
                whole >= 0
                    ? "the run goes back to it, not to the copies in memory"
                    : "no checkpoint is whole, so the run goes on from the "
                      "copies in memory, and those lines are missing");
    newer = newer && whole >= 0;
    TRY(team_most(&t->team, &newer));
    *lost = newer != 0;
    return OK;
}

/* State and lines of the copy in memory. */
static status read_copied(struct trainer *t, const char *state, size_t length,
                          int64_t step)
{
    TRY(keeper_read_state(&t->keeper, state, length, step, &t->counters));
    return trainer_leads(t) && t->files.local.used
               ? carried_store(&t->carried, t->files.run.path, step) : OK;
}

static status restore_newest(struct trainer *t, int64_t *step)
{
    const char *state = NULL;
    size_t length = 0;
    bool lost;

    TRY(team_agree(&t->team, memory_copy_restore(&t->copy, *step, &state,
                                                 &length)));
    TRY(stages_store(t->pipeline.stages, t->pipeline.count));
    TRY(check_records(t, state, length, &lost));
    if (!lost)
        return team_agree(&t->team, read_copied(t, state, length, *step));
    carried_free(&t->carried);
    t->copy.newest = *step = -1;
    return OK;
}

/* The same, as the first rank finds it, on all. */
static status agree_whole(struct trainer *t, double *step)
{
    int64_t whole = -1;
    status result = OK;

    if (trainer_leads(t)) result = find_whole(t, &whole);
    TRY(team_agree(&t->team, result));
    *step = (double)whole;
    return team_largest(&t->team, step, 1);
}

/* With checkpoint.local, shards may be lost with their machine: a run that may
 * rewind has nowhere to go then, but to its beginning. */
static status look_for_whole(struct trainer *t)
{
    double whole;

    if (!t->files.local.used || !policy_rewinds(&t->policy)) return OK;
    TRY(agree_whole(t, &whole));
    t->saves.none_whole = whole < (double)t->saves.step;
    return OK;
}

status trainer_copy_restore(struct trainer *t, int64_t *step)
{
    double saved = (double)newest_checkpoint(t);

    TRY(memory_copy_newest(&t->copy, step));
    if (*step < 0) return OK;
    TRY(team_largest(&t->team, &saved, 1));
    /* With checkpoint.local, a step of which this machine has shards is no
     * checkpoint once those of another are lost with it. */
    if (saved > (double)*step && t->files.local.used)
        TRY(agree_whole(t, &saved));
    if (saved > (double)*step) *step = -1;
    if (*step < 0) return OK;
    TRY(restore_newest(t, step));
    if (*step < 0) return OK;
    /* A save that the last generation had begun. */
    if (local_leads(&t->files.local, team_rank(&t->team)) &&
        checkpoint_clean(t->files.local.used ? t->files.local.store
                                             : t->files.run.path) != OK)
        status_clear();
    LOG(DEBUG, "train", "goes on after step %lld, from the copy in memory",
        (long long)*step);
    t->saves.step = (int64_t)saved;
    TRY(look_for_whole(t));
    t->copy.resumed = true;
    board_resume(*step, t->copy.carried ? BOARD_PEER : BOARD_MEMORY);
    return OK;
}

void trainer_carry(struct trainer *t)
{
    if (!trainer_leads(t) || !t->files.local.used || t->copy.slots[0] == NULL)
        return;
    carried_follow(&t->carried, CARRIED_CONSUMED, &t->files.consumed);
    carried_follow(&t->carried, CARRIED_METRICS, &t->files.metrics.lines);
    carried_follow(&t->carried, CARRIED_SAMPLES, &t->files.samples);
    carried_follow(&t->carried, CARRIED_LAYERS, &t->observer.layers_file);
    carried_keep(&t->carried, t->saves.step, t->counters.step);
}

/* With the lines that no checkpoint has yet. */
static status make_state(struct trainer *t, struct text *state)
{
    TRY(keeper_state(&t->keeper, &t->counters, state));
    if (!trainer_leads(t) || !t->files.local.used) return OK;
    carried_keep(&t->carried, t->saves.step, t->counters.step);
    return carried_write(&t->carried, state);
}

status trainer_copy(struct trainer *t)
{
    struct text state = {0};
    status result;
    bool due;

    TRY(memory_copy_due(&t->copy, t->counters.step, &due));
    if (!due) return OK;
    TRY(stages_fetch(t->pipeline.stages, t->pipeline.count));
    result = make_state(t, &state);
    if (result == OK)
        result = memory_copy_make(&t->copy, t->counters.step, state.bytes,
                                  state.length);
    text_free(&state);
    return result;
}
