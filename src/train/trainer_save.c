/* SPDX-License-Identifier: Apache-2.0 */
/* trainer_save.c - when a run saves, and what it does when it cannot.
 *
 * Checkpoints by time follow the clock of rank 0 alone; its decision travels
 * with the number that ranks exchange after each step anyway. When a checkpoint
 * is made changes no bit of the run. */
#include <time.h>

#include "base/clock.h"
#include "base/log.h"
#include "train/signals.h"
#include "train/trainer_state.h"

enum { ATTEMPTS = 5 };                     /* where a save must succeed */
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

    t->save_wait_s = 0;
    t->save_next_s = minutes > 0 ? clock_s() + 60 * minutes : 0;
}

void trainer_save_begin(struct trainer *t)
{
    set_clock(t);
}

int trainer_says(void *argument)
{
    const struct trainer *t = argument;
    const int asked = signals_asked();

    if (asked != 0) return asked + 1;
    return trainer_leads(t) && t->save_next_s > 0 &&
           clock_s() >= t->save_next_s;
}

void trainer_hear(struct trainer *t, int word)
{
    t->asked = word > 1 ? word - 1 : 0;
    t->save_due = word == 1;
}

status trainer_open_files(struct trainer *t, int64_t step_kept)
{
    TRY(lines_cut(t->run.samples, step_kept, NULL));
    if (t->request->set->values.validate.prompts.count > 0)
        TRY(lines_open(&t->samples, t->run.samples, "samples.append", 0));
    return metrics_open(&t->metrics, t->run.metrics, step_kept);
}

status trainer_finish_files(struct trainer *t)
{
    TRY(metrics_finish(&t->metrics));
    TRY(lines_finish(&t->samples));
    TRY(lines_finish(&t->ledger.file));
    return observe_finish(&t->observer);
}

void trainer_close_files(struct trainer *t)
{
    metrics_close(&t->metrics);
    lines_close(&t->samples);
}

/* The weights that train come back, however the save ended. */
static status save_once(struct trainer *t)
{
    status result;

    TRY(feed_settle(&t->feed));
    t->counters.data_crc = feed_crc(&t->feed, t->counters.samples);
    TRY(train_step_average(&t->step));
    result = keeper_save(&t->keeper, &t->counters);
    TRY(train_step_return(&t->step));
    TRY(result);
    LOG(DEBUG, "checkpoint", "saved step %lld", (long long)t->counters.step);
    t->saved_step = t->counters.step;
    set_clock(t);
    return OK;
}

/* True for an error that may pass by itself: the disk failed, or returned wrong
 * data. All ranks agree on the result of a save, so all answer alike. */
static bool may_pass(status result)
{
    return result == ERR_IO || result == ERR_FORMAT || result == ERR_MISSING;
}

status trainer_save(struct trainer *t)
{
    double wait_s = first_wait_s;
    status result = OK;

    if (t->saved_step == t->counters.step) return OK;
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

status trainer_try_save(struct trainer *t)
{
    status result;

    if (t->saved_step == t->counters.step) return OK;
    result = save_once(t);
    if (result == OK || !may_pass(result))
        return status_pass(result, __FILE__, __LINE__);
    t->save_wait_s = t->save_wait_s == 0 ? first_retry_s : 2 * t->save_wait_s;
    if (t->save_wait_s > longest_retry_s) t->save_wait_s = longest_retry_s;
    t->save_next_s = clock_s() + t->save_wait_s;
    if (trainer_leads(t))
        progress_note(&t->progress, "warning: step %lld could not be saved, "
                                    "training goes on, next attempt in %g s: "
                                    "%s", (long long)t->counters.step,
                      t->save_wait_s, status_message());
    status_clear();
    return OK;
}
