/* SPDX-License-Identifier: Apache-2.0 */
/* search_time.c - the time of a candidate, from a few short steps. */
#include "planner/search_time.h"

#include <string.h>

#include "base/jobs.h"
#include "planner/memory.h"
#include "schedule/build.h"

/* How many times the first short step fills the pipeline. A V fills it on the
 * way there and on the way back. */
enum { STEADY = 1, STEADY_V = 2, TRIES = 3 };

/* Two steps that differ in one fill of the pipeline. */
struct two_steps {
    struct prediction shorter, longer;
    int first, fill;       /* micro-batches of the shorter one; of a fill */
};

/* Seconds of one more micro-batch: at least those that ranks compute. Messages
 * of the step's ends are longer than what hides them where they are fewer. */
static double seconds_each(const struct two_steps *t)
{
    const double step = t->longer.step_s - t->shorter.step_s;
    const double work = t->longer.resource_s[CLOCK_COMPUTE] -
                        t->shorter.resource_s[CLOCK_COMPUTE];

    return (step > work ? step : work) / t->fill;
}

static bool is_steady(const struct two_steps *t)
{
    return t->longer.step_s - t->shorter.step_s >=
           0.99 * seconds_each(t) * t->fill;
}

static status time_short(const struct search_request *request,
                         const struct candidate *c, int microbatches,
                         struct prediction *out)
{
    const struct weather weather = {.memory_bytes = c->memory_bytes,
                                    .max_memory = request->max_memory};
    struct layout l = c->layout;

    l.fine = true;
    l.microbatches = microbatches;
    return predict(out, &(struct cost){request->machine, request->shape, &l},
                   &weather);
}

/* The line through both, `along` times their distance beyond the second one. */
static double line(double first, double second, double along)
{
    return second + (second - first) * along;
}

/* The longer step, and `more` micro-batches. */
static void extend(const struct two_steps *t, double more,
                   struct prediction *out)
{
    const struct prediction *a = &t->shorter, *b = &t->longer;
    const double step = b->step_s + seconds_each(t) * more;
    const double along = more / t->fill;
    const double body = line(a->body_s, b->body_s, along);

    *out = *b;
    for (int i = 0; i < CAUSES; i++)
        out->path_s[i] = line(a->path_s[i], b->path_s[i], along);
    for (int i = 0; i < AXIS_COUNT; i++)
        out->exposed_s[i] = line(a->exposed_s[i], b->exposed_s[i], along);
    out->bubble_rate = line(a->bubble_rate * a->body_s,
                            b->bubble_rate * b->body_s, along) / body;
    out->idle_share = line(a->idle_share * a->step_s, b->idle_share * b->step_s,
                           along) / step;
    out->step_s = step;
    out->body_s = body;
}

/* Rates were those of a short step with the tokens of the whole one. */
static void set_rates(struct prediction *p, double tokens_per_s)
{
    const double rate = tokens_per_s / p->tokens_per_s;

    p->mfu *= rate;
    p->mfu_noncausal *= rate;
    p->hfu *= rate;
    p->tokens_per_s = tokens_per_s;
}

status search_time(const struct search_request *request, struct candidate *c)
{
    const int all = c->layout.microbatches;
    const int fills = schedule_is(c->layout.schedule, SCHEDULE_V) ? STEADY_V
                                                                 : STEADY;
    struct two_steps t = {.first = fills * c->layout.pipe,
                          .fill = c->layout.pipe};

    c->timed = true;
    if (all <= t.first + t.fill)
        return time_short(request, c, all, &c->prediction);
    TRY(time_short(request, c, t.first, &t.shorter));
    TRY(time_short(request, c, t.first + t.fill, &t.longer));
    for (int i = 0; i < TRIES && !is_steady(&t); i++) {
        if (t.first + 2 * t.fill >= all)
            return time_short(request, c, all, &c->prediction);
        t.shorter = t.longer;
        t.first += t.fill;
        TRY(time_short(request, c, t.first + t.fill, &t.longer));
    }
    extend(&t, all - t.first - t.fill, &c->prediction);
    set_rates(&c->prediction, (double)c->layout.batch *
                                  (double)request->shape->sequence /
                                  c->prediction.step_s);
    return OK;
}

struct all {
    const struct search_request *request;
    struct candidate *candidates;
    const int *which;
};

static void time_one(void *argument, int job, int index)
{
    const struct all *all = argument;
    struct candidate *c = &all->candidates[all->which[job]];

    (void)index;
    if (search_time(all->request, c) == OK) return;
    status_clear();
    c->prediction.step_s = 1e300;
}

void search_time_all(const struct search_request *request,
                     struct candidate *candidates, const int *which, int count)
{
    struct all all = {request, candidates, which};

    jobs_run(request->pool, count, time_one, &all);
}

/* Whether two layouts have the same lists: weights are whole, gradients are
 * reduced once, at the end of the step, and so are whole until then, however
 * many ranks would divide them. */
bool search_twins(const struct layout *a, const struct layout *b,
                  const struct shape *shape)
{
    return a->as == AS_LOCKSTEP && b->as == AS_LOCKSTEP &&
           a->zero >= 1 && a->zero <= 2 && b->zero >= 1 && b->zero <= 2 &&
           memory_rounds(a, shape) == 0 && memory_rounds(b, shape) == 0 &&
           a->whole_shards == b->whole_shards && a->shard == b->shard &&
           layout_division(a, 1) == layout_division(b, 1) &&
           a->tensor == b->tensor && a->context == b->context &&
           a->pipe == b->pipe && a->data == b->data &&
           a->expert == b->expert && a->expert_tensor == b->expert_tensor &&
           a->expert_context == b->expert_context &&
           a->micro_batch == b->micro_batch && a->batch == b->batch &&
           a->recompute == b->recompute && a->chunks == b->chunks &&
           a->head_blocks == b->head_blocks &&
           strcmp(a->schedule, b->schedule) == 0;
}
