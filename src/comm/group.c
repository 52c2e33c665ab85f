/* SPDX-License-Identifier: Apache-2.0 */
/* group.c - ordered sets of ranks: building them, and agreeing in them. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include "base/arena.h"
#include "comm/flight.h"
#include "comm/library.h"
#include "comm/peers.h"
#include "comm/progress.h"
#include "comm/rank.h"

enum { LIMIT_MS_DEFAULT = 600000, AGREE_TEXT_BYTES = COMM_REASON_BYTES };

void comm_rank_init(struct comm_rank *self)
{
    traffic_init(&self->traffic);
    atomic_init(&self->waits_ns, 0);
    atomic_init(&self->holds_ns, 0);
}

void comm_rank_free(struct comm_rank *self)
{
    traffic_free(&self->traffic);
    memory_free(self->built);
    self->built = NULL;
    self->built_count = self->built_capacity = 0;
}

/* FNV-1a, 64 bits (Fowler, Noll, Vo): every member computes the same number
 * from the label and the members, without a message. */
static uint64_t hash_bytes(uint64_t hash, const void *bytes, size_t count)
{
    const unsigned char *byte = bytes;

    for (size_t i = 0; i < count; i++)
        hash = (hash ^ byte[i]) * 1099511628211u;
    return hash;
}

static uint64_t context_of(const struct group *group)
{
    uint64_t hash = hash_bytes(14695981039346656037u, group->label,
                               strlen(group->label) + 1);

    return hash_bytes(hash, group->members,
                      (size_t)group->size * sizeof *group->members);
}

/* The number of groups with this label and these members that the rank has
 * built before, and one more from now on. All members build them equally
 * often. */
static status count_built(struct comm_rank *self, uint64_t context, int *count)
{
    void *built;

    *count = 0;
    if (self->imagined) return OK;
    for (int i = 0; i < self->built_count; i++)
        if (self->built[i].context == context) {
            *count = self->built[i].count++;
            return OK;
        }
    if (self->built_count == self->built_capacity) {
        const int capacity = self->built_capacity ? 2 * self->built_capacity
                                                  : 16;

        built = self->built;
        TRY(memory_grow(&built, (size_t)capacity, sizeof *self->built));
        self->built = built;
        self->built_capacity = capacity;
    }
    self->built[self->built_count++] = (struct built){context, 1};
    return OK;
}

static status group_fill(struct group *group, const char *label,
                         const int *members, int world_rank)
{
    const size_t size = (size_t)group->size;

    snprintf(group->label, sizeof group->label, "%s", label);
    group->rank = -1;
    TRY(memory_take(size, sizeof *group->members, (void **)&group->members));
    /* An imagined rank sends nothing and needs no room for it: a plan imagines
     * a world of 16,384 ranks once for each that may be the largest. */
    for (int i = 0; i < CHANNEL_COUNT && !group->self->imagined; i++) {
        TRY(memory_take(size * MESSAGES_EACH, sizeof(struct message),
                        (void **)&group->messages[i]));
        TRY(memory_take(size, sizeof(struct parcel),
                        (void **)&group->parcels[i]));
    }
    TRY(progress_build(&group->progress));
    for (int i = 0; i < group->size; i++) {
        group->members[i] = members != NULL ? members[i] : i;
        if (group->members[i] == world_rank) group->rank = i;
    }
    if (group->rank < 0)
        FAIL(ERR_CONFIG, "group %s: rank %d is not one of its %d ranks", label,
             world_rank, group->size);
    group->context = context_of(group);
    return OK;
}

status group_build_world(struct group *world, const struct comm_ops *ops,
                         void *backend, struct comm_rank *self, int rank,
                         int size)
{
    *world = (struct group){
        .ops = ops, .backend = backend, .self = self, .size = size,
        .limit_ns = (int64_t)LIMIT_MS_DEFAULT * 1000000};
    self->world_size = size;
    TRY(group_fill(world, "world", NULL, rank));
    world->id = (struct group_id){GROUP_WORLD, 0};
    return OK;
}

status group_build(struct group *group, const struct group *world,
                   const char *label, const int *members, int size)
{
    *group = (struct group){
        .ops = world->ops, .backend = world->backend, .self = world->self,
        .size = size, .limit_ns = world->limit_ns};
    if (size < 1) FAIL(ERR_CONFIG, "group %s: %d ranks", label, size);
    TRY(group_fill(group, label, members, world->members[world->rank]));
    TRY(count_built(group->self, group->context, &group->incarnation));
    group->context = hash_bytes(group->context, &group->incarnation,
                                sizeof group->incarnation);
    return group->ops->open != NULL ? group->ops->open(group) : OK;
}

status group_build_aside(struct group *group, const struct group *world,
                         const char *label)
{
    void *memory;

    TRY(group_build(group, world, label, world->members, world->size));
    TRY(memory_take(1, sizeof *group->aside, &memory));
    group->aside = memory;
    comm_rank_init(group->aside);
    group->aside->world_size = world->size;
    group->self = group->aside;
    return OK;
}

void group_free(struct group *group)
{
    progress_free(group->progress);
    group_leave_library(group);
    group_leave_peers(group);
    if (group->link != NULL) group->ops->close(group);
    if (group->aside != NULL) comm_rank_free(group->aside);
    memory_free(group->aside);
    for (int i = 0; i < CHANNEL_COUNT; i++) {
        memory_free(group->messages[i]);
        memory_free(group->parcels[i]);
    }
    memory_free(group->members);
    *group = (struct group){0};
}

void group_limit_ms(struct group *group, int64_t limit_ms)
{
    group->limit_ns = limit_ms * 1000000;
}

void group_scratch(struct group *group, void *scratch, size_t bytes)
{
    group->scratch = scratch;
    group->scratch_bytes = bytes;
}

void group_nodes(struct group *world, int ranks)
{
    world->self->node = ranks;
}

void group_abort(struct group *group, const char *reason)
{
    group->ops->abort(group->backend, group->members[group->rank], reason);
}

/* The verdict that ranks exchange: the failure that explains the others. */
struct verdict {
    int32_t code, rank;
    char text[AGREE_TEXT_BYTES];
};

static bool verdict_worse(const struct verdict *a, const struct verdict *b)
{
    if (b->code == OK || a->code == OK) return a->code != OK;
    if ((a->code == ERR_PEER) != (b->code == ERR_PEER))
        return b->code == ERR_PEER;
    return a->rank < b->rank;
}

/* Up a binomial tree to rank 0, and down again. */
static status verdict_exchange(struct operation *op, struct verdict *verdict)
{
    const int size = op->group->size, me = op->group->rank;
    struct verdict other = {0};
    int step = 1;

    for (; step < size && me % (2 * step) == 0; step *= 2) {
        const struct transfer t = {.to = -1, .from = me + step, .in = &other,
                                   .in_bytes = sizeof other};

        if (me + step >= size) continue;
        TRY(transfer_run(op, &t));
        if (verdict_worse(&other, verdict)) *verdict = other;
    }
    if (me != 0) {
        const struct transfer up = {.to = me - step, .out = verdict,
                                    .out_bytes = sizeof *verdict, .from = -1};
        const struct transfer down = {.to = -1, .from = me - step,
                                      .in = verdict,
                                      .in_bytes = sizeof *verdict};

        TRY(transfer_run(op, &up));
        TRY(transfer_run(op, &down));
    }
    for (step /= 2; step >= 1; step /= 2) {
        const struct transfer t = {.to = me + step, .out = verdict,
                                   .out_bytes = sizeof *verdict, .from = -1};

        if (me + step < size) TRY(transfer_run(op, &t));
    }
    return OK;
}

bool comm_names_rank(status code, int rank)
{
    switch (code) {
    case ERR_MEMORY: case ERR_IO: case ERR_DEVICE: case ERR_PEER:
        return true;
    default:
        return rank > 0;
    }
}

status comm_agree(struct group *group, status mine)
{
    struct comm_call call = {.kind = COMM_AGREE};
    struct verdict verdict = {.code = (int32_t)mine,
                              .rank = group->members[group->rank]};
    struct operation operation = {
        .group = group, .call = &call, .tag = group->calls[CHANNEL_NOW]++};
    const int me = verdict.rank;
    status result;

    group->self->agreed = false;
    if (mine != OK)
        snprintf(verdict.text, sizeof verdict.text, "%s", status_message());
    const uint64_t entry = flight_enter(&operation);

    result = verdict_exchange(&operation, &verdict);
    flight_leave(entry, &operation, result);
    operation_count(&operation);
    TRY(result);
    if (verdict.code == OK) return OK;
    group->self->agreed = group->size == group->self->world_size;
    if (verdict.rank == me) return status_pass(mine, __FILE__, __LINE__);
    if (!comm_names_rank((status)verdict.code, verdict.rank))
        FAIL((status)verdict.code, "%s", verdict.text);
    FAIL((status)verdict.code, "rank %d: %s", (int)verdict.rank, verdict.text);
}
