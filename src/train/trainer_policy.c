/* SPDX-License-Identifier: Apache-2.0 */
/* trainer_policy.c - steps that are not made: what went wrong is written down,
 * its samples are left out, and the run goes on from here or from its newest
 * checkpoint.
 *
 *   skip     step n is made with the samples after those of the bad batch
 *   rewind   weights, moments, counters and lines of metrics of the checkpoint
 *            come back; all samples that were read since are left out
 *
 * Either way the run is, bit for bit, one whose data never had them. */
#include <math.h>

#include "base/log.h"
#include "checkpoint/history.h"
#include "control/board.h"
#include "train/trainer_state.h"

status trainer_policy_plan(struct trainer *t)
{
    const struct options *o = &t->request->set->values;

    TRY(policy_build(&t->policy, o));
    return noise_plan(&t->noise, o, t->setup.grid.data);
}

/* Asked by the step on every rank; what it sees is the same on all. */
static bool accepts(void *argument, const struct step_result *result)
{
    struct trainer *t = argument;
    /* Overflow in float16 is the loss scale's business. */
    const bool overflow = result->skipped && t->step.scaling.dynamic;
    struct policy_verdict *verdict = &t->judged.verdict;

    if (trainer_repeats(t, result)) return false;
    t->judged.loss = result->loss;
    t->judged.norm = result->norm;
    policy_judge(&t->policy, result->loss, overflow ? 0 : result->norm,
                 verdict);
    if (result->targets == 0 && verdict->cause != POLICY_CAUSE_NONE)
        verdict->what = POLICY_TARGETS;
    if (verdict->action != POLICY_NONE && verdict->action != POLICY_WARN)
        return false;
    if (!overflow) policy_accept(&t->policy, result->loss, result->norm);
    return true;
}

void trainer_policy_open(struct trainer *t)
{
    t->step.guard = (struct step_guard){
        .accepts = accepts, .argument = t,
        .takes_nan = t->policy.on_nan != POLICY_STOP};
    t->keeper.policy = &t->policy;
    t->keeper.noise = &t->noise;
    t->keeper.delayed = &t->step.delayed;
    t->keeper.routing = &t->step.routing;
    t->keeper.left_out = &t->feed.left_out;
}

status trainer_policy_read(struct trainer *t)
{
    const char *run = t->files.run.path;
    status result = OK;

    if (trainer_leads(t)) result = ledger_open(&t->ledger, run, true);
    TRY(team_agree(&t->team, result));
    if (!trainer_leads(t)) TRY(ledger_open(&t->ledger, run, false));
    return OK;
}

status trainer_policy_load(struct trainer *t)
{
    return ledger_ranges(&t->ledger, &t->feed.left_out);
}

/* ---- events ---- */

/* The range of samples of the next step, in the order: [first, end). */
static void step_range(const struct trainer *t, int64_t *first, int64_t *end)
{
    const struct ranges *left_out = &t->feed.left_out;

    *first = t->counters.samples;
    *end = ranges_at(left_out, *first,
                     trainer_batch(t, t->counters.step) - 1) + 1;
}

static const char *describe(const struct policy_verdict *v, char out[128])
{
    if (v->what == POLICY_TARGETS)
        snprintf(out, 128, "no token of the batch has a target");
    else if (v->cause == POLICY_CAUSE_NAN)
        snprintf(out, 128, "the %s is not finite", policy_subjects[v->what]);
    else
        snprintf(out, 128, "a %s of %.4g is above %.4g",
                 policy_subjects[v->what], v->value, v->threshold);
    return out;
}

status trainer_record(struct trainer *t, const struct ledger_event *event)
{
    bool known;
    /* With checkpoint.local on every machine: rank 0 may begin anywhere. */
    const bool writes = local_leads(&t->files.local, team_rank(&t->team));
    const status result = ledger_append(&t->ledger, t->files.run.path, writes,
                                        event, &known);

    if (!known)
        LOG(DEBUG, "policy", "step %lld: %s, %s, %lld samples from %lld",
            (long long)event->step, policy_subjects[event->verdict.what],
            policy_action_name(event->verdict.action),
            (long long)event->samples, (long long)event->first);
    return team_agree(&t->team, result);
}

status trainer_warn(struct trainer *t)
{
    struct ledger_event event = {.step = t->counters.step + 1,
                                 .verdict = t->judged.verdict,
                                 .back_to = t->counters.step + 1};
    char why[128];
    int64_t end;

    step_range(t, &event.first, &end);
    event.samples = end - event.first;
    progress_note(&t->progress, "step %lld: %s", (long long)event.step,
                  describe(&t->judged.verdict, why));
    return trainer_record(t, &event);
}

double trainer_event_rate(const struct trainer *t, int64_t step)
{
    const double each = t->request->set->values.train.event_lr;
    double factor = 1;

    for (int64_t i = 0; i < t->ledger.count; i++) {
        const struct ledger_event *event = &t->ledger.events[i];
        const enum policy_action action = event->verdict.action;

        if ((action == POLICY_SKIP || action == POLICY_REWIND) &&
            event->back_to <= step)
            factor *= each;
    }
    return factor;
}

/* Makes the step again, which changes nothing. *same: with the same numbers,
 * so the data or the weights are the cause; else some machine was wrong. */
static status replay(struct trainer *t, bool *same)
{
    const struct sample_source source =
        feed_train(&t->feed, t->counters.samples);
    struct step_result again = {0};

    TRY(train_step_probe(&t->step, &source, &again));
    *same = same_number(again.loss, t->judged.loss) &&
            same_number(again.norm, t->judged.norm);
    if (!*same)
        progress_note(&t->progress, "step %lld: made again it has a loss of "
                      "%.17g and a norm of %.17g, not %.17g and %.17g: a "
                      "machine was wrong; the step is repeated with the same "
                      "samples", (long long)(t->counters.step + 1), again.loss,
                      again.norm, t->judged.loss, t->judged.norm);
    return OK;
}

static status check_limit(const struct trainer *t, const char *why)
{
    if (t->ledger.undone < t->policy.limit) return OK;
    FAIL(ERR_NUMERIC, "step %lld: %s, and %lld steps were undone before; "
                      "%s/ledger.jsonl says which. A larger "
                      "train.event_limit goes on",
         (long long)(t->counters.step + 1), why, (long long)t->ledger.undone,
         t->files.run.path);
}

status trainer_rewind_files(struct trainer *t)
{
    status result = OK;

    if (trainer_leads(t)) {
        result = trainer_finish_files(t);
        trainer_close_files(t);
        if (result == OK) result = trainer_open_files(t, t->counters.step);
        if (result == OK)
            result = observe_rewind(&t->observer, t->counters.step);
        trainer_carry(t);
    }
    return team_agree(&t->team, result);
}

status trainer_rewind(struct trainer *t)
{
    struct text notice = {0};
    status result;

    TRY(trainer_settle(t)); /* it may be the newest */
    memory_copy_forget(&t->copy); /* the state may lie in one */
    board_phase(BOARD_OPENS); /* a slow storage is no hang */
    TRY_GOTO(done, result, keeper_restore(&t->keeper, &t->counters, &notice));
    TRY_GOTO(done, result, train_step_return(&t->step));
    if (notice.length > 0) LOG(WARNING, "checkpoint", "%s", notice.bytes);
    TRY_GOTO(done, result, train_step_refresh(&t->step));
    trainer_restore_scale(t);
    t->saves.step = t->counters.step;
    result = trainer_rewind_files(t);
done:
    board_phase(BOARD_STEPS);
    text_free(&notice);
    return result;
}

status trainer_refuse(struct trainer *t)
{
    struct ledger_event event = {.step = t->counters.step + 1,
                                 .verdict = t->judged.verdict};
    char why[128];
    int64_t end;

    bool same = true;

    if (t->check.repeats) return trainer_repeat(t);
    describe(&t->judged.verdict, why);
    TRY(check_limit(t, why));
    step_range(t, &event.first, &end);
    if (t->request->set->values.train.replay) TRY(replay(t, &same));
    if (!same) {
        event.verdict.action = POLICY_REPLAY;
        event.back_to = t->counters.step;
        event.samples = end - event.first;
        return trainer_record(t, &event);
    }
    if (t->judged.verdict.action == POLICY_REWIND) {
        memory_copy_forget(&t->copy);
        TRY(trainer_rewind(t));
    }
    event.back_to = t->counters.step;
    event.first = t->counters.samples;
    event.samples = end - event.first;
    TRY(trainer_record(t, &event));
    trainer_copy_layout(t);
    TRY(ranges_add(&t->feed.left_out, event.first, end));
    progress_note(&t->progress, "step %lld: %s; back to step %lld, without "
                                "%lld samples from %lld on",
                  (long long)event.step, why, (long long)event.back_to,
                  (long long)event.samples, (long long)event.first);
    return OK;
}
