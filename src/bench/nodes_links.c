/* SPDX-License-Identifier: Apache-2.0 */
/* nodes_links.c - messages between each pair of ranks, and all-reduces of three
 * sizes. */
#include <math.h>
#include <stdint.h>

#include "base/arena.h"
#include "bench/nodes.h"
#include "bench/probe.h"

enum { LARGE = 1 << 20, SMALL = 64, TRIPS = 20, LARGE_TRIPS = 4,
       SUM_ROUNDS = 5 };
const int64_t nodes_sum_bytes[NODES_SUMS] = {1 << 12, 1 << 18, 1 << 22};

struct wires { struct group *world; float *out, *in; };

/* Number i of a message from a rank. */
static float content(int rank, int64_t i)
{
    return (float)((i * 7 + rank) % 4093);
}

/* There and back, `trips` times; the lower rank begins. Best seconds of one. */
static status bounce(struct wires *w, int peer, int64_t count, int trips,
                     double *seconds)
{
    const struct tensor out = tensor_1d(w->out, DTYPE_F32, count);
    const struct tensor in = tensor_1d(w->in, DTYPE_F32, count);
    const bool first = w->world->rank < peer;

    for (int i = 0; i < trips; i++) {
        const double before = probe_now_s();

        if (first) TRY(comm_send(w->world, out, peer, 0));
        TRY(comm_recv(w->world, in, peer, 0));
        if (!first) TRY(comm_send(w->world, out, peer, 0));
        const double took = (probe_now_s() - before) / 2;

        if (i == 0 || took < *seconds) *seconds = took;
    }
    return OK;
}

static status pair(struct nodes_links *links, struct wires *w, int peer)
{
    const int64_t count = LARGE / (int64_t)sizeof(float);
    double seconds = 0;

    for (int64_t i = 0; i < count; i++) {
        w->out[i] = content(w->world->rank, i);
        w->in[i] = -1;
    }
    TRY(bounce(w, peer, SMALL / (int64_t)sizeof(float), TRIPS,
               &links->latency[peer]));
    TRY(bounce(w, peer, count, LARGE_TRIPS, &seconds));
    links->rate[peer] = LARGE / (seconds > 0 ? seconds : 1e-9);
    for (int64_t i = 0; i < count; i++)
        if (w->in[i] != content(peer, i)) {
            links->wrong_links++;
            break;
        }
    return OK;
}

/* In each round every rank has another peer (the circle method); with an odd
 * number of ranks one rests. */
static int peer_of(int rank, int round, int size)
{
    const int even = size + size % 2, turning = even - 1;
    int peer;

    if (rank == turning) return round * (even / 2) % turning;
    peer = ((round - rank) % turning + turning) % turning;
    if (peer == rank) peer = turning;
    return peer < size ? peer : rank;
}

static status sums(struct nodes_links *links, struct wires *w)
{
    struct group *world = w->world;
    const double least = 1.0 + world->size * (world->size - 1) / 2.0;

    for (int s = 0; s < NODES_SUMS; s++) {
        const int64_t count = nodes_sum_bytes[s] / (int64_t)sizeof(float);
        const struct tensor in = tensor_1d(w->out, DTYPE_F32, count);
        const struct tensor out = tensor_1d(w->in, DTYPE_F32, count);

        for (int64_t i = 0; i < count; i++)
            w->out[i] = (float)(world->rank + (i % 3) +
                                (world->rank == 0 ? 1 : 0));
        for (int round = 0; round < SUM_ROUNDS; round++) {
            const double before = probe_now_s();

            TRY(comm_all_reduce(world, out, in, REDUCE_SUM));
            const double took = probe_now_s() - before;

            if (round == 0 || took < links->sums[s]) links->sums[s] = took;
        }
        for (int64_t i = 0; i < count; i++)
            if (fabs((double)w->in[i] - least -
                     (double)(i % 3 * world->size)) > 0) {
                links->wrong_sums++;
                break;
            }
    }
    return OK;
}

status nodes_links_run(struct nodes_links *links, struct group *world)
{
    const int rounds = world->size + world->size % 2 - 1;
    const size_t most = (size_t)nodes_sum_bytes[NODES_SUMS - 1];
    struct wires w = {.world = world};
    struct arena arena;
    void *scratch = NULL;
    status result;

    arena_init(&arena, "links", 0);
    TRY_GOTO(done, result, arena_take(&arena, most, (void **)&w.out));
    TRY_GOTO(done, result, arena_take(&arena, most, (void **)&w.in));
    TRY_GOTO(done, result, arena_take(&arena, 3 * most + (1 << 16), &scratch));
    group_scratch(world, scratch, 3 * most + (1 << 16));
    for (int round = 0; round < rounds; round++) {
        const int peer = peer_of(world->rank, round, world->size);

        if (peer != world->rank)
            TRY_GOTO(done, result, pair(links, &w, peer));
    }
    result = sums(links, &w);
done:
    group_scratch(world, NULL, 0);
    arena_free(&arena);
    return result;
}
