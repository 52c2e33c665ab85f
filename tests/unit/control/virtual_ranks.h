/* SPDX-License-Identifier: Apache-2.0 */
/* virtual_ranks.h - a run on virtual machines, and its ranks: a model of their
 * steps, copies and checkpoints, which agents see as pages of their boards. */
#ifndef LOCKSTEP_TESTS_VIRTUAL_RANKS_H
#define LOCKSTEP_TESTS_VIRTUAL_RANKS_H

#include <setjmp.h>
#include "tests/unit/control/virtual_hosts.h"

enum { STEPS_MOST = 200, FAULTS_MOST = 8, LIMIT_S = 900 };

enum fault_kind {
    FAULT_RANK, FAULT_AGENT, FAULT_MACHINE, FAULT_STOP, FAULT_STAND,
    FAULT_CUT, FAULT_CUT_IN, FAULT_CUT_OUT, FAULT_CUT_PEERS,
    FAULT_SUPERVISOR, FAULT_DATA, FAULT_SAVE, FAULT_HANG, FAULT_KINDS
};

/* The run: what its directory has. */
static struct run {
    uint64_t random;
    int64_t steps, every, checkpoint, done;
    uint64_t writer;         /* generation that wrote last */
    int64_t wrote_ns;
    uint64_t generation;     /* that has opened; step_ns: end of its step */
    uint64_t since;          /* copies count since that one began */
    int64_t step_ns, slow_ns; /* a step waits for data or a disk until then */
    int64_t alone_ms;        /* that agents have no supervisor; 0: drawn */
    struct { int64_t when_ns; enum fault_kind kind; int host; }
        faults[FAULTS_MOST];
    int fault_count, fault_next, replicas;
    jmp_buf death;
    bool virtual, lives;     /* lives: a supervisor does */
    const char *broken;
} run;

static uint64_t draw_bits(void)
{
    uint64_t x = run.random += 0x9e3779b97f4a7c15u;

    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

static int64_t draw(int64_t below)
{
    return (int64_t)(draw_bits() % (uint64_t)below);
}

static int64_t net_delay(void) { return 200000 + draw(3000000); }

static void must(bool holds, const char *what)
{
    if (!holds && run.broken == NULL) run.broken = what;
}

/* ---- ranks ---- */

static struct board_page *page_of(struct host *host, int place)
{
    return &host->board->pages[place];
}

struct seat_of { struct host *host; int index, place; };

/* Where that rank of a generation is; false: no process is it any more. */
static bool find_rank(uint64_t generation, int rank, struct seat_of *out)
{
    for (int h = 1; h <= HOSTS; h++)
        for (int p = 0; p < PLACES; p++) {
            const struct place_memory *m = &hosts[h].memories[p];

            if (!place_is_busy(m) || m->order.generation != generation ||
                m->order.rank != rank || hosts[h].workers[p].process == 0)
                continue;
            *out = (struct seat_of){&hosts[h], h, p};
            return true;
        }
    return false;
}

/* As lease_holds() asks, by the clock of the machine. */
static bool may_write(int host)
{
    return !lease_is_over(hosts[host].board, net.now_ns + net.skew_ns[host]);
}

/* No rank of an older generation may be able to write. */
static void check_alone(uint64_t generation, const char *what)
{
    for (int h = 1; h <= HOSTS; h++)
        for (int p = 0; p < PLACES; p++) {
            const struct place_memory *m = &hosts[h].memories[p];

            if (place_is_busy(m) && hosts[h].workers[p].process != 0 &&
                m->order.generation < generation)
                must(!may_write(h), what);
        }
}

static void model_order(struct host *host, int place)
{
    struct place *p = &host->places[place];

    check_alone(host->memories[place].order.generation, "leader");
    *p = (struct place){.phase = BOARD_OPENS,
                        .ready_ns = net.now_ns + 20000000 + draw(200000000)};
    memset(page_of(host, place), 0, sizeof(struct board_page));
    atomic_store(&page_of(host, place)->phase, BOARD_OPENS);
    atomic_store(&page_of(host, place)->limit_ms, 20000);
}

static void end_rank(struct seat_of *at, status result)
{
    struct place *p = &at->host->places[at->place];
    struct place_memory *m = &at->host->memories[at->place];

    p->phase = BOARD_ENDED;
    atomic_store(&page_of(at->host, at->place)->phase, BOARD_ENDED);
    p->result = (int)result;
    p->steps = false;
    atomic_store(&m->done, atomic_load(&m->ordered));
    at->host->agent.changed = true;
}

/* All ranks of the generation, if every one is there, awake, and reaches the
 * others; a rank that misses another for a while gives up. */
static bool gather(uint64_t generation, int size, struct seat_of at[RANKS])
{
    bool whole = true;

    for (int i = 0; i < size; i++) {
        whole = find_rank(generation, i, &at[i]) && whole;
        if (!whole) return false;
        whole = !at[i].host->stands;
    }
    for (int i = 0; i < size && whole; i++)
        for (int j = 0; j < size; j++)
            whole = whole && !net.cut[at[i].index][at[j].index];
    return whole;
}

static void miss(uint64_t generation, int size)
{
    struct seat_of at;

    for (int i = 0; i < size; i++) {
        struct place *p;

        if (!find_rank(generation, i, &at) || at.host->stands) continue;
        p = &at.host->places[at.place];
        if (p->alone_ns == 0) p->alone_ns = net.now_ns;
        if (net.now_ns - p->alone_ns > (p->steps ? 1000 : 5000) * 1000000LL)
            end_rank(&at, ERR_PEER);
    }
}

static bool has_copy(const struct seat_of *at, int rank, int size,
                     int64_t step)
{
    const struct copy *c = &at->host->copies[rank];

    return c->size == size && c->since == run.since &&
           (c->step[0] == step || c->step[1] == step);
}

/* The newest step that all ranks have where they are; -1. */
static int64_t newest_copy(const struct seat_of at[RANKS], int size)
{
    const struct copy *first = &at[0].host->copies[0];
    int64_t newest = -1;

    for (int k = 0; k < 2; k++) {
        bool all = first->size == size;

        for (int i = 0; i < size; i++)
            all = all && has_copy(&at[i], i, size, first->step[k]);
        if (all && first->step[k] > newest) newest = first->step[k];
    }
    return newest;
}

static void write_step(uint64_t generation, int host, int64_t step)
{
    must(generation >= run.writer, "one");
    check_alone(generation, "one");
    must(may_write(host), "one");
    run.writer = generation;
    run.done = step;
    run.wrote_ns = net.now_ns;
}

/* The rank waits for others, or it does not. */
static void set_page(struct host *host, int place, int phase, int waits)
{
    struct board_page *page = page_of(host, place);

    host->places[place].phase = phase;
    atomic_store(&page->phase, phase);
    atomic_store(&page->flight.waits, waits);
    atomic_store(&page->flight.reads, 0);
    atomic_fetch_add(&page->flight.beats, 1);
}

/* All have opened: they agree where to go on, and cut later lines. */
static void go_on(uint64_t generation, int size, struct seat_of at[RANKS])
{
    const int64_t copy = newest_copy(at, size);
    const bool memory = copy > run.checkpoint;
    const int64_t step = memory ? copy : run.checkpoint;

    must(step <= run.done, "whole");
    if (!memory) run.since = generation; /* RUN/control/copies */
    write_step(generation, at[0].index, step);
    for (int i = 0; i < size; i++) {
        struct place *p = &at[i].host->places[at[i].place];
        struct copy *c = &at[i].host->copies[i];

        *p = (struct place){.phase = BOARD_STEPS, .steps = true, .from = step,
                            .asked = p->asked,
                            .source = memory ? BOARD_MEMORY
                                             : BOARD_CHECKPOINT};
        for (int k = 0; k < 2; k++)
            if (!memory || c->step[k] > step) c->step[k] = -1;
        atomic_store(&page_of(at[i].host, at[i].place)->step, step);
        atomic_store(&page_of(at[i].host, at[i].place)->flight.count, 1);
        atomic_store(&page_of(at[i].host, at[i].place)->step_most_ns,
                     130000000);
        set_page(at[i].host, at[i].place, BOARD_STEPS, 0);
    }
    run.generation = generation;
    run.slow_ns = 0;
    run.step_ns = net.now_ns + 30000000 + draw(100000000);
}

static void keep_copy(struct host *host, int rank, int size, int64_t step)
{
    struct copy *c = &host->copies[rank];

    if (c->size != size || c->since != run.since)
        *c = (struct copy){.step = {-1, -1}, .size = size, .since = run.since};
    c->step[c->step[1] < c->step[0]] = step;
}

static void end_all(struct seat_of at[RANKS], int size, status result)
{
    for (int i = 0; i < size; i++) end_rank(&at[i], result);
}

/* The decision of a step, its lines, its copies. Rank 0 writes. */
static void make_step(uint64_t generation, int size, struct seat_of at[RANKS])
{
    const int64_t step = run.done + 1;
    bool asked = false;

    for (int i = 0; i < size; i++)
        asked = asked || at[i].host->places[at[i].place].asked;
    if (!may_write(at[0].index)) {
        end_all(at, size, ERR_PEER);
        return;
    }
    if (run.done == run.steps) {
        end_all(at, size, OK);
        return;
    }
    must(run.writer == generation, "once");
    write_step(generation, at[0].index, step);
    for (int i = 0; i < size; i++) {
        struct host *host = at[i].host;
        struct board_page *page = page_of(host, at[i].place);

        keep_copy(host, i, size, step);
        for (int k = 0; k < PARTNERS_MOST; k++) {
            const int other = host->partners[k];

            if (other == 0 || !hosts[other].runs ||
                net.cut[at[i].index][other])
                continue;
            keep_copy(&hosts[other], i, size, step);
            host->held |= 1u << k;
        }
        atomic_store(&page->step, step);
        atomic_store(&page->step_ns, net.now_ns + net.skew_ns[at[i].index]);
        set_page(host, at[i].place, BOARD_STEPS, 0);
    }
    if (asked || step % run.every == 0 || step == run.steps)
        run.checkpoint = step;
    if (step == run.steps) end_all(at, size, OK);
    else if (asked) end_all(at, size, ERR_STOPPED);
    else run.step_ns = net.now_ns + 30000000 + draw(100000000);
}

static void generation_turn(uint64_t generation, int size)
{
    struct seat_of at[RANKS];
    bool opened = true, steps = true, hangs = false;

    if (!gather(generation, size, at)) {
        miss(generation, size);
        return;
    }
    for (int i = 0; i < size; i++) {
        struct place *p = &at[i].host->places[at[i].place];

        p->alone_ns = 0;
        hangs = hangs || p->hangs;
        steps = steps && p->steps;
        opened = opened && p->ready_ns <= net.now_ns;
    }
    if (hangs) return;
    if (steps && run.generation == generation && net.now_ns >= run.step_ns &&
        net.now_ns >= run.slow_ns)
        make_step(generation, size, at);
    else if (!steps && opened && may_write(at[0].index))
        go_on(generation, size, at);
}

/* Each generation that has a process. */
static void ranks_turn(void)
{
    uint64_t turned[HOSTS * PLACES];
    int count = 0;

    for (int h = 1; h <= HOSTS; h++)
        for (int p = 0; p < PLACES; p++) {
            const struct place_memory *m = &hosts[h].memories[p];
            bool again = !place_is_busy(m);

            for (int i = 0; i < count && !again; i++)
                again = turned[i] == m->order.generation;
            if (again) continue;
            turned[count++] = m->order.generation;
            generation_turn(m->order.generation, m->order.size);
        }
}

#endif
