/* SPDX-License-Identifier: Apache-2.0 */
/* zero.c - the messages of data parallelism, and what the ranks divide. */
#include "step/zero.h"

#include <string.h>

#include "comm/lives.h"

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
    return typed(data, program_real(&z->stage->program), first, count);
}

/* A view of weights as kernels read them. */
static struct tensor weights(const struct zero *z, void *data, int64_t first,
                             int64_t count)
{
    return typed(data, z->stage->program.dtype, first, count);
}

/* The number of gradient elements that this rank owns. */
static int64_t own_size(const struct zero *z, int unit)
{
    return shard_gradients(&z->stage->shards, unit);
}

static const struct zero_class *class_of(const struct zero *z, int unit)
{
    return &z->classes[z->stage->shards.units[unit].class];
}

/* Whether ranks add anything up, or divide it. */
static bool has_peers(const struct zero *z)
{
    for (int i = 0; i < z->stage->shards.class_count; i++)
        if (z->classes[i].shard != NULL || z->classes[i].copies != NULL)
            return true;
    return false;
}

/* The own part of a unit's gradients, which lie whole at `data`. */
static struct tensor own_of(const struct zero *z, int unit, void *data)
{
    const struct shards *s = &z->stage->shards;

    return elements(z, data, shard_gradient_cuts(s, unit)[shard_rank(s, unit)],
                    own_size(z, unit));
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
 * the order of the streams. */
static int64_t second_at(const struct zero *z, int stream)
{
    const struct program *p = &z->stage->program;
    int64_t at = z->stage->shards.gradients;

    for (int i = 0; i < stream; i++)
        if (p->streams[i].use > 0)
            at += param_room(own_size(z, shard_unit_of(&z->stage->shards,
                                                       p->streams[i].param)));
    return at;
}

/* Where this rank's shard of a sum lies among divided gradients. */
static struct tensor shard_of(const struct zero *z,
                              const struct residence *item)
{
    const int64_t at = item->stream < 0
                           ? z->stage->shards.units[item->unit].gradient_at
                           : second_at(z, item->stream);

    return elements(z, z->stage->memory[MEMORY_GRADIENTS].data,
                    z->level * z->stage->level_elements + at,
                    own_size(z, item->unit));
}

/* The whole unit, not yet reduced. */
static void *item_data(const struct zero *z, const struct residence *item)
{
    const struct gradients *g = &z->stage->gradients;

    if (in_buckets(z) && shard_stays(&z->stage->shards, item->unit))
        return shard_of(z, item).data;
    if (in_buckets(z))
        return elements(z, z->stage->memory[MEMORY_BUCKETS].data, item->offset,
                        0).data;
    if (item->stream >= 0) return gradient_root(g, item->stream).data;
    return unit_in(z, g->root, item->unit);
}

/* Where this rank's shard of the sum goes. */
static struct tensor item_own(const struct zero *z,
                              const struct residence *item)
{
    if (!in_buckets(z)) return own_of(z, item->unit, item_data(z, item));
    return shard_of(z, item);
}

/* ---- calls ---- */

/* stream: of a second use, or -1. */
static struct comm_call scatter_call(const struct zero *z, int unit,
                                     int stream, void *data,
                                     struct tensor own)
{
    const struct gradients *g = &z->stage->gradients;
    const struct shards *s = &z->stage->shards;
    const struct zero_class *class = class_of(z, unit);

    return (struct comm_call){
        .kind = COMM_REDUCE_SCATTER, .algorithm = ALGORITHM_ORDERED,
        .reduction = REDUCE_SUM, .out = own,
        .in = elements(z, data, 0, s->units[unit].gradients),
        .in_counts = shard_gradient_sizes(s, unit),
        .leaves = gradient_leaves(g),
        .root_stride = gradient_root_stride(g, stream),
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
                                   const struct zero_class *class, int stream,
                                   struct tensor values)
{
    struct comm_call call = sum_call(class, values);

    if (class->shard != NULL) return call;
    call.leaves = gradient_leaves(&z->stage->gradients);
    call.root_stride = gradient_root_stride(&z->stage->gradients, stream);
    return call;
}

static struct comm_call gather_call(const struct zero *z, int unit,
                                    void *data, struct tensor own)
{
    const struct shards *s = &z->stage->shards;

    return (struct comm_call){
        .kind = COMM_ALL_GATHER, .in = own,
        .out = weights(z, data, 0, s->units[unit].elements),
        .out_counts = shard_sizes(s, unit)};
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
            roots_call(z, class, -1, own_of(z, i, NULL));

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
        *background += class->scratch_bytes[SHARD] +
                       class->scratch_bytes[COPIES];
    }
}

/* ---- gradients ---- */

/* Nothing but whole blocks of the norm is added, but gaps lie between
 * parameters: what waits there must be a number. */
static void clear_gaps(const struct zero *z, int unit, void *data)
{
    const struct shard_unit *u = &z->stage->shards.units[unit];
    const size_t real = (size_t)dtype_bytes(program_real(&z->stage->program));

    for (int i = 0; i < u->params; i++) {
        const struct param *p =
            &z->stage->program.params.items[u->first_param + i];
        const int64_t end = p->gradient - u->gradient + p->elements;
        const int64_t room = param_gradient_room(p) - p->elements;

        if (!param_has_gradient(p)) continue;
        memset((char *)data + (size_t)end * real, 0, (size_t)room * real);
    }
}

/* Tells the streams of an item where their roots go. */
static void place_roots(struct zero *z, const struct residence *item)
{
    const struct program *p = &z->stage->program;
    const struct shard_unit *u = &z->stage->shards.units[item->unit];
    void *data = item_data(z, item);

    clear_gaps(z, item->unit, data);
    for (int i = 0; i < p->stream_count; i++) {
        const struct param *param = &p->params.items[p->streams[i].param];

        if (item->stream >= 0 ? i != item->stream
                              : p->streams[i].use > 0 ||
                                    shard_unit_of(&z->stage->shards,
                                                  p->streams[i].param) !=
                                        item->unit)
            continue;
        z->stage->gradients.states[i].placed =
            elements(z, data, param->gradient - u->gradient, 0).data;
    }
}

static status start_sum(struct zero *z, int index)
{
    const struct residence *item = &z->stage->reduced.items[index];
    const struct zero_class *class = class_of(z, item->unit);
    const struct tensor own = item_own(z, item);
    const struct comm_call call = roots_call(z, class, item->stream, own);

    if (class->copies == NULL || own.shape[0] == 0) return OK;
    return comm_start(class->copies, &call, &z->sums[index].sum);
}

static status start_reduce(struct zero *z, int index)
{
    const struct residence *item = &z->stage->reduced.items[index];
    const struct zero_class *class = class_of(z, item->unit);
    const struct comm_call call = scatter_call(
        z, item->unit, item->stream, item_data(z, item), item_own(z, item));

    z->sums[index].started = true;
    if (class->shard == NULL) return start_sum(z, index);
    return comm_start(class->shard, &call, &z->sums[index].scatter);
}

static status end_room(const struct zero *z, const struct residence *item)
{
    const struct tensor all = elements(
        z, item_data(z, item), 0,
        z->stage->shards.units[item->unit].gradients);

    if (!in_buckets(z)) return OK;
    return lives_end(all.data, all.shape[0] * dtype_bytes(all.dtype),
                     "a room of a unit's gradients");
}

/* Ends the reduce-scatter, after which the unit's room is free. */
static status end_scatter(struct zero *z, int index)
{
    if (z->sums[index].scattered) return OK;
    const struct residence *item = &z->stage->reduced.items[index];

    z->sums[index].scattered = true;
    if (class_of(z, item->unit)->shard == NULL) return OK;
    TRY(comm_wait(&z->sums[index].scatter));
    TRY(end_room(z, item));
    return start_sum(z, index);
}

/* Vectors of an item, before its reduction may start. */
static status join_item(struct zero *z, int index)
{
    return gradients_join(&z->stage->gradients,
                          z->stage->reduced.items[index].joined, z->tensor);
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

/* Rooms of buckets are given on before a round ends: theirs were joined as they
 * were complete. */
status zero_join(struct zero *z)
{
    struct gradients *g = &z->stage->gradients;

    if (!in_buckets(z)) TRY(gradients_join(g, gradients_all(g), z->tensor));
    gradients_close(g);
    return OK;
}

void zero_round_begin(struct zero *z, int micro_batches, bool first)
{
    z->passes = 0;
    z->micro_batches = micro_batches;
    if (first) z->round = z->level = 0;
    for (int i = 0; i < z->stage->reduced.count; i++)
        z->sums[i].started = z->sums[i].scattered = false;
}

/* Sums of rounds wait for their siblings as the leaves of a micro-batch do. */
static status merge_rounds(struct zero *z)
{
    const struct gradients *g = &z->stage->gradients;
    const int64_t size = z->stage->level_elements;
    void *arena = z->stage->memory[MEMORY_GRADIENTS].data;

    z->level++;
    for (int n = z->round++; n & 1; n >>= 1) {
        const struct tensor left = elements(z, arena, (z->level - 2) * size,
                                            size);

        TRY(g->kernels->add(g->stream, left, left,
                            elements(z, arena, (z->level - 1) * size, size)));
        z->level--;
    }
    return OK;
}

status zero_round_end(struct zero *z)
{
    const int count = z->stage->reduced.count;

    for (int i = 0; i < count; i++)
        if (!z->sums[i].started) TRY(start_reduce(z, i));
    for (int i = 0; i < count; i++) TRY(end_scatter(z, i));
    for (int i = 0; i < count; i++) TRY(comm_wait(&z->sums[i].sum));
    return in_buckets(z) ? merge_rounds(z) : OK;
}

/* A second use of a parameter (a tied head) is cut as the unit, which is that
 * parameter alone. */
status zero_gradients(struct zero *z)
{
    struct gradients *g = &z->stage->gradients;

    CHECK(!in_buckets(z) || z->level == 1);
    z->level = 0;
    for (int i = 0; i < z->stage->reduced.count; i++) {
        const struct residence *item = &z->stage->reduced.items[i];
        const struct residence first = {.unit = item->unit, .stream = -1};

        if (item->stream < 0 || own_size(z, item->unit) == 0) continue;
        CHECK(z->stage->shards.units[item->unit].params == 1);
        TRY(g->kernels->add(g->stream, item_own(z, &first),
                            item_own(z, &first), item_own(z, item)));
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

static void *weights_unit(const struct zero *z, void *flat, int unit)
{
    return weights(z, flat, z->stage->shards.units[unit].first, 0).data;
}

static struct tensor own_weights(const struct zero *z, int unit)
{
    const struct shards *s = &z->stage->shards;
    void *data = weights_data(z);

    const int64_t size = shard_weights(s, unit);

    if (gathers(z)) return weights(z, data, s->units[unit].at, size);
    return weights(z, weights_unit(z, data, unit),
                   shard_cuts(s, unit)[shard_rank(s, unit)], size);
}

static void *room_of(const struct zero *z, const struct residence *item)
{
    void *rooms = z->stage->memory[MEMORY_GATHERED].data;

    if (shard_stays(&z->stage->shards, item->unit))
        return own_weights(z, item->unit).data;
    if (!z->stage->request.reshard) return weights_unit(z, rooms, item->unit);
    return weights(z, rooms, item->offset, 0).data;
}

/* In training F leaves the loss to B. */
static bool is_idle(const struct zero *z, const struct residence *item)
{
    return item->first < z->stage->frame.forward_end &&
           z->stage->run.gradients != NULL &&
           residency_is_loss(&z->stage->program,
                             &z->stage->frame.events[item->first]);
}

static void place_weights(struct zero *z, const struct residence *item,
                          void *data)
{
    const struct shard_unit *u = &z->stage->shards.units[item->unit];

    for (int i = u->first_param; i < u->first_param + u->params; i++)
        z->placed[i] =
            data == NULL
                ? NULL
                : weights(z, data, z->stage->program.params.items[i].offset -
                                       u->first, 0).data;
}

static status start_gather(struct zero *z, int index)
{
    const struct residence *item = &z->stage->gathered.items[index];
    struct group *shard = class_of(z, item->unit)->shard;
    const struct comm_call call = gather_call(
        z, item->unit, room_of(z, item), own_weights(z, item->unit));

    if (is_idle(z, item) || z->resident[item->unit] || shard == NULL)
        return OK;
    z->resident[item->unit] = !z->stage->request.reshard;
    return comm_start(shard, &call, &z->gathers[index]);
}

static status before_weights(struct zero *z, int event)
{
    const struct residency *r = &z->stage->gathered;

    for (int i = 0; i < r->count; i++)
        if (r->items[i].begin == event) TRY(start_gather(z, i));
    for (int i = 0; i < r->count; i++) {
        if (r->items[i].first != event || is_idle(z, &r->items[i])) continue;
        TRY(comm_wait(&z->gathers[i]));
        place_weights(z, &r->items[i], room_of(z, &r->items[i]));
    }
    return OK;
}

static status end_weights(struct zero *z, const struct residence *item)
{
    const struct tensor all = weights(
        z, room_of(z, item), 0, z->stage->shards.units[item->unit].elements);

    place_weights(z, item, NULL);
    if (!z->stage->request.reshard ||
        shard_stays(&z->stage->shards, item->unit))
        return OK;
    return lives_end(all.data, all.shape[0] * dtype_bytes(all.dtype),
                     "a room of gathered weights");
}

static status after_weights(struct zero *z, int event)
{
    const struct residency *r = &z->stage->gathered;

    for (int i = 0; i < r->count; i++)
        if (r->items[i].last == event) TRY(end_weights(z, &r->items[i]));
    return OK;
}

status zero_weights(struct zero *z)
{
    const struct shards *s = &z->stage->shards;
    void *data = weights_data(z);

    for (int i = 0; i < s->count; i++) z->resident[i] = false;
    for (int i = 0; i < s->count && !gathers(z); i++) {
        struct group *shard = class_of(z, i)->shard;
        const struct comm_call call = gather_call(
            z, i, weights_unit(z, data, i), own_weights(z, i));

        if (shard != NULL) TRY(comm_run(shard, &call));
    }
    return OK;
}

/* ---- the watch ---- */

static status before_gradients(struct zero *z, int event)
{
    const struct residency *r = &z->stage->reduced;

    if (event == z->stage->frame.forward_end) z->passes++;
    for (int i = 0; i < r->count && in_buckets(z); i++)
        if (r->items[i].end == event) TRY(end_scatter(z, i));
    for (int i = 0; i < r->count && in_buckets(z); i++)
        if (r->items[i].first == event) place_roots(z, &r->items[i]);
    return OK;
}

static status before_event(void *argument, int event)
{
    struct zero *z = argument;

    if (gathers(z)) TRY(before_weights(z, event));
    if (z->stage->run.gradients == NULL) return OK;
    return before_gradients(z, event);
}

static status after_event(void *argument, int event)
{
    struct zero *z = argument;
    const struct residency *r = &z->stage->reduced;

    if (gathers(z)) TRY(after_weights(z, event));
    if (!z->overlaps || z->stage->run.gradients == NULL ||
        z->passes < z->micro_batches)
        return OK;
    for (int i = 0; i < r->count; i++) {
        if (r->items[i].last != event) continue;
        if (in_buckets(z)) TRY(join_item(z, i));
        TRY(start_reduce(z, i));
    }
    return OK;
}

/* ---- building ---- */

static status take(int count, size_t bytes, void **out)
{
    return memory_take((size_t)count + 1, bytes, out);
}

/* Nothing lives yet in what a micro-batch fills. */
static void fill_rooms(struct stage *stage)
{
    static const enum memory_owner rooms[] = {
        MEMORY_FRAME, MEMORY_LAYER_SCRATCH, MEMORY_GATHERED, MEMORY_BUCKETS,
        MEMORY_RETURNS};

    for (size_t i = 0; i < sizeof rooms / sizeof *rooms; i++)
        check_fill(stage->memory[rooms[i]].data,
                   (int64_t)stage->memory[rooms[i]].bytes, FILL_DEAD);
}

static void check_groups(const struct zero *z)
{
    const struct shards *s = &z->stage->shards;

    for (int i = 0; i < s->class_count; i++) {
        const struct group *shard = z->classes[i].shard;

        CHECK(shard == NULL || shard->size == s->classes[i].ranks);
        CHECK(shard == NULL || shard->rank == s->classes[i].rank);
    }
}

status zero_build(struct zero *z, struct stage *stage, struct team *team)
{
    void *sums = NULL, *gather = NULL, *resident = NULL, *placed = NULL;

    *z = (struct zero){.stage = stage};
    z->tensor = team_group(team, AXIS_TENSOR);
    choose_groups(z, team);
    measure_scratch(z);
    check_groups(z);
    place_scratch(z);
    z->overlaps = stage->request.backward == BACKWARD_FUSED && has_peers(z) &&
                  (z->tensor == NULL || in_buckets(z)) &&
                  team_group(team, AXIS_CONTEXT) == NULL;
    CHECK(z->overlaps || !in_buckets(z));
    TRY(take(stage->reduced.count, sizeof *z->sums, &sums));
    z->sums = sums;
    TRY(take(stage->gathered.count, sizeof *z->gathers, &gather));
    z->gathers = gather;
    TRY(take(stage->shards.count, sizeof *z->resident, &resident));
    z->resident = resident;
    TRY(take(stage->program.params.count, sizeof *z->placed, &placed));
    z->placed = placed;
    if (gathers(z)) stage->run.placed = z->placed;
    if (check_lives() != CHECK_OFF) fill_rooms(stage);
    z->watch = (struct run_watch){before_event, after_event, z};
    stage->run.watch = &z->watch;
    return OK;
}

static bool is_open(const struct comm_handle *handle)
{
    return handle->group != NULL;
}

/* Aborts the group and waits for the call. Otherwise the other ranks would wait
 * for this one until the time-out. */
static void end_handle(struct zero *z, struct comm_handle *handle)
{
    char reason[COMM_REASON_BYTES];

    (void)z;
    if (!is_open(handle)) return;
    snprintf(reason, sizeof reason, "%s", status_message());
    group_abort(handle->group, reason);
    (void)comm_wait(handle);
}

void zero_free(struct zero *z)
{
    if (z->stage == NULL) return;
    for (int i = 0; z->sums != NULL && i < z->stage->reduced.count; i++) {
        end_handle(z, &z->sums[i].scatter);
        end_handle(z, &z->sums[i].sum);
    }
    for (int i = 0; z->gathers != NULL && i < z->stage->gathered.count; i++)
        end_handle(z, &z->gathers[i]);
    z->stage->run.placed = NULL;
    z->stage->run.watch = NULL;
    memory_free(z->sums);
    memory_free(z->gathers);
    memory_free(z->resident);
    memory_free(z->placed);
    *z = (struct zero){0};
}
