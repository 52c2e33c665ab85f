/* SPDX-License-Identifier: Apache-2.0 */
/* predict.c - the clock over the lists, and what its times mean. */
#include "planner/predict.h"

#include <math.h>
#include <string.h>

#include "kernels/math.h"
#include "planner/memory.h"
#include "planner/network.h"
#include "planner/network_bytes.h"
#include "planner/step_tail.h"

enum { PATH_KINDS = 512 };
/* Seconds of a core for a byte that a socket takes or gives: 1.4e-10 to 1.7e-10
 * on the loopback of an AMD EPYC. */
#define SOCKET_S 1.6e-10

struct path {
    struct prediction *out;
    struct path_part parts[PATH_KINDS];
    int part_count;
    const struct steps *steps;
    double later;          /* when what came after it on the path began */
    double guessed;
};

static void note_part(struct path *path, const struct path_part *part)
{
    struct path_part *found = path->parts;
    struct path_part *const end = path->parts + path->part_count;

    while (found < end &&
           (found->item != part->item || found->rank != part->rank ||
            found->stage != part->stage))
        found++;
    if (found == end) {
        if (path->part_count == PATH_KINDS) return;
        *found = *part;
        path->part_count++;
        return;
    }
    found->seconds += part->seconds;
    found->count++;
}

static void take_longest(struct path *path)
{
    struct prediction *out = path->out;

    while (out->part_count < PATH_PARTS && out->part_count < path->part_count) {
        struct path_part *best = path->parts;

        for (int i = 1; i < path->part_count; i++)
            if (path->parts[i].seconds > best->seconds) best = &path->parts[i];
        out->parts[out->part_count++] = *best;
        best->seconds = -1;
    }
}

static void visit(void *context, int32_t rank, const struct timed *item)
{
    struct path *path = context;
    const struct spent *span = &path->steps->spans[item->kind];
    const double length = item->end - item->begin;
    const double whole = spent_seconds(span);
    const double gap = path->later - item->end;

    if (gap > 0) path->out->path_s[CAUSE_IDLE] += gap;
    path->later = item->begin;
    if (length <= 0) return;
    if (whole > 0) {
        for (int i = 0; i < CAUSES; i++)
            path->out->path_s[i] += length * span->seconds[i] / whole;
        path->guessed += length * span->guessed / whole;
    } else {
        path->out->path_s[item->cause] += length;
    }
    note_part(path, &(struct path_part){
        path->steps->items[item->kind], rank, item->stage, length, 1});
}

static void expose(struct prediction *out)
{
    const struct { int axis; enum cause cause; } rows[] = {
        {AXIS_PIPE, CAUSE_PIPE}, {AXIS_DATA, CAUSE_DATA},
        {AXIS_SHARD, CAUSE_SHARD}, {AXIS_CONTEXT, CAUSE_CONTEXT},
        {AXIS_TENSOR, CAUSE_TENSOR}, {AXIS_EXPERT, CAUSE_EXPERT}};

    for (int i = 0; i < 6; i++)
        out->exposed_s[rows[i].axis] = out->path_s[rows[i].cause];
}

static bool is_body(const struct steps *steps, const struct timed *item)
{
    return item->resource == CLOCK_COMPUTE &&
           steps->items[item->kind] <= ITEM_BACKWARD;
}

static void fill_shares(struct prediction *out, const struct steps *steps,
                        const struct clock_result *clock)
{
    const int ranks = steps->lists.ranks;
    double longest = 0, work = 0;

    for (int r = 0; r < ranks; r++) {
        const struct timed_list *list = &steps->lists.lists[r];
        double begin = -1, end = 0;

        for (int i = 0; i < list->count; i++) {
            if (!is_body(steps, &list->items[i])) continue;
            if (begin < 0) begin = list->items[i].begin;
            end = list->items[i].end;
            work += list->items[i].end - list->items[i].begin;
        }
        if (begin >= 0 && end - begin > longest) longest = end - begin;
        if (end > out->body_s) out->body_s = end;
    }
    /* The sum of items of a rank that never waits is a rounding off. */
    if (longest > work / ranks * (1 + 1e-12))
        out->bubble_rate = 1 - work / ranks / longest;
    if (clock->end > 0)
        out->idle_share = 1 - clock->busy[CLOCK_COMPUTE] /
                                  (ranks * clock->end);
    for (int i = 0; i < CLOCK_RESOURCES; i++)
        out->resource_s[i] = clock->busy[i] / ranks;
}

/* FLOPs of recomputation, for one token. */
static double again(const struct cost *cost)
{
    const struct shape *s = cost->shape;
    const double scores = 4.0 * s->layers * s->heads * s->head_width *
                          (double)s->sequence;
    const double latents =
        cost->layout->again_latent ? shape_flops_latent(s) : 0;

    if (cost->layout->recompute == RECOMPUTE_NONE) return latents;
    if (cost->layout->recompute == RECOMPUTE_SELECTIVE)
        return latents + (cost->layout->as == AS_LOCKSTEP ||
                          cost->layout->again_moved ? 0 : scores);
    return shape_flops_again(s);
}

static void fill_rates(struct prediction *out, const struct cost *cost)
{
    const struct layout *l = cost->layout;
    const double tokens = (double)l->batch * (double)cost->shape->sequence;
    /* Rates of 8-bit products are stated against the 16-bit peak. */
    const double peak = cost->machine->value[l->bits == 32 ? M_PEAK_32
                                                           : M_PEAK_16];

    out->tokens_per_s = tokens / out->step_s;
    const double each = out->tokens_per_s / (layout_ranks(l) * peak);

    out->mfu = each * shape_flops_causal(cost->shape);
    out->mfu_noncausal = each * shape_flops_full(cost->shape);
    out->hfu = each * (shape_flops_full(cost->shape) + again(cost));
}

/* The slowest of many ranks: mean and deviation of a step's time. */
static double noise_factor(const struct cost *cost)
{
    const double n = layout_ranks(cost->layout);

    return n < 2 ? 1 : 1 + cost->machine->value[M_NOISE] *
                               sqrt(2 * math_log(n));
}

static void fill_memory(struct prediction *out, const struct cost *cost,
                        const struct weather *weather)
{
    const double *v = cost->machine->value;
    struct memory there;

    out->memory_bytes = memory_largest(cost->layout, cost->shape,
                                       &out->memory_position);
    if (weather->memory_bytes > 0) out->memory_bytes = weather->memory_bytes;
    out->memory_limit = weather->max_memory > 0 ? weather->max_memory
                                                : v[M_MEMORY_BYTES];
    memory_of(cost->layout, cost->shape, out->memory_position, &there);
    out->offloaded_bytes = there.offloaded;
    out->fits = out->memory_bytes <= out->memory_limit &&
                (there.offloaded <= v[M_HOST_BYTES] ||
                 (cost->layout->offload & OFFLOAD_DISK));
}

/* Tensor, context and expert ranks wait for their messages in the middle of a
 * pass: the share of its seconds, of each kind. */
static status share_messages(const struct steps *steps, double **out)
{
    void *memory = NULL;

    TRY(memory_take((size_t)steps->span_count + 1, sizeof **out, &memory));
    *out = memory;
    for (int i = 0; i < steps->span_count; i++) {
        const struct spent *span = &steps->spans[i];
        const double whole = spent_seconds(span);
        double sent = 0;

        for (int c = CAUSE_TENSOR; c <= CAUSE_SHARD; c++)
            sent += span->seconds[c];
        (*out)[i] = whole > 0 ? sent / whole : 0;
    }
    return OK;
}

/* Nodes with ranks of several positions of the pipe, where they have fewer
 * ports than those ranks could use. */
static bool nodes_are_shared(const struct cost *cost, struct clock_nodes *out)
{
    const struct layout *l = cost->layout;
    const double own = node_ports(cost->machine, 1);

    *out = (struct clock_nodes){.flows = pipe_team(l), .own = own,
                                .ports = cost->machine->value[M_NICS]};
    return l->pipe > 1 && out->flows < l->per_node && out->ports > 0 &&
           out->ports < own * l->per_node;
}

static status place_lists(struct clock_nodes *nodes, const struct layout *l,
                          int32_t **out)
{
    void *memory = NULL;

    TRY(memory_take((size_t)l->pipe, sizeof **out, &memory));
    *out = memory;
    for (int i = 0; i < l->pipe; i++)
        (*out)[i] = i * nodes->flows / l->per_node;
    nodes->of = *out;
    nodes->nodes = (*out)[l->pipe - 1] + 1;
    return OK;
}

/* Where devices are cores, messages need the cores that compute: those inside
 * a node all the time, those between nodes to copy their bytes to the network
 * and from it, and else they wait. 0: devices are none. */
static double wire_share(const struct machine *machine)
{
    const double *v = machine->value;
    const double share = v[M_NIC_RATE] * v[M_NIC] * SOCKET_S;

    if (!machine->cores) return 0;
    return share < 1 ? share : 1;
}

static status run_clock(struct steps *steps, const struct cost *cost,
                        const struct weather *weather,
                        struct clock_result *clock)
{
    struct clock_nodes nodes;
    const bool shared = nodes_are_shared(cost, &nodes);
    double *messages = NULL;
    int32_t *of = NULL;
    status result = OK;

    if (weather->slow_link != NULL) TRY(share_messages(steps, &messages));
    if (shared) result = place_lists(&nodes, cost->layout, &of);
    if (result == OK)
        result = clock_run(&steps->lists, &(struct clock_rules){
            cost->machine->value[M_COMPUTE_BESIDE],
            cost->machine->value[M_COMM_BESIDE], weather->slow,
            weather->slow_link, messages, shared ? &nodes : NULL,
            wire_share(cost->machine)}, clock);
    memory_free(of);
    memory_free(messages);
    return result;
}

status predict_steps(struct prediction *out, struct steps *steps,
                     const struct cost *cost, const struct weather *weather)
{
    struct path path = {.out = out, .steps = steps};
    struct clock_result clock;
    double factor;

    *out = (struct prediction){0};
    TRY(run_clock(steps, cost, weather, &clock));
    if (!(clock.end > 0))
        FAIL(ERR_CONFIG, "a step of no instructions has no time");
    path.later = clock.end;
    clock_critical(&steps->lists, &clock, visit, &path);
    take_longest(&path);
    fill_shares(out, steps, &clock);
    factor = noise_factor(cost);
    out->step_s = clock.end * factor;
    for (int i = 0; i < CAUSES; i++) out->path_s[i] *= factor;
    out->guessed_share = path.guessed / clock.end;
    if (out->guessed_share > 1) out->guessed_share = 1;
    expose(out);
    fill_rates(out, cost);
    fill_memory(out, cost, weather);
    out->sent_network = network_bytes(cost);
    return OK;
}

status predict(struct prediction *out, const struct cost *cost,
               const struct weather *weather)
{
    struct steps steps;
    status result;

    TRY(steps_build(&steps, cost));
    result = predict_steps(out, &steps, cost, weather);
    steps_free(&steps);
    return result;
}
