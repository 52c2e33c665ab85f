/* SPDX-License-Identifier: Apache-2.0 */
/* simulate.c - a schedule with a clock instead of devices. */
#include "plan/simulate.h"

#include "base/arena.h"
#include "schedule/verify.h"

struct clock {
    const struct schedule *schedule;
    const struct simulate_costs *costs;
    struct simulation *out;
    int kinds;          /* columns of `end` */
    int64_t *end;       /* ns, [stages * microbatches * kinds] */
    struct rank_clock {
        int64_t begin, free; /* ns: first begin, last end */
        int64_t busy;        /* ns */
        int chunks[2];       /* of each direction */
        int64_t kept[2];     /* chunks between F and B, of each direction */
        int64_t late[2];     /* between B and W */
    } *rank;
};

static int64_t *end_of(const struct clock *c, struct action a)
{
    const size_t cell = (size_t)a.stage * (size_t)c->schedule->microbatches +
                        (size_t)a.microbatch;

    return &c->end[cell * (size_t)c->kinds + (size_t)a.kind];
}

static bool is_transfer(struct action a)
{
    return a.kind >= ACTION_COMPUTE_COUNT;
}

/* When what `need` made is on `rank`. A posted receive is complete a transfer
 * after both sides have posted. */
static int64_t arrival(const struct clock *c, struct action need, int rank)
{
    const struct schedule *s = c->schedule;
    const int64_t at = *end_of(c, need);
    struct action sent[2];

    if (is_transfer(need)) {
        int64_t posted;

        schedule_needs(s, need, sent);
        posted = *end_of(c, sent[0]);
        return (posted > at ? posted : at) + c->costs->transfer_ns;
    }
    if (schedule_rank(s, need.stage, need.microbatch) == rank) return at;
    return at + c->costs->transfer_ns;
}

/* Time of one action alone: the rank's time over its chunks. */
static int64_t cost(const struct clock *c, int rank, struct action a)
{
    const int d = schedule_direction(c->schedule, a.microbatch);
    const int64_t chunks = c->rank[rank].chunks[d];

    if (is_transfer(a)) return 0;
    return (c->costs->time_ns[a.kind] + chunks / 2) / chunks;
}

/* An F beside a B and its W takes the stated time of a pair. */
static int64_t bundle_cost(const struct clock *c, int rank,
                         const struct action *bundle, int count)
{
    const int d = schedule_direction(c->schedule, bundle[0].microbatch);
    int64_t sum = 0;
    int seen = 0;

    for (int i = 0; i < count; i++) {
        sum += cost(c, rank, bundle[i]);
        seen |= 1 << bundle[i].kind;
    }
    if (c->costs->pair_ns > 0 && count == ACTION_COMPUTE_COUNT &&
        seen == (1 << ACTION_COMPUTE_COUNT) - 1)
        return c->costs->pair_ns / c->rank[rank].chunks[d];
    return sum;
}

static int64_t begin_of(const struct clock *c, int rank,
                        const struct action *bundle, int count)
{
    int64_t begin = c->rank[rank].free;

    for (int i = 0; i < count; i++) {
        struct action needs[2];
        const int need_count = schedule_needs(c->schedule, bundle[i], needs);

        /* Transfers are posted at once; what the bundle itself makes is marked
         * by an end that is not known yet. */
        for (int n = 0; n < need_count && !is_transfer(bundle[i]); n++) {
            const int64_t there = *end_of(c, needs[n]) < 0
                                      ? 0 : arrival(c, needs[n], rank);

            if (there > begin) begin = there;
        }
    }
    return begin;
}

static void count_memory(struct clock *c, int rank, struct action a)
{
    struct rank_clock *r = &c->rank[rank];
    const int d = schedule_direction(c->schedule, a.microbatch);
    double held = 0;

    if (is_transfer(a)) return;
    r->kept[d] += (a.kind == ACTION_FORWARD) -
                  (a.kind == ACTION_BACKWARD_INPUT);
    r->late[d] += (a.kind == ACTION_BACKWARD_INPUT) -
                  (a.kind == ACTION_BACKWARD_WEIGHT);
    for (int i = 0; i < 2; i++)
        if (r->chunks[i] > 0)
            held += ((double)r->kept[i] +
                     c->costs->weight_memory * (double)r->late[i]) /
                    r->chunks[i];
    if (held > c->out->peaks[rank]) c->out->peaks[rank] = held;
}

static void visit(void *context, int rank, int first, int count)
{
    struct clock *c = context;
    const struct action *bundle = &c->schedule->lists[rank].items[first];
    struct rank_clock *r = &c->rank[rank];
    const int64_t begin = begin_of(c, rank, bundle, count);
    const int64_t length = bundle_cost(c, rank, bundle, count);
    int64_t sum = 0, before = 0;

    for (int i = 0; i < count; i++) sum += cost(c, rank, bundle[i]);
    for (int i = 0; i < count; i++) {
        const double share = sum > 0 ? (double)length / (double)sum : 0;
        const int64_t from = before;

        *end_of(c, bundle[i]) = begin + length;
        count_memory(c, rank, bundle[i]);
        if (is_transfer(bundle[i])) continue;
        before += cost(c, rank, bundle[i]);
        CHECK(timeline_add(&c->out->timeline, (struct timeline_span){
            bundle[i], rank, begin + (int64_t)((double)from * share),
            begin + (int64_t)((double)before * share), 0}) == OK);
    }
    if (is_transfer(bundle[0])) return;
    if (r->begin < 0) r->begin = begin;
    r->free = begin + length;
    r->busy += length;
}

/* Everything before the first visit, so that none of them can fail. */
static status clock_open(struct clock *c)
{
    const struct schedule *s = c->schedule;
    const size_t cells = (size_t)s->stages * (size_t)s->microbatches;
    const int64_t *time = c->costs->time_ns;
    const double longest = (double)cells *
                           ((double)time[0] + (double)time[1] +
                            (double)time[2] + (double)c->costs->pair_ns +
                            4 * (double)c->costs->transfer_ns);
    void *memory = NULL;
    int actions = 0;

    if (longest > 9e18)
        FAIL(ERR_CONFIG, "simulate: %d stages and %d micro-batches of these "
                         "times are more than 292 years", s->stages,
             s->microbatches);
    for (int rank = 0; rank < s->ranks; rank++)
        actions += s->lists[rank].count;
    TRY(timeline_reserve(&c->out->timeline, actions));
    TRY(memory_take((size_t)s->ranks, sizeof(double), &memory));
    c->out->peaks = memory;
    TRY(memory_take((size_t)s->ranks, sizeof *c->rank, &memory));
    c->rank = memory;
    for (int stage = 0; stage < s->stages; stage++)
        for (int d = 0; d < 2; d++)
            if (s->places[d] != NULL && s->places[d][stage] >= 0 &&
                s->places[d][stage] < s->ranks)
                c->rank[s->places[d][stage]].chunks[d]++;
    for (int rank = 0; rank < s->ranks; rank++) c->rank[rank].begin = -1;
    c->kinds = s->lowered ? ACTION_KIND_COUNT : ACTION_COMPUTE_COUNT;
    TRY(memory_take(cells * (size_t)c->kinds, sizeof *c->end, &memory));
    c->end = memory;
    for (size_t i = 0; i < cells * (size_t)c->kinds; i++) c->end[i] = -1;
    return OK;
}

static void summarize(const struct clock *c)
{
    struct simulation *out = c->out;
    double work = 0, busy = 0;

    for (int kind = 0; kind < ACTION_COMPUTE_COUNT; kind++)
        work += (double)c->costs->time_ns[kind];
    for (int rank = 0; rank < out->ranks; rank++) {
        const struct rank_clock *r = &c->rank[rank];
        const int64_t span = r->begin < 0 ? 0 : r->free - r->begin;

        busy += (double)r->busy;
        if (span > out->longest_ns) out->longest_ns = span;
        if (r->free > out->end_ns) out->end_ns = r->free;
    }
    if (out->end_ns > 0)
        out->idle_share = 1 - busy / ((double)out->ranks *
                                      (double)out->end_ns);
    if (out->longest_ns > 0)
        out->bubble_rate = 1 - c->schedule->microbatches * work /
                                   (double)out->longest_ns;
}

status simulate(struct simulation *out, const struct schedule *schedule,
                const struct simulate_costs *costs)
{
    struct clock c = {.schedule = schedule, .costs = costs, .out = out};
    status result;

    *out = (struct simulation){.ranks = schedule->ranks};
    TRY_GOTO(done, result, clock_open(&c));
    TRY_GOTO(done, result, schedule_walk(schedule, visit, &c));
    summarize(&c);
done:
    memory_free(c.end);
    memory_free(c.rank);
    if (result != OK) simulation_free(out);
    return result;
}

void simulation_free(struct simulation *simulation)
{
    timeline_free(&simulation->timeline);
    memory_free(simulation->peaks);
    *simulation = (struct simulation){0};
}

status simulation_within(const struct simulation *simulation, const char *name,
                         double limit)
{
    for (int i = 0; limit > 0 && i < simulation->ranks; i++)
        if (simulation->peaks[i] > limit + 1e-6)
            FAIL(ERR_CONFIG, "schedule %s holds %.4g micro-batches on rank "
                             "%d; the memory limit is %g", name,
                 simulation->peaks[i], i, limit);
    return OK;
}

double interleaved_published_rate(const struct simulate_costs *costs,
                                  int ranks, int chunks, int microbatches)
{
    double work = 0, idle;

    for (int kind = 0; kind < ACTION_COMPUTE_COUNT; kind++)
        work += (double)costs->time_ns[kind];
    idle = (ranks - 1) * work / chunks +
           (ranks * (2 * chunks - 1) - 2) * (double)costs->transfer_ns;
    return idle / (microbatches * work + idle);
}
