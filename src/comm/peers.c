/* SPDX-License-Identifier: Apache-2.0 */
/* peers.c - ranks find out whose memory of GPUs they can read. */
#include "comm/peer_link.h"

#include <stdio.h>
#include <string.h>
#include "base/arena.h"
#include "comm/rank.h"

enum { WORLD_MOST = 256 };

/* ---- who can ---- */

static status gather_bytes(struct group *world, void *all, const void *own,
                           size_t bytes)
{
    const int64_t count = (int64_t)(bytes / sizeof(int64_t));

    CHECK(bytes % sizeof(int64_t) == 0);
    return comm_all_gather(
        world, tensor_1d(all, DTYPE_I64, count * world->size),
        tensor_1d((void *)(uintptr_t)own, DTYPE_I64, count));
}

static void note_why(struct peers *peers, int rank)
{
    if (peers->why[0] == '\0' && rank >= 0)
        snprintf(peers->why, sizeof peers->why, "rank %d: %s", rank,
                 status_message());
    else if (peers->why[0] == '\0')
        snprintf(peers->why, sizeof peers->why, "%s", status_message());
    status_clear();
}

/* Opens what others show; a rank that cannot says why. */
static void meet_all(struct peers *peers, int64_t *reads)
{
    for (int i = 0; i < peers->world->size; i++) {
        const status result = device_meet(peers->device, &peers->shown[i],
                                          &peers->met[i]);

        reads[i] = result == OK;
        if (result != OK) note_why(peers, i);
    }
}

static status take_all(struct peers *peers)
{
    const size_t size = (size_t)peers->world->size;
    void *memory;

    TRY(memory_take(size, sizeof *peers->shown, &memory));
    peers->shown = memory;
    TRY(memory_take(size, sizeof *peers->met, &memory));
    peers->met = memory;
    TRY(memory_take(size * size, 1, &memory));
    peers->reach = memory;
    return OK;
}

static status learn(struct peers *peers, int64_t *reads)
{
    const int size = peers->world->size, me = peers->world->rank;
    struct peer_shown *own = &peers->shown[me];

    if (device_show(peers->device, own) != OK) note_why(peers, -1);
    TRY(gather_bytes(peers->world, peers->shown, own, sizeof *own));
    meet_all(peers, reads + (size_t)me * (size_t)size);
    TRY(gather_bytes(peers->world, reads, reads + (size_t)me * (size_t)size,
                     (size_t)size * sizeof *reads));
    for (int i = 0; i < size * size; i++) peers->reach[i] = reads[i] != 0;
    return device_shown(peers->device, own);
}

status peers_build(struct peers **out, struct group *world,
                   struct device *device)
{
    const size_t size = (size_t)world->size;
    struct peers *peers;
    int64_t *reads = NULL;
    void *memory;
    status result;

    *out = NULL;
    TRY(memory_take(1, sizeof *peers, &memory));
    peers = memory;
    *peers = (struct peers){.world = world, .device = device, .failed = true};
    *out = peers;
    if (world->size > WORLD_MOST) {
        snprintf(peers->why, sizeof peers->why, "there are %d ranks, at most "
                 "%d read each other", world->size, WORLD_MOST);
        return OK;
    }
    TRY(take_all(peers));
    TRY(memory_take(size * size, sizeof *reads, (void **)&reads));
    result = learn(peers, reads);
    memory_free(reads);
    peers->failed = result != OK;
    return result == OK ? OK : status_pass(result, __FILE__, __LINE__);
}

const char *peers_why(const struct peers *peers)
{
    return peers->why;
}

static void part_all(struct peers *peers)
{
    for (int i = 0; peers->met != NULL && i < peers->world->size; i++)
        device_part(peers->device, &peers->met[i]);
}

status peers_part(struct peers *peers)
{
    if (peers == NULL || peers->failed) return OK;
    part_all(peers);
    peers->failed = true;
    return comm_agree(peers->world, OK);
}

void peers_free(struct peers *peers)
{
    if (peers == NULL) return;
    part_all(peers);
    if (peers->shown != NULL)
        device_show_end(peers->device, &peers->shown[peers->world->rank]);
    memory_free(peers->shown);
    memory_free(peers->met);
    memory_free(peers->reach);
    memory_free(peers);
}

static bool reach(const struct peers *peers, int reader, int read)
{
    return peers->reach != NULL &&
           peers->reach[reader * peers->world->size + read];
}

/* Whether two ranks of the group read each other. */
static bool is_near(const struct peers *peers, const struct group *group,
                    int a, int b)
{
    return reach(peers, group->members[a], group->members[b]) &&
           reach(peers, group->members[b], group->members[a]);
}

static enum peers_use use_of(const struct peers *peers,
                             const struct group *group)
{
    bool all = true, some = false;

    for (int i = 0; i < group->size; i++)
        for (int j = 0; j < group->size; j++) {
            const bool near = is_near(peers, group, i, j);

            all = all && near;
            some = some || (near && i == group->rank && i != j);
        }
    return all ? PEERS_ALL : some ? PEERS_SOME : PEERS_NONE;
}

status group_use_peers(struct group *group, struct peers *peers, int number,
                       enum peers_use *out)
{
    const size_t size = (size_t)group->size;
    struct peer_link *link;
    void *memory;

    *out = number < CALL_EVENTS / CHANNEL_COUNT ? use_of(peers, group)
                                                : PEERS_NONE;
    if (*out == PEERS_NONE) return OK;
    TRY(memory_take(1, sizeof *link, &memory));
    group->peers = link = memory;
    *link = (struct peer_link){.peers = peers, .number = number,
                               .all = *out == PEERS_ALL};
    TRY(memory_take(size, sizeof *link->near, &memory));
    link->near = memory;
    for (int i = 0; i < group->size; i++)
        link->near[i] = is_near(peers, group, group->rank, i);
    for (int i = 0; i < CHANNEL_COUNT; i++) {
        TRY(memory_take(size, sizeof(struct talk), &memory));
        link->mine[i] = memory;
        TRY(memory_take(size, sizeof(struct talk), &memory));
        link->theirs[i] = memory;
    }
    return OK;
}

void group_leave_peers(struct group *group)
{
    struct peer_link *link = group->peers;

    for (int i = 0; link != NULL && i < CHANNEL_COUNT; i++) {
        memory_free(link->mine[i]);
        memory_free(link->theirs[i]);
    }
    if (link != NULL) memory_free(link->near);
    memory_free(link);
    group->peers = NULL;
}
