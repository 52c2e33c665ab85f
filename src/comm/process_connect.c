/* SPDX-License-Identifier: Apache-2.0 */
/* process_connect.c - a rank goes to the meeting and connects to all others:
 * it calls those before it, and is called by those after it. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include "base/arena.h"
#include "base/clock.h"
#include "comm/process_world.h"

/* A door of its own, on the side of this machine that the meeting is on. */
static status open_door(struct door *door,
                        const struct process_identity *identity)
{
    char address[DOOR_ADDRESS_BYTES] = "127.0.0.1:0";

    if (!door_is_loopback(identity->meet))
        TRY(door_near_side(identity->meet, address));
    TRY(door_open(door, address, &identity->token, identity->job));
    return OK;
}

static struct visitor visitor_of(const struct process_identity *identity,
                                 enum door_purpose purpose)
{
    return (struct visitor){.purpose = purpose, .rank = identity->rank,
                            .size = identity->size, .job = identity->job,
                            .generation = identity->generation};
}

/* The addresses of all ranks. */
static status meet(const struct process_identity *identity,
                   const struct door *door, char *addresses, int64_t limit_ms)
{
    const int64_t end = clock_ns() + limit_ms * 1000000;
    struct visitor self = visitor_of(identity, DOOR_MEET);
    int descriptor;
    status result;

    memcpy(self.address, door->address, sizeof self.address);
    TRY(door_knock(&descriptor, identity->meet, &self, &identity->token,
                   limit_ms, NULL));
    result = door_read(descriptor, addresses,
                       (size_t)identity->size * DOOR_ADDRESS_BYTES, end);
    close(descriptor);
    return result == OK ? OK : status_pass(result, __FILE__, __LINE__);
}

static void call_answer(struct process_world *world,
                        const struct visitor *visitor, int descriptor,
                        int *missing)
{
    const struct process_identity *me = &world->identity;
    char why[DOOR_SENTENCE_BYTES] = "";

    if (visitor->purpose != DOOR_LINK || visitor->size != me->size ||
        visitor->generation != me->generation)
        snprintf(why, sizeof why, "this is rank %d of %d in generation %llu",
                 me->rank, me->size, (unsigned long long)me->generation);
    else if (visitor->rank <= me->rank || visitor->rank >= me->size ||
             world->links[visitor->rank].descriptor >= 0)
        snprintf(why, sizeof why, "rank %d is not expected here",
                 visitor->rank);
    if (door_answer(&descriptor, why) != OK) {
        status_clear();
        return;
    }
    if (descriptor < 0) return;
    world->links[visitor->rank].descriptor = descriptor;
    --*missing;
}

static status fail_missing(const struct process_world *world, int64_t limit_ms)
{
    int first = world->identity.rank + 1;

    while (first < world->identity.size - 1 &&
           world->links[first].descriptor >= 0)
        first++;
    FAIL(ERR_PEER, "rank %d has not connected within %.1f s", first,
         1e-3 * (double)limit_ms);
}

/* Ranks after this one call it. */
static status be_called(struct process_world *world, struct door *door,
                        int64_t limit_ms)
{
    const int64_t end = clock_ns() + limit_ms * 1000000;
    int missing = world->identity.size - 1 - world->identity.rank;
    struct pollfd polls[DOOR_POLLS];
    struct visitor visitor;
    int descriptor;

    while (missing > 0) {
        if (clock_ns() >= end) return fail_missing(world, limit_ms);
        poll(polls, (nfds_t)door_polls(door, polls), 50);
        while (door_step(door, &visitor, &descriptor))
            call_answer(world, &visitor, descriptor, &missing);
    }
    return OK;
}

static status connect_all(struct process_world *world, struct door *door,
                          int64_t limit_ms)
{
    const struct process_identity *me = &world->identity;
    const struct visitor self = visitor_of(me, DOOR_LINK);
    char *addresses = NULL;
    status result = OK;

    TRY(memory_take((size_t)me->size, DOOR_ADDRESS_BYTES,
                    (void **)&addresses));
    TRY_GOTO(done, result, meet(me, door, addresses, limit_ms));
    for (int i = 0; i < me->rank; i++) {
        char *address = addresses + (size_t)i * DOOR_ADDRESS_BYTES;

        address[DOOR_ADDRESS_BYTES - 1] = '\0';
        TRY_GOTO(done, result, door_knock(&world->links[i].descriptor,
                                          address, &self, &me->token,
                                          limit_ms, NULL));
    }
    result = be_called(world, door, limit_ms);
done:
    memory_free(addresses);
    return result;
}

status process_connect(struct process_world *world, int64_t limit_ms)
{
    struct door *door = NULL;
    status result;

    TRY(memory_take(1, sizeof *door, (void **)&door));
    result = open_door(door, &world->identity);
    if (result == OK) result = connect_all(world, door, limit_ms);
    door_close(door);
    memory_free(door);
    return result == OK ? OK : status_pass(result, __FILE__, __LINE__);
}
