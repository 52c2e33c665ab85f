/* SPDX-License-Identifier: Apache-2.0 */
/* zero.c - the messages of data parallelism, and what the ranks divide. */
#include "step/zero.h"

#include <string.h>

#include "comm/lifetime_check.h"
#include "comm/progress.h"
#include "plan/exchange.h"
#include "step/zero_codes.h"

enum { SHARD, COPIES };

/* ---- where things lie ---- */

static struct tensor typed(void *data, enum dtype dtype, int64_t first,
                           int64_t count)
{
    char *at = data; /* NULL: this rank has no such arena */

    if (at != NULL) at += first * dtype_bytes(dtype);
    return tensor_1d(at, dtype, count);
}

/* A view of gradients. */
static struct tensor elements(const struct zero *z, void *data, int64_t first,
                              int64_t count)
{
    return typed(data, gradients_dtype(&z->stage->gradients), first, count);
}

/* A view of weights as kernels read them. */
static struct tensor weights(const struct zero *z, void *data, int64_t first,
                             int64_t count)
{
    return typed(data, z->stage->program.dtype, first, count);
}

static const struct zero_class *class_of(const struct zero *z, int unit)
{
    return &z->classes[z->stage->shards.units[unit].class];
}

/* The shard of a unit's gradients, which lie whole at `data`. */
static struct tensor own_of(const struct zero *z, int unit, void *data)
{
    const struct shards *s = &z->stage->shards;

    return elements(z, data,
                    shard_gradient_cuts(s, unit)[shard_rank(s, unit)] -
                        shard_gradients_before(s, unit),
                    shard_all_gradients(s, unit));
}

/* The part that this rank updates, of a shard. */
static struct tensor part_of(const struct zero *z, int unit,
                             struct tensor shard)
{
    const struct shards *s = &z->stage->shards;

    return elements(z, shard.data, shard_gradients_before(s, unit),
                    shard_gradients(s, unit));
}

static bool has_parts(const struct zero *z, int unit)
{
    return shard_class(&z->stage->shards, unit)->parts > 1;
}

static void *unit_in(const struct zero *z, void *flat, int unit)
{
    const struct shard_unit *u = &z->stage->shards.units[unit];

    return elements(z, flat, u->gradient, u->gradients).data;
}

static bool in_buckets(const struct zero *z)
{
    return stage_divides(z->stage, MEMORY_GRADIENTS);
}

/* Where a divided gradient has the shard of a second use: after the units, in
 * the order of the uses. */
static int64_t second_at(const struct zero *z, int use)
{
    const struct program *p = &z->stage->program;
    int64_t at = z->stage->shards.gradients;

    for (int i = 0; i < use; i++)
        if (p->uses[i].number > 0)
            at += param_room(shard_kept_gradients(
                &z->stage->shards,
                shard_unit_of(&z->stage->shards, p->uses[i].param)));
    return at;
}

/* Where this rank's shard of a sum, or its part, lies among divided
 * gradients. */
static struct tensor shard_of(const struct zero *z,
                              const struct residence *item)
{
    const int64_t at = item->use < 0
                           ? z->stage->shards.units[item->unit].gradient_at
                           : second_at(z, item->use);

    return elements(z, z->stage->memory[MEMORY_GRADIENTS].data,
                    z->level * z->stage->level_elements + at,
                    shard_kept_gradients(&z->stage->shards, item->unit));
}

/* The whole unit, not yet reduced. */
static void *item_data(const struct zero *z, const struct residence *item)
{
    const struct gradients *g = &z->stage->gradients;

    if (in_buckets(z) && shard_gradient_stays(&z->stage->shards, item->unit))
        return shard_of(z, item).data;
    if (in_buckets(z))
        return elements(z, z->stage->memory[MEMORY_BUCKETS].data, item->offset,
                        0).data;
    if (item->use >= 0) return gradient_root(g, item->use).data;
    return unit_in(z, g->root, item->unit);
}

/* Where this rank's shard of the sum goes. */
static struct tensor item_own(const struct zero *z,
                              const struct residence *item)
{
    if (!in_buckets(z) || shard_sums_room(&z->stage->shards, item->unit))
        return own_of(z, item->unit, item_data(z, item));
    return shard_of(z, item);
}

/* Where the sum over all ranks is that this rank updates with. */
static struct tensor item_sum(const struct zero *z,
                              const struct residence *item)
{
    if (in_buckets(z) && shard_sums_room(&z->stage->shards, item->unit))
        return shard_of(z, item);
    return part_of(z, item->unit, item_own(z, item));
}

/* ---- calls ---- */

/* use: of a second use, or -1. */
static struct comm_call scatter_call(const struct zero *z, int unit,
                                     int use, void *data,
                                     struct tensor own)
{
    const struct gradients *g = &z->stage->gradients;
    const struct shards *s = &z->stage->shards;
    const struct zero_class *class = class_of(z, unit);

    return (struct comm_call){
        .kind = COMM_REDUCE_SCATTER, .algorithm = ALGORITHM_ORDERED,
        .reduction = REDUCE_SUM, .out = own,
        .in = elements(z, data, 0, s->units[unit].gradients),
        .in_counts = s->shard_gradient_sizes + (int64_t)unit * s->most,
        .leaves = gradient_leaves(g),
        .root_stride = gradient_root_stride(g, use),
        .narrow = exchange_narrow(z->stage, unit),
        .scratch = class->scratch[SHARD],
        .scratch_bytes = class->scratch_bytes[SHARD]};
}

static struct comm_call sum_call(const struct zero_class *class,
                                 struct tensor values)
{
    return (struct comm_call){.kind = COMM_ALL_REDUCE,
                              .algorithm = ALGORITHM_ORDERED,
                              .reduction = REDUCE_SUM, .out = values,
                              .in = values,
                              .scratch = class->scratch[COPIES],
                              .scratch_bytes = class->scratch_bytes[COPIES]};
}

/* The sum over ranks that hold the same shard. Where others have divided it
 * before, it is one sum and no longer this rank's subtrees. */
static struct comm_call roots_call(const struct zero *z,
                                   const struct zero_class *class, int use,
                                   struct tensor values)
{
    struct comm_call call = sum_call(class, values);

    if (class->shard != NULL) return call;
    call.leaves = gradient_leaves(&z->stage->gradients);
    call.root_stride = gradient_root_stride(&z->stage->gradients, use);
    return call;
}

/* Like roots_call, where each of those ranks keeps a part of it: `own`. */
static struct comm_call parts_call(const struct zero *z, int unit, int use,
                                   struct tensor values, struct tensor own)
{
    const struct shards *s = &z->stage->shards;
    struct comm_call call = roots_call(z, class_of(z, unit), use, values);

    if (!has_parts(z, unit)) return call;
    call.kind = COMM_REDUCE_SCATTER;
    call.out = own;
    call.in_counts = shard_gradient_sizes(s, unit) +
                     shard_index(s, unit) * shard_class(s, unit)->parts;
    return call;
}

static struct comm_call gather_call(const struct zero *z, int unit,
                                    void *data, struct tensor own)
{
    const struct shards *s = &z->stage->shards;

    return (struct comm_call){
        .kind = COMM_ALL_GATHER, .in = own,
        .out = weights(z, data, 0, s->units[unit].elements),
        .out_counts = s->shard_sizes + (int64_t)unit * s->most};
}

/* ---- groups and scratch ---- */

static void choose_groups(struct zero *z, struct team *team)
{
    const struct shards *s = &z->stage->shards;

    for (int i = 0; i < s->class_count; i++) {
        const struct shard_class *c = &s->classes[i];

        z->classes[i] = (struct zero_class){
            .shard = team_over(team, c->divided),
            .copies = team_over(team, c->copied & ~c->divided)};
    }
}

static size_t most(size_t a, size_t b)
{
    return a > b ? a : b;
}

static void measure_scratch(struct zero *z)
{
    const struct shards *s = &z->stage->shards;

    for (int i = 0; i < s->count; i++) {
        struct zero_class *class = &z->classes[s->units[i].class];
        const struct comm_call scatter =
            scatter_call(z, i, -1, NULL, own_of(z, i, NULL));
        const struct comm_call sum =
            parts_call(z, i, -1, own_of(z, i, NULL),
                       part_of(z, i, own_of(z, i, NULL)));

        if (s->units[i].gradients == 0) continue;
        if (class->shard != NULL)
            class->scratch_bytes[SHARD] =
                most(class->scratch_bytes[SHARD],
                     arena_aligned(comm_scratch_bytes(class->shard, &scatter)));
        if (class->copies != NULL)
            class->scratch_bytes[COPIES] =
                most(class->scratch_bytes[COPIES],
                     arena_aligned(comm_scratch_bytes(class->copies, &sum)));
    }
}

/* The memory in which background calls work, one class behind the other. */
static void place_scratch(struct zero *z)
{
    char *at = z->stage->memory[MEMORY_BACKGROUND].data;

    for (int i = 0; at != NULL && i < z->stage->shards.class_count; i++)
        for (int j = 0; j < 2; j++) {
            z->classes[i].scratch[j] = at;
            at += z->classes[i].scratch_bytes[j];
        }
}

void zero_scratch(struct stage *stage, struct team *team, size_t *bytes,
                  size_t *background)
{
    struct zero z = {.stage = stage};
    const struct tensor blocks =
        tensor_1d(NULL, DTYPE_F64,
                  shard_blocks(&stage->program.params, &stage->holding));

    choose_groups(&z, team);
    measure_scratch(&z);
    *bytes = *background = 0;
    for (int i = 0; i < stage->shards.class_count; i++) {
        const struct zero_class *class = &z.classes[i];
        const struct comm_call norm = sum_call(class, blocks);

        if (class->shard != NULL)
            *bytes = most(*bytes, comm_scratch_bytes(class->shard, &norm));
        *bytes = most(*bytes, zero_codes_scratch(&z, i));
        if (stage->shards.classes[i].parts > 1)
            *bytes = most(*bytes, comm_scratch_bytes(class->copies, &norm));
        *background += class->scratch_bytes[SHARD] +
                       class->scratch_bytes[COPIES];
    }
}

/* ---- gradients ---- */

/* Gaps between parameters are added, too: what waits there is a number. */
static status clear_gaps(const struct zero *z, int unit, void *data)
{
    const struct shard_unit *u = &z->stage->shards.units[unit];
    const int64_t each = dtype_bytes(gradients_dtype(&z->stage->gradients));

    for (int i = 0; i < u->params; i++) {
        const struct param *p =
            &z->stage->program.params.items[u->first_param + i];
        const int64_t end = p->gradient - u->gradient + p->elements;
        const int64_t room = param_gradient_room(p) - p->elements;

        if (!param_has_gradient(p)) continue;
        TRY(device_fill(&z->stage->stream, (char *)data + end * each, 0,
                        (size_t)(room * each)));
    }
    return OK;
}

/* Tells the uses of an item where their roots go. */
static status place_roots(struct zero *z, const struct residence *item)
{
    const struct program *p = &z->stage->program;
    const struct shard_unit *u = &z->stage->shards.units[item->unit];
    void *data = item_data(z, item);

    TRY(clear_gaps(z, item->unit, data));
    for (int i = 0; i < p->use_count; i++) {
        const struct param *param = &p->params.items[p->uses[i].param];

        if (item->use >= 0 ? i != item->use
                              : p->uses[i].number > 0 ||
                                    shard_unit_of(&z->stage->shards,
                                                  p->uses[i].param) !=
                                        item->unit)
            continue;
        z->stage->gradients.states[i].placed =
            elements(z, data, param->gradient - u->gradient, 0).data;
    }
    return OK;
}

static status start_sum(struct zero *z, const struct instruction *i,
                        struct comm_handle *handle)
{
    const struct residence *item = &z->stage->reduced.items[i->item];
    const struct zero_class *class = class_of(z, item->unit);
    const struct comm_call call = parts_call(
        z, item->unit, item->use, item_own(z, item), item_sum(z, item));

    return comm_start(class->copies, &call, handle);
}

static status start_reduce(struct zero *z, const struct instruction *i,
                           struct comm_handle *handle)
{
    const struct residence *item = &z->stage->reduced.items[i->item];
    const struct comm_call call = scatter_call(
        z, item->unit, item->use, item_data(z, item), item_own(z, item));
    struct group *group = class_of(z, item->unit)->shard;

    return comm_start(group, &call, handle);
}

static status end_room(const struct zero *z, const struct residence *item)
{
    const struct tensor all = elements(
        z, item_data(z, item), 0,
        z->stage->shards.units[item->unit].gradients);

    return lives_end(all.data, tensor_bytes(&all),
                     "a room of a unit's gradients");
}

/* Sums of vectors: of an item, before its reduction starts; -1: of all. */
static status join(struct zero *z, int index)
{
    struct gradients *g = &z->stage->gradients;

    return gradients_join(g, index < 0 ? gradients_all(g)
                                       : z->stage->reduced.items[index].joined,
                          z->tensor);
}

size_t zero_join_bytes(const struct stage *stage, const struct group *tensor)
{
    const struct gradients *g = &stage->gradients;
    size_t bytes = 0;

    if (!stage_divides(stage, MEMORY_GRADIENTS))
        return gradients_message_bytes(g, gradients_all(g), tensor);
    for (int i = 0; i < stage->reduced.count; i++)
        bytes = most(bytes, gradients_message_bytes(
                                g, stage->reduced.items[i].joined, tensor));
    return bytes;
}

/* Sums of rounds wait for their siblings as the leaves of a micro-batch do. */
static status merge_rounds(struct zero *z)
{
    const struct gradients *g = &z->stage->gradients;
    const int64_t size = z->stage->level_elements;
    void *arena = z->stage->memory[MEMORY_GRADIENTS].data;

    z->level++;
    const bool all = g->program->sums.integer; /* whatever waits */
    for (int n = z->round++; all ? z->level > 1 : n & 1; n >>= 1) {
        const struct tensor left = elements(z, arena, (z->level - 2) * size,
                                            size);

        TRY(gradients_merge(g, left, elements(z, arena, (z->level - 1) * size,
                                              size)));
        z->level--;
    }
    return OK;
}

/* A second use of a parameter (a tied head) is cut as the unit, which is that
 * parameter alone. */
static status finish_gradients(struct zero *z)
{
    struct gradients *g = &z->stage->gradients;

    CHECK(!in_buckets(z) || z->level == 1);
    z->level = 0;
    TRY(gradients_read(g, in_buckets(z) ? z->stage->level_elements
                                        : g->program->params.gradients));
    for (int i = 0; i < z->stage->reduced.count; i++) {
        const struct residence *item = &z->stage->reduced.items[i];
        struct residence taker = {.unit = item->unit, .use = -1};

        if (item->use < 0) continue;
        const int to = gradient_taker(g->program, item->use);

        if (g->program->uses[to].number > 0) taker.use = to;
        const struct tensor sum = item_sum(z, &taker);

        if (sum.shape[0] == 0) continue;
        CHECK(z->stage->shards.units[item->unit].params == 1);
        TRY(g->kernels->add(g->stream, sum, sum, item_sum(z, item)));
    }
    return gradients_add_named(g);
}

/* ---- weights ---- */

static bool gathers(const struct zero *z)
{
    return stage_divides(z->stage, stage_reads(z->stage));
}

static void *weights_data(const struct zero *z)
{
    return z->stage->memory[stage_reads(z->stage)].data;
}

/* Elements before the unit that lie elsewhere, as codes. */
static int64_t gone(const struct zero *z, int unit)
{
    return coded_gone(&z->stage->coded,
                      z->stage->shards.units[unit].first_param);
}

static void *weights_unit(const struct zero *z, void *flat, int unit)
{
    return weights(z, flat,
                   z->stage->shards.units[unit].first - gone(z, unit), 0).data;
}

static struct tensor own_weights(const struct zero *z, int unit)
{
    const struct shards *s = &z->stage->shards;
    void *data = weights_data(z);

    const int64_t size = shard_all_weights(s, unit);

    if (gathers(z))
        return weights(z, data, s->units[unit].shard_at - gone(z, unit), size);
    return weights(z, weights_unit(z, data, unit),
                   shard_cuts(s, unit)[shard_rank(s, unit)] -
                       shard_weights_before(s, unit), size);
}

/* item -1: where the unit lies in the flat arena. */
static void *room_of(const struct zero *z, const struct instruction *i)
{
    void *rooms = z->stage->memory[MEMORY_GATHERED].data;

    if (shard_stays(&z->stage->shards, i->unit))
        return own_weights(z, i->unit).data;
    if (i->item < 0 && i->other >= 0)
        rooms = weights(z, rooms, z->stage->phases.at[i->other], 0).data;
    if (i->item < 0)
        return weights(z, rooms, z->stage->shards.units[i->unit].room_at, 0)
            .data;
    return weights(z, rooms, z->stage->gathered.items[i->item].offset, 0)
        .data;
}

/* Weights that are kept may be there since an evaluation. */
static status start_gather(struct zero *z, const struct instruction *i,
                           struct comm_handle *handle)
{
    void *room = room_of(z, i);
    const struct comm_call call =
        z->scales != NULL && z->stage->coded.own[i->unit] >= 0
            ? zero_codes_gather(z, i, room)
            : gather_call(z, i->unit, room, own_weights(z, i->unit));

    if (z->resident[i->unit]) return OK;
    z->resident[i->unit] = i->item < 0;
    return comm_start(class_of(z, i->unit)->shard, &call, handle);
}

static status release(struct zero *z, const struct instruction *i)
{
    const struct tensor all = weights(
        z, room_of(z, i), 0, z->stage->shards.units[i->unit].room);

    zero_codes_place(z, i, NULL);
    z->resident[i->unit] = false;
    if (shard_stays(&z->stage->shards, i->unit)) return OK;
    return lives_end(all.data, tensor_bytes(&all),
                     "a room of gathered weights");
}

/* The parts of this rank's shard, from the ranks that update them. */
static struct comm_call parts_gather(const struct zero *z, int unit)
{
    const struct shards *s = &z->stage->shards;
    if (coded_keeps(&z->stage->coded, unit)) return zero_codes_parts(z, unit);
    struct comm_call call = {
        .kind = COMM_ALL_GATHER, .out = own_weights(z, unit),
        .out_counts = shard_sizes(s, unit) +
                      shard_index(s, unit) * shard_class(s, unit)->parts};

    call.in = weights(z, call.out.data, shard_weights_before(s, unit),
                      shard_weights(s, unit));
    return call;
}

/* All shards, where every rank keeps them. */
static struct comm_call whole_gather(const struct zero *z, int unit)
{
    if (coded_keeps(&z->stage->coded, unit)) return zero_codes_shards(z, unit);
    return gather_call(z, unit, weights_unit(z, weights_data(z), unit),
                       own_weights(z, unit));
}

/* New weights of a unit, beside the updates of those that follow. */
static status start_regather(struct zero *z, const struct instruction *i,
                             struct comm_handle *handle)
{
    const struct zero_class *class = class_of(z, i->unit);
    const bool parts = i->resource == RESOURCE_COPIES;
    const struct comm_call call = parts ? parts_gather(z, i->unit)
                                        : whole_gather(z, i->unit);

    return comm_start(parts ? class->copies : class->shard, &call, handle);
}

static status regather(struct zero *z, int unit)
{
    const struct zero_class *class = class_of(z, unit);
    struct comm_call call;

    if (has_parts(z, unit)) {
        call = parts_gather(z, unit);
        TRY(comm_run(class->copies, &call));
    }
    if (gathers(z) || class->shard == NULL) return OK;
    call = whole_gather(z, unit);
    return comm_run(class->shard, &call);
}

void zero_forget(struct zero *z)
{
    for (int i = 0; i < z->stage->shards.count; i++) z->resident[i] = false;
}

status zero_weights(struct zero *z)
{
    const int count = z->stage->shards.count;
    const bool kept = z->stage->coded.kept;

    zero_forget(z);
    for (int i = 0; i < count && kept; i++) TRY(zero_codes_make(z, i));
    for (int i = 0; i < count; i++) TRY(regather(z, i));
    for (int i = 0; i < count && !kept; i++) TRY(zero_codes_make(z, i));
    return OK;
}

/* ---- instructions ---- */

static status begin_round(struct zero *z, int round)
{
    struct gradients *g = &z->stage->gradients;
    const bool gaps = g->program->sums.integer && !in_buckets(z);

    gradients_reset(g); /* they were read in place: gaps may hold anything */
    if (round == 0) z->round = z->level = 0;
    for (int i = 0; i < z->stage->shards.count && gaps; i++)
        TRY(clear_gaps(z, i, unit_in(z, g->root, i)));
    return OK;
}

status zero_act(struct zero *z, const struct instruction *i,
                struct comm_handle *handle)
{
    switch ((enum instruction_kind)i->kind) {
    case DO_ROUND:
        return begin_round(z, i->round);
    case DO_GATHER: return start_gather(z, i, handle);
    case DO_PLACE:
        zero_codes_place(z, i, room_of(z, i));
        return OK;
    case DO_RELEASE: return release(z, i);
    case DO_TAKE:
        return place_roots(z, &z->stage->reduced.items[i->item]);
    case DO_JOIN: return join(z, i->item);
    case DO_REDUCE: return start_reduce(z, i, handle);
    case DO_GIVE: return end_room(z, &z->stage->reduced.items[i->item]);
    case DO_SUM: return start_sum(z, i, handle);
    case DO_CLOSE:
        gradients_close(&z->stage->gradients);
        return OK;
    case DO_MERGE: return merge_rounds(z);
    case DO_SECOND: return finish_gradients(z);
    case DO_REGATHER: return start_regather(z, i, handle);
    case DO_ENCODE: return zero_codes_act(z, i);
    default: break;
    }
    CHECK(false);
    return OK;
}

/* ---- building ---- */

/* Nothing lives yet in what a micro-batch fills. */
static status fill_rooms(struct stage *stage)
{
    static const enum memory_owner rooms[] = {
        MEMORY_FRAME, MEMORY_PASS, MEMORY_LAYER_SCRATCH, MEMORY_GATHERED,
        MEMORY_BUCKETS, MEMORY_RETURNS};

    for (size_t i = 0; i < sizeof rooms / sizeof *rooms; i++)
        TRY(lives_dead(stage->memory[rooms[i]].data,
                       (int64_t)stage->memory[rooms[i]].bytes));
    return OK;
}

static void check_groups(const struct zero *z)
{
    const struct shards *s = &z->stage->shards;

    for (int i = 0; i < s->class_count; i++) {
        const struct group *shard = z->classes[i].shard;
        const struct shard_class *c = &s->classes[i];

        CHECK(shard == NULL || shard->size == c->ranks / c->parts);
        CHECK(shard == NULL || shard->rank == c->rank / c->parts);
    }
}

status zero_build(struct zero *z, struct stage *stage, struct team *team)
{
    const size_t units = (size_t)stage->shards.count;
    const size_t params = (size_t)stage->program.params.count;
    void *resident = NULL, *placed = NULL, *scales = NULL;

    *z = (struct zero){.stage = stage};
    z->tensor = team_group(team, AXIS_TENSOR);
    choose_groups(z, team);
    measure_scratch(z);
    check_groups(z);
    place_scratch(z);
    TRY(memory_take(units + 1, sizeof *z->resident, &resident));
    z->resident = resident;
    TRY(memory_take(params + 1, sizeof *z->placed, &placed));
    z->placed = placed;
    if (gathers(z) || stage->coded.whole) stage->run.params.placed = z->placed;
    if (stage->coded.params != NULL) {
        TRY(memory_take(params + 1, sizeof *z->scales, &scales));
        z->scales = scales;
        zero_codes_begin(z);
    }
    if (stage->coded.whole) zero_codes_place_whole(z);
    return check_lives() != CHECK_OFF ? fill_rooms(stage) : OK;
}

void zero_free(struct zero *z)
{
    if (z->stage == NULL) return;
    z->stage->run.params.placed = NULL;
    z->stage->run.params.scales = NULL;
    memory_free(z->resident);
    memory_free(z->placed);
    memory_free(z->scales);
    *z = (struct zero){0};
}
