/* SPDX-License-Identifier: Apache-2.0 */
/* trainer_check.c - wrong numbers that no loss shows: replicas that differ,
 * and steps that give other gradients when they are made twice.
 *
 *   check    after every n-th step, and before each save, ranks that hold the
 *            same compare checksums (step/replicas.h). If some differ, all go
 *            back to a state that was compared, and make the steps again: a
 *            passing fault does not occur again, a permanent one does
 *   repeat   the guard refuses a step once; the gradients of the second pass
 *            must be those of the first. Of three passes two must agree
 *
 * A state is compared before it is saved: every checkpoint may be gone back to.
 */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/arena.h"
#include "base/fault.h"
#include "base/log.h"
#include "control/board.h"
#include "train/trainer_state.h"

enum { RANKS_TEXT_BYTES = 160 };

/* ---- building ---- */

status trainer_check_build(struct trainer *t)
{
    const struct inventory_of of = {t->pipeline.stages, t->pipeline.count,
                                    &t->team};
    const size_t ranks = (size_t)team_size(&t->team);
    struct trainer_check *c = &t->check;
    void *memory = NULL;

    TRY(replicas_build(&c->replicas, &t->keeper.inventory, &of));
    if (c->before != NULL) return OK; /* another plan of the same run */
    c->verified = -1;
    TRY(memory_take(ranks, sizeof *c->before, &memory));
    c->before = memory;
    TRY(memory_take(ranks, sizeof *c->now, &memory));
    c->now = memory;
    if (t->request->set->values.train.repeat_every == 0 ||
        t->team.world == NULL)
        return OK;
    return call_sums_build(&c->sums);
}

void trainer_check_leave(struct trainer *t)
{
    replicas_free(&t->check.replicas);
}

void trainer_check_free(struct trainer *t)
{
    trainer_check_leave(t);
    memory_free(t->check.before);
    memory_free(t->check.now);
    call_sums_free(&t->check.sums);
    t->check = (struct trainer_check){.verified = -1};
}

/* ---- names ---- */

/* "ranks 1, 5"; "" if none is chosen. */
static void ranks_text(const struct trainer *t,
                       bool (*chosen)(const struct trainer *t, int rank),
                       char out[RANKS_TEXT_BYTES])
{
    size_t used = 0;
    int count = 0;

    out[0] = '\0';
    for (int i = 0; i < team_size(&t->team); i++) count += chosen(t, i);
    if (count > 0)
        used = (size_t)snprintf(out, RANKS_TEXT_BYTES, "rank%s",
                                count > 1 ? "s" : "");
    for (int i = 0, said = 0; i < team_size(&t->team); i++) {
        if (!chosen(t, i)) continue;
        if (used > RANKS_TEXT_BYTES - 32) {
            snprintf(out + used, RANKS_TEXT_BYTES - used, " and %d more",
                     count - said);
            return;
        }
        used += (size_t)snprintf(out + used, RANKS_TEXT_BYTES - used, "%s %d",
                                 said++ > 0 ? "," : "", i);
    }
}

/* By the votes of now. */
static bool is_outvoted(const struct trainer *t, int rank)
{
    bool sure;

    return t->check.now[rank].digest >= 0 &&
           replicas_outvoted(t->check.now, team_size(&t->team), rank, &sure);
}

/* The rank held something else when the same step was made before. */
static bool has_changed(const struct trainer *t, int rank)
{
    return t->check.now[rank].digest != t->check.before[rank].digest;
}

/* It holds something else than another that must hold the same. */
static bool is_at_odds(const struct trainer *t, int rank)
{
    const struct replica_vote *votes = t->check.now;

    for (int i = 0; i < team_size(&t->team); i++)
        if (votes[i].digest >= 0 && votes[i].place == votes[rank].place &&
            votes[i].digest != votes[rank].digest)
            return votes[rank].digest >= 0;
    return false;
}

/* ---- going back ---- */

static void fill_event(const struct trainer *t, enum policy_cause cause,
                       enum policy_subject what, struct ledger_event *out)
{
    const int64_t read = t->counters.samples;

    *out = (struct ledger_event){
        .step = t->counters.step, .first = 0, .samples = read > 0 ? read : 1,
        .verdict = {.action = POLICY_REPLAY, .cause = cause, .what = what,
                    .value = (double)NAN, .threshold = (double)NAN}};
}

/* A step that was compared: the newest copy in memory, or checkpoint. -1:
 * there is neither. */
static status find_good(struct trainer *t, int64_t *step, bool *in_memory)
{
    TRY(trainer_settle(t)); /* it may be the newest */
    TRY(memory_copy_newest(&t->copy, step));
    *in_memory = *step >= 0 && *step <= t->check.verified &&
                 *step >= t->saves.step;
    if (!*in_memory) *step = t->saves.step;
    return OK;
}

static status go_back(struct trainer *t, int64_t step, bool in_memory)
{
    const int64_t data_tokens = t->counters.data_tokens;

    if (in_memory) {
        TRY(trainer_copy_return(t, step));
        t->counters.data_tokens = data_tokens; /* no copy says it */
        TRY(train_step_refresh(&t->step));
        trainer_restore_scale(t);
        TRY(trainer_rewind_files(t));
    } else {
        TRY(trainer_rewind(t));
    }
    memory_copy_forget(&t->copy);
    return OK;
}

/* ---- verdicts ---- */

/* Waits until all ranks have the votes. A rank that left earlier would
 * interrupt the others while they vote, and the wrong rank would end without
 * saying why. A rank that is interrupted here already has the votes. */
static void await_votes(struct trainer *t)
{
    if (team_agree(&t->team, OK) != OK) status_clear();
}

/* A rank that is known to be wrong ends its node, so that its supervisor can
 * leave it out; all others wait for that. what: it does, if it is this one. */
static status leave_out(struct trainer *t, int64_t step, const char *who,
                        bool wrong, const char *what)
{
    status result;

    await_votes(t);
    memory_copy_forget(&t->copy);
    result = wrong
        ? status_fail(ERR_DEVICE, __FILE__, __LINE__, "step %" PRId64
                      ": rank %d %s", step, team_rank(&t->team), what)
        : status_fail(ERR_PEER, __FILE__, __LINE__, "step %" PRId64
                      ": %s computes wrong numbers", step, who);
    board_judge(wrong ? BOARD_WRONG : BOARD_AWAITS, status_message());
    return result;
}

/* Without a supervisor, or where nobody knows which rank it is, the run
 * ends. */
static status fail_persistent(struct trainer *t, const char *why)
{
    char who[RANKS_TEXT_BYTES], what[PARAM_NAME_BYTES + 32];
    char has[sizeof what + 160];
    status result;

    replicas_name(&t->check.replicas, t->check.entry, what);
    ranks_text(t, is_outvoted, who);
    snprintf(has, sizeof has, "has another %s than its replicas, %.100s", what,
             why);
    if (who[0] != '\0' && board_has_agent())
        return leave_out(t, t->counters.step, who,
                         is_outvoted(t, team_rank(&t->team)), has);
    if (who[0] == '\0') ranks_text(t, is_at_odds, who);
    result = status_fail(
        ERR_DEVICE, __FILE__, __LINE__, "step %" PRId64 ": %s differ%s in the "
        "%s from ranks that must hold the same, %s; what is saved was compared "
        "before and is right", t->counters.step, who,
        strchr(who, ',') != NULL ? "" : "s", what, why);

    result = status_hint(result, "find the machine with: lockstep doctor "
                                 "--nodes; then lockstep resume %s",
                         t->files.run.path);
    return team_agree(&t->team, result);
}

/* After steps that were made again, and are equal now. */
static status tell_passed(struct trainer *t)
{
    struct trainer_check *c = &t->check;
    char who[RANKS_TEXT_BYTES], what[PARAM_NAME_BYTES + 32];

    c->again = 0;
    TRY(replicas_vote(&c->replicas, c->entry, c->now));
    ranks_text(t, has_changed, who);
    replicas_name(&c->replicas, c->entry, what);
    progress_note(&t->progress, "step %" PRId64 ": made again, all replicas "
                  "are equal; %s was wrong in the %s, and it passed",
                  t->counters.step, who[0] != '\0' ? who : "another step",
                  what);
    if (trainer_leads(t))
        LOG(WARNING, "check", "step %" PRId64 ": a transient fault of %s in "
            "the %s", t->counters.step, who[0] != '\0' ? who : "a rank", what);
    return OK;
}

static status differs(struct trainer *t, int entry)
{
    struct trainer_check *c = &t->check;
    const int64_t found = t->counters.step;
    char who[RANKS_TEXT_BYTES], what[PARAM_NAME_BYTES + 32];
    struct ledger_event event;
    bool in_memory;
    int64_t back_to;

    TRY(replicas_vote(&c->replicas, entry, c->now));
    const bool again = c->again > 0;

    c->entry = entry;
    if (again) return fail_persistent(t, "also after the steps were made "
                                         "again");
    if (t->ledger.undone >= t->policy.limit)
        return fail_persistent(t, "and train.event_limit steps were undone "
                                  "before");
    TRY(find_good(t, &back_to, &in_memory));
    if (back_to < 0)
        return fail_persistent(t, "and there is no checkpoint yet");
    ranks_text(t, is_outvoted, who);
    if (who[0] == '\0') ranks_text(t, is_at_odds, who);
    replicas_name(&c->replicas, entry, what);
    progress_note(&t->progress, "step %" PRId64 ": %s of %d hold%s another %s "
                  "than %s replicas: back to step %" PRId64 " (%s), to make "
                  "the steps again", found, who, team_size(&t->team),
                  strchr(who, ',') != NULL ? "" : "s", what,
                  strchr(who, ',') != NULL ? "their" : "its", back_to,
                  in_memory ? "memory" : "checkpoint");
    if (trainer_leads(t))
        LOG(WARNING, "check", "step %" PRId64 ": replicas differ: %s, %s",
            found, who, what);
    fill_event(t, POLICY_CAUSE_REPLICA,
               entry % INVENTORY_KINDS == INVENTORY_WEIGHT ||
                       entry % INVENTORY_KINDS == INVENTORY_GRADIENT
                   ? POLICY_WEIGHTS
                   : POLICY_STATES,
               &event);
    for (int i = 0; i < team_size(&t->team); i++) c->before[i] = c->now[i];
    c->again = found;
    TRY(go_back(t, back_to, in_memory));
    event.back_to = back_to;
    TRY(trainer_record(t, &event));
    trainer_copy_layout(t);
    return OK;
}

/* ---- checks ---- */

/* Drills: "state.flip-R" once, "state.wrong-R" from then on. */
static status inject(struct trainer *t)
{
    char name[32];

    snprintf(name, sizeof name, "state.flip-%d", team_rank(&t->team));
    const bool once = fault_due(name);

    snprintf(name, sizeof name, "state.wrong-%d", team_rank(&t->team));
    const bool stays = fault_lasts(name);

    if (!once && !stays) return OK;
    TRY(stages_fetch(t->pipeline.stages, t->pipeline.count));
    replicas_flip(&t->check.replicas);
    return stages_store(t->pipeline.stages, t->pipeline.count);
}

status trainer_check(struct trainer *t, bool saves, bool *back)
{
    const int64_t every = t->request->set->values.train.check_every;
    const int64_t step = t->counters.step;
    struct trainer_check *c = &t->check;
    int entry;

    *back = false;
    TRY(inject(t));
    if (every == 0 || t->team.world == NULL) return OK;
    if (step % every != 0 && !saves && step != c->again) return OK;
    TRY(replicas_compare(&c->replicas, &entry));
    if (entry >= 0) {
        *back = true;
        return differs(t, entry);
    }
    c->verified = step;
    return c->again > 0 && step >= c->again ? tell_passed(t) : OK;
}

/* ---- steps that are made twice ---- */

static bool is_repeated(const struct trainer *t)
{
    const int64_t every = t->request->set->values.train.repeat_every;

    return every > 0 && (t->counters.step + 1) % every == 0;
}

void trainer_check_begin(struct trainer *t)
{
    struct trainer_check *c = &t->check;
    char name[32];

    if (!is_repeated(t) || c->sums.calls[0] == NULL) return;
    snprintf(name, sizeof name, "sum.flip-%d", team_rank(&t->team));
    c->sums.flips = fault_due(name);
    call_sums_begin(&c->sums, t->team.world, c->passes);
}

void trainer_check_end(struct trainer *t)
{
    if (t->check.sums.calls[0] != NULL) call_sums_end(t->team.world);
}

/* A rank says of a pass that was wrong what differs first from a right one
 * (call_sums.h), or that only its own gradients differ. */
enum { OWN_DIFFER = CALL_SUMS_RECEIVED + 1 };

static bool is_origin(const struct trainer *t, int rank)
{
    return t->check.now[rank].digest == CALL_SUMS_SENT ||
           t->check.now[rank].digest == OWN_DIFFER;
}

/* Collective. who: the ranks that were wrong, ""; "": nobody knows. */
static status find_origin(struct trainer *t, int right, int wrong,
                          char who[RANKS_TEXT_BYTES])
{
    struct trainer_check *c = &t->check;
    int first = CALL_SUMS_SAME;

    if (c->sums.calls[0] != NULL)
        first = (int)call_sums_compare(&c->sums, right, wrong);
    if (first == CALL_SUMS_SAME && call_sums_whole(&c->sums) &&
        replicas_own_differ(&c->replicas, right, wrong))
        first = OWN_DIFFER;
    TRY(votes_gather(&t->team, (struct replica_vote){.digest = first},
                     c->now));
    ranks_text(t, is_origin, who);
    return OK;
}

/* Two of three passes agree. */
static status tell_origin(struct trainer *t, int right, int wrong)
{
    char who[RANKS_TEXT_BYTES];

    TRY(find_origin(t, right, wrong, who));
    if (who[0] == '\0') return OK;
    progress_note(&t->progress, "step %" PRId64 ": pass %d was wrong by %s: "
                  "it sent or kept other bytes while it still received the "
                  "same", t->counters.step + 1, wrong + 1, who);
    if (trainer_leads(t))
        LOG(WARNING, "check", "step %" PRId64 ": a transient fault of %s in "
            "the gradients", t->counters.step + 1, who);
    return OK;
}

/* Whether the newest pass has the gradients of some earlier one, on all
 * ranks. */
static status agrees(struct trainer *t, bool *found)
{
    struct trainer_check *c = &t->check;
    const int last = c->passes - 1;
    int order;

    *found = false;
    for (int i = 0; i < last && !*found; i++) {
        TRY(replicas_passes(&c->replicas, i, last, &order));
        *found = order < 0 && same_number(c->losses[i], c->losses[last]) &&
                 same_number(c->norms[i], c->norms[last]);
        if (!*found) c->order = order;
        if (*found && last == 2) TRY(tell_origin(t, i, 1 - i));
    }
    return OK;
}

static status look_again(struct trainer *t, const struct step_result *result,
                         bool *done)
{
    struct trainer_check *c = &t->check;
    char name[32];

    trainer_check_end(t);
    snprintf(name, sizeof name, "gradient.flip-%d", team_rank(&t->team));
    TRY(stages_fetch(t->pipeline.stages, t->pipeline.count));
    if (fault_due(name)) replicas_flip_gradient(&c->replicas, c->passes);
    c->losses[c->passes] = result->loss;
    c->norms[c->passes] = result->norm;
    replicas_gradients(&c->replicas, c->passes++);
    return agrees(t, done);
}

bool trainer_repeats(struct trainer *t, const struct step_result *result)
{
    struct trainer_check *c = &t->check;
    bool done = false;

    c->repeats = false;
    if (!is_repeated(t)) return false;
    c->failed = look_again(t, result, &done);
    c->repeats = c->failed != OK || !done;
    if (!c->repeats) c->passes = 0;
    return c->repeats;
}

/* No two passes agree. */
static status fail_passes(struct trainer *t, const char *name)
{
    struct trainer_check *c = &t->check;
    char who[RANKS_TEXT_BYTES];

    TRY(find_origin(t, 0, 1, who));
    /* One of two passes may have been wrong by chance. */
    if (who[0] != '\0' && board_has_agent() && c->passes == 3)
        return leave_out(t, t->counters.step + 1, who,
                         is_origin(t, team_rank(&t->team)),
                         "sends other numbers each time that it makes a step");
    FAIL(ERR_DEVICE, "step %" PRId64 ": the gradient of %s was another one in "
         "each of %d passes: %s computes wrong numbers; find it with: lockstep "
         "doctor --nodes", t->counters.step + 1, name, c->passes,
         who[0] != '\0' ? who : "a machine");
}

status trainer_repeat(struct trainer *t)
{
    struct trainer_check *c = &t->check;
    const int64_t step = t->counters.step + 1;
    struct ledger_event event;
    const char *name;

    if (c->failed != OK) return status_pass(c->failed, __FILE__, __LINE__);
    if (c->passes == 1) return OK;
    name = c->order < 0
               ? "the loss"
               : t->keeper.inventory.whole.params.items[c->order].name;
    if (c->passes == 3 || t->ledger.undone >= t->policy.limit)
        return fail_passes(t, name);
    progress_note(&t->progress, "step %" PRId64 ": made twice, it has two "
                  "gradients of %s: a machine was wrong; it is made a third "
                  "time", step, name);
    fill_event(t, POLICY_CAUSE_REPEAT, POLICY_GRADIENTS, &event);
    event.step = step;
    event.back_to = t->counters.step;
    return trainer_record(t, &event);
}
