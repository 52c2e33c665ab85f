/* SPDX-License-Identifier: Apache-2.0 */
/* trainer_save.c - when a run saves, and what it does when it cannot.
 *
 * Checkpoints by time follow the clock of rank 0 alone; its decision travels
 * with the number that ranks exchange after each step anyway. When a checkpoint
 * is made changes no bit of the run. */
#include <time.h>

#include "base/clock.h"
#include "base/log.h"
#include "checkpoint/history.h"
#include "checkpoint/mirror.h"
#include "train/signals.h"
#include "train/slow_storage.h"
#include "train/trainer_state.h"

enum { ATTEMPTS = 5 };                     /* where a save must succeed */
enum { WORD_DUE = 1, WORD_WORKS };         /* of trainer_says; then signals */
static const double first_wait_s = 0.2;    /* between those; doubles */
static const double first_retry_s = 1;     /* while training goes on; doubles */
static const double longest_retry_s = 600;

static void sleep_s(double seconds)
{
    struct timespec left = {.tv_sec = (time_t)seconds};

    left.tv_nsec = (long)(1e9 * (seconds - (double)left.tv_sec));
    while (nanosleep(&left, &left) != 0) continue;
}

static void set_clock(struct trainer *t)
{
    const double minutes = setup_save_minutes(&t->setup);

    t->saves.wait_s = 0;
    t->saves.next_s = minutes > 0 ? clock_s() + 60 * minutes : 0;
}

void trainer_save_begin(struct trainer *t)
{
    set_clock(t);
}

int trainer_says(void *argument)
{
    struct trainer *t = argument;
    const int asked = signals_asked();

    memory_copy_fence(&t->copy); /* all ranks take the largest answer */
    if (asked != 0) return WORD_WORKS + asked;
    if (!trainer_leads(t)) return 0;
    if (background_works(&t->background)) return WORD_WORKS;
    return t->saves.next_s > 0 && clock_s() >= t->saves.next_s ? WORD_DUE : 0;
}

void trainer_hear(struct trainer *t, int word)
{
    t->asked = word > WORD_WORKS ? word - WORD_WORKS : 0;
    if (t->asked != 0) mirror_stop_soon();
    t->saves.due = word == WORD_DUE;
    t->saves.works = word == WORD_WORKS;
}

status trainer_open_files(struct trainer *t, int64_t step_kept)
{
    TRY(lines_cut(t->files.run.samples, step_kept, NULL));
    TRY(lines_cut(t->files.run.consumed, step_kept, NULL));
    TRY(lines_open(&t->files.consumed, t->files.run.consumed,
                   "consumed.append", 0));
    if (t->request->set->values.validate.prompts.count > 0)
        TRY(lines_open(&t->files.samples, t->files.run.samples,
                       "samples.append", 0));
    return metrics_open(&t->files.metrics, t->files.run.metrics, step_kept);
}

status trainer_finish_files(struct trainer *t)
{
    TRY(metrics_finish(&t->files.metrics));
    TRY(lines_finish(&t->files.samples));
    TRY(lines_finish(&t->files.consumed));
    TRY(lines_finish(&t->ledger.file));
    return observe_finish(&t->observer);
}

void trainer_close_files(struct trainer *t)
{
    metrics_close(&t->files.metrics);
    lines_close(&t->files.samples);
    lines_close(&t->files.consumed);
}

/* The weights that train come back, however the save, or the copy for one,
 * ended. */
static status save_weights(struct trainer *t, bool copy)
{
    status result;

    TRY(feed_settle(&t->feed));
    t->counters.data_crc = feed_crc(&t->feed, t->counters.samples);
    /* before its checkpoint */
    if (trainer_leads(t)) lines_sync(&t->files.consumed);
    memory_copy_lend(&t->copy, train_step_averages(&t->step));
    TRY(train_step_average(&t->step));
    result = copy ? background_copy(&t->background, &t->counters)
                  : keeper_save(&t->keeper, &t->counters);
    TRY(train_step_return(&t->step));
    memory_copy_give_back(&t->copy);
    return result;
}

static status save_once(struct trainer *t)
{
    TRY(save_weights(t, false));
    LOG(DEBUG, "checkpoint", "saved step %lld", (long long)t->counters.step);
    t->saves.step = t->counters.step;
    set_clock(t);
    return OK;
}

/* True for an error that may pass by itself: the disk failed, or returned wrong
 * data. All ranks agree on the result of a save, so all answer alike. */
static bool may_pass(status result)
{
    return result == ERR_IO || result == ERR_FORMAT || result == ERR_MISSING;
}

status trainer_name_newest(struct trainer *t)
{
    const char *store = t->files.local.used ? t->files.local.store
                                            : t->files.run.path;
    status result = OK;

    if (t->saves.step != t->counters.step) return OK;
    if (local_leads(&t->files.local, team_rank(&t->team)))
        result = checkpoint_name_newest(store, t->saves.step);
    return team_agree(&t->team, result);
}

status trainer_save(struct trainer *t)
{
    double wait_s = first_wait_s;
    status result = OK;

    TRY(trainer_settle(t));
    if (t->saves.step == t->counters.step) return trainer_name_newest(t);
    for (int i = 0; i < ATTEMPTS; i++, wait_s *= 2) {
        result = save_once(t);
        if (result == OK || !may_pass(result) || i == ATTEMPTS - 1) break;
        if (trainer_leads(t))
            progress_note(&t->progress, "step %lld is not saved yet: %s",
                          (long long)t->counters.step, status_message());
        status_clear();
        sleep_s(wait_s);
    }
    return status_pass(result, __FILE__, __LINE__);
}

/* The disk failed: rank 0 asks again. */
static void try_later(struct trainer *t, int64_t step)
{
    t->saves.wait_s = t->saves.wait_s == 0 ? first_retry_s
                                           : 2 * t->saves.wait_s;
    if (t->saves.wait_s > longest_retry_s) t->saves.wait_s = longest_retry_s;
    t->saves.next_s = clock_s() + t->saves.wait_s;
    if (trainer_leads(t))
        progress_note(&t->progress, "warning: step %lld could not be saved, "
                                    "training goes on, next attempt in %g s: "
                                    "%s", (long long)step, t->saves.wait_s,
                      status_message());
    status_clear();
}

/* ---- in the background ---- */

/* Waits for this rank's thread and takes up what it did. A failure that no
 * retry mends waits for the moment in which all ranks are asked. */
static void take_up(struct trainer *t)
{
    const double waited = t->background.stall_s;
    int64_t step;
    const status result = background_settle(&t->background, &step);

    if (step < 0) return;
    if (result == OK) {
        t->saves.step = step;
        t->saves.wait_s = 0;
        LOG(DEBUG, "checkpoint", "saved step %lld in %.3f s in the "
            "background; steps waited %.3f s for its end", (long long)step,
            t->background.seconds, t->background.stall_s - waited);
        return;
    }
    if (may_pass(result)) {
        try_later(t, step);
        return;
    }
    LOG(WARNING, "checkpoint", "step %lld was not saved: %s", (long long)step,
        status_message());
    status_clear();
    t->saves.failed = result;
    t->saves.next_s = clock_s();
}

static bool save_runs(const void *argument)
{
    return background_works(argument);
}

status trainer_settle(struct trainer *t)
{
    /* Rank 0 may be sending: the others' threads are done before. */
    if (t->background.keeper != NULL &&
        t->request->set->values.checkpoint.mirror[0] != '\0')
        TRY(attend(t->team.world, save_runs, &t->background));
    take_up(t);
    if (t->saves.failed == OK) return OK;
    FAIL(t->saves.failed, "%s", t->background.why);
}

void trainer_poll_save(struct trainer *t)
{
    if (trainer_leads(t) && t->background.runs &&
        !background_works(&t->background))
        take_up(t);
}

/* A copy now; files later. */
static status begin_save(struct trainer *t)
{
    const double wait_s = t->saves.wait_s;

    const status result = team_agree(&t->team, save_weights(t, true));

    if (result != OK) {
        background_drop(&t->background);
        return status_pass(result, __FILE__, __LINE__);
    }
    TRY(background_go(&t->background));
    set_clock(t);
    t->saves.wait_s = wait_s; /* of failures without a success between */
    return OK;
}

/* A run that may go back, and who keeps every n-th checkpoint for good, or the
 * best, need those that they were told of: which they are must not depend on
 * the speed of a disk. Any other one that comes too early is made a little
 * later. */
static bool leaves_out(const struct trainer *t)
{
    const int64_t kept = t->request->set->values.checkpoint.keep_every;

    return t->background.keeper != NULL && t->saves.works &&
           !policy_rewinds(&t->policy) && !t->saves.best &&
           (kept == 0 || t->counters.step % kept != 0);
}

status trainer_try_save(struct trainer *t)
{
    status result;

    if (leaves_out(t)) {
        if (trainer_leads(t))
            progress_note(&t->progress, "step %lld is not saved yet: the "
                          "checkpoint of step %lld is still being written",
                          (long long)t->counters.step,
                          (long long)t->background.job.counters.step);
        t->saves.next_s = clock_s();
        return OK;
    }
    TRY(trainer_settle(t));
    if (t->saves.step == t->counters.step) return OK;
    if (t->background.keeper != NULL) return begin_save(t);
    result = save_once(t);
    if (result == OK || !may_pass(result))
        return status_pass(result, __FILE__, __LINE__);
    try_later(t, t->counters.step);
    return OK;
}

void trainer_tell_saves(struct trainer *t)
{
    const struct background *b = &t->background;
    char bytes[32];

    if (b->saves == 0) return;
    progress_note(&t->progress, "%lld checkpoints were written in the "
                  "background; steps waited %.3f s for them in all (%s copied "
                  "by rank 0)", (long long)b->saves, b->stall_s,
                  text_bytes(bytes, (uint64_t)b->copied_bytes));
}
