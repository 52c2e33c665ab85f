/* SPDX-License-Identifier: Apache-2.0 */
/* likelihood_alone.c - log-likelihoods of requests by one stage, in which what
 * several begin with is computed once.
 *
 *    request 0   c c c c c A a a         a context, choices
 *    request 1   c c c c c B b
 *    batch      |c c c c|c A a a|c B b|  the last token of the context has
 *                                        a target of each choice */
#include <string.h>

#include "inference/likelihood.h"

enum { TRUNK_LEAST = 4 /* tokens: fewer are not worth a trunk */ };

struct placed { int64_t request, branch; };

struct sharing {
    struct stage *stage;
    const struct task_requests *requests;
    const struct likelihood_call *call;
    struct likelihoods *out;
    struct top *tops;        /* owned [tokens] */
    struct branch *branches; /* owned [tokens] */
    struct placed *placed;   /* owned [tokens] */
    void *keys;              /* owned: branches_bytes of the longest */
    int64_t branch_count, placed_count;
    int64_t used;            /* tokens of the batch */
};

static status read_tops(void *argument, int64_t first_token,
                        const struct tensor *logits)
{
    struct sharing *s = argument;

    for (int64_t i = 0; i < logits->shape[0]; i++)
        if (s->stage->run.batch.targets[first_token + i] >= 0)
            s->tops[first_token + i] = likelihood_top(logits, i, 0);
    return OK;
}

static status begin(struct sharing *s)
{
    const struct program *p = &s->stage->program;
    int64_t width = 0;

    for (int i = 0; i < p->step_count; i++) {
        const struct step *step = &p->steps[i];
        const int64_t here = 2 * (int64_t)step->set.attention.kv_heads *
                             step->set.attention.head_width;

        if (step->layer->kind == LAYER_ATTENTION && here > width)
            width = here;
    }
    s->out->requests = s->requests->count;
    TRY(likelihood_take(s->requests->count, sizeof *s->out->sums,
                        &s->out->sums));
    TRY(likelihood_take(p->size.tokens, sizeof *s->branches, &s->branches));
    TRY(likelihood_take(p->size.tokens, sizeof *s->placed, &s->placed));
    TRY(memory_take(branches_bytes(s->requests->longest + 1, width, p->dtype),
                    1, &s->keys));
    if (!s->call->greedy) return OK;
    TRY(likelihood_take(s->requests->count, sizeof *s->out->greedy,
                        &s->out->greedy));
    TRY(likelihood_take(p->size.tokens, sizeof *s->tops, &s->tops));
    s->stage->run.logits.read = read_tops;
    s->stage->run.logits.argument = s;
    return OK;
}

static void end(struct sharing *s)
{
    s->stage->run.logits.read = NULL;
    s->stage->run.batch.branches = NULL;
    memory_free(s->tops);
    memory_free(s->branches);
    memory_free(s->placed);
    memory_free(s->keys);
}

/* ---- groups ---- */

static const int32_t *ids_of(const struct sharing *s,
                             const struct task_request *r)
{
    return s->requests->ids.ids + r->first;
}

/* Inputs before the first whose target is scored. */
static int64_t unscored(const struct task_request *r)
{
    return r->length - r->scored;
}

/* Inputs that two requests have alike and score neither. */
static int64_t alike(const struct sharing *s, const struct task_request *a,
                     const struct task_request *b)
{
    const int64_t most = unscored(a) < unscored(b) ? unscored(a)
                                                   : unscored(b);
    int64_t count = 0;

    while (count < most && ids_of(s, a)[count] == ids_of(s, b)[count]) count++;
    return count;
}

/* Finds requests [first, *last) of one item that share their first tokens (the
 * trunk) and returns how many those are. A request that would shorten the trunk
 * by more than sharing it saves begins the next group. */
static int64_t find_group(const struct sharing *s, int64_t first,
                          int64_t *last)
{
    const struct task_request *items = s->requests->items;
    int64_t trunk = unscored(&items[first]);

    for (*last = first + 1; *last < s->requests->count; ++*last) {
        const int64_t here = alike(s, &items[first], &items[*last]);

        const int64_t members = *last - first;

        if (items[*last].item != items[first].item || here < TRUNK_LEAST ||
            members * here < (members - 1) * trunk)
            break;
        if (here < trunk) trunk = here;
    }
    return *last - first > 1 ? trunk : 0;
}

/* ---- a batch ---- */

/* Appends `count` inputs of a request to the batch, from its input `from` on.
 * Inputs before `from` are those of the trunk, which the batch has already. */
static void put(struct sharing *s, const struct task_request *r, int64_t from,
                int64_t count)
{
    const struct stage_batch batch = stage_batch(s->stage, 0);
    const int32_t *ids = ids_of(s, r);

    for (int64_t i = from; i < from + count; i++) {
        const int64_t t = s->used++;

        batch.inputs[t] = ids[i];
        batch.targets[t] = i < unscored(r) ? -1 : ids[i + 1];
        batch.positions[t] = (int32_t)i;
    }
}

static void put_branch(struct sharing *s, int64_t request, int64_t trunk,
                       int64_t trunk_first)
{
    const struct task_request *r = &s->requests->items[request];
    const int64_t count = r->length - trunk;

    s->placed[s->placed_count++] = (struct placed){request,
                                                       s->branch_count};
    s->branches[s->branch_count++] = (struct branch){
        .first = s->used, .count = count, .trunk = trunk,
        .trunk_first = trunk_first};
    put(s, r, trunk, count);
}

/* Fills the rest of the batch with tokens that no request needs. */
static void fill_rest(struct sharing *s)
{
    const struct stage_batch batch = stage_batch(s->stage, 0);
    const int64_t tokens = s->stage->program.size.tokens;

    for (; s->used < tokens; s->used++) {
        batch.inputs[s->used] = 0;
        batch.targets[s->used] = -1;
        batch.positions[s->used] = 0;
        s->branches[s->branch_count++] =
            (struct branch){.first = s->used, .count = 1};
    }
}

static void add_up(struct sharing *s, const struct placed *placed)
{
    const struct task_request *r = &s->requests->items[placed->request];
    const int32_t *targets = ids_of(s, r) + 1 + unscored(r);
    const struct branch *branch = &s->branches[placed->branch];
    const int64_t first = branch->first + branch->count - r->scored;
    double sum = 0;
    bool greedy = true;

    for (int64_t i = 0; i < r->scored; i++) {
        sum += s->stage->run.losses[first + i];
        if (s->tops != NULL)
            greedy = greedy && (int32_t)s->tops[first + i].id == targets[i];
    }
    s->out->sums[placed->request] = -sum;
    if (s->tops != NULL) s->out->greedy[placed->request] = greedy;
}

static status run_batch(struct sharing *s)
{
    const struct stage_batch batch = stage_batch(s->stage, 0);
    struct branches branches = {.items = s->branches, .keys = s->keys};

    if (s->placed_count == 0) return OK;
    s->out->tokens += s->used;
    fill_rest(s);
    branches.count = s->branch_count;
    s->stage->run.batch = (struct batch){
        .inputs = batch.inputs, .targets = batch.targets,
        .positions = batch.positions, .tokens = s->stage->program.size.tokens,
        .branches = &branches};
    TRY(run_forward(&s->stage->run));
    for (int64_t i = 0; i < s->placed_count; i++) add_up(s, &s->placed[i]);
    if (s->call->progress != NULL)
        s->call->progress(
            s->call->argument,
            (double)(s->placed[s->placed_count - 1].request + 1),
            (double)s->requests->count);
    s->used = s->branch_count = s->placed_count = 0;
    return OK;
}

/* A trunk whose branches do not fit into one batch is there again in the
 * next. */
static status add_group(struct sharing *s, int64_t first, int64_t last,
                        int64_t trunk)
{
    const struct task_request *items = s->requests->items;
    const int64_t tokens = s->stage->program.size.tokens;
    int64_t trunk_first = -1;

    for (int64_t i = first; i < last; i++) {
        int64_t needed = items[i].length - (trunk_first >= 0 ? trunk : 0);

        if (s->used + needed > tokens) {
            TRY(run_batch(s));
            trunk_first = -1;
        }
        if (trunk > 0 && trunk_first < 0) {
            trunk_first = s->used;
            s->branches[s->branch_count++] =
                (struct branch){.first = s->used, .count = trunk};
            put(s, &items[i], 0, trunk);
        }
        put_branch(s, i, trunk, trunk_first);
    }
    return OK;
}

static status run_all(struct sharing *s)
{
    int64_t last;

    for (int64_t first = 0; first < s->requests->count; first = last) {
        const int64_t trunk = find_group(s, first, &last);

        TRY(add_group(s, first, last, trunk));
    }
    return run_batch(s);
}

status likelihood_alone(struct likelihoods *out, struct stage *stage,
                        const struct task_requests *requests,
                        const struct likelihood_call *call)
{
    struct sharing s = {.stage = stage, .requests = requests, .call = call,
                        .out = out};
    status result;

    *out = (struct likelihoods){0};
    CHECK(requests->longest <= stage->program.size.tokens);
    TRY_GOTO(done, result, begin(&s));
    result = run_all(&s);
done:
    end(&s);
    return result;
}
