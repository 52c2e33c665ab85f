/* SPDX-License-Identifier: Apache-2.0 */
/* copy_every.c - how many steps must pay for a copy of the state. */
#include "train/copy_every.h"

#include <inttypes.h>
#include <stdio.h>

#include "base/log.h"
#include "base/threads.h"
#include "control/board.h"
#include "control/copy_slot.h"
#include "step/team.h"

enum { LOOK_STEPS = 64, /* between two looks at what copies cost */
       SETTLED = 8, /* copies, until it is known */
       COMPARED = 16, /* until steps with and without one were compared */
       GIVEN_UP = 3 * LOOK_STEPS /* copies for one partner, until they cannot
                                  * be: no two steps do the same work */ };
static const double share_most = 0.01;

static void smooth(double *value, double now)
{
    *value = *value == 0 ? now : 0.8 * *value + 0.2 * now;
}

/* The time that a step loses because couriers use this node's processors, for
 * each copy. Where two cores are free for them it is none; else the step waits
 * for its slowest thread, which loses more than an even share. */
static void weigh_carrying(struct copy_every *every)
{
    const int cores = threads_cores();
    const int busy = every->threads * board_ranks_here(team_size(every->team));
    const double used = board_carrying();
    const double each = (used - every->used_s) /
                        (double)(every->made - every->looked);

    every->used_s = used;
    every->carry_s = busy + 2 <= cores ? 0
                    : cores > 2       ? 2 * each / cores
                                      : each;
}

/* Seconds that steps lose while a copy travels: those accounted for, or those
 * that they take longer than others. */
static double travel(const struct copy_every *every)
{
    const double known = every->fence_s + every->carry_s;

    return every->delay_s > known ? every->delay_s : known;
}

static double cost(const struct copy_every *every)
{
    return every->copy_s + travel(every);
}

/* Rarer copies save it: an update that writes one takes as long as one in
 * place. */
static double saved(const struct copy_every *every)
{
    return !every->in_update ? cost(every) : travel(every);
}

static double cost_share(const struct copy_every *every)
{
    return every->step_s > 0 && every->copy_s > 0
               ? cost(every) / (every->step_s * (double)every->steps) : 0;
}

int64_t copy_every_steps(double cost_s, double step_s)
{
    const double steps = step_s > 0 ? cost_s / (share_most * step_s) : 1;

    return steps > 1 ? (int64_t)(steps + 1) : 1;
}

static void tell(struct copy_every *every)
{
    const double idle = board_carried_idle();
    char steps[48] = "each step", travelled[80] = "", longer[64] = "";

    if (cost_share(every) <= 0) return;
    if (every->steps > 1)
        snprintf(steps, sizeof steps, "%" PRId64 " steps", every->steps);
    if (idle >= 0)
        snprintf(travelled, sizeof travelled, "; %.1f%% of the bytes travelled "
                 "while the network was idle", 100 * idle);
    if (every->delay_s > 0)
        snprintf(longer, sizeof longer, ", %.1f ms more while one travels",
                 1e3 * every->delay_s);
    LOG(INFO, "supervise", "a copy in memory after %s costs %.2f%% of the "
        "time: %.1f ms to make, %.1f ms waiting for other nodes, %.1f ms of "
        "processors that carry it; a step takes %.1f ms%s%s", steps,
        100 * cost_share(every),
        1e3 * every->copy_s, 1e3 * every->fence_s, 1e3 * every->carry_s,
        1e3 * every->step_s, longer, travelled);
    every->told = every->steps;
}

/* Whether steps with and without a copy are to take turns from now on: what one
 * costs on its way to another node shows in nothing else. A partner may come at
 * any time. */
static bool compares(const struct copy_every *every)
{
    return every->measures && board_partners() > 0 && every->made >= SETTLED &&
           every->delay.pairs < DELAY_KNOWN &&
           every->made - every->alone < GIVEN_UP;
}

/* How many steps must pay for one copy. Partners and pairs may differ between
 * ranks, whose agents hear at different moments: each says how many steps it
 * wants, and the largest holds for all. Whether they ask one another must not:
 * it depends on steps and copies alone. */
static status adapt(struct copy_every *every)
{
    double steps;

    weigh_carrying(every);
    every->delay_s = board_partners() > 0 ? copy_delay_s(&every->delay) : 0;
    every->looked = every->made;
    steps = (double)copy_every_steps(saved(every), every->step_s);
    if (compares(every) && steps < 2) steps = 2;
    if (every->measures) {
        TRY(team_largest(every->team, &steps, 1));
        every->steps = (int64_t)steps;
    }
    board_copies((struct copies_cost){
        .every = every->steps, .ppm = (int64_t)(1e6 * cost_share(every)),
        .waited_ns = (int64_t)(1e9 * every->fence_s)});
    if (every->made >= SETTLED && (every->steps > 2 || !compares(every)) &&
        (every->steps > every->told * 5 / 4 ||
         every->steps < every->told * 3 / 4))
        tell(every);
    return OK;
}

void copy_every_step(struct copy_every *every, double took_s,
                     enum copy_way way)
{
    smooth(&every->step_s, took_s);
    if (board_partners() == 0) { /* the next one may be another */
        every->delay = (struct copy_delay){.pairs = 0};
        every->fence_s = 0;
        every->alone = every->made;
    } else if (every->made > COPY_SLOTS) {
        copy_delay_add(&every->delay, way == COPY_WAY_OTHER ? 0 : took_s,
                       way == COPY_WAY_TRAVELS);
    }
}

status copy_every_look(struct copy_every *every, int64_t step)
{
    if (every->made == COPY_SLOTS) { /* they touched new pages */
        every->used_s = board_carrying();
        every->looked = every->made;
    }
    if (every->made == every->looked ||
        (every->made != COPY_SLOTS + 1 && every->made != SETTLED &&
         every->made != COMPARED && step % LOOK_STEPS != 0))
        return OK;
    return adapt(every);
}

void copy_every_made(struct copy_every *every, double took_s)
{
    if (every->made == 0)
        board_copies((struct copies_cost){.every = every->steps});
    /* The first two copies touch new pages. */
    if (++every->made > COPY_SLOTS) smooth(&every->copy_s, took_s);
}

void copy_every_waited(struct copy_every *every, double waited_s)
{
    smooth(&every->fence_s, waited_s);
}

void copy_every_tell(struct copy_every *every)
{
    if (every->told != 0) return;
    if (every->made > every->looked) weigh_carrying(every);
    tell(every);
}
