/* SPDX-License-Identifier: Apache-2.0 */
/* threads_exchange.c - a line of a cache goes round the threads of a pool. */
#include "base/threads_exchange.h"

#include <stdatomic.h>
#include <stdbool.h>

#include "base/clock.h"
#include "base/median.h"

/* A call may take the first, and the second for each hop: one between cores
 * that are far from each other takes less than 1e-6. */
#define MOST_S 5e-3
#define HOP_S 5e-6
enum { HOPS = 64, ROUNDS = 4 /* at least so many, and so many hops */,
       SPINS = 1024 /* between two looks at the clock */, LINE = 128 };

struct exchange {
    struct threads *threads;
    double deadline, seconds[EXCHANGE_BURSTS]; /* of a hop */
    int bursts, rounds;
    /* Alone in its lines. Thread i of n waits for a number that leaves the rest
     * i by n, and adds one. */
    _Alignas(LINE) _Atomic int64_t turn;
    _Alignas(LINE) _Atomic bool over; /* nobody waits any longer */
};

static bool await(struct exchange *e, int64_t mine)
{
    for (int spins = 1;; spins++) {
        if (atomic_load_explicit(&e->turn, memory_order_acquire) == mine)
            return true;
        if (spins % SPINS != 0) continue;
        if (clock_s() > e->deadline) atomic_store(&e->over, true);
        if (atomic_load(&e->over)) return false;
    }
}

static void burst(struct exchange *e, int64_t begin, int index, int count)
{
    for (int round = 0; round < e->rounds; round++) {
        const int64_t mine = begin + (int64_t)round * count + index;

        if (!await(e, mine)) return;
        atomic_store_explicit(&e->turn, mine + 1, memory_order_release);
    }
}

static void pass_on(void *argument, int index, int count)
{
    struct exchange *e = argument;
    const int hops = e->rounds * count;

    for (int i = 0; i < e->bursts; i++) {
        threads_barrier(e->threads);
        const bool over = atomic_load(&e->over);

        threads_barrier(e->threads); /* all have looked */
        if (over) return;
        const double before = clock_s();

        burst(e, (int64_t)i * hops, index, count);
        if (index == count - 1)
            e->seconds[i] = (clock_s() - before) / hops;
    }
}

double threads_exchange(struct threads *threads, int bursts)
{
    const int count = threads_count(threads);
    struct exchange e = {.threads = threads, .bursts = bursts,
                         .rounds = HOPS / count > ROUNDS ? HOPS / count
                                                         : ROUNDS};

    if (count < 2) return 0;
    e.deadline = clock_s() + MOST_S + HOP_S * bursts * e.rounds * count;
    threads_run(threads, pass_on, &e);
    return atomic_load(&e.over) ? 0 : median_take(e.seconds, bursts);
}
