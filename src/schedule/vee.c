/* SPDX-License-Identifier: Apache-2.0 */
/* vee.c - two chunks a rank in a V: rank r has stages r and 2 ranks - 1 - r,
 * so that the way back begins where the way there ends. Orders come from a
 * list scheduler: the rank that can act soonest does, the action whose turn
 * comes first in a repeating pattern goes first, W fill what is left.
 * Source: Qi et al. 2024, arXiv:2405.15362 (zb-v, v-half, v-min). */
#include "base/arena.h"
#include "schedule/generate.h"

enum { THERE, BACK, CHUNKS };

/* Turns are counted in passes of one chunk, six to a micro-batch. Steps of
 * turns from rank to rank: F there, F back, B back, B there; their sum is
 * how long a micro-batch is held. */
struct pattern {
    int step[4];
    int gap[3];  /* on the last rank of each way, before the next way */
    bool strict; /* an F or B waits for its turn; else the first that can */
    bool ordered; /* of those that can, not by turns but in this order: */
    int order[4]; /* of F there, F back, B there, B back */
    int room;    /* of a chunk, between F and B: at most as many as in the
                  * pattern and room - 1 more; 0: any number */
    int eager;   /* while there are F to come, W goes before an F (1) or
                  * before everything (2) */
};
enum { PERIOD = 6 };

struct vee_rank {
    int64_t free, held;        /* ns; of MEMORY_UNIT */
    int64_t begin;             /* ns, of the first action; -1: none yet */
    int forwards[CHUNKS], backwards[CHUNKS], weights;
    int *queue;                /* stages of B in order, whose W may follow */
    int queued;
    int done_w[CHUNKS];
    int most[CHUNKS];          /* between F and B, by pattern.room */
    int turn[ACTION_COMPUTE_COUNT][CHUNKS]; /* of micro-batch 0 */
};

/* The next action of a rank; time is INT64_MAX when it waits. */
struct choice { int64_t time; int kind, chunk; };

/* The rank below this node that can act first, and when. */
struct entry { int64_t time; int rank; /* -1: nobody */ };

struct vee {
    struct schedule *schedule;
    int ranks, microbatches;
    int64_t cost[ACTION_COMPUTE_COUNT];   /* ns, of one chunk */
    int64_t change[ACTION_COMPUTE_COUNT]; /* of held memory */
    int64_t hop, limit;
    struct pattern pattern;
    struct vee_rank *rank;   /* owned, [ranks] */
    struct choice *choice;   /* owned, [ranks] */
    struct entry *winner;    /* owned, tournament of ranks, [2 * leaves] */
    int leaves;
    int64_t *end[2];         /* owned, ns of F and B; -1: not yet; stages of one
                              * micro-batch are neighbours */
};

static int stage_of(const struct vee *v, int rank, int chunk)
{
    return chunk == THERE ? rank : 2 * v->ranks - 1 - rank;
}

static int64_t *end_of(const struct vee *v, int kind, int stage, int m)
{
    return &v->end[kind][(size_t)m * 2 * (size_t)v->ranks + (size_t)stage];
}

/* When the data of an F or B is on the rank; INT64_MAX: nobody knows yet. */
static int64_t arrival(const struct vee *v, int rank, int kind, int stage,
                       int m)
{
    const int from = kind == ACTION_FORWARD ? stage - 1 : stage + 1;
    int64_t end;

    if (from < 0) return 0;
    if (from == 2 * v->ranks) return *end_of(v, ACTION_FORWARD, stage, m);
    end = *end_of(v, kind, from, m);
    if (end < 0) return INT64_MAX;
    return v->schedule->places[0][from] == rank ? end : end + v->hop;
}

/* The turn of an F or B of micro-batch 0 in the pattern. */
static int turn_of(const struct vee *v, int rank, int kind, int chunk)
{
    const int *step = v->pattern.step, *gap = v->pattern.gap;
    const int last = v->ranks - 1, left = last - rank;
    const int bottom = last * step[0] + gap[0];
    const int top = bottom + last * step[1] + gap[1];

    if (kind == ACTION_FORWARD)
        return chunk == THERE ? step[0] * rank : bottom + left * step[1];
    if (chunk == BACK) return top + step[2] * rank;
    return top + last * step[2] + gap[2] + left * step[3];
}

/* No two actions of a rank have the same turn modulo the period. */
static bool fits(const struct vee *v)
{
    for (int rank = 0; rank < v->ranks && rank < PERIOD; rank++) {
        int seen = 0;

        for (int i = 0; i < 4; i++)
            seen |= 1 << turn_of(v, rank, i / 2, i % 2) % PERIOD;
        if (__builtin_popcount((unsigned)seen) != 4) return false;
    }
    return true;
}

/* The smallest gaps with which the pattern repeats. */
static bool find_gaps(struct vee *v)
{
    for (int sum = 3; sum <= 3 * PERIOD; sum++)
        for (int a = 1; a <= PERIOD; a++)
            for (int b = 1; b <= PERIOD; b++) {
                const int c = sum - a - b;

                if (c < 1 || c > PERIOD) continue;
                v->pattern.gap[0] = a;
                v->pattern.gap[1] = b;
                v->pattern.gap[2] = c;
                if (fits(v)) return true;
            }
    return false;
}

/* The turn of W: the next that no F or B takes; of two free ones, the W of the
 * chunk whose B is later takes the later. */
static int turn_of_weight(const struct vee *v, int rank, int chunk)
{
    const int own = turn_of(v, rank, ACTION_BACKWARD_INPUT, chunk);
    const int other = turn_of(v, rank, ACTION_BACKWARD_INPUT, !chunk);
    int taken = 0, at = own, first;

    for (int i = 0; i < 4; i++)
        taken |= 1 << turn_of(v, rank, i / 2, i % 2) % PERIOD;
    while (taken >> at % PERIOD & 1) at++;
    if (chunk == BACK) return at;
    first = other; /* B back comes first in a micro-batch */
    while (taken >> first % PERIOD & 1) first++;
    taken |= 1 << first % PERIOD;
    for (at = own; taken >> at % PERIOD & 1;) at++;
    return at;
}

static void find_turns(struct vee *v, int rank)
{
    struct vee_rank *r = &v->rank[rank];

    for (int chunk = THERE; chunk < CHUNKS; chunk++) {
        for (int kind = ACTION_FORWARD; kind <= ACTION_BACKWARD_INPUT; kind++)
            r->turn[kind][chunk] = turn_of(v, rank, kind, chunk);
        r->turn[ACTION_BACKWARD_WEIGHT][chunk] = turn_of_weight(v, rank,
                                                                chunk);
        r->most[chunk] = (r->turn[ACTION_BACKWARD_INPUT][chunk] -
                          r->turn[ACTION_FORWARD][chunk]) / PERIOD +
                         v->pattern.room;
    }
}

/* F there leaves room for one F back: else all could wait for memory. */
static bool has_room(const struct vee *v, int rank, int chunk)
{
    const struct vee_rank *r = &v->rank[rank];
    const int forwards = chunk == THERE && !v->pattern.strict ? 2 : 1;
    const int64_t room = forwards * v->change[ACTION_FORWARD];

    if (v->pattern.room > 0 &&
        r->forwards[chunk] - r->backwards[chunk] >= r->most[chunk])
        return false;
    return r->held + room <= v->limit;
}

/* The F or B that goes next: in a strict pattern the one whose turn it is,
 * else the one that can start first. *at is its turn. */
static struct choice choose_pass(const struct vee *v, int rank, int64_t *at)
{
    const struct vee_rank *r = &v->rank[rank];
    struct choice best = {INT64_MAX, ACTION_FORWARD, THERE};

    *at = INT64_MAX;
    for (int i = 0; i < 4; i++) {
        const int kind = i / 2, chunk = i % 2;
        const int m = kind == ACTION_FORWARD ? r->forwards[chunk]
                                             : r->backwards[chunk];
        const int64_t turn = v->pattern.ordered
                                 ? v->pattern.order[i]
                                 : (int64_t)PERIOD * m + r->turn[kind][chunk];
        int64_t time;

        if (m == v->microbatches ||
            (kind == ACTION_BACKWARD_INPUT && m >= r->forwards[chunk]))
            continue;
        time = arrival(v, rank, kind, stage_of(v, rank, chunk), m);
        if (time < r->free) time = r->free;
        if (kind == ACTION_FORWARD && !has_room(v, rank, chunk))
            time = INT64_MAX;
        if (v->pattern.strict ? turn > *at
                              : time > best.time ||
                                    (time == best.time && turn > *at))
            continue;
        best = (struct choice){time, kind, chunk};
        *at = turn;
    }
    return best;
}

static struct choice choose(const struct vee *v, int rank)
{
    const struct vee_rank *r = &v->rank[rank];
    const struct choice weight = {r->free, ACTION_BACKWARD_WEIGHT, THERE};
    int64_t at;
    const struct choice best = choose_pass(v, rank, &at);

    if (r->weights == r->queued) return best;
    if (best.time > r->free) return weight;
    if (r->forwards[THERE] < v->microbatches &&
        (v->pattern.eager == 2 ||
         (v->pattern.eager == 1 && best.kind == ACTION_FORWARD)))
        return weight;
    if (v->pattern.strict) {
        const int chunk = r->queue[r->weights] == rank ? THERE : BACK;
        const int *turn = r->turn[ACTION_BACKWARD_WEIGHT];

        if ((int64_t)PERIOD * r->done_w[chunk] + turn[chunk] < at)
            return weight;
    }
    return best;
}

/* The winner of each pair of the tournament can act sooner; where nothing
 * changes, nothing changes above. */
static void enter(struct vee *v, int rank)
{
    struct entry *winner = v->winner;

    v->choice[rank] = choose(v, rank);
    winner[v->leaves + rank].time = v->choice[rank].time;
    for (int node = (v->leaves + rank) / 2; node > 0; node /= 2) {
        const struct entry *pair = &winner[2 * node];
        const struct entry best = pair[pair[1].time < pair[0].time];

        if (winner[node].time == best.time && winner[node].rank == best.rank)
            return;
        winner[node] = best;
    }
}

static status act(struct vee *v, int rank)
{
    const struct choice c = v->choice[rank];
    struct vee_rank *r = &v->rank[rank];
    int stage = stage_of(v, rank, c.chunk), m = 0;

    if (c.kind == ACTION_FORWARD) m = r->forwards[c.chunk]++;
    if (c.kind == ACTION_BACKWARD_INPUT) {
        m = r->backwards[c.chunk]++;
        r->queue[r->queued++] = stage;
    }
    if (c.kind == ACTION_BACKWARD_WEIGHT) {
        stage = r->queue[r->weights++];
        m = r->done_w[stage == rank ? THERE : BACK]++;
    }
    if (r->begin < 0) r->begin = c.time;
    r->free = c.time + v->cost[c.kind];
    r->held += v->change[c.kind];
    if (c.kind != ACTION_BACKWARD_WEIGHT)
        *end_of(v, c.kind, stage, m) = r->free;
    return schedule_add(v->schedule, rank,
                        action_of((enum action_kind)c.kind, stage, m, false));
}

/* The other rank that waits for what `rank` is about to make; -1: none. */
static int receiver(const struct vee *v, int rank)
{
    const struct choice c = v->choice[rank];
    const bool down = (c.kind == ACTION_FORWARD) == (c.chunk == THERE);
    const int other = down ? rank + 1 : rank - 1;

    return c.kind != ACTION_BACKWARD_WEIGHT && other < v->ranks ? other : -1;
}

static status play(struct vee *v)
{
    const int64_t actions = 6 * (int64_t)v->ranks * v->microbatches;

    for (int i = 0; i < v->ranks; i++) enter(v, i);
    for (int64_t n = 0; n < actions; n++) {
        const int rank = v->winner[1].rank;

        if (v->choice[rank].time == INT64_MAX)
            FAIL(ERR_CONFIG, "schedule: no rank can go on within the memory "
                             "limit of %.4g micro-batches",
                 (double)v->limit / MEMORY_UNIT);
        const int other = receiver(v, rank);

        TRY(act(v, rank));
        enter(v, rank);
        if (other >= 0) enter(v, other);
    }
    return OK;
}

static int64_t longest_span(const struct vee *v)
{
    int64_t longest = 0;

    for (int i = 0; i < v->ranks; i++)
        if (v->rank[i].free - v->rank[i].begin > longest)
            longest = v->rank[i].free - v->rank[i].begin;
    return longest;
}

/* An order of one pattern, from the beginning. */
static status try_pattern(struct vee *v, struct schedule *out)
{
    const size_t cells = 2 * (size_t)v->ranks * (size_t)v->microbatches;

    v->schedule = out;
    for (int i = 0; i < v->ranks; i++) {
        v->rank[i] = (struct vee_rank){.begin = -1,
                                       .queue = v->rank[i].queue};
        v->choice[i].time = INT64_MAX;
        find_turns(v, i);
    }
    for (int i = 0; i < v->leaves; i++)
        v->winner[v->leaves + i] =
            (struct entry){INT64_MAX, i < v->ranks ? i : -1};
    for (int i = v->leaves - 1; i > 0; i--) v->winner[i] = v->winner[2 * i];
    for (size_t i = 0; i < cells; i++)
        v->end[ACTION_FORWARD][i] = v->end[ACTION_BACKWARD_INPUT][i] = -1;
    TRY(schedule_begin(out, v->ranks, 2 * v->ranks, v->microbatches));
    for (int i = 0; i < v->ranks; i++) {
        out->places[0][i] = out->places[0][2 * v->ranks - 1 - i] = i;
        TRY(schedule_reserve(out, i, PERIOD * v->microbatches));
    }
    return play(v);
}

/* Which comes out best depends on the times; beyond some size the first that
 * fits will do. */
enum { TRIED_ACTIONS = 1 << 19 };
static const struct pattern patterns[] = {
    {.step = {1, 1, 1, 1}, .strict = true}, /* held a third of 1f1b's time */
    {.step = {2, 1, 2, 1}, .strict = true}, /* half */
    {.step = {1, 2, 1, 2}, .strict = true},
    {.step = {4, 2, 4, 2}, .strict = true},
    {.step = {4, 2, 4, 2}}, /* from here on: fill all memory there is */
    {.step = {4, 2, 4, 2}, .ordered = true, .order = {2, 0, 1, 3}, .eager = 1},
    {.step = {4, 2, 4, 2}, .ordered = true, .order = {1, 0, 2, 3}, .eager = 2},
    {.step = {4, 2, 4, 2}, .ordered = true, .order = {2, 1, 0, 3}, .eager = 2},
    {.step = {1, 1, 1, 1}},
    /* between the two, for times that are not equal */
    {.step = {1, 1, 1, 1}, .room = 2, .ordered = true, .order = {3, 1, 0, 2}},
    {.step = {1, 1, 1, 1}, .room = 3, .ordered = true, .order = {2, 0, 1, 3}},
};
enum { PATTERNS = sizeof patterns / sizeof *patterns };

static status search_best(struct vee *v, struct schedule *out, int first)
{
    const int64_t actions = 6 * (int64_t)v->ranks * v->microbatches;
    int64_t best = INT64_MAX;
    status result = OK;

    for (int i = 0; i < PATTERNS; i++) {
        struct schedule found = {0};

        if (best < INT64_MAX && actions > TRIED_ACTIONS) break;
        v->pattern = patterns[(i + first) % PATTERNS];
        if (!find_gaps(v)) continue;
        result = try_pattern(v, &found);
        if (result != OK && result != ERR_CONFIG) {
            schedule_free(&found);
            return result;
        }
        if (result == OK && longest_span(v) < best) {
            best = longest_span(v);
            schedule_free(out);
            *out = found;
        } else {
            schedule_free(&found);
        }
    }
    if (best == INT64_MAX) return result;
    status_clear(); /* some order fits; that others do not is no error */
    return OK;
}

static status take_arrays(struct vee *v, struct arena *arena)
{
    const size_t ranks = (size_t)v->ranks, count = (size_t)v->microbatches;
    void *memory[5] = {NULL};

    TRY(arena_take_array(arena, ranks, sizeof *v->rank, &memory[0]));
    TRY(arena_take_array(arena, ranks, sizeof *v->choice, &memory[1]));
    TRY(arena_take_array(arena, 2 * (size_t)v->leaves, sizeof *v->winner,
                         &memory[2]));
    TRY(arena_take_array(arena, 2 * ranks * count, sizeof(int64_t),
                         &memory[3]));
    TRY(arena_take_array(arena, 2 * ranks * count, sizeof(int64_t),
                         &memory[4]));
    v->rank = memory[0];
    v->choice = memory[1];
    v->winner = memory[2];
    v->end[ACTION_FORWARD] = memory[3];
    v->end[ACTION_BACKWARD_INPUT] = memory[4];
    for (int i = 0; i < v->ranks; i++) {
        TRY(arena_take_array(arena, CHUNKS * count, sizeof(int),
                             &memory[0]));
        v->rank[i].queue = memory[0];
    }
    return OK;
}

static status fill(struct schedule *out, const struct schedule_request *r,
                   double limit, int first)
{
    const int64_t unit = MEMORY_UNIT / CHUNKS;
    const int64_t kept = (int64_t)(r->weight_memory * (double)unit);
    const int64_t times[] = {r->forward_ns, r->backward_input_ns,
                             r->backward_weight_ns};
    struct vee v = {.ranks = r->ranks, .microbatches = r->microbatches,
                    .hop = r->transfer_ns, .leaves = 2,
                    .change = {unit, kept - unit, -kept}};
    struct arena arena;
    status result;

    if (r->microbatches < 1 || r->microbatches > MICROBATCHES_MAX)
        FAIL(ERR_CONFIG, "schedule %s: %d micro-batches, expected 1 to %d",
             r->name, r->microbatches, MICROBATCHES_MAX);
    if (r->memory_limit > 0) limit = r->memory_limit;
    if (limit < 1)
        FAIL(ERR_CONFIG, "schedule %s: a memory limit of %g holds no "
                         "micro-batch; at least 1", r->name, limit);
    v.limit = (int64_t)(limit * MEMORY_UNIT);
    for (int i = 0; i < ACTION_COMPUTE_COUNT; i++)
        v.cost[i] = (times[i] + 1) / CHUNKS;
    while (v.leaves < v.ranks) v.leaves *= 2;
    arena_init(&arena, "schedule", 0);
    TRY_GOTO(done, result, take_arrays(&v, &arena));
    TRY_GOTO(done, result, search_best(&v, out, first));
done:
    arena_free(&arena);
    return result;
}

/* The last number is the pattern to begin with. */
status fill_zb_v(struct schedule *out, const struct schedule_request *r)
{
    return fill(out, r, r->ranks, 4);
}

status fill_v_half(struct schedule *out, const struct schedule_request *r)
{
    return fill(out, r, r->ranks / 2.0 + 1, 1);
}

status fill_v_min(struct schedule *out, const struct schedule_request *r)
{
    return fill(out, r, (r->ranks + 2) / 3 + 1, 0);
}
