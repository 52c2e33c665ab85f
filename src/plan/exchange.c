/* SPDX-License-Identifier: Apache-2.0 */
/* exchange.c - the messages that a rank sends in one training step. The forms
 * are those of comm.h: a sum is a reduce-scatter, in which a rank sends all
 * blocks but its own, and a gather, in which it sends its own block to all
 * others. */
#include "plan/exchange_model.h"

#include <stdio.h>
#include <string.h>

#include "base/sizes.h"
#include "nn/exchange.h"

void exchanges_add(struct exchanges *out, struct exchange row)
{
    if (row.size < 2 || row.calls == 0) return;
    for (int i = 0; i < out->count; i++) {
        struct exchange *e = &out->items[i];

        if (!exchange_is_like(e, &row)) continue;
        e->calls = size_sum(e->calls, row.calls);
        e->bytes = size_sum(e->bytes, row.bytes);
        e->between = size_sum(e->between, row.between);
        return;
    }
    CHECK(out->count < EXCHANGES_MAX);
    out->items[out->count++] = row;
}

void exchanges_sum(const struct exchanges *exchanges, struct group_id group,
                   enum comm_kind kind, const struct exchange_steps *steps,
                   int64_t sums[SENT_SUMS])
{
    memset(sums, 0, SENT_SUMS * sizeof *sums);
    for (int i = 0; i < exchanges->count; i++) {
        const struct exchange *e = &exchanges->items[i];
        const int64_t times = e->updates ? steps->updated : steps->made;

        if (e->kind != kind || !group_id_equal(e->group, group)) continue;
        sums[SENT_CALLS] += times * e->calls;
        sums[SENT_BYTES] += times * e->bytes;
        sums[SENT_BETWEEN] += times * e->between;
    }
}

/* ---- ranks that share the batch ---- */

/* The groups of a class of parameters (mesh/shard.h). */
struct sharing {
    struct batch_place divide;  /* what the division is over; size 1: nothing */
    struct batch_place copies;  /* ranks that hold the same shard */
};

static struct sharing sharing_of(const struct stage *stage, int class)
{
    const struct stage_request *r = &stage->request;
    const struct shard_class *c = &stage->shards.classes[class];

    return (struct sharing){
        mesh_batch_place(&r->layout.mesh, &r->layout.place, c->divided),
        mesh_batch_place(&r->layout.mesh, &r->layout.place,
                         c->copied & ~c->divided)};
}

/* A row of the group. */
static void add_side(struct exchanges *out, const struct batch_place *side,
                     struct exchange row)
{
    row.group = side->id;
    snprintf(row.label, sizeof row.label, "%s", side->label);
    row.size = side->size;
    exchanges_add(out, row);
}

/* Elements that a rank with so many roots sends in a sum: blocks of them, and
 * its own block of the sum to all others. */
static int64_t exchange_roots(int64_t roots, int64_t elements,
                              const struct batch_place *side)
{
    const int64_t own = elements / side->size +
                        (side->rank < elements % side->size);

    return (roots - 1) * (elements - own) +
           exchange_all_reduce(elements, side->size, side->rank);
}

struct comm_narrow exchange_narrow(const struct stage *stage, int unit)
{
    const axis_set divided = shard_class(&stage->shards, unit)->divided;

    struct comm_narrow how = {
        stage->request.reduction.bits,
        mesh_batch_run(&stage->request.layout.mesh, divided), NULL, 0};

    if (stage->starts.items == NULL) return how;
    how.starts = stage->starts.items + stage->starts.first[unit];
    how.start_count =
        stage->starts.first[unit + 1] - stage->starts.first[unit];
    return how;
}

int64_t exchange_scatter(const struct stage *stage, int unit)
{
    const struct shards *s = &stage->shards;
    const struct shard_class *class = shard_class(s, unit);
    const int64_t roots =
        stage->gradients.roots.count > 1 ? stage->gradients.roots.count : 1;
    const int64_t others =
        s->units[unit].gradients - shard_all_gradients(s, unit);

    if (stage->request.reduction.bits == 0)
        return size_product(roots * others,
                            dtype_bytes(program_sum(&stage->program)));
    const struct comm_narrow how = exchange_narrow(stage, unit);

    return comm_narrow_sent(
        &how, s->shard_gradient_sizes + (int64_t)unit * s->most,
        class->ranks / class->parts, shard_index(s, unit));
}

/* Gradients of a unit of which this rank owns `own` elements, once a round. */
static void add_gradients(struct exchanges *out, const struct stage *stage,
                          int unit)
{
    const struct shards *shards = &stage->shards;
    const struct sharing s = sharing_of(stage, shards->units[unit].class);
    const int64_t own = shard_all_gradients(shards, unit);
    const int64_t all = shards->units[unit].gradients;
    const int64_t rounds = stage_rounds(stage);
    const int64_t bytes =
        rounds * dtype_bytes(program_sum(&stage->program));
    const int64_t roots =
        stage->gradients.roots.count > 1 ? stage->gradients.roots.count : 1;

    if (all == 0) return; /* frozen */
    add_side(out, &s.divide, (struct exchange){
        .what = SENT_GRADIENTS, .calls = rounds, .kind = COMM_REDUCE_SCATTER,
        .bytes = size_product(rounds, exchange_scatter(stage, unit))});
    if (own == 0) return;
    const int64_t left = s.divide.size > 1 ? 1 : roots;
    const bool parted = shard_class(shards, unit)->parts > 1;

    add_side(out, &s.copies, (struct exchange){
        .what = SENT_GRADIENTS, .calls = rounds, .between_copies = true,
        .kind = parted ? COMM_REDUCE_SCATTER : COMM_ALL_REDUCE,
        .bytes = size_product(
            bytes, parted ? left * (own - shard_gradients(shards, unit))
                          : exchange_roots(left, own, &s.copies))});
}

/* New parts of a shard, after the update. */
static void add_parts(struct exchanges *out, const struct stage *stage,
                      int unit)
{
    const struct shards *shards = &stage->shards;
    const struct sharing s = sharing_of(stage, shards->units[unit].class);

    if (shard_class(shards, unit)->parts == 1) return;
    add_side(out, &s.copies, (struct exchange){
        .what = SENT_WEIGHTS, .calls = 1, .kind = COMM_ALL_GATHER,
        .bytes = size_product((s.copies.size - 1),
                              stage_part_bytes(stage, unit))});
}

static void add_gather(struct exchanges *out, const struct stage *stage,
                       int unit, int64_t times)
{
    const struct shards *shards = &stage->shards;
    const struct sharing s = sharing_of(stage, shards->units[unit].class);

    add_side(out, &s.divide, (struct exchange){
        .what = SENT_WEIGHTS, .calls = times, .kind = COMM_ALL_GATHER,
        .bytes = size_product(times * (s.divide.size - 1),
                              stage_gather_bytes(stage, unit))});
}

/* Largest magnitudes of blocks, or sums, joined over one side. */
static void add_some_peaks(struct exchanges *out, const struct coded *coded,
                           const struct batch_place *side, int unit)
{
    add_side(out, side, (struct exchange){
        .what = SENT_LARGEST_OPERANDS, .calls = 1, .kind = COMM_ALL_REDUCE,
        .bytes = dtype_bytes(coded_peak_dtype(coded)) *
                 exchange_all_reduce(coded_peaks(coded, unit), side->size,
                                     side->rank)});
}

/* Before weights become codes; of parts of shards over both sides. */
static void add_peaks(struct exchanges *out, const struct stage *stage)
{
    for (int unit = 0; unit < stage->shards.count; unit++) {
        const struct sharing s =
            sharing_of(stage, stage->shards.units[unit].class);
        if (coded_peaks(&stage->coded, unit) == 0) continue;
        if (stage->coded.kept && shard_class(&stage->shards, unit)->parts > 1)
            add_some_peaks(out, &stage->coded, &s.copies, unit);
        add_some_peaks(out, &stage->coded, &s.divide, unit);
    }
}

/* F of the loss does nothing in training. */
static bool is_idle(const struct stage *stage, const struct residence *item)
{
    return residency_is_idle(item, &stage->program, &stage->frame);
}

/* Whether the uses of a unit in two items need one gather: those of a step
 * where weights are kept, those of a phase where they are gathered once. */
static bool is_kept(const struct stage *stage, const struct residence *a,
                    const struct residence *b)
{
    const int border = stage->frame.forward_end;

    if (a->unit != b->unit || is_idle(stage, b)) return false;
    if (!stage->request.divided.gather.reshard) return true;
    return stage_gathers_once(stage) &&
           (stage->phases.merged ||
            (a->first < border) == (b->first < border));
}

/* Adds the gathers of divided weights: before each use in each micro-batch, or
 * once a step where they are kept, or once a phase. */
static void add_gathers(struct exchanges *out, const struct stage *stage)
{
    const struct residency *r = &stage->gathered;
    const struct program *p = &stage->program;
    const bool each =
        stage->request.divided.gather.reshard && !stage_gathers_once(stage);
    const int64_t times =
        each ? stage_rounds(stage) * (p->size.batch / p->size.sequences) : 1;

    for (int i = 0; i < r->count; i++) {
        bool again = false;

        if (is_idle(stage, &r->items[i])) continue;
        for (int j = 0; j < i && !again; j++)
            again = is_kept(stage, &r->items[i], &r->items[j]);
        if (!again) add_gather(out, stage, r->items[i].unit, times);
    }
}

static void add_units(struct exchanges *out, const struct stage *stage)
{
    const struct program *p = &stage->program;
    const struct shards *shards = &stage->shards;

    for (int i = 0; i < shards->count; i++) {
        add_gradients(out, stage, i);
        add_parts(out, stage, i);
        if (!stage_divides(stage, stage_reads(stage)))
            add_gather(out, stage, i, 1);
    }
    if (stage_divides(stage, stage_reads(stage))) add_gathers(out, stage);
    add_peaks(out, stage);
    for (int i = 0; i < p->use_count; i++)
        if (p->uses[i].number > 0)
            add_gradients(out, stage,
                          shard_unit_of(shards, p->uses[i].param));
}

/* Tensors that go to the rank that computes with them as wholes, and back. */
static void add_matrices(struct exchanges *out, const struct stage *stage)
{
    const struct matrices *m = &stage->states.matrices;
    struct exchange row = {.group = {GROUP_MATRICES, 0}, .label = "matrices",
                           .what = SENT_WHOLE_MATRICES,
                           .kind = COMM_EXCHANGE, .size = m->ranks,
                           .updates = true};

    if (m->count == 0) return;
    matrices_traffic(m, dtype_bytes(program_real(&stage->program)),
                     &row.calls, &row.bytes);
    exchanges_add(out, row);
}

static void add_blocks(struct exchanges *out, const struct batch_place *side,
                       int64_t blocks)
{
    add_side(out, side, (struct exchange){
        .what = SENT_NORM, .calls = 1, .kind = COMM_ALL_REDUCE,
        .bytes = dtype_bytes(DTYPE_F64) *
                 exchange_all_reduce(blocks, side->size, side->rank)});
}

/* Gradients and weights of one stage, the blocks of its norm, and what its
 * program sends. */
static void add_stage(struct exchanges *out, const struct stage *stage)
{
    exchanges_of_program(out, stage);
    add_units(out, stage);
    add_matrices(out, stage);
    for (int i = 0; i < stage->shards.class_count; i++) {
        const struct sharing s = sharing_of(stage, i);
        const int64_t blocks = shard_class_blocks(
            &stage->program.params, &stage->holding, &stage->shards, i);

        add_blocks(out, &s.divide, blocks);
        if (stage->shards.classes[i].parts > 1)
            add_blocks(out, &s.copies, blocks);
    }
}

/* ---- all ranks ---- */

/* Tables of doubles of which each rank fills its own part. */
static void add_world(struct exchanges *out, const struct pipeline *p,
                      enum sent what, int64_t count)
{
    const int size = p->world_size;

    exchanges_add(out, (struct exchange){
        .group = {GROUP_WORLD, 0}, .label = "world", .what = what, .calls = 1,
        .kind = COMM_ALL_REDUCE, .size = size,
        .bytes = dtype_bytes(DTYPE_F64) *
                 exchange_all_reduce(count, size, p->world_rank)});
}

/* ---- ranks of the pipe ---- */

/* The halves of the leaves of a stage on two ranks. */
static void add_copies(struct exchanges *out, const struct pipeline *p,
                       int chunk)
{
    const struct program *program = &p->stages[chunk].program;
    const struct chunk *c = &p->chunks[chunk];
    const int64_t bytes = dtype_bytes(program_sum(program));
    struct exchange row = {.group = {GROUP_STAGE, c->number},
                           .what = SENT_GRADIENTS_OF_COPIES,
                           .kind = COMM_ALL_REDUCE, .size = c->copies,
                           .calls = 1};

    snprintf(row.label, sizeof row.label, "%s", c->label);
    row.bytes = bytes * exchange_all_reduce(program->params.gradients,
                                            c->copies, c->copy);
    exchanges_add(out, row);
    for (int i = 0; i < program->use_count; i++) {
        const struct use_info *s = &program->uses[i];
        const int64_t elements = program->params.items[s->param].elements;

        if (!gradient_made(program, i)) continue;
        row.calls = gradient_more_roots(program, i);
        row.bytes = row.calls * bytes *
                    exchange_all_reduce(elements, c->copies, c->copy);
        if (row.calls > 0) exchanges_add(out, row);
    }
}

/* Adds the transfers of the schedule's list, once in each direction. */
static void add_transfers(struct exchanges *out, const struct pipeline *p)
{
    const struct schedule *s = &p->schedule;
    const struct action_list *list = &s->lists[p->rank];

    for (int i = 0; i < list->count; i++) {
        const struct action a = list->items[i];
        const bool sends = a.kind == ACTION_SEND_FORWARD ||
                           a.kind == ACTION_SEND_BACKWARD;
        const bool forward = a.kind == ACTION_SEND_FORWARD ||
                             a.kind == ACTION_RECEIVE_FORWARD;

        if (a.kind < ACTION_COMPUTE_COUNT) continue;
        exchanges_add(out, (struct exchange){
            .group = {GROUP_AXIS, AXIS_PIPE}, .label = "pipe",
            .kind = sends ? COMM_SEND : COMM_RECV,
            .what = forward ? SENT_ACTIVATIONS
                            : SENT_GRADIENTS_OF_ACTIVATIONS,
            .size = s->ranks, .calls = 1,
            .bytes = sends ? pipeline_border_bytes(p, a) : 0});
    }
}

/* A shared matrix goes to the other stage that uses it, in parts. */
static void add_tied(struct exchanges *out, const struct pipeline *p)
{
    for (int i = 0; i < p->count; i++) {
        const struct stage *stage = &p->stages[i];
        const struct pipeline_share share = pipeline_share(p, i);
        const int64_t count = share.elements;
        const int64_t calls = (count + TIED_AT_ONCE - 1) / TIED_AT_ONCE;

        if (share.param == NULL || share.chunk >= 0) continue;
        exchanges_add(out, (struct exchange){
            .group = {GROUP_AXIS, AXIS_PIPE}, .label = "pipe",
            .what = SENT_SHARED_MATRIX, .kind = COMM_SEND,
            .size = p->schedule.ranks, .calls = calls,
            .bytes = count * dtype_bytes(program_real(&stage->program))});
        exchanges_add(out, (struct exchange){
            .group = {GROUP_AXIS, AXIS_PIPE}, .label = "pipe",
            .what = SENT_SHARED_MATRIX, .kind = COMM_RECV,
            .size = p->schedule.ranks, .calls = calls});
    }
}

void exchanges_of(struct exchanges *out, const struct pipeline *pipeline)
{
    *out = (struct exchanges){.count = 0};
    for (int i = 0; i < pipeline->count; i++) {
        add_stage(out, &pipeline->stages[i]);
        add_copies(out, pipeline, i);
    }
    add_transfers(out, pipeline);
    add_tied(out, pipeline);
    add_world(out, pipeline, SENT_NORM, pipeline_norm_values(pipeline));
    add_world(out, pipeline, SENT_LOSS, pipeline_loss_values(pipeline));
    if (pipeline->stages[0].program.regular.z_loss > 0)
        add_world(out, pipeline, SENT_Z_LOSS, pipeline_loss_values(pipeline));
    if (pipeline->stages[0].program.later.depth > 0) {
        add_world(out, pipeline, SENT_TARGETS,
                  1 + pipeline->stages[0].program.later.depth);
        add_world(out, pipeline, SENT_LOSSES_OF_LATER_TOKENS,
                  pipeline_later_values(pipeline));
    }
    if (pipeline->stages[0].request.qk_clip > 0)
        add_world(out, pipeline, SENT_LARGEST_SCORES,
                  pipeline_peak_values(pipeline));
    if (pipeline_late_values(pipeline) > 0)
        add_world(out, pipeline, SENT_LARGEST_OPERANDS,
                  pipeline_late_values(pipeline));
    if (pipeline_route_values(pipeline) > 0)
        add_world(out, pipeline, SENT_TOKENS_OF_EXPERTS,
                  pipeline_route_values(pipeline));
    add_world(out, pipeline, SENT_WHETHER_TO_STOP, 1);
}
