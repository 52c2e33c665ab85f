/* SPDX-License-Identifier: Apache-2.0 */
/* search.c - enumerates layouts, discards those that do not fit, and times the
 * others in the order of a bound from below. */
#include "planner/search.h"

#include <stdlib.h>
#include <string.h>

#include "planner/memory.h"
#include "planner/search_sets.h"
#include "planner/search_time.h"
#include "planner/tail.h"

const char *const objective_names[OBJECTIVES] = {"time", "cost", "memory"};

enum { CANDIDATES_MOST = 1 << 22, TIMED_MOST = 160 };

enum choice { CHOICE_TENSOR, CHOICE_CONTEXT, CHOICE_PIPE, CHOICE_EXPERT,
              CHOICE_FOLD, CHOICE_MICRO, CHOICE_ZERO, CHOICE_RECOMPUTE,
              CHOICE_SCHEDULE, CHOICES };

/* How a schedule's pipeline idles: in the share that its chunks leave; with
 * late W in the gaps; or not, where micro-batches are as many as fill a V. */
enum idle { IDLE_CHUNKS, IDLE_LATE, IDLE_V };
static const struct {
    const char *name;
    int chunks;
    bool whole_rounds;     /* of micro-batches, one for each rank */
    enum idle idle;
} schedules[] = {
    {"1f1b", 1, false, IDLE_CHUNKS}, {"interleaved", 2, true, IDLE_CHUNKS},
    {"interleaved", 4, true, IDLE_CHUNKS}, {"zb-h1", 1, false, IDLE_LATE},
    {"zb-v", 2, false, IDLE_V}};
enum { SCHEDULES = (int)(sizeof schedules / sizeof *schedules),
       PRESETS_LAST = 3 };

/* Axes whose ranks divide the experts, too. */
enum fold { FOLD_TENSOR = 1, FOLD_CONTEXT = 2, FOLDS = 4 };
static const char *const folds[FOLDS] = {
    "no fold", "fold of tensor", "fold of context", "fold of both"};

/* Frames, once they are asked for. */
struct known { bool asked, works; struct frames frames; };

struct hunt {
    struct search *out;
    const struct search_request *request;
    struct layout l;       /* that is looked at */
    int schedule;          /* row of schedules */
    struct passes block, head; /* of tensor, context, micro-batch, recompute */
    struct known known[RECOMPUTES][2]; /* [recompute][layout_defers] */
    struct frame_models *models; /* owned: of tensor, context, expert, fold */
};

/* ---- families ---- */

static void family_name(int choice, int value, char *out)
{
    static const char *const names[CHOICES] = {
        "tensor", "context", "pipe", "expert", "fold", "micro-batch", "zero",
        "recompute", "schedule"};

    if (choice == CHOICE_ZERO && value > PRESETS_LAST)
        snprintf(out, FAMILY_BYTES, "%s",
                 search_sets[value - PRESETS_LAST - 1].name);
    else if (choice == CHOICE_FOLD)
        snprintf(out, FAMILY_BYTES, "%s", folds[value]);
    else if (choice == CHOICE_RECOMPUTE)
        snprintf(out, FAMILY_BYTES, "recompute %s", recompute_names[value]);
    else if (choice == CHOICE_SCHEDULE)
        snprintf(out, FAMILY_BYTES, "%s, %d chunk%s", schedules[value].name,
                 schedules[value].chunks,
                 schedules[value].chunks > 1 ? "s" : "");
    else
        snprintf(out, FAMILY_BYTES, "%s %d", names[choice], value);
}

static struct family *find_family(struct search *s, int choice, int value)
{
    for (int i = 0; i < s->family_count; i++)
        if (s->families[i].choice == choice && s->families[i].value == value)
            return &s->families[i];
    return NULL;
}

static struct family *family_of(struct hunt *h, int choice, int value)
{
    struct search *s = h->out;
    struct family *found = find_family(s, choice, value);

    if (found != NULL) return found;
    if (s->family_count == FAMILIES_MOST) return &s->families[0];
    struct family *f = &s->families[s->family_count++];

    *f = (struct family){.choice = choice, .value = value, .best = -1};
    family_name(choice, value, f->name);
    return f;
}

static void values_of(const struct layout *l, int schedule, int out[CHOICES])
{
    const int zero = l->whole_shards ? PRESETS_LAST + 1 + search_set_of(l)
                                     : l->zero;
    const int fold = (l->expert_tensor > 0 ? FOLD_TENSOR : 0) |
                     (l->expert_context ? FOLD_CONTEXT : 0);
    const int values[CHOICES] = {l->tensor, l->context, l->pipe, l->expert,
                                 fold, (int)l->micro_batch, zero,
                                 (int)l->recompute, schedule};

    memcpy(out, values, sizeof values);
}

/* `over`: bytes beyond the limit; at most 0: it fits. */
static void note_families(struct hunt *h, double over, int position)
{
    int values[CHOICES];

    values_of(&h->l, h->schedule, values);
    for (int i = 0; i < CHOICES; i++) {
        if ((i == CHOICE_EXPERT || i == CHOICE_FOLD) &&
            h->request->shape->experts == 0)
            continue;
        struct family *f = family_of(h, i, values[i]);

        f->candidates++;
        f->feasible += over <= 0;
        if (over > 0 && (f->least_over == 0 || over < f->least_over)) {
            f->least_over = over;
            f->position = position;
        }
    }
}

/* ---- one candidate ---- */

static double sum_of(const struct passes *passes)
{
    double sum = 0;

    for (int i = 0; i < COST_PASSES; i++)
        sum += spent_seconds(&passes->pass[i]);
    return sum;
}

/* The work of the busiest rank and the time until the pipeline is full, or the
 * messages where they are more: hardly a schedule is faster. */
static double bound_of(const struct hunt *h)
{
    const struct layout *l = &h->l;
    const double each = sum_of(&h->block) * h->request->shape->layers /
                        l->pipe;
    const double head = sum_of(&h->head) / l->pipe;
    const double idles[] = {
        [IDLE_CHUNKS] = (l->pipe - 1) * each / l->chunks,
        [IDLE_LATE] = 0.3 * (l->pipe - 1) * each,
        [IDLE_V] = l->microbatches < 2 * l->pipe ? 0.5 * (l->pipe - 1) * each
                                                 : 0};
    const double work = l->microbatches * (each + head) +
                        idles[schedules[h->schedule].idle];
    const double sent = cost_messages(
        &(struct cost){h->request->machine, h->request->shape, l});
    struct memory m;

    memory_of(l, h->request->shape, 0, &m);
    const double update = 2.5 * m.states /
                          (h->request->machine->value[M_MEMORY_RATE] *
                           h->request->machine->value[M_MEMORY]);

    if (l->zero == 3) return (sent > work ? sent : work) + update;
    return work + update +
           (!habits_of[l->as].beside || l->zero > 0 ? sent / 2 : 0);
}

static status keep(struct hunt *h, const struct candidate *c)
{
    struct search *s = h->out;

    if (s->count == s->capacity) {
        const int room = s->capacity > 0 ? 2 * s->capacity : 1024;
        void *found = s->found;

        TRY(memory_grow(&found, (size_t)room, sizeof *s->found));
        s->found = found;
        s->capacity = room;
    }
    s->found[s->count++] = *c;
    return OK;
}

static bool open_or(int64_t fixed, int64_t value)
{
    return fixed < 0 || fixed == value;
}

static bool divides(int ranks, int64_t leaves)
{
    return leaves == 0 || leaves % ranks == 0;
}

/* Whether it is what the request leaves open. */
static bool allowed(const struct hunt *h)
{
    const struct search_fixed *f = h->request->fixed;
    const struct layout *l = &h->l;

    return f == NULL ||
           (open_or(f->tensor, l->tensor) && open_or(f->context, l->context) &&
            open_or(f->pipe, l->pipe) && open_or(f->data, l->data) &&
            open_or(f->expert, l->expert) &&
            open_or(f->expert_tensor, l->expert_tensor) &&
            open_or(f->expert_context, l->expert_context) &&
            open_or(f->zero, l->zero) &&
            open_or(f->recompute, (int)l->recompute) &&
            open_or(f->micro_batch, l->micro_batch) &&
            divides(layout_sharing(l), f->grid.data) &&
            divides(l->tensor, f->grid.tensor) &&
            divides(l->context, f->grid.context) &&
            (f->schedule[0] == 0 || l->pipe == 1 ||
             strcmp(f->schedule, l->schedule) == 0));
}

/* Lockstep's own frames. False: it cannot divide the model so. */
static bool has_frames(struct hunt *h)
{
    struct known *known = &h->known[h->l.recompute][layout_defers(&h->l)];

    if (h->l.as != AS_LOCKSTEP) return true;
    if (!known->asked) {
        known->works = frames_ask(&h->models, &known->frames, &h->l,
                                  h->request->shape) == OK;
        known->asked = true;
        status_clear();
    }
    h->l.frames = known->frames;
    return known->works;
}

/* Too large without activations, by more than a reason of any of its families
 * says: its frames, which take long to plan, would say nothing. */
static bool is_hopeless(struct hunt *h)
{
    int values[CHOICES], at;

    if (h->l.as != AS_LOCKSTEP ||
        h->known[h->l.recompute][layout_defers(&h->l)].asked)
        return false;
    h->l.frames = (struct frames){0};
    values_of(&h->l, h->schedule, values);
    const double over = memory_largest(&h->l, h->request->shape, &at) -
                        h->request->max_memory;
    for (int i = 0; i < CHOICES; i++) {
        const struct family *f = find_family(h->out, i, values[i]);

        if (f == NULL || f->least_over == 0 || f->least_over > over)
            return false;
    }
    return true;
}

static status judge(struct hunt *h)
{
    struct candidate c;

    if (!allowed(h)) return OK;
    const bool hopeless = is_hopeless(h);
    if (!hopeless && !has_frames(h)) return OK;
    if (h->out->candidates >= CANDIDATES_MOST) return OK;
    c = (struct candidate){.layout = h->l, .memory_bytes = 1e300};
    h->out->candidates++;
    if (!hopeless)
        c.memory_bytes = memory_largest(&h->l, h->request->shape, &c.position);
    const double over = c.memory_bytes - h->request->max_memory;
    note_families(h, over, c.position);
    if (over > 0) return OK;
    h->out->feasible++;
    c.bound_s = bound_of(h);
    if (h->request->objective == OBJECTIVE_COST)
        c.bound_s *= layout_ranks(&c.layout);
    return keep(h, &c);
}

/* ---- all of them ---- */

/* Data ranks of a node, where there are several nodes of them; else 1. */
static int node_shards(const struct hunt *h)
{
    const struct layout *l = &h->l;
    const int shards = l->per_node / (l->tensor * l->context);
    const bool open = h->request->fixed == NULL || h->request->fixed->zero < 0;

    if (l->as != AS_LOCKSTEP || layout_experts(l).ranks > 1 || !open ||
        shards < 2 || l->data % shards != 0 || l->data == shards)
        return 1;
    return shards;
}

/* Divided weights: the first that fits is as fast as those after it. Whole
 * weights: none is known to be, as an update of more states takes longer, and
 * messages of all nodes begin later. */
static status each_set(struct hunt *h)
{
    const struct layout flat = h->l;
    int64_t feasible = h->out->feasible;

    h->l.shard = node_shards(h);
    h->l.data /= h->l.shard;
    h->l.whole_shards = true;
    for (int i = 0; i < SEARCH_SETS && h->out->feasible == feasible; i++) {
        h->l.zero = search_sets[i].zero;
        h->l.parts[1] = search_sets[i].states;
        h->l.parts[2] = search_sets[i].gradients;
        TRY(judge(h));
        if (h->l.zero < 3) feasible = h->out->feasible;
    }
    h->l = flat;
    return OK;
}

static status each_zero(struct hunt *h)
{
    const int most = layout_sharing(&h->l) > 1 ? PRESETS_LAST : 0;

    for (h->l.zero = 0; h->l.zero <= most; h->l.zero++) TRY(judge(h));
    return node_shards(h) > 1 ? each_set(h) : OK;
}

static status each_schedule(struct hunt *h)
{
    const struct shape *shape = h->request->shape;

    for (int i = 0; i < SCHEDULES; i++) {
        if (h->l.pipe == 1 && i > 0) break;
        if (h->l.pipe * schedules[i].chunks > shape->layers) continue;
        if (schedules[i].whole_rounds &&
            h->l.microbatches % h->l.pipe != 0)
            continue;
        h->schedule = i;
        h->l.chunks = schedules[i].chunks;
        snprintf(h->l.schedule, sizeof h->l.schedule, "%s",
                 schedules[i].name);
        TRY(each_zero(h));
    }
    return OK;
}

static status each_pipe(struct hunt *h)
{
    const struct search_request *r = h->request;
    const int rest = r->ranks / (h->l.tensor * h->l.context * h->l.expert);

    for (int p = 1; p <= PIPE_MOST && p <= rest; p++) {
        int64_t each;

        if (rest % p != 0 || p > r->shape->layers) continue;
        h->l.pipe = p;
        h->l.data = rest / p;
        if (r->batch % layout_sharing(&h->l) != 0) continue;
        each = r->batch / layout_sharing(&h->l);
        if (each % h->l.micro_batch != 0 ||
            each / h->l.micro_batch > MICROBATCHES_MAX)
            continue;
        h->l.microbatches = (int)(each / h->l.micro_batch);
        TRY(each_schedule(h));
    }
    return OK;
}

static status each_micro_batch(struct hunt *h)
{
    const struct cost cost = {h->request->machine, h->request->shape, &h->l};
    const struct search_fixed *fixed = h->request->fixed;
    const int64_t only = fixed != NULL ? fixed->micro_batch : -1;

    for (int64_t b = only > 0 ? only : 1; b <= (only > 0 ? only : MICRO_MOST);
         b *= 2) {
        h->l.micro_batch = b;
        if (b > h->request->batch) break;
        for (int r = 0; r < RECOMPUTES; r++) {
            h->l.recompute = (enum recompute)r;
            h->l.sequence_parallel =
                h->l.tensor > 1 && !(habits_of[h->l.as].block_whole &&
                                     r == RECOMPUTE_BLOCK);
            h->l.microbatches = 2;
            h->l.pipe = h->l.data = 1; /* costs of a block do not see them */
            cost_block(&cost, &h->block);
            cost_head(&cost, &h->head);
            TRY(each_pipe(h));
        }
    }
    return OK;
}

/* Tensor ranks that have whole experts each, context ranks that have other
 * ones. */
static status each_fold(struct hunt *h)
{
    const int experts = h->request->shape->experts;

    for (int fold = 0; fold < (experts > 0 ? FOLDS : 1); fold++) {
        if (((fold & FOLD_TENSOR) && h->l.tensor == 1) ||
            ((fold & FOLD_CONTEXT) && h->l.context == 1))
            continue;
        h->l.expert_tensor = (fold & FOLD_TENSOR) != 0;
        h->l.expert_context = (fold & FOLD_CONTEXT) != 0;
        if (experts % layout_experts(&h->l).places != 0) continue;
        memset(h->known, 0, sizeof h->known);
        frame_models_free(&h->models);
        TRY(each_micro_batch(h));
    }
    return OK;
}

static status each_expert(struct hunt *h)
{
    const int experts = h->request->shape->experts;
    const int rest = h->request->ranks / (h->l.tensor * h->l.context);

    for (int e = 1; e <= EXPERT_MOST && e <= rest; e++) {
        if (rest % e != 0 || (e > 1 && experts == 0)) continue;
        h->l.expert = e;
        TRY(each_fold(h));
    }
    return OK;
}

static status enumerate(struct hunt *h)
{
    const struct shape *s = h->request->shape;
    const int ranks = h->request->ranks;

    for (int t = 1; t <= TENSOR_MOST; t++) {
        if (ranks % t != 0 || s->heads % t != 0 || s->width % t != 0 ||
            s->feed_forward % t != 0)
            continue;
        for (int c = 1; c <= CONTEXT_MOST; c++) {
            if (ranks / t % c != 0 || s->sequence % (2 * c) != 0) continue;
            if (c > 1 && s->sequence / c < 1024) continue;
            h->l = (struct layout){.as = h->request->as, .shard = 1,
                                   .expert = 1, .tensor = t, .context = c,
                                   .per_node = h->request->per_node,
                                   .batch = h->request->batch,
                                   .threads = h->request->threads,
                                   .bits = h->request->bits};
            layout_know_grid(&h->l, s, h->request->grid);
            TRY(each_expert(h));
        }
    }
    return OK;
}

/* ---- the clock ---- */

bool search_is_axis(const struct family *family)
{
    return family->choice <= CHOICE_EXPERT;
}

bool search_beside(const struct search *s, const struct family *f)
{
    int values[CHOICES];

    if (s->count == 0) return false;
    values_of(&s->found[s->first].layout, -1, values);
    if (f->choice == CHOICE_FOLD || f->choice >= CHOICE_ZERO)
        return f->value != values[f->choice];
    return f->value == 2 * values[f->choice] ||
           2 * f->value == values[f->choice];
}

static int by_bound(const void *a, const void *b)
{
    const struct candidate *x = a, *y = b;

    return x->bound_s < y->bound_s ? -1 : x->bound_s > y->bound_s;
}

static int by_memory(const void *a, const void *b)
{
    const struct candidate *x = a, *y = b;

    return x->memory_bytes < y->memory_bytes ? -1
                                             : x->memory_bytes >
                                                   y->memory_bytes;
}

static int by_time(const void *a, const void *b)
{
    const struct candidate *x = a, *y = b;

    if (x->timed != y->timed) return x->timed ? -1 : 1;
    if (!x->timed) return by_bound(a, b);
    return x->score < y->score ? -1 : x->score > y->score;
}

static void time_it(struct hunt *h, int i)
{
    struct candidate *c = &h->out->found[i];

    if (c->timed || h->out->timed >= TIMED_MOST) return;
    if (search_time(h->request, c) != OK) { /* no such schedule: never best */
        status_clear();
        c->prediction.step_s = 1e300;
    }
    c->score = c->prediction.step_s;
    if (h->request->objective == OBJECTIVE_COST)
        c->score *= layout_ranks(&c->layout);
    h->out->timed++;
}

static int schedule_row_of(const struct layout *l)
{
    int row = 0;

    while (row < SCHEDULES - 1 &&
           (strcmp(schedules[row].name, l->schedule) != 0 ||
            schedules[row].chunks != l->chunks))
        row++;
    return row;
}

/* Times the candidate of each family that has the least lower bound, so that
 * the table can say why the family lost. */
static void time_families(struct hunt *h)
{
    struct search *s = h->out;

    for (int i = 0; i < s->count; i++) {
        int values[CHOICES];

        values_of(&s->found[i].layout,
                  schedule_row_of(&s->found[i].layout), values);
        for (int c = 0; c < CHOICES; c++) {
            struct family *f = find_family(s, c, values[c]);

            if (f == NULL || f->best >= 0) continue;
            f->best = i;
            time_it(h, i);
        }
    }
}

void search_settle(struct search *s, int first)
{
    s->first = first;
    for (int f = 0; f < s->family_count; f++) s->families[f].best = -1;
    for (int i = 0; i < s->count; i++) {
        const struct candidate *c = &s->found[i];
        int values[CHOICES];

        if (!c->timed || c->refused) continue;
        values_of(&c->layout, schedule_row_of(&c->layout), values);
        for (int choice = 0; choice < CHOICES; choice++) {
            struct family *f = find_family(s, choice, values[choice]);

            if (f == NULL) continue;
            if (f->best < 0 || i == first ||
                (f->best != first && c->score < s->found[f->best].score))
                f->best = i;
        }
    }
}

/* The top-th best time so far. */
static double worst_of_best(const struct search *s, int top)
{
    double best[TOP_MOST];
    int count = 0;

    for (int j = 0; j < s->count; j++) {
        const double t = s->found[j].score;
        int at = count;

        if (!s->found[j].timed) continue;
        while (at > 0 && best[at - 1] > t) at--;
        if (at >= top) continue;
        if (count < top) count++;
        for (int k = count - 1; k > at; k--) best[k] = best[k - 1];
        best[at] = t;
    }
    return count == top ? best[count - 1] : 1e300;
}

/* Times in the order of the bound until no bound is below the worst of the
 * best. */
static void time_best(struct hunt *h)
{
    struct search *s = h->out;
    double worst = 1e300;
    int better = 0;

    for (int i = 0; i < s->count && s->timed < TIMED_MOST; i++) {
        if (s->found[i].bound_s > worst) break;
        time_it(h, i);
        if (++better % 16 != 0 || i + 1 < h->request->top) continue;
        worst = worst_of_best(s, h->request->top);
    }
}

/* Where devices cost money, fewer of them may be cheaper. */
static status enumerate_ranks(struct hunt *h)
{
    struct search_request fewer = *h->request;
    const struct search_request *const asked = h->request;
    status result = enumerate(h);

    h->request = &fewer;
    while (result == OK && asked->objective == OBJECTIVE_COST &&
           fewer.ranks % 2 == 0) {
        fewer.ranks /= 2;
        if (fewer.per_node > fewer.ranks) fewer.per_node = fewer.ranks;
        result = enumerate(h);
    }
    h->request = asked;
    return result;
}

status search_run(struct search *search, const struct search_request *request)
{
    struct hunt h = {.out = search, .request = request};

    *search = (struct search){0};
    const status result = enumerate_ranks(&h);
    frame_models_free(&h.models);
    if (result != OK) search_free(search);
    TRY(result);
    if (request->objective == OBJECTIVE_MEMORY) {
        qsort(search->found, (size_t)search->count, sizeof *search->found,
              by_memory);
        for (int i = 0; i < search->count && i < request->top; i++)
            time_it(&h, i);
        return OK;
    }
    qsort(search->found, (size_t)search->count, sizeof *search->found,
          by_bound);
    time_families(&h);
    time_best(&h);
    qsort(search->found, (size_t)search->count, sizeof *search->found,
          by_time);
    search_settle(search, 0);
    return OK;
}

void search_free(struct search *search)
{
    memory_free(search->found);
    *search = (struct search){0};
}
