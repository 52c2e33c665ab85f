/* SPDX-License-Identifier: Apache-2.0 */
/* found_layouts.c - the layouts that a search found, planned to the byte and
 * timed on the executor's own lists. */
#include "train/found_layouts.h"

#include <string.h>

#include "base/check.h"
#include "base/meter.h"
#include "base/jobs.h"
#include "planner/memory.h"
#include "planner/search_time.h"
#include "schedule/build.h"
#include "setup/balance.h"

enum { CHECKED_MORE = 14,  /* plans to the byte beyond those that are kept, */
       CHECKED_FIRST = 40, /* and until one fits */
       FAR_MOST = 10,      /* plans in a row beyond twice the limit */
       ORIGINS = 1024, WALKED_WORK = 1 << 15,
       TIMED_WORK = 400000, /* instructions: half of a second */
       SHORTER_WORK = 4000000, /* ... of shorter steps */
       LONG = 4,            /* fills of the pipeline, of a step that is not
                             * short */
       TIMED_EACH = 16384 /* of short lists, which are timed when they are
                           * planned */ };

/* ---- what Lockstep itself would take ---- */

/* Nodes of fewer ranks than were asked for; 0: they do not fill them. */
static int nodes_of(const struct forecast *asked, int ranks)
{
    const int each = asked->ranks / asked->nodes;

    if (ranks <= each) return 1;
    return ranks % each == 0 ? ranks / each : 0;
}

/* The memory of the candidate as the trainer would plan it. */
static void take_memory(const struct forecast *f, struct candidate *c)
{
    c->memory_bytes = f->exact_bytes;
    c->position = f->exact_position;
    c->prediction.memory_bytes = f->exact_bytes;
}

static status plan_memory(struct forecast *f, struct candidate *c)
{
    TRY(forecast_exactly(f));
    take_memory(f, c);
    return OK;
}

static status predict_walked(struct forecast *f, struct steps *steps,
                             struct candidate *c)
{
    const struct weather weather = {.memory_bytes = c->memory_bytes,
                                    .max_memory = f->max_memory};
    const struct cost cost = forecast_cost(f);

    TRY(predict_steps(&c->prediction, steps, &cost, &weather));
    c->walked = true;
    return OK;
}

/* The step as `plan --time` predicts it. */
static status time_as_plan(struct forecast *f, struct candidate *c)
{
    struct steps steps = {.span_count = 0};
    status result;

    result = forecast_steps(f, &steps);
    if (result == OK) result = predict_walked(f, &steps, c);
    steps_free(&steps);
    return result;
}

/* Both at once: the ranks are planned once. */
static status plan_and_time(struct forecast *f, struct candidate *c)
{
    const double most = f->max_memory > 0
                            ? f->max_memory
                            : f->machine.value[M_MEMORY_BYTES];
    struct steps steps;
    status result = forecast_exactly_timed(f, most, &steps);

    if (result == OK) take_memory(f, c);
    if (result == OK && steps.lists.ranks > 0)
        result = predict_walked(f, &steps, c);
    steps_free(&steps);
    return result;
}

/* A batch of so many micro-batches. */
static status shorten(struct forecast *f, int microbatches)
{
    char setting[64];

    f->layout.batch =
        layout_sharing(&f->layout) * f->layout.micro_batch * microbatches;
    f->layout.microbatches = microbatches;
    snprintf(setting, sizeof setting, "train.batch=%lld",
             (long long)f->layout.batch);
    return options_assign(&f->set, setting, ORIGIN_COMMAND_LINE);
}

/* Plans or times the candidate, with the numerics grid that the options have or
 * one that the layout needs. */
typedef status plan_one(struct forecast *f, struct candidate *c);
static status plan_with(struct found_layouts *h, struct candidate *c, bool grid,
                        plan_one *plan)
{
    const struct options kept = h->forecast.set.values;
    const char *const *names;
    const size_t rows = (size_t)options_names(&names);
    unsigned char origins[ORIGINS];
    char settings[HUNTED_SETTINGS][HUNTED_SETTING];
    const int count = found_settings(&c->layout, &h->forecast.shape, grid,
                                     settings);
    struct forecast f = h->forecast;
    status result = OK;

    CHECK(rows <= ORIGINS);
    memcpy(origins, f.set.origin, rows);
    f.exact_bytes = 0;
    f.quick = c->layout.pipe > 4;
    f.layout = c->layout;
    f.hunting = &h->hunting;
    f.ranks = layout_ranks(&c->layout);
    if (f.nodes > 0) f.nodes = nodes_of(&h->forecast, f.ranks);
    for (int i = 0; i < count && result == OK; i++)
        if (!h->recompute_stays ||
            strncmp(settings[i], "train.recompute=", 16) != 0)
            result = options_assign(&f.set, settings[i], ORIGIN_COMMAND_LINE);
    if (result == OK && c->layout.stored.split_masters)
        result = options_assign(&f.set, "optimizer.masters=split",
                                ORIGIN_COMMAND_LINE); /* advised */
    if (result == OK && h->microbatches > 0)
        result = shorten(&f, h->microbatches);
    if (result == OK) result = plan(&f, c);
    h->forecast.set = f.set; /* its arena may have grown */
    h->forecast.set.values = kept;
    memcpy(h->forecast.set.origin, origins, rows);
    return result;
}

/* False: setup refuses it, or it does not fit after all. */
static bool check_exactly(struct found_layouts *h, struct candidate *c,
                          bool *grid)
{
    const double work = forecast_work(&h->forecast, &c->layout);
    plan_one *const plan =
        work <= TIMED_EACH && work <= h->left &&
                forecast_walks(&h->forecast, &c->layout)
            ? plan_and_time : plan_memory;
    status result = plan_with(h, c, *grid = false, plan);

    if (result != OK && !h->grid_stays &&
        layout_ranks(&c->layout) > c->layout.pipe) {
        status_clear();
        result = plan_with(h, c, *grid = true, plan);
    }
    if (c->walked) h->left -= work;
    if (result != OK) {
        if (h->refused[0] == 0)
            snprintf(h->refused, sizeof h->refused, "%.250s",
                     status_message());
        status_clear();
        return false;
    }
    return c->memory_bytes <= h->request.max_memory;
}

bool found_fits(struct forecast *forecast, struct candidate *candidate,
                double most)
{
    struct found_layouts h = {
        .forecast = *forecast, .request.max_memory = most,
        .recompute_stays = candidate->layout.recompute ==
                           forecast->layout.recompute};
    bool grid;
    const bool fits = check_exactly(&h, candidate, &grid);

    if (fits && forecast_work(forecast, &candidate->layout) <= WALKED_WORK &&
        plan_with(&h, candidate, grid, time_as_plan) != OK)
        status_clear(); /* whole stages say how long it takes */
    hunting_free(&h.hunting);
    forecast->set = h.forecast.set; /* its arena may have grown */
    return fits;
}

static double score_of(const struct found_layouts *h, int i)
{
    const struct candidate *c = &h->search.found[i];

    if (h->request.objective == OBJECTIVE_MEMORY) return c->memory_bytes;
    return c->prediction.step_s *
           (h->request.objective == OBJECTIVE_COST
                ? layout_ranks(&c->layout) : 1);
}

/* Keeps candidate `i`, behind those that are at least as good. */
static void insert(struct found_layouts *h, int i, bool exact, bool grid)
{
    int at = h->kept_count++;

    for (; at > 0 && score_of(h, h->kept[at - 1]) > score_of(h, i); at--) {
        h->kept[at] = h->kept[at - 1];
        h->exact[at] = h->exact[at - 1];
        h->grid[at] = h->grid[at - 1];
    }
    h->kept[at] = i;
    h->exact[at] = exact;
    h->grid[at] = grid;
}

/* Estimates are near each other: the first of them may not be the best plan,
 * however few are to be shown. */
static int planned(const struct found_layouts *h)
{
    enum { LEAST = 10 };

    return h->top > LEAST || h->request.objective == OBJECTIVE_MEMORY ? h->top
                                                                      : LEAST;
}

/* The best that fit, planned to the byte: so many that are looked at, not for
 * so long, so that the answer does not depend on the machine that gives it. */
static void keep_best(struct found_layouts *h)
{
    int checked = 0, far = 0;

    for (int i = 0; i < h->search.count && h->kept_count < planned(h); i++) {
        struct candidate *c = &h->search.found[i];
        const bool exactly = h->request.as == AS_LOCKSTEP &&
                             checked < (h->kept_count > 0
                                            ? planned(h) + CHECKED_MORE
                                            : CHECKED_FIRST) &&
                             far < FAR_MOST;
        bool grid = false;

        if (!c->timed || c->prediction.step_s > 1e299) continue;
        if (exactly) {
            checked++;
            c->refused = !check_exactly(h, c, &grid);
            far = c->refused && c->memory_bytes > 2 * h->request.max_memory
                      ? far + 1 : 0;
            if (c->refused) continue;
        } else if (h->grid_stays) {
            break;
        }
        if (c->walked) c->score = score_of(h, i);
        insert(h, i, exactly, grid);
    }
}

/* ---- time as `plan` says ---- */

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

        if ((!w->walked && w->shorter_s <= 0) || alike <= most ||
            !forecast_walks(&h->forecast, &w->layout))
            continue;
        most = alike;
        longer = (w->walked ? w->prediction.step_s : w->shorter_s) / w->whole_s;
    }
    scale_time(&c->prediction,
               c->shorter_s > 0 ? c->shorter_s : c->whole_s * longer);
    if (h->request.objective != OBJECTIVE_MEMORY) c->score = score_of(h, i);
}

static void guess_all(struct found_layouts *h)
{
    for (int i = 0; i < h->search.count; i++) {
        const struct candidate *c = &h->search.found[i];

        if (c->timed && !c->walked && c->whole_s < 1e299) guess_time(h, i);
    }
}

static void sort_kept(struct found_layouts *h)
{
    const struct found_layouts before = *h;

    h->kept_count = 0;
    for (int k = 0; k < before.kept_count; k++)
        insert(h, before.kept[k], before.exact[k], before.grid[k]);
}

/* The first of those that are shown that is not timed as by `plan`; -1. */
static int first_guessed(const struct found_layouts *h)
{
    for (int k = 0; k < h->kept_count && k < h->top; k++)
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
        result = plan_with(h, &shorter, h->grid[k], time_as_plan);
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

/* Takes the time of another that has the same lists; false: there is none. */
static bool take_twin(struct found_layouts *h, int k)
{
    struct candidate *const c = &h->search.found[h->kept[k]];

    for (int i = 0; i < h->kept_count && !c->walked; i++) {
        const struct candidate *twin = &h->search.found[h->kept[i]];
        const double bytes = c->prediction.memory_bytes;

        if ((!twin->walked && twin->shorter_s <= c->shorter_s) ||
            h->grid[i] != h->grid[k] ||
            !search_twins(&twin->layout, &c->layout, &h->forecast.shape))
            continue;
        c->shorter_s = twin->shorter_s;
        if (!twin->walked) continue;
        c->prediction = twin->prediction;
        c->prediction.memory_bytes = bytes;
        c->walked = true;
        c->score = score_of(h, h->kept[k]);
    }
    return c->walked || c->shorter_s > 0;
}

/* Layouts whose shorter steps are walked, each by one thread. */
struct shorter {
    struct found_layouts *h;
    int which[TOP_MOST], count;   /* of h->kept */
    struct found_layouts *copies; /* owned, [opened]: of each thread, with
                                   * options and planned stages of its own; the
                                   * first one has those of h */
    int opened;
};

/* Whether one that is listed has the same lists. */
static bool has_twin(const struct shorter *s, int k)
{
    const struct found_layouts *h = s->h;
    const struct layout *l = &h->search.found[h->kept[k]].layout;

    for (int i = 0; i < s->count; i++)
        if (h->grid[s->which[i]] == h->grid[k] &&
            search_twins(&h->search.found[h->kept[s->which[i]]].layout, l,
                         &h->forecast.shape))
            return true;
    return false;
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
        s->which[s->count++] = k;
    }
}

static status open_copy(struct found_layouts *copy,
                        const struct found_layouts *h)
{
    struct options_set *set = &copy->forecast.set;
    const char *const *names;
    const size_t rows = (size_t)options_names(&names);
    void *memory = NULL;

    *copy = *h;
    copy->hunting = (struct hunting){.parameters = h->hunting.parameters,
                                     .trained = h->hunting.trained};
    arena_init(&set->arena, "options", 0);
    TRY(arena_take(&set->arena, rows, &memory));
    memcpy(memory, h->forecast.set.origin, rows);
    set->origin = memory;
    return OK;
}

static status open_copies(struct shorter *s)
{
    const int threads = threads_count(s->h->pool);
    void *memory = NULL;

    TRY(memory_take((size_t)threads, sizeof *s->copies, &memory));
    s->copies = memory;
    s->copies[s->opened++] = *s->h;
    while (s->opened < threads) {
        struct found_layouts *copy = &s->copies[s->opened++];

        TRY(open_copy(copy, s->h));
    }
    return OK;
}

static void close_copies(struct shorter *s)
{
    if (s->opened > 0) { /* what they own may have grown */
        s->h->forecast.set = s->copies[0].forecast.set;
        s->h->hunting = s->copies[0].hunting;
    }
    for (int i = 1; i < s->opened; i++) {
        hunting_free(&s->copies[i].hunting);
        arena_free(&s->copies[i].forecast.set.arena);
    }
    memory_free(s->copies);
}

static void walk_shorter(void *argument, int job, int index)
{
    const struct shorter *s = argument;

    if (time_shorter(&s->copies[index], s->which[job]) != OK)
        status_clear(); /* another batch needs another grid */
}

static status time_all_shorter(struct found_layouts *h)
{
    struct shorter s = {.h = h};
    status result;

    list_shorter(&s);
    if (s.count == 0) return OK;
    result = open_copies(&s);
    if (result == OK) jobs_run(h->pool, s.count, walk_shorter, &s);
    close_copies(&s);
    for (int k = 0; k < h->kept_count; k++)
        if (!h->search.found[h->kept[k]].walked) (void)take_twin(h, k);
    return result;
}

/* Times the best as `plan` does, for so many instructions in all; the others
 * by shorter steps, or by their likeness. */
static status time_kept(struct found_layouts *h)
{
    int k;

    TRY(time_all_shorter(h));
    guess_all(h);
    sort_kept(h);
    while ((k = first_guessed(h)) >= 0) {
        struct candidate *c = &h->search.found[h->kept[k]];

        h->left -= forecast_work(&h->forecast, &c->layout);
        if (h->left < 0 && k > 0) break;
        if (plan_with(h, c, h->grid[k], time_as_plan) != OK) {
            status_clear();
            break;
        }
        for (int i = 0; i < h->kept_count; i++) (void)take_twin(h, i);
        c->score = score_of(h, h->kept[k]);
        guess_all(h);
        sort_kept(h);
    }
    return OK;
}

/* ---- the search ---- */

status found_run(struct found_layouts *h)
{
    struct forecast *f = &h->forecast;
    const int devices = (int)f->machine.value[M_DEVICES];
    const int64_t began = meter_now_ns();
    struct search_fixed only = {
        .tensor = -1, .context = -1, .pipe = -1, .data = -1, .expert = -1,
        .expert_tensor = -1, .expert_context = -1, .zero = -1,
        .recompute = -1};

    if (f->as == AS_LOCKSTEP) {
        const struct option_list *rows = &f->set.values.train.batch_ramp;

        TRY(forecast_vocabulary(f));
        TRY(ramp_read(&h->ramp, rows->items, rows->count,
                      f->set.values.train.batch));
    }
    h->request = (struct search_request){
        .machine = &f->machine, .shape = &f->shape, .as = f->as,
        .ranks = f->ranks, .batch = f->set.values.train.batch,
        .ramp = ramp_changes(&h->ramp) ? &h->ramp : NULL,
        .per_node = f->nodes > 0 ? f->ranks / f->nodes : devices,
        .bits = layout_bits(&f->set.values, f->as),
        .stored = layout_stored(&f->set.values, f->as),
        .max_memory = f->max_memory > 0 ? f->max_memory
                                        : f->machine.value[M_MEMORY_BYTES],
        .objective = h->objective, .top = h->top, .fixed = h->fixed,
        .pool = h->pool};
    h->request.top = planned(h);
    layout_named_grid(&f->set.values, &h->request.grid);
    if (balance_needs_micro_batch(&f->set.values)) {
        if (h->fixed != NULL) only = *h->fixed;
        only.micro_batch = f->set.values.train.micro_batch > 0
                               ? f->set.values.train.micro_batch : -1;
        h->request.fixed = &only;
    }
    if (h->request.per_node > f->ranks) h->request.per_node = f->ranks;
    if (f->machine.product_count > 0 && f->as == AS_LOCKSTEP)
        h->request.threads = devices > h->request.per_node
                                 ? devices / h->request.per_node : 1;
    TRY(search_run(&h->search, &h->request));
    h->left = TIMED_WORK;
    h->shorter_left = SHORTER_WORK;
    keep_best(h);
    if (h->request.as == AS_LOCKSTEP) TRY(time_kept(h));
    if (h->kept_count > h->top) h->kept_count = h->top;
    if (h->kept_count > 0 && h->request.objective != OBJECTIVE_MEMORY)
        search_settle(&h->search, h->kept[0]);
    h->seconds = 1e-9 * (double)(meter_now_ns() - began + 1);
    return OK;
}

void found_free(struct found_layouts *h)
{
    search_free(&h->search);
    hunting_free(&h->hunting);
    ramp_free(&h->ramp);
    forecast_free(&h->forecast);
}
