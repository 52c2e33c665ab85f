/* SPDX-License-Identifier: Apache-2.0 */
/* schedule.c - the table of schedules, their rules and their verifier.
 * Source: Huang et al. 2019, arXiv:1811.06965 (gpipe); Narayanan et al. 2021,
 * arXiv:2104.04473 (1f1b); Qi et al. 2023, arXiv:2401.10241 (zb-h1, zb-h2). */
#include "schedule/schedule.h"

#include <string.h>

#include "base/arena.h"

/* One stage a rank: how many F come first, and by how many micro-batches W
 * lags behind B. A rank holds at most warmup + lag micro-batches. */
struct policy {
    const char *name;
    int (*warmup)(int rank, int ranks, int microbatches);
    int (*lag)(int rank, int ranks);
};

static int all(int rank, int ranks, int microbatches)
{
    (void)rank;
    (void)ranks;
    return microbatches;
}

static int depth(int rank, int ranks, int microbatches)
{
    (void)microbatches;
    return ranks - rank;
}

static int twice(int rank, int ranks, int microbatches)
{
    (void)microbatches;
    return 2 * (ranks - rank) - 1;
}

static int none(int rank, int ranks)
{
    (void)rank;
    (void)ranks;
    return 0;
}

static int by_rank(int rank, int ranks)
{
    (void)ranks;
    return rank;
}

static int by_two(int rank, int ranks)
{
    (void)ranks;
    return 2 * rank;
}

static const struct policy policies[] = {
    {"gpipe", all, none},    /* every F, then every B */
    {"1f1b", depth, none},   /* least memory */
    {"zb-h1", depth, by_rank}, /* as 1f1b, W fills the gaps */
    {"zb-h2", twice, by_two},  /* twice the memory, no gaps */
};
enum { POLICIES = sizeof policies / sizeof *policies };

static status add(struct schedule *s, int rank, enum action_kind kind,
                  int microbatch)
{
    struct action_list *list = &s->lists[rank];

    CHECK(list->count < list->capacity);
    list->items[list->count++] = (struct action){
        (int16_t)kind, (int16_t)rank, microbatch};
    return OK;
}

static status order_one_stage(struct schedule *s, int rank,
                              const struct policy *policy)
{
    const int count = s->microbatches;
    const int warmup = policy->warmup(rank, s->ranks, count);
    const int lag = policy->lag(rank, s->ranks);
    int f = 0, w = 0;

    while (f < warmup && f < count) TRY(add(s, rank, ACTION_FORWARD, f++));
    for (int b = 0; b < count; b++) {
        TRY(add(s, rank, ACTION_BACKWARD_INPUT, b));
        if (b >= lag) TRY(add(s, rank, ACTION_BACKWARD_WEIGHT, w++));
        if (f < count) TRY(add(s, rank, ACTION_FORWARD, f++));
    }
    while (w < count) TRY(add(s, rank, ACTION_BACKWARD_WEIGHT, w++));
    return OK;
}

static status policy_find(const char *name, const struct policy **out)
{
    const char *names[POLICIES];

    for (int i = 0; i < POLICIES; i++) {
        names[i] = policies[i].name;
        *out = &policies[i];
        if (strcmp(names[i], name) == 0) return OK;
    }
    const char *near = text_nearest(name, names, POLICIES);

    FAIL(ERR_CONFIG, "schedule %s is not known%s%s", name,
         near ? "; nearest: " : "", near ? near : "");
}

status schedule_build(struct schedule *out, const char *name, int ranks,
                      int microbatches)
{
    const struct policy *policy;
    void *memory = NULL;

    *out = (struct schedule){.ranks = ranks, .stages = ranks,
                             .microbatches = microbatches};
    TRY(policy_find(name, &policy));
    if (ranks < 1 || ranks > INT16_MAX || microbatches < 1 ||
        microbatches > 1 << 24)
        FAIL(ERR_CONFIG, "a schedule of %d ranks and %d micro-batches", ranks,
             microbatches);
    TRY(memory_take((size_t)ranks, sizeof(int), &memory));
    out->rank_of_stage = memory;
    TRY(memory_take((size_t)ranks, sizeof *out->lists, &memory));
    out->lists = memory;
    for (int rank = 0; rank < ranks; rank++) {
        const size_t capacity = 3 * (size_t)microbatches;

        out->rank_of_stage[rank] = rank;
        TRY(memory_take(capacity, sizeof(struct action), &memory));
        out->lists[rank].items = memory;
        out->lists[rank].capacity = (int)capacity;
        TRY(order_one_stage(out, rank, policy));
    }
    return OK;
}

void schedule_free(struct schedule *schedule)
{
    for (int i = 0; schedule->lists != NULL && i < schedule->ranks; i++)
        memory_free(schedule->lists[i].items);
    memory_free(schedule->lists);
    memory_free(schedule->rank_of_stage);
    *schedule = (struct schedule){0};
}

int schedule_needs(const struct schedule *schedule, struct action action,
                   struct action needs[2])
{
    struct action other = action;
    int count = 0;

    switch ((enum action_kind)action.kind) {
    case ACTION_FORWARD:
        other.stage--;
        if (other.stage >= 0) needs[count++] = other;
        break;
    case ACTION_BACKWARD_INPUT:
        other.kind = ACTION_FORWARD;
        needs[count++] = other;
        other = action;
        other.stage++;
        if (other.stage < schedule->stages) needs[count++] = other;
        break;
    case ACTION_BACKWARD_WEIGHT:
        other.kind = ACTION_BACKWARD_INPUT;
        needs[count++] = other;
        break;
    case ACTION_KIND_COUNT:
        break;
    }
    return count;
}

static const char letters[] = "FBW";

static size_t action_index(const struct schedule *s, struct action a)
{
    return ((size_t)a.stage * (size_t)s->microbatches +
            (size_t)a.microbatch) * ACTION_KIND_COUNT + (size_t)a.kind;
}

static bool ready(const struct schedule *s, const unsigned char *done,
                  struct action action)
{
    struct action needs[2];
    const int count = schedule_needs(s, action, needs);

    for (int i = 0; i < count; i++)
        if (!done[action_index(s, needs[i])]) return false;
    return true;
}

/* Runs every list as far as it goes, until none can go on. */
static status run_all(const struct schedule *s, unsigned char *done, int *at)
{
    bool moved = true;

    while (moved) {
        moved = false;
        for (int rank = 0; rank < s->ranks; rank++) {
            const struct action_list *list = &s->lists[rank];

            while (at[rank] < list->count &&
                   ready(s, done, list->items[at[rank]])) {
                const struct action a = list->items[at[rank]++];

                if (done[action_index(s, a)]++)
                    FAIL(ERR_CONFIG, "schedule: %c%d.%d stands twice",
                         letters[a.kind], a.stage, a.microbatch);
                moved = true;
            }
        }
    }
    for (int rank = 0; rank < s->ranks; rank++) {
        if (at[rank] == s->lists[rank].count) continue;
        const struct action a = s->lists[rank].items[at[rank]];

        FAIL(ERR_CONFIG, "schedule: rank %d waits for ever at %c%d.%d", rank,
             letters[a.kind], a.stage, a.microbatch);
    }
    return OK;
}

static status check_lists(const struct schedule *s)
{
    for (int rank = 0; rank < s->ranks; rank++) {
        int weight = -1;

        for (int i = 0; i < s->lists[rank].count; i++) {
            const struct action a = s->lists[rank].items[i];

            if (a.kind < 0 || a.kind >= ACTION_KIND_COUNT || a.stage < 0 ||
                a.stage >= s->stages || a.microbatch < 0 ||
                a.microbatch >= s->microbatches ||
                s->rank_of_stage[a.stage] != rank)
                FAIL(ERR_CONFIG, "schedule: action %d of rank %d is not one "
                                 "of its own", i, rank);
            if (a.kind != ACTION_BACKWARD_WEIGHT) continue;
            if (a.microbatch < weight)
                FAIL(ERR_CONFIG, "schedule: W%d.%d comes after W%d.%d; sums "
                                 "take micro-batches in order", a.stage,
                     a.microbatch, a.stage, weight);
            weight = a.microbatch;
        }
    }
    return OK;
}

status schedule_verify(const struct schedule *schedule)
{
    const size_t actions = (size_t)schedule->stages *
                           (size_t)schedule->microbatches * ACTION_KIND_COUNT;
    void *finished = NULL, *at = NULL;
    status result;

    TRY_GOTO(done, result, check_lists(schedule));
    TRY_GOTO(done, result, memory_take(actions, 1, &finished));
    TRY_GOTO(done, result, memory_take((size_t)schedule->ranks, sizeof(int),
                                       &at));
    TRY_GOTO(done, result, run_all(schedule, finished, at));
    for (size_t i = 0; i < actions; i++) {
        const size_t cell = i / ACTION_KIND_COUNT;

        if (((unsigned char *)finished)[i]) continue;
        FAIL_GOTO(done, result, ERR_CONFIG, "schedule: %c%d.%d is missing",
                  letters[i % ACTION_KIND_COUNT],
                  (int)(cell / (size_t)schedule->microbatches),
                  (int)(cell % (size_t)schedule->microbatches));
    }
done:
    memory_free(finished);
    memory_free(at);
    return result;
}

int schedule_held(const struct schedule *schedule)
{
    int most = 0;

    for (int rank = 0; rank < schedule->ranks; rank++) {
        int held = 0;

        for (int i = 0; i < schedule->lists[rank].count; i++) {
            const int kind = schedule->lists[rank].items[i].kind;

            held += kind == ACTION_FORWARD;
            if (held > most) most = held;
            held -= kind == ACTION_BACKWARD_WEIGHT;
        }
    }
    return most;
}

bool schedule_fused(const struct schedule *schedule, int rank)
{
    const struct action_list *list = &schedule->lists[rank];

    for (int i = 0; i < list->count; i++) {
        const struct action a = list->items[i];

        if (a.kind != ACTION_BACKWARD_WEIGHT) continue;
        if (i == 0 || list->items[i - 1].kind != ACTION_BACKWARD_INPUT ||
            list->items[i - 1].microbatch != a.microbatch ||
            list->items[i - 1].stage != a.stage)
            return false;
    }
    return true;
}

status schedule_write(const struct schedule *schedule, struct text *out)
{
    for (int rank = 0; rank < schedule->ranks; rank++) {
        const struct action_list *list = &schedule->lists[rank];

        for (int i = 0; i < list->count; i++)
            TRY(text_printf(out, "%s%c%d.%d", i ? " " : "",
                            letters[list->items[i].kind],
                            list->items[i].stage, list->items[i].microbatch));
        TRY(text_append_string(out, "\n"));
    }
    return OK;
}
