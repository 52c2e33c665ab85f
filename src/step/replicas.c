/* SPDX-License-Identifier: Apache-2.0 */
/* replicas.c - checksums of what a rank holds, compared with those of the ranks
 * that must hold the same. */
#include "step/replicas.h"

#include <stdio.h>
#include "base/file.h"

enum { CODES_AT_ONCE = 256 };
/* The entry of gradients, which are no part of the state, is that of the copy
 * of the weights that kernels read. */
enum { ENTRY_COPY = INVENTORY_GRADIENT };

static int entry_of(int order, int kind)
{
    return order * INVENTORY_KINDS + kind;
}

/* ---- building ---- */

static size_t room_for(struct team *team, int entries)
{
    const struct tensor all = tensor_1d(NULL, DTYPE_F64, 2 * (int64_t)entries);
    const struct comm_call call = {.kind = COMM_ALL_REDUCE,
                                   .reduction = REDUCE_MAX, .out = all,
                                   .in = all};
    size_t most = 0;

    for (int axis = 0; axis < AXIS_COUNT; axis++) {
        const struct group *group = team_group(team, axis);
        const size_t bytes = group != NULL ? comm_scratch_bytes(group, &call)
                                           : 0;

        if (bytes > most) most = bytes;
    }
    return most;
}

status replicas_build(struct replicas *replicas,
                      const struct inventory *inventory,
                      const struct inventory_of *of)
{
    const int orders = inventory->whole.params.count;
    void *memory = NULL;

    *replicas = (struct replicas){
        .inventory = inventory, .stages = of->stages, .team = of->team,
        .stage_count = of->count, .entries = orders * INVENTORY_KINDS};
    TRY(memory_take((size_t)replicas->entries + 1, sizeof *replicas->held,
                    &memory));
    replicas->held = memory;
    TRY(memory_take(2 * (size_t)replicas->entries + 1,
                    sizeof *replicas->extremes, &memory));
    replicas->extremes = memory;
    replicas->scratch_bytes = room_for(of->team, replicas->entries);
    TRY(memory_take(replicas->scratch_bytes + 1, 1, &replicas->scratch));
    for (int i = 0; i < 3; i++) {
        TRY(memory_take((size_t)orders + 1, sizeof(uint32_t), &memory));
        replicas->gradients[i] = memory;
    }
    return OK;
}

void replicas_free(struct replicas *replicas)
{
    memory_free(replicas->held);
    memory_free(replicas->extremes);
    memory_free(replicas->scratch);
    for (int i = 0; i < 3; i++) memory_free(replicas->gradients[i]);
    *replicas = (struct replicas){.entries = 0};
}

/* ---- checksums ---- */

static uint32_t codes_digest(const struct replicas *r,
                             const struct inventory_span *span, uint32_t crc)
{
    const int64_t count = span->last - span->first;
    double values[CODES_AT_ONCE];

    for (int64_t at = 0; at < count; at += CODES_AT_ONCE) {
        const int64_t some = count - at < CODES_AT_ONCE ? count - at
                                                        : CODES_AT_ONCE;

        inventory_read(r->inventory, span, at, some, values);
        crc = crc32c(crc, values, (size_t)(some *
                                           dtype_bytes(r->inventory->dtype)));
    }
    return crc;
}

static uint32_t span_digest(const struct replicas *r,
                            const struct inventory_span *span, uint32_t crc)
{
    if (span->coded) return codes_digest(r, span, crc);
    return crc32c(crc, span->data, (size_t)((span->last - span->first) *
                                            dtype_bytes(span->dtype)));
}

/* Some elements [first, last) of a parameter more. */
static void hold(struct replica_entry *entry, const struct inventory_span *span,
                 axis_set divided, uint32_t digest)
{
    const bool first = entry->digest < 0;
    const int64_t range[] = {span->first, span->last};

    entry->divided = (first ? 0 : entry->divided) | divided;
    entry->digest = digest;
    entry->whole = first && span->first == 0 &&
                  span->last == span->param->elements;
    entry->place = crc32c(first ? 0 : entry->place, range, sizeof range);
    for (int axis = 1; axis < AXIS_COUNT; axis++)
        if (divided >> axis & 1)
            entry->place = crc32c(entry->place, &span->place->at[axis],
                                 sizeof span->place->at[axis]);
}

static uint32_t so_far(const struct replica_entry *entry)
{
    return entry->digest < 0 ? 0 : (uint32_t)entry->digest;
}

/* Where kernels read a copy of the weights in a narrow type. */
static bool has_copy(const struct stage *stage)
{
    return stage_reads(stage) != stage_keeps(stage) &&
           !stage_divides(stage, stage_reads(stage)) &&
           stage->host[stage_reads(stage)] != NULL;
}

static int64_t gone(const struct stage *stage, const struct param *param)
{
    return coded_gone(&stage->coded,
                      (int)(param - stage->program.params.items));
}

static char *copy_at(const struct stage *stage, const struct param *param)
{
    return (char *)stage->host[stage_reads(stage)] +
           (param->offset - gone(stage, param)) *
               dtype_bytes(stage->program.dtype);
}

static void hold_copies(struct replicas *r, const struct stage *stage)
{
    const struct program *p = &stage->program;

    if (!has_copy(stage)) return;
    for (int i = 0; i < p->params.count; i++) {
        const struct param *param = &p->params.items[i];
        struct replica_entry *entry = &r->held[entry_of(param->order,
                                                     ENTRY_COPY)];

        if (gone(stage, param) < 0) continue; /* made of masters anew */
        const struct inventory_span span = {.param = param,
                                            .place = &p->layout.place,
                                            .last = param->elements};

        hold(entry, &span, param_cut(&param->spec),
             crc32c(so_far(entry), copy_at(stage, param),
                    (size_t)(param->elements * dtype_bytes(p->dtype))));
    }
}

static void hold_all(struct replicas *r)
{
    for (int i = 0; i < r->entries; i++)
        r->held[i] = (struct replica_entry){.digest = -1};
    for (int i = 0; i < r->inventory->count; i++) {
        const struct inventory_span *span = &r->inventory->spans[i];
        struct replica_entry *entry = &r->held[entry_of(
            span->param->order, (int)span->kind)];

        if (span->kind != INVENTORY_GRADIENT)
            hold(entry, span, span->divided,
                 span_digest(r, span, so_far(entry)));
    }
    for (int i = 0; i < r->stage_count; i++) hold_copies(r, &r->stages[i]);
}

/* ---- comparing ---- */

/* Whether ranks of the axis have the same of it. Stages of a pipeline have the
 * same parameters in other units: only whole ones are cut alike. */
static bool is_shared(const struct replica_entry *entry, int axis)
{
    return entry->digest >= 0 && !(entry->divided >> axis & 1) &&
           (axis != AXIS_PIPE || entry->whole);
}

/* The first entry that differs between the ranks of the axis; `least` if none
 * before it does. */
static status compare_axis(struct replicas *r, int axis, int *least)
{
    const double none = -1e18;
    struct group *group = team_group(r->team, axis);
    const int64_t count = 2 * (int64_t)r->entries;
    double *most = r->extremes, *fewest = r->extremes + r->entries;

    if (group == NULL) return OK;
    for (int i = 0; i < r->entries; i++) {
        const bool shared = is_shared(&r->held[i], axis);

        most[i] = shared ? (double)r->held[i].digest : none;
        fewest[i] = shared ? -(double)r->held[i].digest : none;
    }
    const struct tensor all = tensor_1d(r->extremes, DTYPE_F64, count);
    const struct comm_call call = {
        .kind = COMM_ALL_REDUCE, .reduction = REDUCE_MAX, .out = all,
        .in = all, .scratch = r->scratch, .scratch_bytes = r->scratch_bytes};

    TRY(comm_run(group, &call));
    for (int i = 0; i < *least; i++)
        if (is_shared(&r->held[i], axis) && most[i] + fewest[i] != 0)
            *least = i;
    return OK;
}

status replicas_compare(struct replicas *replicas, int *entry)
{
    int least = replicas->entries;

    TRY(stages_fetch(replicas->stages, replicas->stage_count));
    hold_all(replicas);
    for (int axis = 1; axis < AXIS_COUNT; axis++)
        TRY(compare_axis(replicas, axis, &least));
    least = -least;
    TRY(team_most(replicas->team, &least));
    *entry = -least < replicas->entries ? -least : -1;
    return OK;
}

void replicas_name(const struct replicas *replicas, int entry,
                   char out[PARAM_NAME_BYTES + 32])
{
    const int order = entry / INVENTORY_KINDS, kind = entry % INVENTORY_KINDS;
    const struct inventory *h = replicas->inventory;
    const char *what = kind == ENTRY_COPY
                           ? "narrow weight"
                           : inventory_name(h, order,
                                            (enum inventory_kind)kind);

    snprintf(out, PARAM_NAME_BYTES + 32, "%.20s of %.95s",
             what != NULL ? what : "state",
             h->whole.params.items[order].name);
}

/* ---- whose is wrong ---- */

status votes_gather(struct team *team, struct replica_vote mine,
                    struct replica_vote *votes)
{
    struct group *world = team->world;

    if (world == NULL) {
        votes[0] = mine;
        return OK;
    }
    return comm_run_alone(world, (struct comm_call){
        .kind = COMM_ALL_GATHER, .in = tensor_1d(&mine, DTYPE_F64, 2),
        .out = tensor_1d(votes, DTYPE_F64, 2 * (int64_t)world->size)});
}

status replicas_vote(struct replicas *replicas, int entry,
                     struct replica_vote *votes)
{
    const struct replica_entry *mine = &replicas->held[entry];

    return votes_gather(replicas->team, (struct replica_vote){
        mine->place, (double)mine->digest}, votes);
}

static bool same_place(const struct replica_vote *a,
                       const struct replica_vote *b)
{
    return a->digest >= 0 && b->digest >= 0 && a->place == b->place;
}

bool replicas_outvoted(const struct replica_vote *votes, int ranks, int rank,
                       bool *sure)
{
    int all = 0, with = 0;

    *sure = false;
    for (int i = 0; i < ranks; i++)
        all += same_place(&votes[i], &votes[rank]);
    for (int i = 0; i < ranks; i++) {
        if (!same_place(&votes[i], &votes[rank])) continue;
        with = 0;
        for (int j = 0; j < ranks; j++)
            with += same_place(&votes[i], &votes[j]) &&
                    votes[i].digest == votes[j].digest;
        if (2 * with <= all) continue;
        *sure = true;
        return votes[i].digest != votes[rank].digest;
    }
    return false;
}

/* ---- gradients of repeated steps ---- */

void replicas_gradients(struct replicas *r, int pass)
{
    uint32_t *digests = r->gradients[pass];

    for (int i = 0; i < r->entries / INVENTORY_KINDS; i++) digests[i] = 0;
    for (int i = 0; i < r->inventory->count; i++) {
        const struct inventory_span *span = &r->inventory->spans[i];
        const int order = span->param->order;

        if (span->kind == INVENTORY_GRADIENT)
            digests[order] = span_digest(r, span, digests[order]);
    }
}

/* The first; the number of parameters: none does. */
static int first_of_own(const struct replicas *r, int a, int b)
{
    int least = 0;

    while (least < r->entries / INVENTORY_KINDS &&
           r->gradients[a][least] == r->gradients[b][least])
        least++;
    return least;
}

bool replicas_own_differ(const struct replicas *r, int a, int b)
{
    return first_of_own(r, a, b) < r->entries / INVENTORY_KINDS;
}

status replicas_passes(struct replicas *r, int a, int b, int *order)
{
    const int orders = r->entries / INVENTORY_KINDS;
    int least = -first_of_own(r, a, b);

    TRY(team_most(r->team, &least));
    *order = -least < orders ? -least : -1;
    return OK;
}

/* ---- drills ---- */

static void flip_first(const struct replicas *r, enum inventory_kind kind,
                       int bit)
{
    for (int i = 0; i < r->inventory->count; i++) {
        const struct inventory_span *span = &r->inventory->spans[i];

        unsigned char *at =
            span->coded ? span->codes.masters.lower.data : span->data;

        if (span->kind != kind || at == NULL) continue;
        *at ^= (unsigned char)(1 << bit);
        return;
    }
}

void replicas_flip(struct replicas *replicas)
{
    const struct stage *stage = &replicas->stages[0];

    if (!has_copy(stage) || gone(stage, stage->program.params.items) < 0)
        flip_first(replicas, INVENTORY_WEIGHT, 0);
    else *copy_at(stage, &stage->program.params.items[0]) ^= 1;
}

void replicas_flip_gradient(struct replicas *replicas, int bit)
{
    flip_first(replicas, INVENTORY_GRADIENT, bit);
}
