/* SPDX-License-Identifier: Apache-2.0 */
/* rounds.c - how often a step reduces gradients that ranks divide. */
#include "setup/rounds.h"

#include <stdio.h>
#include <string.h>

#include "plan/reduce_price.h"

enum reduce { REDUCE_AUTO, REDUCE_EACH, REDUCE_ONCE, REDUCES };

static status parse(const char *name, enum reduce *out)
{
    static const char *const names[REDUCES] = {"auto", "each", "once"};
    const char *near = text_nearest(name, names, REDUCES);

    for (int i = 0; i < REDUCES; i++) {
        *out = (enum reduce)i;
        if (strcmp(name, names[i]) == 0) return OK;
    }
    FAIL(ERR_CONFIG, "zero_reduce: %s is not auto, each or once%s%s", name,
         near != NULL ? "; nearest: " : "", near != NULL ? near : "");
}

status rounds_check(const char *name)
{
    enum reduce which;

    return parse(name, &which);
}

/* Whether B of each stage takes its micro-batches in order, W at once: sums of
 * rounds meet in the order of their numbers. */
static bool in_order(const struct schedule *s)
{
    for (int rank = 0; rank < s->ranks; rank++) {
        const struct action_list *list = &s->lists[rank];

        if (!schedule_fused(s, rank)) return false;
        for (int i = 0; i < list->count; i++)
            for (int j = i + 1; j < list->count; j++)
                if (list->items[i].kind == ACTION_BACKWARD_INPUT &&
                    list->items[j].kind == ACTION_BACKWARD_INPUT &&
                    list->items[i].stage == list->items[j].stage &&
                    list->items[i].microbatch > list->items[j].microbatch)
                    return false;
    }
    return true;
}

/* The largest micro-batch up to the one there is that is a whole subtree of
 * leaves in a power of two of rounds; 0: none is. */
static int64_t nearest_micro_batch(const struct setup *setup)
{
    const struct stage_request *r = &setup->request;
    int64_t best = 0;

    for (int64_t rounds = 1; rounds <= r->layout.grid.data; rounds *= 2)
        if (r->size.batch % rounds == 0 && r->layout.grid.data % rounds == 0 &&
            (best == 0 || r->size.batch / rounds >= r->size.micro_batch) &&
            (rounds == 1 ||
             grid_is_power(r->layout.grid.data / rounds * setup->ranks)))
            best = r->size.batch / rounds;
    return best;
}

/* A round is all ranks' leaves of it: a subtree, unless it is the only one or
 * sums have no order. */
static bool is_subtree(const struct setup *setup, int64_t rounds)
{
    const struct stage_request *r = &setup->request;

    if (r->reduction.sums.integer) return r->layout.grid.data % rounds == 0;
    return r->layout.grid.data % rounds == 0 && grid_is_power(rounds) &&
           (rounds == 1 ||
            grid_is_power(r->layout.grid.data / rounds * setup->ranks));
}

const char *rounds_obstacle(const struct setup *setup, char out[ROUNDS_REASON])
{
    const struct stage_request *r = &setup->request;
    const struct schedule *s = &setup->schedule;
    const int64_t near = nearest_micro_batch(setup);

    if (!r->reduction.sums.integer &&
        !grid_is_cut(setup->grid.data, setup->ranks)) {
        snprintf(out, ROUNDS_REASON,
                 "the data leaves of a rank, %d of %d, are several subtrees; "
                 "a number of ranks that is a power of two has one",
                 setup->grid.data / setup->ranks, setup->grid.data);
        return out;
    }
    if (!is_subtree(setup, r->size.batch / r->size.micro_batch)) {
        snprintf(out, ROUNDS_REASON,
                 "a micro-batch (train.micro_batch=%lld) is no whole subtree "
                 "of the %d data leaves, %lld sequences each; "
                 "train.micro_batch=%lld is one",
                 (long long)r->size.micro_batch, setup->grid.data,
                 (long long)(r->size.batch / r->layout.grid.data),
                 (long long)near);
        return out;
    }
    if (s->ranks > 1 && (s->places[1] != NULL || !in_order(s))) {
        snprintf(out, ROUNDS_REASON,
                 "schedule.name=%s computes gradients of a stage's weights "
                 "late, out of order, or on two ranks; gpipe, 1f1b, "
                 "interleaved and breadth-first do not",
                 setup->set->values.schedule.name);
        return out;
    }
    return NULL;
}

/* Beside ranks of the pipe or of the context axis links and memory are shared
 * with other messages and frames: only what pays by its formula. */
static bool others(const struct stage_request *r)
{
    return r->layout.mesh.size[AXIS_PIPE] > 1 ||
           r->layout.mesh.size[AXIS_CONTEXT] > 1 ||
           r->layout.grid.context > 1;
}

/* By the formulas; rounds_obstacle has found nothing. */
static bool pays(const struct setup *setup)
{
    const struct stage_request *r = &setup->request;
    const int contexts = r->layout.mesh.size[AXIS_CONTEXT];
    const struct reduce_facts facts = {
        .ranks = division_ranks(&r->divided.division, &r->layout.mesh),
        .cut = {.data_leaves = r->layout.grid.data,
                .sequences_per_leaf = r->size.batch / r->layout.grid.data,
                .length = r->size.length / contexts,
                .context_chunks = r->layout.grid.context > 1
                              ? 2 * r->layout.grid.context / contexts : 1,
                .shared = contexts > 1, .micro_batch = r->size.micro_batch,
                .micro_batches = r->size.batch / r->size.micro_batch},
        .units = (double)setup->model.layers / setup->schedule.stages,
        .tokens = r->size.micro_batch * r->size.length / contexts,
        .idle = setup->model.moe.experts > 0};

    return reduce_each_pays(&facts);
}

status rounds_choose(struct setup *setup, bool *alone)
{
    struct stage_request *r = &setup->request;
    const int64_t rounds = r->size.batch / r->size.micro_batch;
    char reason[ROUNDS_REASON];
    enum reduce reduce;

    TRY(parse(setup->set->values.zero_reduce, &reduce));
    *alone = false;
    r->reduction.rounds = 0;
    r->reduction.piped = false;
    if (reduce == REDUCE_EACH && r->divided.division.gradients == 0)
        FAIL(ERR_CONFIG, "zero_reduce: each, but zero=%s divides no gradients; "
                         "zero2, fsdp and hsdp do", setup->set->values.zero);
    if (reduce == REDUCE_ONCE || r->divided.division.gradients == 0 ||
        division_ranks(&r->divided.division, &r->layout.mesh) == 1)
        return OK;
    if (rounds_obstacle(setup, reason) != NULL) {
        if (reduce == REDUCE_AUTO) return OK;
        FAIL(ERR_CONFIG, "zero_reduce: each is not possible: %s; or set "
                         "zero_reduce=once", reason);
    }
    if (reduce == REDUCE_AUTO && others(r) && !pays(setup)) return OK;
    r->reduction.rounds = (int)rounds;
    r->size.batch = r->size.micro_batch;
    r->layout.grid.data /= (int)rounds;
    r->reduction.piped = r->layout.mesh.size[AXIS_PIPE] > 1;
    *alone = !r->reduction.piped;
    return OK;
}

/* The smallest k with 2^k >= n. */
static int power_above(int64_t n)
{
    int k = 0;

    while ((int64_t)1 << k < n) k++;
    return k;
}

status rounds_sums(struct setup *setup)
{
    static const char *const names[] = {"ordered", "integer"};
    const struct options *o = &setup->set->values;
    const char *name = o->numerics.sums, *near = text_nearest(name, names, 2);
    struct integer_sums *sums = &setup->request.reduction.sums;

    if (strcmp(name, "ordered") == 0) return OK;
    if (strcmp(name, "integer") != 0)
        FAIL(ERR_CONFIG, "numerics.sums: %s is not ordered or integer%s%s",
             name, near ? "; nearest: " : "", near ? near : "");
    if (strcmp(o->numerics.mode, "fast") == 0)
        FAIL(ERR_CONFIG, "numerics.sums: integer keeps the bits under every "
                         "layout that fits the grid, and numerics.mode=fast "
                         "gives the grid up; set one of them back");
    if (setup->request.dtype == DTYPE_F64)
        FAIL(ERR_CONFIG, "numerics.sums: integer adds gradients of float32, "
                         "and those of train.dtype=float64 are float64; "
                         "set numerics.sums=ordered");
    sums->integer = true;
    sums->exponent = (int)o->numerics.sums_bits -
                     power_above(o->train.batch * o->data.sequence);
    sums->spare = power_above(setup->grid.data);
    return OK;
}

status rounds_format(struct setup *setup)
{
    static const char *const names[] = {"real", "int8", "int4"};
    static const int bits[] = {0, 8, 4};
    const struct options *o = &setup->set->values;
    const char *name = o->zero_format, *near = text_nearest(name, names, 3);
    struct stage_request *r = &setup->request;
    int which = 0;

    while (which < 3 && strcmp(name, names[which]) != 0) which++;
    if (which == 3)
        FAIL(ERR_CONFIG, "zero_format: %s is not real, int8 or int4%s%s", name,
             near ? "; nearest: " : "", near ? near : "");
    r->reduction.bits = bits[which];
    if (which == 0) return OK;
    if (strcmp(o->numerics.mode, "fast") != 0)
        FAIL(ERR_CONFIG, "zero_format: %s rounds gradients before ranks add "
                         "them up, so the bits show the layout; set "
                         "numerics.mode=fast, or zero_format=real", name);
    if (r->dtype == DTYPE_F64)
        FAIL(ERR_CONFIG, "zero_format: %s is for gradients in float32, but "
                         "train.dtype is float64; set zero_format=real", name);
    if (division_axes(&r->divided.division) == 0)
        FAIL(ERR_CONFIG, "zero_format: %s is for gradients that go to those "
                         "who own them, but zero=%s divides nothing; zero1, "
                         "zero2, fsdp and hsdp do", name, o->zero);
    return OK;
}
