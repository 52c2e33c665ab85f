/* SPDX-License-Identifier: Apache-2.0 */
/* search.c - enumerates layouts, discards those that do not fit, and times the
 * others in the order of a bound from below. */
#include "planner/search.h"

#include <stdlib.h>
#include <string.h>

#include "planner/memory.h"
#include "planner/search_families.h"
#include "planner/search_sets.h"
#include "planner/search_time.h"
#include "planner/stage_balance.h"
#include "planner/step_tail.h"

const char *const objective_names[OBJECTIVES] = {"time", "cost", "memory"};

enum { CANDIDATES_MOST = 1 << 22, TIMED_MOST = 160 };

/* Frames, once they are asked for. */
struct known { bool asked, works; struct frames frames; };
struct known_fold { struct known of[RECOMPUTES][2]; }; /* [layout_defers] */

/* Frames take long to plan, and most candidates are too large without them. So
 * all are looked at three times: for their least memory; those that may fit, or
 * are the nearest to it of a family; and the others, of which few are still
 * nearer than what was found. */
enum look { LOOK_LEAST, LOOK_NEAR, LOOK_FAR, LOOKS };

/* A candidate without its frames: bytes beyond the limit. */
struct least { float bytes; bool judged; };

struct hunt {
    struct search *out;
    const struct search_request *request;
    struct layout l;       /* that is looked at */
    struct known_sums sums[2]; /* of the layouts before */
    int schedule;          /* row of search_schedules */
    struct passes block, head; /* of tensor, context, micro-batch, recompute */
    enum look look;
    struct least *least;   /* owned, [at of LOOK_LEAST]: of each candidate */
    int64_t at, capacity;
    struct family *families[CHOICES]; /* of the layout */
    bool passed_over;      /* a set of shards before it fits */
    float nearest[FAMILIES_MOST]; /* least bytes of each family, where > 0 */
    struct known_fold *folds; /* owned: of tensor, context, expert, fold */
    int fold, fold_capacity;
    signed char balances[PIPE_MOST + 1][SEARCH_SCHEDULES][RECOMPUTES]; /* as
                            * balance_of leaves them; 0: nobody asked */
    struct frame_models *models; /* owned: of the fold */
    int timed[TIMED_MOST]; /* of out->found: those that were timed */
};

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
                        idles[search_schedules[h->schedule].idle];
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

    void *found = s->found;

    TRY(memory_next(&found, &s->capacity, s->count, 1024, sizeof *s->found));
    s->found = found;
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
    struct known *known =
        &h->folds[h->fold].of[h->l.recompute][layout_defers(&h->l)];

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

/* `over`: bytes beyond the limit; at most 0: it fits. */
static void note_families(struct family *const families[CHOICES], double over,
                          int position)
{
    for (int i = 0; i < CHOICES; i++) {
        struct family *f = families[i];

        if (f == NULL) continue;
        f->candidates++;
        f->feasible += over <= 0;
        if (over > 0 && (f->least_over == 0 || over < f->least_over)) {
            f->least_over = over;
            f->position = position;
        }
    }
}

static status note_least(struct hunt *h, struct family *const f[CHOICES])
{
    const float bytes = (float)(
        memory_least(&h->l, h->request->shape, h->sums) -
        h->request->max_memory);

    if (h->at == h->capacity) {
        const int64_t room = h->capacity > 0 ? 2 * h->capacity : 1 << 12;
        void *least = h->least;

        TRY(memory_grow(&least, (size_t)room, sizeof *h->least));
        h->least = least;
        h->capacity = room;
    }
    h->least[h->at] = (struct least){bytes, false};
    for (int i = 0; i < CHOICES && bytes > 0; i++) {
        float *nearest;

        if (f[i] == NULL) continue;
        nearest = &h->nearest[f[i] - h->out->families];
        if (*nearest == 0 || bytes < *nearest) *nearest = bytes;
    }
    return OK;
}

static bool is_near(const struct hunt *h, struct family *const f[CHOICES],
                    float bytes)
{
    for (int i = 0; i < CHOICES; i++)
        if (f[i] != NULL && bytes == h->nearest[f[i] - h->out->families])
            return true;
    return bytes <= 0;
}

/* Too large without activations, by more than a reason of any of its families
 * says: its frames would say nothing. */
static bool is_hopeless(struct family *const f[CHOICES], float bytes)
{
    for (int i = 0; i < CHOICES; i++)
        if (f[i] != NULL && f[i]->feasible == 0 &&
            (f[i]->least_over == 0 || f[i]->least_over > bytes))
            return false;
    return true;
}

static status judge_whole(struct hunt *h, struct family *const f[CHOICES])
{
    struct candidate c = {.layout = h->l};

    if (!has_frames(h)) return OK;
    c.layout = h->l;
    c.layout.ends.known = false; /* others change it */
    c.memory_bytes = memory_largest(&h->l, h->request->shape, &c.position);
    const double over = c.memory_bytes - h->request->max_memory;

    h->out->candidates++;
    note_families(f, over, c.position);
    if (over > 0) return OK;
    h->out->feasible++;
    c.bound_s = bound_of(h);
    if (h->request->objective == OBJECTIVE_COST)
        c.bound_s *= layout_ranks(&c.layout);
    return keep(h, &c);
}

static status judge(struct hunt *h)
{
    struct family **const families = h->families;
    struct least *least;

    if (!allowed(h) || h->at >= CANDIDATES_MOST) return OK;
    families_of(h->out, &h->l, h->schedule, h->request->shape->experts > 0,
                families);
    if (h->look == LOOK_LEAST) TRY(note_least(h, families));
    least = &h->least[h->at++];
    if (h->look == LOOK_LEAST || least->judged ||
        (h->look == LOOK_NEAR && !is_near(h, families, least->bytes)))
        return OK;
    least->judged = true;
    if (h->passed_over) return OK;
    if (least->bytes <= 0 || !is_hopeless(families, least->bytes))
        return judge_whole(h, families);
    h->out->candidates++;
    note_families(families, 1e300, 0);
    return OK;
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
    for (int i = 0; i < SEARCH_SETS; i++) {
        h->passed_over = h->out->feasible != feasible;
        h->l.zero = search_sets[i].zero;
        h->l.parts[1] = search_sets[i].states;
        h->l.parts[2] = search_sets[i].gradients;
        TRY(judge(h));
        if (h->l.zero < 3 && !h->passed_over) feasible = h->out->feasible;
    }
    h->passed_over = false;
    h->l = flat;
    return OK;
}

static status each_zero(struct hunt *h)
{
    const int most = layout_sharing(&h->l) > 1 ? PRESETS_LAST : 0;

    for (h->l.zero = 0; h->l.zero <= most; h->l.zero++) TRY(judge(h));
    return node_shards(h) > 1 ? each_set(h) : OK;
}

/* stage_balance, once for each pipe, schedule and recomputation. */
static int balance_of(struct hunt *h)
{
    signed char *known = &h->balances[h->l.pipe][h->schedule][h->l.recompute];
    enum { SHIFT = 2 };

    if (*known == 0)
        *known = (signed char)(stage_balance(&h->l, h->request->shape) + SHIFT);
    return *known - SHIFT;
}

static status each_schedule(struct hunt *h)
{
    const struct shape *shape = h->request->shape;

    for (int i = 0; i < SEARCH_SCHEDULES; i++) {
        const int stages = h->l.pipe * search_schedules[i].chunks;

        if (h->l.pipe == 1 && i > 0) break;
        if (stages > shape->layers + 2 || stages > LAYOUT_STAGES) continue;
        if (search_schedules[i].whole_rounds &&
            h->l.microbatches % h->l.pipe != 0)
            continue;
        h->schedule = i;
        h->l.chunks = search_schedules[i].chunks;
        snprintf(h->l.schedule, sizeof h->l.schedule, "%s",
                 search_schedules[i].name);
        h->l.head_blocks = balance_of(h);
        if (h->l.head_blocks < 0) continue;
        memory_count_ends(&h->l, shape);
        TRY(each_zero(h));
    }
    return OK;
}

/* Whether every batch of the ramp can be cut as `batch` is. */
static bool cuts_ramp(const struct search_request *r, const struct layout *l)
{
    for (int i = 0; r->ramp != NULL && i < r->ramp->count; i++) {
        const int64_t batch = r->ramp->rows[i].batch;
        const int64_t each = batch / layout_sharing(l);

        if (batch % layout_sharing(l) != 0 ||
            (l->micro_batch < each && each % l->micro_batch != 0))
            return false;
    }
    return true;
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
            each / h->l.micro_batch > MICROBATCHES_MAX || !cuts_ramp(r, &h->l))
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
            if (h->look == LOOK_NEAR) {
                cost_block(&cost, &h->block);
                cost_head(&cost, &h->head);
            }
            TRY(each_pipe(h));
        }
    }
    return OK;
}

static status next_fold(struct hunt *h)
{
    void *folds = h->folds;

    frame_models_free(&h->models);
    h->fold++;
    if (h->look != LOOK_LEAST) return OK;
    if (h->fold == h->fold_capacity) {
        const int room = h->fold_capacity > 0 ? 2 * h->fold_capacity : 64;

        TRY(memory_grow(&folds, (size_t)room, sizeof *h->folds));
        h->folds = folds;
        h->fold_capacity = room;
    }
    memset(&h->folds[h->fold], 0, sizeof *h->folds);
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
        TRY(next_fold(h));
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

/* A layout that was timed and has the same lists; NULL: there is none. */
static const struct candidate *timed_twin(const struct hunt *h,
                                          const struct candidate *c)
{
    for (int64_t i = 0; i < h->out->timed; i++) {
        const struct candidate *twin = &h->out->found[h->timed[i]];

        if (search_twins(&twin->layout, &c->layout, h->request->shape))
            return twin;
    }
    return NULL;
}

/* Candidates that are timed together: none asks how long another one takes. */
struct batch { int which[TIMED_MOST], count; };

static void batch_add(const struct hunt *h, struct batch *batch, int i)
{
    struct candidate *c = &h->out->found[i];

    if (c->timed || h->out->timed + batch->count >= TIMED_MOST) return;
    c->timed = true;
    batch->which[batch->count++] = i;
}

static void batch_time(struct hunt *h, struct batch *batch)
{
    struct candidate *const found = h->out->found;
    const struct candidate *twins[TIMED_MOST];
    int alone[TIMED_MOST], count = 0;

    for (int i = 0; i < batch->count; i++) {
        twins[i] = timed_twin(h, &found[batch->which[i]]);
        if (twins[i] == NULL) alone[count++] = batch->which[i];
        h->timed[h->out->timed++] = batch->which[i];
    }
    search_time_all(h->request, found, alone, count);
    for (int i = 0; i < batch->count; i++) {
        struct candidate *c = &found[batch->which[i]];

        if (twins[i] != NULL) {
            c->prediction = twins[i]->prediction;
            c->prediction.memory_bytes = c->memory_bytes;
        }
        c->score = c->whole_s = c->prediction.step_s;
        if (h->request->objective == OBJECTIVE_COST)
            c->score *= layout_ranks(&c->layout);
    }
    batch->count = 0;
}

/* Times the candidate of each family that has the least lower bound, so that
 * the table can say why the family lost. */
static void time_families(struct hunt *h)
{
    struct search *s = h->out;
    struct batch batch = {.count = 0};

    for (int i = 0; i < s->count; i++) {
        int values[CHOICES];

        families_values(&s->found[i].layout,
                  search_schedule_of(&s->found[i].layout), values);
        for (int c = 0; c < CHOICES; c++) {
            struct family *f = families_find(s, c, values[c]);

            if (f == NULL || f->best >= 0) continue;
            f->best = i;
            batch_add(h, &batch, i);
        }
    }
    batch_time(h, &batch);
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
    enum { TOGETHER = 16 };
    struct search *s = h->out;
    struct batch batch = {.count = 0};
    double worst = 1e300;
    int better = 0;

    for (int i = 0; i < s->count && s->timed + batch.count < TIMED_MOST; i++) {
        if (s->found[i].bound_s > worst) break;
        batch_add(h, &batch, i);
        if (++better % TOGETHER != 0 || i + 1 < h->request->top) continue;
        batch_time(h, &batch);
        worst = worst_of_best(s, h->request->top);
    }
    batch_time(h, &batch);
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

static status look_at_all(struct hunt *h)
{
    status result = OK;

    for (h->look = LOOK_LEAST; h->look < LOOKS && result == OK; h->look++) {
        h->at = 0;
        h->fold = -1;
        result = enumerate_ranks(h);
    }
    families_close(h->out);
    frame_models_free(&h->models);
    memory_free(h->folds);
    memory_free(h->least);
    return result;
}

status search_run(struct search *search, const struct search_request *request)
{
    struct hunt h = {.out = search, .request = request};
    struct batch batch = {.count = 0};

    *search = (struct search){0};
    const status result = look_at_all(&h);
    if (result != OK) search_free(search);
    TRY(result);
    if (search->count == 0) return OK; /* no layout fits: nothing to sort */
    if (request->objective == OBJECTIVE_MEMORY) {
        qsort(search->found, (size_t)search->count, sizeof *search->found,
              by_memory);
        for (int i = 0; i < search->count && i < request->top; i++)
            batch_add(&h, &batch, i);
        batch_time(&h, &batch);
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
