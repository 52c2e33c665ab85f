/* SPDX-License-Identifier: Apache-2.0 */
/* dualpipe.c - a forward of one direction beside a backward of the other.
 *
 * DualPipe keeps stage s on rank s and on rank ranks - 1 - s; half of the
 * micro-batches enter at each end. DualPipeV is its half, folded: rank r has
 * stages r and stages - 1 - r, and what was the other direction is the way
 * back. The program of a rank is eight runs of a few steps. NEAR is the
 * direction (or chunk) that enters nearer to this rank, FAR the other.
 * Source: DeepSeek-AI 2024, arXiv:2412.19437, section 3.2.1 and figure 5. */
#include "base/arena.h"
#include "schedule/generate.h"

enum { NEAR, FAR, FLOWS };

/* The flow of micro-batches through a rank: stage, its first micro-batch, and
 * the numbers of F and B in the list. */
struct flow { int stage, first, forwards, backwards; };

struct program {
    struct schedule *schedule;
    int rank;
    int steps;            /* micro-batches of each flow */
    int half;             /* ranks on the way to the middle */
    int place;            /* 0 at the end of the pipeline .. half - 1 */
    struct flow flow[FLOWS];
    struct action *late;  /* W that were put off, in order */
    int late_first, late_count;
};

static status put_forward(struct program *p, int which)
{
    struct flow *flow = &p->flow[which];

    return schedule_add(p->schedule, p->rank,
                        action_of(ACTION_FORWARD, flow->stage,
                                  flow->first + flow->forwards++, false));
}

/* B with its W in one piece; `joined` to what stands before. */
static status put_backward(struct program *p, int which, bool joined)
{
    struct flow *flow = &p->flow[which];
    const int microbatch = flow->first + flow->backwards++;

    TRY(schedule_add(p->schedule, p->rank,
                     action_of(ACTION_BACKWARD_INPUT, flow->stage, microbatch,
                               joined)));
    return schedule_add(p->schedule, p->rank,
                        action_of(ACTION_BACKWARD_WEIGHT, flow->stage,
                                  microbatch, true));
}

static status put_input_only(struct program *p, int which)
{
    struct flow *flow = &p->flow[which];
    const int microbatch = flow->first + flow->backwards++;

    p->late[p->late_count++] = action_of(ACTION_BACKWARD_WEIGHT, flow->stage,
                                         microbatch, false);
    return schedule_add(p->schedule, p->rank,
                        action_of(ACTION_BACKWARD_INPUT, flow->stage,
                                  microbatch, false));
}

static status put_late(struct program *p)
{
    return schedule_add(p->schedule, p->rank, p->late[p->late_first++]);
}

static status put_pair(struct program *p, int forward, int backward)
{
    TRY(put_forward(p, forward));
    return put_backward(p, backward, true);
}

static status fill_up(struct program *p)
{
    const int ahead = p->half - p->place - 1;

    for (int i = 0; i < 2 * ahead; i++) TRY(put_forward(p, NEAR));
    for (int i = 0; i <= p->place; i++) {
        TRY(put_forward(p, NEAR));
        TRY(put_forward(p, FAR));
    }
    for (int i = 0; i < ahead; i++) {
        TRY(put_input_only(p, FAR));
        TRY(put_late(p));
        TRY(put_forward(p, FAR));
    }
    return OK;
}

/* In the middle of the pipeline the first B needs the F that would run beside
 * it. */
static status run_pairs(struct program *p)
{
    const int pairs = p->steps - 2 * p->half + p->place + 1;

    for (int i = 0; i < pairs; i++) {
        if (i == 0 && p->place == p->half - 1) {
            TRY(put_forward(p, NEAR));
            TRY(put_backward(p, FAR, false));
        } else {
            TRY(put_pair(p, NEAR, FAR));
        }
        TRY(put_pair(p, FAR, NEAR));
    }
    return OK;
}

/* The second half of the last 2 (place + 1) pairs of backwards postpones W. */
static status run_out(struct program *p)
{
    const int ahead = p->half - p->place - 1;

    for (int i = 0; i < ahead; i++) {
        TRY(put_backward(p, FAR, false));
        TRY(put_pair(p, FAR, NEAR));
    }
    for (int i = 0; i < 2 * (p->place + 1); i++) {
        const int which = i % 2 == 0 ? FAR : NEAR;

        if (i <= p->place) TRY(put_backward(p, which, false));
        else TRY(put_input_only(p, which));
    }
    for (int i = 0; i < ahead; i++) {
        TRY(put_late(p));
        TRY(put_input_only(p, NEAR));
    }
    for (int i = 0; i <= p->place; i++) TRY(put_late(p));
    return OK;
}

static status run_program(struct program *p)
{
    void *late = NULL;
    status result;

    TRY(memory_take((size_t)p->steps, FLOWS * sizeof *p->late, &late));
    p->late = late;
    TRY_GOTO(done, result, fill_up(p));
    TRY_GOTO(done, result, run_pairs(p));
    TRY_GOTO(done, result, run_out(p));
done:
    memory_free(late);
    return result;
}

status fill_dualpipe(struct schedule *out, const struct schedule_request *r)
{
    const int ranks = r->ranks, each = r->microbatches / 2;

    if (ranks % 2 != 0 || r->microbatches % 2 != 0 || each < ranks)
        FAIL(ERR_CONFIG, "schedule dualpipe: %d ranks and %d micro-batches; "
                         "both must be even, with at least 2 micro-batches a "
                         "rank: nearest %d and %d", ranks, r->microbatches,
             ranks + ranks % 2,
             each < ranks + ranks % 2 ? 2 * (ranks + ranks % 2)
                                      : r->microbatches + r->microbatches % 2);
    TRY(schedule_begin(out, ranks, ranks, r->microbatches));
    TRY(schedule_turn(out, each));
    for (int stage = 0; stage < ranks; stage++) {
        out->places[0][stage] = stage;
        out->places[1][stage] = ranks - 1 - stage;
    }
    for (int rank = 0; rank < ranks; rank++) {
        const bool mirrored = rank >= ranks / 2;
        struct program p = {
            .schedule = out, .rank = rank, .steps = each, .half = ranks / 2,
            .place = mirrored ? ranks - 1 - rank : rank};

        p.flow[NEAR] = (struct flow){p.place, mirrored ? each : 0, 0, 0};
        p.flow[FAR] = (struct flow){ranks - 1 - p.place,
                                    mirrored ? 0 : each, 0, 0};
        TRY(run_program(&p));
    }
    return OK;
}

status fill_dualpipev(struct schedule *out, const struct schedule_request *r)
{
    const int ranks = r->ranks;

    if (r->microbatches < 2 * ranks)
        FAIL(ERR_CONFIG, "schedule dualpipev: %d micro-batches on %d ranks; "
                         "at least %d", r->microbatches, ranks, 2 * ranks);
    TRY(schedule_begin(out, ranks, 2 * ranks, r->microbatches));
    for (int rank = 0; rank < ranks; rank++) {
        struct program p = {.schedule = out, .rank = rank,
                            .steps = r->microbatches, .half = ranks,
                            .place = rank};

        p.flow[NEAR] = (struct flow){rank, 0, 0, 0};
        p.flow[FAR] = (struct flow){2 * ranks - 1 - rank, 0, 0, 0};
        out->places[0][rank] = out->places[0][2 * ranks - 1 - rank] = rank;
        TRY(run_program(&p));
    }
    return OK;
}
