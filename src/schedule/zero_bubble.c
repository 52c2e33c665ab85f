/* SPDX-License-Identifier: Apache-2.0 */
/* zero_bubble.c - an order found by playing the step with the given times
 * under a memory limit: zb-1p and zb-2p.
 *
 * One micro-batch after another, each rank decides whether an F goes before
 * its next B, and W are placed where the rank would wait or memory is short.
 * Three questions have no best answer, so all eight answers are tried and the
 * order whose busiest rank is done soonest is kept.
 * Source: Qi et al. 2023, arXiv:2401.10241, section 3.1. */
#include "base/arena.h"
#include "schedule/generate.h"

struct rules {
    bool finish;         /* a warm-up F must end before the first B can start,
                          * not only begin */
    bool backward_first; /* F waits when it would hold up the next rank */
    bool greedy;         /* W fills a gap even if it ends after it */
};

struct rank_state {
    int done[ACTION_COMPUTE_COUNT]; /* micro-batches */
    int64_t end, idle;              /* ns; idle: since the first F */
    int64_t first_begin;            /* ns */
    int64_t held;                   /* of MEMORY_UNIT */
    int wanted;                     /* F to issue now */
};

struct search {
    struct schedule *schedule; /* NULL: only the times are wanted */
    int ranks, microbatches;
    int64_t cost[ACTION_COMPUTE_COUNT];   /* ns */
    int64_t change[ACTION_COMPUTE_COUNT]; /* of held memory */
    int64_t hop, limit;
    struct rules rules;
    struct rank_state *rank; /* owned, [ranks] */
    int64_t *end[2];         /* owned, of F and B, [microbatches * ranks]: ranks
                              * of one micro-batch meet in one cache line */
};

static int64_t *end_of(const struct search *s, int kind, int rank, int m)
{
    return &s->end[kind][(size_t)m * (size_t)s->ranks + (size_t)rank];
}

/* When the data of the next action of `kind` is there; 0: it always is. */
static int64_t arrival(const struct search *s, int kind, int rank)
{
    const int m = s->rank[rank].done[kind];

    if (kind == ACTION_FORWARD && rank > 0)
        return *end_of(s, kind, rank - 1, m) + s->hop;
    if (kind == ACTION_BACKWARD_INPUT && rank + 1 < s->ranks)
        return *end_of(s, kind, rank + 1, m) + s->hop;
    return 0;
}

static status put(struct search *s, int rank, int kind)
{
    struct rank_state *r = &s->rank[rank];
    const int m = r->done[kind];
    const int64_t there = arrival(s, kind, rank);
    const int64_t begin = there > r->end ? there : r->end;

    if (r->done[ACTION_FORWARD] > 0) r->idle += begin - r->end;
    else r->first_begin = begin;
    r->end = begin + s->cost[kind];
    r->held += s->change[kind];
    r->done[kind]++;
    if (kind != ACTION_BACKWARD_WEIGHT) *end_of(s, kind, rank, m) = r->end;
    if (s->schedule == NULL) return OK;
    return schedule_add(s->schedule, rank,
                        action_of((enum action_kind)kind, rank, m, false));
}

static bool has_weight(const struct rank_state *r)
{
    return r->done[ACTION_BACKWARD_WEIGHT] < r->done[ACTION_BACKWARD_INPUT];
}

static int64_t most_idle(const struct search *s)
{
    int64_t most = 0;

    for (int i = 0; i < s->ranks; i++)
        if (s->rank[i].idle > most) most = s->rank[i].idle;
    return most;
}

/* How many more F `rank` can take before its first B; *soonest is when that B
 * ends on the next rank, and then on this one. */
static int warmup(const struct search *s, int rank, int64_t *soonest)
{
    const struct rank_state *r = &s->rank[rank];
    const int64_t there = *soonest + s->hop;
    const int64_t f = s->cost[ACTION_FORWARD];
    int64_t held = r->held, end = r->end;
    int more = 0;

    while (r->done[ACTION_FORWARD] + more < s->microbatches &&
           held + s->change[ACTION_FORWARD] <= s->limit &&
           (s->rules.finish ? end + f <= there : end < there)) {
        held += s->change[ACTION_FORWARD];
        end += f;
        more++;
    }
    *soonest = (end > there ? end : there) + s->cost[ACTION_BACKWARD_INPUT];
    return more;
}

/* Micro-batch 0: F on all ranks, the warm-up, B on all ranks. */
static status begin(struct search *s)
{
    int64_t soonest;

    for (int i = 0; i < s->ranks; i++) TRY(put(s, i, ACTION_FORWARD));
    soonest = s->rank[s->ranks - 1].end + s->cost[ACTION_BACKWARD_INPUT];
    for (int i = s->ranks - 2; i >= 0; i--)
        s->rank[i].wanted = warmup(s, i, &soonest);
    /* A later rank has at least one F less, as F reach it later. */
    for (int i = 1; i < s->ranks; i++) {
        struct rank_state *r = &s->rank[i];

        while (r->wanted > 0 && r->wanted >= s->rank[i - 1].wanted &&
               r->done[ACTION_FORWARD] + r->wanted < s->microbatches)
            r->wanted--;
    }
    for (int i = 0; i < s->ranks; i++)
        for (; s->rank[i].wanted > 0; s->rank[i].wanted--)
            TRY(put(s, i, ACTION_FORWARD));
    for (int i = s->ranks - 1; i >= 0; i--)
        TRY(put(s, i, ACTION_BACKWARD_INPUT));
    return OK;
}

/* The rule backward_first, for a rank that is 2 F ahead of the next: an F now
 * must not keep its B, and so the next rank, waiting. */
static bool forward_may_wait(const struct search *s, int rank)
{
    const struct rank_state *r = &s->rank[rank], *next = &s->rank[rank + 1];
    const int64_t busy = next->end + s->cost[ACTION_FORWARD] +
                         s->cost[ACTION_BACKWARD_INPUT] + s->hop;
    int64_t held = r->held + s->change[ACTION_FORWARD], weights = 0;
    int w = r->done[ACTION_BACKWARD_WEIGHT];

    if (r->end >= busy) return true;
    for (; held > s->limit && w < r->done[ACTION_BACKWARD_INPUT]; w++) {
        held += s->change[ACTION_BACKWARD_WEIGHT];
        weights += s->cost[ACTION_BACKWARD_WEIGHT];
    }
    if (r->end + s->cost[ACTION_FORWARD] + weights <= busy) return false;
    return busy - r->end <= most_idle(s) - r->idle;
}

/* Which ranks issue an F before the next B; none runs ahead of a later one. */
static void choose_forwards(struct search *s)
{
    for (int i = 0; i < s->ranks; i++) {
        struct rank_state *r = &s->rank[i];
        const bool ahead = i + 1 < s->ranks &&
                           r->done[ACTION_FORWARD] >=
                               s->rank[i + 1].done[ACTION_FORWARD] + 2;

        r->wanted = r->done[ACTION_FORWARD] < s->microbatches &&
                    !(s->rules.backward_first && ahead &&
                      forward_may_wait(s, i));
    }
    for (int i = s->ranks - 2; i >= 0; i--)
        if (s->rank[i + 1].wanted < s->rank[i].wanted) s->rank[i].wanted = 0;
}

/* W before an action of `kind`: those that make room for it, those that end
 * before its data comes, and perhaps one that ends later. */
static status fill_gap(struct search *s, int rank, int kind)
{
    struct rank_state *r = &s->rank[rank];
    const int64_t there = arrival(s, kind, rank);

    while (r->held + s->change[kind] > s->limit) {
        if (!has_weight(r))
            FAIL(ERR_CONFIG, "schedule: rank %d would hold more than the "
                             "memory limit of %.4g micro-batches", rank,
                 (double)s->limit / MEMORY_UNIT);
        TRY(put(s, rank, ACTION_BACKWARD_WEIGHT));
    }
    while (has_weight(r) && r->end + s->cost[ACTION_BACKWARD_WEIGHT] <= there)
        TRY(put(s, rank, ACTION_BACKWARD_WEIGHT));
    if (has_weight(r) && r->end < there &&
        (s->rules.greedy || there - r->end > most_idle(s) - r->idle))
        TRY(put(s, rank, ACTION_BACKWARD_WEIGHT));
    return OK;
}

static status play(struct search *s)
{
    TRY(begin(s));
    for (int m = 1; m < s->microbatches; m++) {
        choose_forwards(s);
        for (int i = 0; i < s->ranks; i++) {
            if (s->rank[i].wanted == 0) continue;
            TRY(fill_gap(s, i, ACTION_FORWARD));
            TRY(put(s, i, ACTION_FORWARD));
        }
        for (int i = s->ranks - 1; i >= 0; i--) {
            TRY(fill_gap(s, i, ACTION_BACKWARD_INPUT));
            while (i == 0 && has_weight(&s->rank[0]) &&
                   s->rank[0].done[ACTION_FORWARD] == s->microbatches)
                TRY(put(s, 0, ACTION_BACKWARD_WEIGHT));
            TRY(put(s, i, ACTION_BACKWARD_INPUT));
        }
    }
    for (int i = 0; i < s->ranks; i++)
        while (has_weight(&s->rank[i]))
            TRY(put(s, i, ACTION_BACKWARD_WEIGHT));
    return OK;
}

static int64_t longest_span(const struct search *s)
{
    int64_t longest = 0;

    for (int i = 0; i < s->ranks; i++) {
        const int64_t span = s->rank[i].end - s->rank[i].first_begin;

        if (span > longest) longest = span;
    }
    return longest;
}

/* One answer to the three questions, from the beginning. */
static status try_rules(struct search *s, struct schedule *out, int which)
{
    s->schedule = out;
    s->rules = (struct rules){which & 4, which & 2, which & 1};
    for (int i = 0; i < s->ranks; i++) s->rank[i] = (struct rank_state){0};
    return play(s);
}

/* The lists of the best answer are made when it is known. */
static status write_best(struct search *s, struct schedule *out, int which)
{
    TRY(schedule_begin(out, s->ranks, s->ranks, s->microbatches));
    for (int i = 0; i < s->ranks; i++) {
        out->places[0][i] = i;
        TRY(schedule_reserve(out, i, ACTION_COMPUTE_COUNT * s->microbatches));
    }
    return try_rules(s, out, which);
}

static status search_best(struct search *s, struct schedule *out)
{
    enum { ANSWERS = 8 };
    int64_t best = INT64_MAX;
    int chosen = 0;
    status result = OK;

    for (int which = ANSWERS - 1; which >= 0; which--) {
        result = try_rules(s, NULL, which);
        if (result != OK && result != ERR_CONFIG) return result;
        if (result != OK || longest_span(s) >= best) continue;
        best = longest_span(s);
        chosen = which;
    }
    /* Any answer will do; a refusal of another is forgotten. */
    if (best == INT64_MAX) return result;
    status_clear();
    return write_best(s, out, chosen);
}

/* `times` the memory of 1f1b where the user gives no limit. */
static status fill(struct schedule *out, const struct schedule_request *r,
                   int times)
{
    const size_t cells = (size_t)r->ranks * (size_t)r->microbatches;
    const double limit = r->memory_limit > 0 ? r->memory_limit
                                             : times * r->ranks;
    const int64_t kept = (int64_t)(r->weight_memory * MEMORY_UNIT);
    void *rank = NULL, *forward = NULL, *backward = NULL;
    struct search s = {.ranks = r->ranks, .microbatches = r->microbatches,
                       .hop = r->transfer_ns,
                       .limit = (int64_t)(limit * MEMORY_UNIT)};
    status result;

    if (r->microbatches < 1 || r->microbatches > MICROBATCHES_MAX)
        FAIL(ERR_CONFIG, "schedule %s: %d micro-batches, expected 1 to %d",
             r->name, r->microbatches, MICROBATCHES_MAX);
    if (limit < 1)
        FAIL(ERR_CONFIG, "schedule %s: a memory limit of %g holds no "
                         "micro-batch; at least 1", r->name, limit);
    s.cost[ACTION_FORWARD] = r->forward_ns;
    s.cost[ACTION_BACKWARD_INPUT] = r->backward_input_ns;
    s.cost[ACTION_BACKWARD_WEIGHT] = r->backward_weight_ns;
    s.change[ACTION_FORWARD] = MEMORY_UNIT;
    s.change[ACTION_BACKWARD_INPUT] = kept - MEMORY_UNIT;
    s.change[ACTION_BACKWARD_WEIGHT] = -kept;
    TRY_GOTO(done, result, memory_take((size_t)r->ranks, sizeof *s.rank,
                                       &rank));
    TRY_GOTO(done, result, memory_take(cells, sizeof(int64_t), &forward));
    TRY_GOTO(done, result, memory_take(cells, sizeof(int64_t), &backward));
    s.rank = rank;
    s.end[ACTION_FORWARD] = forward;
    s.end[ACTION_BACKWARD_INPUT] = backward;
    TRY_GOTO(done, result, search_best(&s, out));
done:
    memory_free(rank);
    memory_free(forward);
    memory_free(backward);
    return result;
}

status fill_zb_1p(struct schedule *out, const struct schedule_request *r)
{
    return fill(out, r, 1);
}

status fill_zb_2p(struct schedule *out, const struct schedule_request *r)
{
    return fill(out, r, 2);
}
