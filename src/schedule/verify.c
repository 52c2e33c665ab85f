/* SPDX-License-Identifier: Apache-2.0 */
/* verify.c - walks a schedule in an order that its rules allow. */
#include "schedule/verify.h"

#include "base/arena.h"

struct walk {
    const struct schedule *schedule;
    unsigned char *done; /* [stages * microbatches], a bit per kind */
    int *at;             /* [ranks], next action of each list */
    int *stack;          /* [ranks], ranks that may go on */
    bool *stacked;       /* [ranks] */
    int height;
    schedule_visit *visit;
    void *context;
};

static unsigned char *cell(const struct walk *w, struct action a)
{
    return &w->done[(size_t)a.stage * (size_t)w->schedule->microbatches +
                    (size_t)a.microbatch];
}

static bool is_done(const struct walk *w, struct action a)
{
    return *cell(w, a) >> a.kind & 1;
}

/* A posted receive is complete when the other side has sent. */
static bool is_complete(const struct walk *w, struct action a)
{
    struct action needs[2];

    if (!is_done(w, a)) return false;
    if (a.kind != ACTION_RECEIVE_FORWARD && a.kind != ACTION_RECEIVE_BACKWARD)
        return true;
    return schedule_needs(w->schedule, a, needs) == 1 &&
           is_done(w, needs[0]);
}

static bool is_member(const struct action *bundle, int count, struct action a)
{
    for (int i = 0; i < count; i++)
        if (bundle[i].kind == a.kind && bundle[i].stage == a.stage &&
            bundle[i].microbatch == a.microbatch)
            return true;
    return false;
}

/* True when `bundle` can start; else *missing is what it waits for. */
static bool is_ready(const struct walk *w, const struct action *bundle,
                     int count, struct action *missing)
{
    for (int i = 0; i < count; i++) {
        struct action needs[2];
        int need_count;

        /* A receive is posted, and the list goes on. */
        if (bundle[i].kind == ACTION_RECEIVE_FORWARD ||
            bundle[i].kind == ACTION_RECEIVE_BACKWARD)
            continue;
        need_count = schedule_needs(w->schedule, bundle[i], needs);
        for (int n = 0; n < need_count; n++) {
            if (is_complete(w, needs[n]) || is_member(bundle, i, needs[n]))
                continue;
            *missing = needs[n];
            return false;
        }
    }
    return true;
}

static void wake(struct walk *w, int stage, int microbatch)
{
    int rank;

    if (stage < 0 || stage >= w->schedule->stages) return;
    rank = schedule_rank(w->schedule, stage, microbatch);
    if (w->stacked[rank]) return;
    w->stacked[rank] = true;
    w->stack[w->height++] = rank;
}

static status run_bundle(struct walk *w, const struct action *bundle, int count)
{
    char name[ACTION_BYTES];

    for (int i = 0; i < count; i++) {
        const struct action a = bundle[i];
        const bool forward = a.kind == ACTION_FORWARD ||
                             a.kind == ACTION_SEND_FORWARD;

        if (is_done(w, a))
            FAIL(ERR_CONFIG, "schedule: %s stands twice",
                 action_text(name, w->schedule, a));
        *cell(w, a) = (unsigned char)(*cell(w, a) | 1U << a.kind);
        wake(w, forward ? a.stage + 1 : a.stage - 1, a.microbatch);
    }
    return OK;
}

/* As far as the list of one rank goes. */
static status run_rank(struct walk *w, int rank)
{
    const struct action_list *list = &w->schedule->lists[rank];
    struct action missing;

    while (w->at[rank] < list->count) {
        const int first = w->at[rank];
        const int count = schedule_bundle(list, first);

        if (!is_ready(w, &list->items[first], count, &missing)) return OK;
        TRY(run_bundle(w, &list->items[first], count));
        w->at[rank] += count;
        if (w->visit != NULL) w->visit(w->context, rank, first, count);
    }
    return OK;
}

/* Runs every list until none can go on. */
static status run_all(struct walk *w)
{
    for (int rank = w->schedule->ranks - 1; rank >= 0; rank--) {
        w->stack[w->height++] = rank;
        w->stacked[rank] = true;
    }
    while (w->height > 0) {
        const int rank = w->stack[--w->height];

        w->stacked[rank] = false;
        TRY(run_rank(w, rank));
    }
    return OK;
}

/* The action that the next bundle of `rank` waits for, in the words of the
 * rules. */
static struct action waits_for(const struct walk *w, int rank)
{
    const struct action_list *list = &w->schedule->lists[rank];
    const int first = w->at[rank];
    struct action missing = list->items[first], needs[2];

    is_ready(w, &list->items[first], schedule_bundle(list, first), &missing);
    if (is_done(w, missing) &&
        schedule_needs(w->schedule, missing, needs) == 1)
        missing = needs[0]; /* received, but nobody sends */
    return missing;
}

/* Follows who waits for whom to a rank that waits for itself, for what no list
 * holds, or that is met again. */
static status explain_wait(const struct walk *w, int rank)
{
    const struct schedule *s = w->schedule;
    char name[ACTION_BYTES], other[ACTION_BYTES];
    struct action at, missing;
    bool listed = false;
    int owner = rank;

    for (int hops = 0; hops <= s->ranks; hops++) {
        rank = owner;
        at = s->lists[rank].items[w->at[rank]];
        missing = waits_for(w, rank);
        owner = schedule_rank(s, missing.stage, missing.microbatch);
        listed = false;
        for (int i = w->at[owner]; i < s->lists[owner].count; i++)
            listed |= is_member(&s->lists[owner].items[i], 1, missing);
        if (!listed || owner == rank) break;
    }
    if (!listed)
        FAIL(ERR_CONFIG, "schedule: %s is missing on rank %d; rank %d waits "
                         "for it at %s", action_text(other, s, missing),
             owner, rank, action_text(name, s, at));
    FAIL(ERR_CONFIG, "schedule: rank %d waits forever at %s, which needs %s of "
                     "rank %d", rank, action_text(name, s, at),
         action_text(other, s, missing), owner);
}

/* Every list ended: F, B and W of every stage and micro-batch are there. */
static status check_complete(const struct walk *w)
{
    const struct schedule *s = w->schedule;
    char name[ACTION_BYTES];

    for (int rank = 0; rank < s->ranks; rank++)
        if (w->at[rank] < s->lists[rank].count) return explain_wait(w, rank);
    for (int stage = 0; stage < s->stages; stage++)
        for (int m = 0; m < s->microbatches; m++)
            for (int kind = 0; kind < ACTION_COMPUTE_COUNT; kind++) {
                const struct action a = {.kind = (int8_t)kind,
                                         .stage = (int16_t)stage,
                                         .microbatch = m};

                if (!is_done(w, a))
                    FAIL(ERR_CONFIG, "schedule: %s is missing on rank %d",
                         action_text(name, s, a), schedule_rank(s, stage, m));
            }
    return OK;
}

static status check_action(const struct schedule *s, int rank, int at)
{
    const struct action a = s->lists[rank].items[at];
    char name[ACTION_BYTES];

    if (a.kind < 0 || a.kind >= ACTION_KIND_COUNT || a.stage < 0 ||
        a.stage >= s->stages || a.microbatch < 0 ||
        a.microbatch >= s->microbatches)
        FAIL(ERR_CONFIG, "schedule: action %d of rank %d is outside %d stages "
                         "and %d micro-batches", at, rank, s->stages,
             s->microbatches);
    if (schedule_rank(s, a.stage, a.microbatch) != rank)
        FAIL(ERR_CONFIG, "schedule: %s is on rank %d, but its stage is on rank "
                         "%d", action_text(name, s, a), rank,
             schedule_rank(s, a.stage, a.microbatch));
    if (a.joined && (at == 0 || a.kind >= ACTION_COMPUTE_COUNT ||
                     s->lists[rank].items[at - 1].kind >=
                         ACTION_COMPUTE_COUNT))
        FAIL(ERR_CONFIG, "schedule: %s of rank %d runs together with nothing; "
                         "F, B and W can be joined",
             action_text(name, s, a), rank);
    if (a.kind >= ACTION_COMPUTE_COUNT && !s->lowered)
        FAIL(ERR_CONFIG, "schedule: %s is a transfer; the lowering adds them",
             action_text(name, s, a));
    return OK;
}

/* B and W of a stage take its micro-batches in order: matrices are summed in W,
 * norms, biases and the loss in B. F sums nothing. last [2 * stages]: scratch,
 * the last B and W of each stage on this rank. */
static status check_list(const struct schedule *s, int rank, int *last)
{
    char name[ACTION_BYTES], before[ACTION_BYTES];

    for (int i = 0; i < 2 * s->stages; i++) last[i] = -1;
    for (int i = 0; i < s->lists[rank].count; i++) {
        const struct action a = s->lists[rank].items[i];
        struct action other = a;
        int *newest;

        TRY(check_action(s, rank, i));
        if (a.kind != ACTION_BACKWARD_INPUT && a.kind != ACTION_BACKWARD_WEIGHT)
            continue;
        newest = &last[2 * a.stage + (a.kind == ACTION_BACKWARD_WEIGHT)];
        other.microbatch = *newest;
        if (a.microbatch < *newest)
            FAIL(ERR_CONFIG, "schedule: %s, action %d of rank %d, comes after "
                             "%s; sums take micro-batches in order, F alone "
                             "may take any",
                 action_text(name, s, a), i + 1, rank,
                 action_text(before, s, other));
        *newest = a.microbatch;
    }
    return OK;
}

static status check_places(const struct schedule *s)
{
    const int directions = s->turned < s->microbatches ? 2 : 1;

    for (int d = 0; d < directions; d++)
        for (int stage = 0; stage < s->stages; stage++)
            if (s->places[d] == NULL || s->places[d][stage] < 0 ||
                s->places[d][stage] >= s->ranks)
                FAIL(ERR_CONFIG, "schedule: stage %d is on no rank%s", stage,
                     d ? " in direction 1" : "");
    return OK;
}

status schedule_walk(const struct schedule *schedule, schedule_visit *visit,
                     void *context)
{
    const size_t ranks = (size_t)schedule->ranks;
    const size_t cells = (size_t)schedule->stages *
                         (size_t)schedule->microbatches;
    void *done = NULL, *at = NULL, *stack = NULL, *stacked = NULL,
         *last = NULL;
    struct walk walk;
    status result;

    TRY(check_places(schedule));
    TRY_GOTO(done, result, memory_take(2 * (size_t)schedule->stages,
                                       sizeof(int), &last));
    for (int rank = 0; rank < schedule->ranks; rank++)
        TRY_GOTO(done, result, check_list(schedule, rank, last));
    TRY_GOTO(done, result, memory_take(cells, 1, &done));
    TRY_GOTO(done, result, memory_take(ranks, sizeof(int), &at));
    TRY_GOTO(done, result, memory_take(ranks, sizeof(int), &stack));
    TRY_GOTO(done, result, memory_take(ranks, sizeof(bool), &stacked));
    walk = (struct walk){schedule, done, at, stack, stacked, 0, visit,
                         context};
    TRY_GOTO(done, result, run_all(&walk));
    TRY_GOTO(done, result, check_complete(&walk));
done:
    memory_free(last);
    memory_free(done);
    memory_free(at);
    memory_free(stack);
    memory_free(stacked);
    return result;
}

status schedule_verify(const struct schedule *schedule)
{
    return schedule_walk(schedule, NULL, NULL);
}
