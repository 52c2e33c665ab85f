/* SPDX-License-Identifier: Apache-2.0 */
/* found_layouts.c - the layouts that a search found, planned to the byte and
 * timed on the executor's own lists. */
#include "train/found_parts.h"

#include <string.h>

#include "base/check.h"
#include "base/meter.h"
#include "base/jobs.h"
#include "planner/search_families.h"
#include "planner/memory.h"
#include "schedule/known_schedules.h"
#include "setup/balance.h"

enum { CHECKED_MORE = 14,  /* plans to the byte beyond those that are kept, */
       CHECKED_FIRST = 40, /* and until one fits */
       FAR_MOST = 10,      /* plans in a row beyond twice the limit */
       ORIGINS = 1024, WALKED_WORK = 1 << 15,
       TIMED_WORK = 400000, /* instructions: half of a second */
       SHORTER_WORK = 2600000, /* ... of shorter steps */
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
    c->memory_bytes = memory_left(&c->layout, &f->shape, f->exact_bytes);
    c->position = f->exact_position;
    c->prediction.memory_bytes = c->memory_bytes;
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

status found_time_as_plan(struct forecast *f, struct candidate *c)
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

status found_plan(struct found_layouts *h, struct candidate *c, bool grid,
                  found_plan_one *plan)
{
    const struct options kept = h->forecast.set.values;
    const size_t rows = (size_t)options_count();
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

/* Whether its lists are timed when it is planned, where `left` allows that. */
static bool times_at_once(const struct found_layouts *h,
                          const struct candidate *c, double left)
{
    const double work = forecast_work(&h->forecast, &c->layout);

    return work <= TIMED_EACH && work <= left &&
           forecast_walks(&h->forecast, &c->layout);
}

/* Plans it to the byte; false: setup refuses it (then `refused` says why), or
 * it does not fit after all. */
static bool check_exactly(struct found_layouts *h, struct candidate *c,
                          bool timed, bool *grid, char refused[REFUSED_BYTES])
{
    found_plan_one *const plan = timed ? plan_and_time : plan_memory;
    status result = found_plan(h, c, *grid = false, plan);

    if (result != OK && !h->grid_stays &&
        layout_ranks(&c->layout) > c->layout.pipe) {
        status_clear();
        result = found_plan(h, c, *grid = true, plan);
    }
    refused[0] = 0;
    if (result != OK) {
        snprintf(refused, REFUSED_BYTES, "%.250s", status_message());
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
    char refused[REFUSED_BYTES];
    bool grid, fits;

    if (known_schedules_open(&h.schedules) != OK) status_clear();
    h.hunting.schedules = h.schedules;
    fits = check_exactly(&h, candidate, false, &grid, refused);
    if (fits && forecast_work(forecast, &candidate->layout) <= WALKED_WORK &&
        found_plan(&h, candidate, grid, found_time_as_plan) != OK)
        status_clear(); /* whole stages say how long it takes */
    hunting_free(&h.hunting);
    known_schedules_free(h.schedules);
    forecast->set = h.forecast.set; /* its arena may have grown */
    return fits;
}

double found_score(const struct found_layouts *h, int i)
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

    for (; at > 0 && found_score(h, h->kept[at - 1]) > found_score(h, i);
         at--) {
        h->kept[at] = h->kept[at - 1];
        h->exact[at] = h->exact[at - 1];
        h->grid[at] = h->grid[at - 1];
    }
    h->kept[at] = i;
    h->exact[at] = exact;
    h->grid[at] = grid;
}

void found_sort(struct found_layouts *h)
{
    const struct found_layouts before = *h;

    h->kept_count = 0;
    for (int k = 0; k < before.kept_count; k++)
        insert(h, before.kept[k], before.exact[k], before.grid[k]);
}

/* Estimates are near each other: the first of them may not be the best plan,
 * however few are to be shown. */
static int planned(const struct found_layouts *h)
{
    enum { LEAST = 32 };

    return h->top > LEAST || h->request.objective == OBJECTIVE_MEMORY ? h->top
                                                                      : LEAST;
}

/* ---- each thread plans with what it owns ---- */

static status open_copy(struct found_layouts *copy,
                        const struct found_layouts *h)
{
    struct options_set *set = &copy->forecast.set;
    const size_t rows = (size_t)options_count();
    void *memory = NULL;

    *copy = *h;
    copy->hunting = (struct hunting){.schedules = h->schedules};
    arena_init(&set->arena, "options", 0);
    TRY(arena_take(&set->arena, rows, &memory));
    memcpy(memory, h->forecast.set.origin, rows);
    set->origin = memory;
    return OK;
}

static status open_copies(struct found_layouts *h)
{
    const int threads = threads_count(h->pool);
    void *memory = NULL;

    TRY(memory_take((size_t)threads, sizeof *h->copies, &memory));
    h->copies = memory;
    while (h->opened < threads - 1)
        TRY(open_copy(&h->copies[h->opened++], h));
    return OK;
}

/* The search as thread `index` has it: with options and planned stages of its
 * own. */
struct found_layouts *found_copy(struct found_layouts *h, int index)
{
    return index == 0 ? h : &h->copies[index - 1];
}

void found_run_jobs(struct found_layouts *h, int count,
                     void (*body)(void *argument, int job, int index),
                     void *argument)
{
    for (int i = 0; i < h->opened; i++) {
        struct found_layouts *copy = &h->copies[i];
        const struct options_set set = copy->forecast.set;
        const struct hunting hunting = copy->hunting;

        *copy = *h;
        copy->forecast.set = set;
        copy->hunting = hunting;
    }
    jobs_run(h->pool, count, body, argument);
}

static void close_copies(struct found_layouts *h)
{
    for (int i = 0; i < h->opened; i++) {
        hunting_free(&h->copies[i].hunting);
        arena_free(&h->copies[i].forecast.set.arena);
    }
    memory_free(h->copies);
    h->copies = NULL;
    h->opened = 0;
}

/* ---- the best that fit ---- */

/* Candidates that are planned together, before it is asked whether the ones
 * before them fit. */
struct trials {
    struct found_layouts *h;
    struct trial {
        int which;                   /* of search.found */
        struct candidate candidate;  /* a copy, which is planned */
        bool timed, grid, fits;
        char refused[REFUSED_BYTES];
    } items[TOP_MOST];
    int count, next;
};

static void try_one(void *argument, int job, int index)
{
    struct trials *t = argument;
    struct trial *one = &t->items[job];

    one->fits = check_exactly(found_copy(t->h, index), &one->candidate,
                              one->timed, &one->grid, one->refused);
}

static bool is_timed(const struct candidate *c)
{
    return c->timed && c->prediction.step_s < 1e299;
}

/* Plans `most` of the candidates from the i-th on, or fewer: whether one of
 * them is timed must not depend on those before it. */
static void try_next(struct trials *t, int i, int most)
{
    struct found_layouts *h = t->h;
    double left = h->left;

    t->count = t->next = 0;
    for (; i < h->search.count && t->count < most && t->count < TOP_MOST;
         i++) {
        const struct candidate *c = &h->search.found[i];
        const bool timed = times_at_once(h, c, left);

        if (!is_timed(c)) continue;
        if (timed != times_at_once(h, c, h->left)) break;
        t->items[t->count++] =
            (struct trial){.which = i, .candidate = *c, .timed = timed};
        if (timed) left -= forecast_work(&h->forecast, &c->layout);
    }
    found_run_jobs(h, t->count, try_one, t);
}

/* Takes what the next trial found; false: the candidate is refused. */
static bool take_trial(struct trials *t, struct candidate *c, bool *grid)
{
    const struct trial *one = &t->items[t->next++];
    struct found_layouts *h = t->h;

    *c = one->candidate;
    *grid = one->grid;
    c->refused = !one->fits;
    if (c->walked) h->left -= forecast_work(&h->forecast, &c->layout);
    if (h->refused[0] == 0)
        memcpy(h->refused, one->refused, sizeof h->refused);
    return one->fits;
}

/* The best that fit, planned to the byte: so many that are looked at, not for
 * so long, so that the answer does not depend on the machine that gives it. */
static void keep_all(struct found_layouts *h, struct trials *t)
{
    int checked = 0, far = 0;

    for (int i = 0; i < h->search.count && h->kept_count < planned(h); i++) {
        struct candidate *c = &h->search.found[i];
        const int most = h->kept_count > 0 ? planned(h) + CHECKED_MORE
                                           : CHECKED_FIRST;
        const bool exactly = h->request.as == AS_LOCKSTEP && checked < most &&
                             far < FAR_MOST;
        bool grid = false;

        if (!is_timed(c)) continue;
        if (exactly) {
            const int wanted = planned(h) - h->kept_count;

            if (t->next == t->count)
                try_next(t, i, wanted < most - checked ? wanted
                                                       : most - checked);
            checked++;
            const bool fits = take_trial(t, c, &grid);

            far = !fits && c->memory_bytes > 2 * h->request.max_memory
                      ? far + 1 : 0;
            if (!fits) continue;
        } else if (h->grid_stays) {
            break;
        }
        if (c->walked) c->score = found_score(h, i);
        insert(h, i, exactly, grid);
    }
}

static bool is_kept(const struct found_layouts *h, int i)
{
    for (int k = 0; k < h->kept_count; k++)
        if (h->kept[k] == i) return true;
    return false;
}

/* Whole stages may rank a schedule wrongly: the first few of each one are kept,
 * too, to be timed by their own lists. */
static void keep_schedules(struct found_layouts *h, struct trials *t)
{
    enum { FEW = 4 };
    int seen[SEARCH_SCHEDULES] = {0};

    for (int i = 0; i < h->search.count && h->kept_count < TOP_MOST; i++) {
        struct candidate *c = &h->search.found[i];
        bool grid = false;

        if (!is_timed(c)) continue;
        const int schedule = search_schedule_of(&c->layout);

        if (seen[schedule]++ >= FEW) continue;
        if (is_kept(h, i) || c->refused) continue;
        try_next(t, i, 1);
        if (t->count == 0 || !take_trial(t, c, &grid)) continue;
        if (c->walked) c->score = found_score(h, i);
        insert(h, i, true, grid);
    }
}

static status keep_best(struct found_layouts *h)
{
    void *memory = NULL;

    TRY(memory_take(1, sizeof(struct trials), &memory));
    struct trials *t = memory;

    t->h = h;
    keep_all(h, t);
    if (h->request.as == AS_LOCKSTEP && h->kept_count > 0 &&
        h->request.objective != OBJECTIVE_MEMORY)
        keep_schedules(h, t);
    memory_free(t);
    return OK;
}

/* ---- the search ---- */

status found_run(struct found_layouts *h)
{
    struct forecast *f = &h->forecast;
    const int devices = (int)f->machine.value[M_DEVICES];
    const int64_t began = meter_now_ns();

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
        .options = &f->set.values,
        .stored = layout_stored(&f->set.values, f->as),
        .max_memory = f->max_memory > 0 ? f->max_memory
                                        : f->machine.value[M_MEMORY_BYTES],
        .objective = h->objective, .top = h->top, .fixed = h->fixed,
        .pool = h->pool};
    h->request.top = planned(h);
    layout_named_grid(&f->set.values, &h->request.grid);
    if (balance_needs_micro_batch(&f->set.values)) {
        h->only = h->fixed != NULL ? *h->fixed : (struct search_fixed){
            .tensor = -1, .context = -1, .pipe = -1, .data = -1, .expert = -1,
            .expert_tensor = -1, .expert_context = -1, .zero = -1,
            .recompute = -1};
        h->only.micro_batch = f->set.values.train.micro_batch > 0
                                  ? f->set.values.train.micro_batch : -1;
        h->request.fixed = &h->only;
    }
    if (h->request.per_node > f->ranks) h->request.per_node = f->ranks;
    TRY(mesh_order_parse(&h->order, f->set.values.mesh.order));
    if (h->request.per_node < f->ranks && f->set.values.mesh.order[0] != 0)
        h->request.order = &h->order;
    if (f->machine.product_count > 0 && f->as == AS_LOCKSTEP)
        h->request.threads = devices > h->request.per_node
                                 ? devices / h->request.per_node : 1;
    TRY(search_run(&h->search, &h->request));
    h->left = TIMED_WORK;
    h->shorter_left = SHORTER_WORK;
    TRY(known_schedules_open(&h->schedules));
    h->hunting.schedules = h->schedules;
    TRY(open_copies(h));
    TRY(keep_best(h));
    if (h->request.as == AS_LOCKSTEP) found_time_kept(h);
    close_copies(h);
    if (h->kept_count > h->top) h->kept_count = h->top;
    if (h->kept_count > 0 && h->request.objective != OBJECTIVE_MEMORY)
        search_settle(&h->search, h->kept[0]);
    h->seconds = 1e-9 * (double)(meter_now_ns() - began + 1);
    return OK;
}

void found_free(struct found_layouts *h)
{
    close_copies(h);
    search_free(&h->search);
    hunting_free(&h->hunting);
    known_schedules_free(h->schedules);
    h->schedules = NULL;
    ramp_free(&h->ramp);
}
