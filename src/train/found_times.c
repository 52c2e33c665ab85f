/* SPDX-License-Identifier: Apache-2.0 */
/* found_times.c - the best layouts of a search, timed as `plan` times them. */
#include "train/found_parts.h"

#include "base/jobs.h"
#include "planner/memory.h"
#include "planner/search_time.h"
#include "schedule/build.h"

enum { LONG = 4, /* fills of the pipeline, of a step that is not short */
       WALKED_TOGETHER = 8 };

static void scale_time(struct prediction *p, double step_s)
{
    const double faster = p->step_s / step_s;

    p->tokens_per_s *= faster;
    p->mfu *= faster;
    p->mfu_noncausal *= faster;
    p->hfu *= faster;
    p->step_s = step_s;
}

/* How much two layouts have in common of what decides by how much the
 * executor's own lists differ from whole stages. */
static int common(const struct layout *a, const struct layout *b)
{
    return 4 * ((a->zero == 3) == (b->zero == 3)) +
           2 * (strcmp(a->schedule, b->schedule) == 0) +
           2 * (a->pipe == b->pipe) + 2 * (a->context == b->context) +
           (a->tensor == b->tensor) + (a->expert == b->expert) +
           (a->recompute == b->recompute) +
           (a->micro_batch == b->micro_batch);
}

/* By how much whole steps are longer than two shorter ones say, of the most
 * similar layout whose step was walked both ways: sums of gradients that wait
 * are not as many for each micro-batch of a shorter one. */
static double beyond_shorter(const struct found_layouts *h,
                             const struct layout *of)
{
    double longer = 1;
    int most = -1;

    for (int k = 0; k < h->kept_count; k++) {
        const struct candidate *w = &h->search.found[h->kept[k]];
        const int alike = common(&w->layout, of);

        if (!w->walked || w->shorter_s <= 0 || alike <= most) continue;
        most = alike;
        longer = w->prediction.step_s / w->shorter_s;
    }
    return longer;
}

/* Seconds of lists that were walked: of the whole step, or as two shorter ones
 * say it; 0: of neither. */
static double listed(const struct found_layouts *h, const struct candidate *c)
{
    if (c->walked) return c->prediction.step_s;
    return c->shorter_s > 0 ? c->shorter_s * beyond_shorter(h, &c->layout) : 0;
}

/* The step as `plan` would say it of a candidate: where it walks the executor's
 * lists, by as much longer than whole stages as the most similar one of those
 * whose lists were walked. */
static void guess_time(struct found_layouts *h, int i)
{
    struct candidate *c = &h->search.found[i];
    const bool walks = forecast_walks(&h->forecast, &c->layout);
    double longer = 1;
    int most = -1;

    for (int k = 0; k < h->kept_count && walks; k++) {
        const struct candidate *w = &h->search.found[h->kept[k]];
        const int alike = common(&w->layout, &c->layout);

        if (alike <= most || listed(h, w) <= 0 ||
            !forecast_walks(&h->forecast, &w->layout))
            continue;
        most = alike;
        longer = listed(h, w) / w->whole_s;
    }
    scale_time(&c->prediction, c->shorter_s > 0 ? listed(h, c)
                                                : c->whole_s * longer);
    if (h->request.objective != OBJECTIVE_MEMORY) c->score = found_score(h, i);
}

static void guess_all(struct found_layouts *h)
{
    for (int i = 0; i < h->search.count; i++) {
        const struct candidate *c = &h->search.found[i];

        if (c->timed && !c->walked && c->whole_s < 1e299) guess_time(h, i);
    }
}

/* The first of the best that is not timed as by `plan`; -1. */
static int first_guessed(const struct found_layouts *h)
{
    for (int k = 0; k < h->kept_count; k++)
        if (!h->search.found[h->kept[k]].walked) return k;
    return -1;
}

/* Whether a step of many micro-batches is a short one, and so many more of what
 * another fill of the pipeline adds: gradients are reduced once, at its end. */
static bool is_steady(const struct found_layouts *h, const struct layout *l)
{
    return l->pipe > 1 && l->microbatches >= LONG * l->pipe &&
           forecast_walks(&h->forecast, l) &&
           memory_rounds(l, &h->forecast.shape) == 0;
}

/* Micro-batches of the two shorter steps: a fill of the pipeline, and another
 * one, or, where each rank has one stage, in which micro-batches follow each
 * other one by one, some more, whose batch the leaves of the grid divide. */
static void choose_shorter(const struct layout *l, int microbatches[2])
{
    enum { LEAST = 8 };
    const int64_t each = layout_sharing(l) * l->micro_batch;
    int some = LEAST;

    while (some < l->pipe && l->grid_data > 0 &&
           each * some % l->grid_data != 0)
        some *= 2;
    if (l->chunks > 1 || some > l->pipe ||
        !schedule_is(l->schedule, SCHEDULE_AT_ONCE))
        some = l->pipe;
    microbatches[0] = l->pipe;
    microbatches[1] = l->pipe + some;
}

/* The step by the executor's lists of two shorter ones. `h` may be a copy. */
static status time_shorter(struct found_layouts *h, int k)
{
    struct candidate *const c = &h->search.found[h->kept[k]];
    double step[2], work[2];
    status result = OK;
    int shorter_by[2];

    choose_shorter(&c->layout, shorter_by);
    for (int i = 0; i < 2 && result == OK; i++) {
        struct candidate shorter = *c;

        h->microbatches = shorter_by[i];
        result = found_plan(h, &shorter, h->grid[k], found_time_as_plan);
        step[i] = shorter.prediction.step_s;
        work[i] = shorter.prediction.resource_s[CLOCK_COMPUTE];
    }
    h->microbatches = 0;
    TRY(result);
    const double more = step[1] - step[0], least = work[1] - work[0];

    c->shorter_s = step[1] + (more > least ? more : least) *
                                 (c->layout.microbatches - shorter_by[1]) /
                                 (shorter_by[1] - shorter_by[0]);
    return OK;
}

/* Whether both of h->kept have the same lists. */
static bool are_twins(const struct found_layouts *h, int i, int k)
{
    const struct candidate *found = h->search.found;

    return h->grid[i] == h->grid[k] &&
           search_twins(&found[h->kept[i]].layout, &found[h->kept[k]].layout,
                        &h->forecast.shape);
}

/* Takes the time of another that has the same lists; false: there is none. */
static bool take_twin(struct found_layouts *h, int k)
{
    struct candidate *const c = &h->search.found[h->kept[k]];

    for (int i = 0; i < h->kept_count && !c->walked; i++) {
        const struct candidate *twin = &h->search.found[h->kept[i]];
        const double bytes = c->prediction.memory_bytes;

        if ((!twin->walked && twin->shorter_s <= c->shorter_s) ||
            !are_twins(h, i, k))
            continue;
        c->shorter_s = twin->shorter_s;
        if (!twin->walked) continue;
        c->prediction = twin->prediction;
        c->prediction.memory_bytes = bytes;
        c->walked = true;
        c->score = found_score(h, h->kept[k]);
    }
    return c->walked || c->shorter_s > 0;
}

/* Layouts whose shorter steps are walked, each by one thread. */
struct shorter {
    struct found_layouts *h;
    int which[TOP_MOST], count; /* of h->kept, the most work first */
    double work[TOP_MOST];
};

/* Whether one that is listed has the same lists. */
static bool has_twin(const struct shorter *s, int k)
{
    for (int i = 0; i < s->count; i++)
        if (are_twins(s->h, s->which[i], k)) return true;
    return false;
}

/* The last one ends soon after the others where the longest come first. */
static void put_shorter(struct shorter *s, int k, double work)
{
    int at = s->count++;

    for (; at > 0 && s->work[at - 1] < work; at--) {
        s->which[at] = s->which[at - 1];
        s->work[at] = s->work[at - 1];
    }
    s->which[at] = k;
    s->work[at] = work;
}

/* Lists too long to be timed as `plan` does; also of layouts behind the last
 * one that is shown, which may be better. */
static void list_shorter(struct shorter *s)
{
    struct found_layouts *h = s->h;

    for (int k = 0; k < h->kept_count; k++) {
        const struct candidate *c = &h->search.found[h->kept[k]];
        struct layout both = c->layout; /* nearly */
        int microbatches[2];

        choose_shorter(&c->layout, microbatches);
        both.microbatches = microbatches[0] + microbatches[1];
        if (c->walked || !is_steady(h, &c->layout) || take_twin(h, k) ||
            has_twin(s, k))
            continue;
        const double work = forecast_work(&h->forecast, &both);

        if (work > h->shorter_left) continue;
        h->shorter_left -= work;
        put_shorter(s, k, work);
    }
}

static void walk_shorter(void *argument, int job, int index)
{
    const struct shorter *s = argument;

    if (time_shorter(found_copy(s->h, index), s->which[job]) != OK)
        status_clear(); /* another batch needs another grid */
}

static void time_all_shorter(struct found_layouts *h)
{
    struct shorter s = {.h = h};

    list_shorter(&s);
    found_run_jobs(h, s.count, walk_shorter, &s);
    for (int k = 0; k < h->kept_count; k++)
        if (!h->search.found[h->kept[k]].walked) (void)take_twin(h, k);
}

/* Layouts that are walked together, each by one thread. */
struct walks {
    struct found_layouts *h;
    struct walk {
        int k, which;               /* of h->kept; of search.found */
        struct candidate candidate; /* a copy, which is timed */
        bool fails;
    } items[WALKED_TOGETHER];
    int count;
};

static void walk_one(void *argument, int job, int index)
{
    struct walks *w = argument;
    struct walk *one = &w->items[job];
    struct found_layouts *h = found_copy(w->h, index);

    one->fails = found_plan(h, &one->candidate, h->grid[one->k],
                           found_time_as_plan) != OK;
    if (one->fails) status_clear();
}

static bool walks_twin(const struct walks *w, int k)
{
    for (int i = 0; i < w->count; i++)
        if (are_twins(w->h, w->items[i].k, k)) return true;
    return false;
}

/* Times the k-th, and, on other threads, those that would be next and for which
 * instructions would be left. */
static void walk_next(struct walks *w, int k)
{
    struct found_layouts *h = w->h;
    const int threads = threads_count(h->pool);
    double left = h->left;

    w->count = 0;
    for (; k < h->kept_count; k++) {
        const struct candidate *c = &h->search.found[h->kept[k]];

        if (c->walked || walks_twin(w, k)) continue;
        if (w->count > 0) left -= forecast_work(&h->forecast, &c->layout);
        if (w->count > 0 && (left < 0 || w->count == threads ||
                             w->count == WALKED_TOGETHER))
            break;
        w->items[w->count++] = (struct walk){k, h->kept[k], *c, false};
    }
    found_run_jobs(h, w->count, walk_one, w);
}

/* The one that times the k-th, which is timed now if it was not before. */
static const struct walk *walk_of(struct walks *w, int k)
{
    const int which = w->h->kept[k];

    for (int i = 0; i < w->count; i++)
        if (w->items[i].which == which) return &w->items[i];
    walk_next(w, k);
    return &w->items[0];
}

/* Times the best as `plan` does, for so many instructions in all; the others
 * by shorter steps, or by their likeness. */
void found_time_kept(struct found_layouts *h)
{
    struct walks walks = {.h = h};
    int k;

    time_all_shorter(h);
    guess_all(h);
    found_sort(h);
    while ((k = first_guessed(h)) >= 0) {
        struct candidate *c = &h->search.found[h->kept[k]];

        h->left -= forecast_work(&h->forecast, &c->layout);
        if (h->left < 0 && k > 0) break;
        const struct walk *one = walk_of(&walks, k);

        if (one->fails) break;
        c->prediction = one->candidate.prediction;
        c->walked = true;
        for (int i = 0; i < h->kept_count; i++) (void)take_twin(h, i);
        c->score = found_score(h, h->kept[k]);
        guess_all(h);
        found_sort(h);
    }
}
