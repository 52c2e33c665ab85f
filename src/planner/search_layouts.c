/* SPDX-License-Identifier: Apache-2.0 */
/* search_layouts.c - enumerates layouts, and discards those that do not fit. */
#include "planner/search_layouts.h"

#include <string.h>

#include "base/jobs.h"
#include "planner/memory.h"
#include "planner/search_families.h"
#include "planner/search_sets.h"
#include "planner/stage_balance.h"
#include "planner/step_tail.h"

enum { CANDIDATES_MOST = 1 << 22 /* of a branch */ };

/* Frames, once they are asked for. */
struct known { bool asked, works; struct frames frames; };

/* Frames take long to plan, and most candidates are too large without them. So
 * all are looked at three times: for their least memory; those that may fit, or
 * are the nearest to it of a family; and the others, of which few are still
 * nearer than what was found. */
enum look { LOOK_LEAST, LOOK_NEAR, LOOK_FAR, LOOKS };

/* A candidate without its frames: bytes beyond the limit. */
struct least { float bytes; bool judged; };

/* All layouts with one choice of tensor, context and expert ranks and of what
 * divides the experts: one thread looks at them. */
struct branch {
    struct search_request request; /* with its ranks */
    struct layout layout;
    struct known of[RECOMPUTES][2]; /* [layout_defers] */
    struct least *least;   /* owned: of each candidate */
    int64_t capacity;
    struct search found;   /* owned */
    float nearest[FAMILIES_MOST]; /* least bytes of each family, where > 0 */
    status result;
};

struct branches {
    struct branch *items;    /* owned */
    int count, capacity;
    enum look look;
    const float *nearest;  /* of all branches, after LOOK_LEAST */
    struct hunt *hunts;    /* owned, [threads] */
};

/* A thread, and where it looks. */
struct hunt {
    struct search *out;
    const struct search_request *request;
    struct branch *branch;
    struct layout l;       /* that is looked at */
    struct known_sums sums[2]; /* of the layouts before */
    int schedule;          /* row of search_schedules */
    struct passes block, head; /* of tensor, context, micro-batch, recompute */
    enum look look;
    int64_t at;            /* of branch->least */
    struct family *families[CHOICES]; /* of the layout */
    bool passed_over;      /* a set of shards before it fits */
    const float *nearest;
    signed char balances[PIPE_MOST + 1][SEARCH_SCHEDULES][RECOMPUTES]; /* as
                            * balance_of leaves them; 0: nobody asked */
    struct frame_models *models; /* owned: of the branch */
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
                                                 : 0,
        [IDLE_NOT] = 0};
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

static status keep(struct search *s, const struct candidate *c)
{
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

    if (h->request->order != NULL && !layout_is_in_order(l, h->request->order))
        return false;
    return f == NULL ||
           (open_or(f->tensor, l->tensor) && open_or(f->context, l->context) &&
            open_or(f->pipe, l->pipe) && open_or(f->data, l->data) &&
            open_or(f->expert, l->expert) &&
            open_or(f->expert_tensor, l->expert_tensor) &&
            open_or(f->expert_context, l->expert_context) &&
            (open_or(f->zero, l->zero) || h->request->ranks == 1) &&
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
        &h->branch->of[h->l.recompute][layout_defers(&h->l)];

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
    struct branch *branch = h->branch;

    if (h->at == branch->capacity) {
        const int64_t room = branch->capacity > 0 ? 2 * branch->capacity
                                                  : 1 << 8;
        void *least = branch->least;

        TRY(memory_grow(&least, (size_t)room, sizeof *branch->least));
        branch->least = least;
        branch->capacity = room;
    }
    branch->least[h->at] = (struct least){bytes, false};
    for (int i = 0; i < CHOICES && bytes > 0; i++) {
        float *nearest;

        if (f[i] == NULL) continue;
        nearest = &branch->nearest[f[i] - h->out->families];
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
    return keep(h->out, &c);
}

static status judge(struct hunt *h)
{
    struct family **const families = h->families;
    struct least *least;

    if (!allowed(h) || h->at >= CANDIDATES_MOST) return OK;
    families_of(h->out, &h->l, h->schedule, h->request->shape->experts > 0,
                families);
    if (h->look == LOOK_LEAST) TRY(note_least(h, families));
    least = &h->branch->least[h->at++];
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

/* ---- all of a branch ---- */

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
    const int most = layout_sharers(&h->l) > 1 ? PRESETS_LAST : 0;

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

static bool is_named(const struct hunt *h, int schedule)
{
    const struct search_fixed *f = h->request->fixed;

    return f != NULL &&
           strcmp(f->schedule, search_schedules[schedule].name) == 0;
}

static status each_schedule(struct hunt *h)
{
    const struct shape *shape = h->request->shape;

    for (int i = 0; i < SEARCH_SCHEDULES; i++) {
        const int stages = h->l.pipe * search_schedules[i].chunks;

        if (h->l.pipe == 1 && i > 0) break;
        if (search_schedules[i].named && !is_named(h, i)) continue;
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
            h->l.sequence_parallel = layout_divides_tokens(&h->l);
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

/* ---- branches ---- */

static status add_branch(struct branches *branches,
                         const struct search_request *r,
                         const struct layout *l)
{
    void *items = branches->items;

    TRY(memory_next(&items, &branches->capacity, branches->count, 64,
                    sizeof *branches->items));
    branches->items = items;
    memset(&branches->items[branches->count], 0, sizeof *branches->items);
    branches->items[branches->count].request = *r;
    branches->items[branches->count++].layout = *l;
    return OK;
}

/* Tensor ranks that have whole experts each, context ranks that have other
 * ones. */

static status each_fold(struct branches *branches,
                        const struct search_request *r, struct layout *l)
{
    const int experts = r->shape->experts;

    for (int fold = 0; fold < (experts > 0 ? FOLDS : 1); fold++) {
        if (((fold & FOLD_TENSOR) && l->tensor == 1) ||
            ((fold & FOLD_CONTEXT) && l->context == 1))
            continue;
        l->expert_tensor = (fold & FOLD_TENSOR) != 0;
        l->expert_context = (fold & FOLD_CONTEXT) != 0;
        if (experts % layout_experts(l).places != 0) continue;
        TRY(add_branch(branches, r, l));
    }
    return OK;
}

static status each_expert(struct branches *branches,
                          const struct search_request *r, struct layout *l)
{
    const int experts = r->shape->experts;
    const int rest = r->ranks / (l->tensor * l->context);

    for (int e = 1; e <= EXPERT_MOST && e <= rest; e++) {
        if (rest % e != 0 || (e > 1 && experts == 0)) continue;
        l->expert = e;
        TRY(each_fold(branches, r, l));
    }
    return OK;
}

static status list_branches(struct branches *branches,
                            const struct search_request *r)
{
    const struct shape *s = r->shape;
    const int ranks = r->ranks;

    for (int t = 1; t <= TENSOR_MOST; t++) {
        if (ranks % t != 0 || s->heads % t != 0 || s->width % t != 0 ||
            s->feed_forward % t != 0)
            continue;
        for (int c = 1; c <= CONTEXT_MOST; c++) {
            if (ranks / t % c != 0) continue;
            if (c > 1 && s->sequence % (2 * c) != 0) continue;
            if (c > 1 && s->sequence / c < CONTEXT_TOKENS) continue;
            struct layout l = {
                .as = r->as, .shard = 1, .expert = 1, .tensor = t,
                .context = c, .per_node = r->per_node, .batch = r->batch,
                .threads = r->threads, .bits = r->bits,
                .stored = r->stored};

            if (r->options != NULL) layout_take(&l, r->options);
            layout_know_grid(&l, s, r->grid);
            TRY(each_expert(branches, r, &l));
        }
    }
    return OK;
}

/* Where devices cost money, fewer of them may be cheaper. */
static status list_ranks(struct branches *branches,
                         const struct search_request *request)
{
    struct search_request fewer = *request;

    TRY(list_branches(branches, request));
    while (request->objective == OBJECTIVE_COST && fewer.ranks % 2 == 0) {
        fewer.ranks /= 2;
        if (fewer.per_node > fewer.ranks) fewer.per_node = fewer.ranks;
        TRY(list_branches(branches, &fewer));
    }
    return OK;
}

/* ---- three looks ---- */

static status look_at(const struct branches *branches, struct hunt *h,
                      struct branch *branch)
{
    status result;

    h->out = &branch->found;
    h->request = &branch->request;
    h->branch = branch;
    h->l = branch->layout;
    h->look = branches->look;
    h->nearest = branches->nearest;
    h->at = 0;
    h->passed_over = false;
    memset(h->families, 0, sizeof h->families);
    result = each_micro_batch(h);
    frame_models_free(&h->models);
    return result;
}

static void look_at_one(void *argument, int job, int index)
{
    const struct branches *branches = argument;
    struct branch *branch = &branches->items[job];

    branch->result = look_at(branches, &branches->hunts[index], branch);
    status_clear();
}

static status look_at_each(struct branches *branches, enum look look,
                           struct threads *pool)
{
    branches->look = look;
    jobs_run(pool, branches->count, look_at_one, branches);
    for (int i = 0; i < branches->count; i++)
        if (branches->items[i].result != OK)
            FAIL(branches->items[i].result, "a thread of the search had not "
                                         "enough memory");
    return OK;
}

/* The families of all branches, in the order in which one thread would have met
 * them, and the least bytes of each. */
static void join_least(struct branches *branches, struct search *out,
                       float nearest[FAMILIES_MOST])
{
    for (int i = 0; i < branches->count; i++) {
        const struct branch *branch = &branches->items[i];

        for (int f = 0; f < branch->found.family_count; f++) {
            const struct family *family = &branch->found.families[f];
            const float bytes = branch->nearest[f];
            float *least = &nearest[families_join(out, family) -
                                    out->families];

            if (bytes > 0 && (*least == 0 || bytes < *least)) *least = bytes;
        }
    }
    for (int i = 0; i < branches->count; i++) {
        struct search *found = &branches->items[i].found;

        memcpy(found->families, out->families, sizeof out->families);
        found->family_count = out->family_count;
    }
}

/* Counts and layouts of all branches, in their order. */
static status join_found(struct branches *branches, struct search *out)
{
    for (int i = 0; i < branches->count; i++) {
        struct search *found = &branches->items[i].found;

        out->candidates += found->candidates;
        out->feasible += found->feasible;
        for (int f = 0; f < found->family_count; f++)
            families_join(out, &found->families[f]);
        for (int c = 0; c < found->count; c++)
            TRY(keep(out, &found->found[c]));
        search_free(found);
    }
    return OK;
}

/* Every branch begins with what is known of all families, so that it passes
 * over what is no nearer: that changes no reason, and none of them fits. */
static status look_far(struct branches *branches, struct search *out,
                       struct threads *pool)
{
    struct search known = {.family_count = out->family_count};

    memcpy(known.families, out->families, sizeof known.families);
    for (int f = 0; f < known.family_count; f++)
        known.families[f].candidates = 0;
    for (int i = 0; i < branches->count; i++)
        branches->items[i].found = known;
    TRY(look_at_each(branches, LOOK_FAR, pool));
    for (int i = 0; i < branches->count; i++)
        for (int f = 0; f < known.family_count; f++)
            branches->items[i].found.families[f].feasible -=
                known.families[f].feasible;
    return join_found(branches, out);
}

static status look_at_all(struct branches *branches, struct search *out,
                          const struct search_request *request)
{
    float nearest[FAMILIES_MOST] = {0};

    TRY(look_at_each(branches, LOOK_LEAST, request->pool));
    join_least(branches, out, nearest);
    branches->nearest = nearest;
    TRY(look_at_each(branches, LOOK_NEAR, request->pool));
    TRY(join_found(branches, out));
    TRY(look_far(branches, out, request->pool));
    families_close(out);
    return OK;
}

static void branches_free(struct branches *branches)
{
    for (int i = 0; i < branches->count; i++) {
        memory_free(branches->items[i].least);
        search_free(&branches->items[i].found);
    }
    memory_free(branches->items);
    memory_free(branches->hunts);
}

status search_enumerate(struct search *out,
                        const struct search_request *request)
{
    struct branches branches = {.count = 0};
    void *memory = NULL;
    status result;

    TRY_GOTO(done, result, list_ranks(&branches, request));
    TRY_GOTO(done, result,
             memory_take((size_t)threads_count(request->pool),
                         sizeof *branches.hunts, &memory));
    branches.hunts = memory;
    result = look_at_all(&branches, out, request);
done:
    branches_free(&branches);
    return result;
}
