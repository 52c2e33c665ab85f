/* SPDX-License-Identifier: Apache-2.0 */
/* virtual_hosts.h - machines with an agent (the program's agent.c) and ranks
 * that exist only in one test, and what the agent asks of its processes
 * (agent_place.h, courier.h). */
#ifndef LOCKSTEP_TESTS_VIRTUAL_HOSTS_H
#define LOCKSTEP_TESTS_VIRTUAL_HOSTS_H

#include <signal.h>
#include "control/agent_place.h"
#include "control/courier.h"
#include "tests/unit/control/virtual_net.h"

enum { HOSTS = 3, SLOTS = 2, PLACES = 2 * SLOTS, RANKS = 4 };

/* A process of a host, and the rank that it is. */
struct place {
    struct place_memory memory;
    bool asked;              /* to save and stop */
    bool steps;              /* opened, and all others have */
    bool hangs;              /* stands still, within a step */
    int64_t ready_ns;        /* it has opened by then */
    int64_t alone_ns;        /* when it first missed another; 0: it does not */
    int phase, result, source;
    int64_t from;
};

/* Copies of a rank's state in the memory of an agent: of the two newest
 * steps, in a layout of so many ranks, since that generation began without
 * copies. */
struct copy { int64_t step[2]; int size; uint64_t since; };

struct host {
    struct agent agent;
    struct agent_how how;
    struct worker workers[PLACES];
    struct place_memory memories[PLACES];
    struct place places[PLACES];
    struct board *board;
    struct copy copies[RANKS];
    int partners[PARTNERS_MOST]; /* hosts; 0: none */
    uint32_t held;
    struct node_move moved[RANKS];
    int moves;
    bool runs, stopped;      /* the agent; stopped: its ranks are not */
    bool stands;             /* the whole machine, for a while */
    int64_t stop_ns, stand_ns, start_ns, cut_ns, next_ns;
};

static struct host hosts[NET_HOSTS]; /* from 1 */
static int64_t next_process;
static void model_order(struct host *host, int place);

static struct host *host_of(const struct agent *agent)
{
    return (struct host *)((char *)(uintptr_t)agent -
                           offsetof(struct host, agent));
}

static int host_named(const char *name)
{
    return name[0] == 'h' ? name[1] - '0' : 0;
}

/* ---- agent_place.h ---- */

bool place_is_busy(const struct place_memory *place)
{
    const uint64_t ordered = atomic_load(&place->ordered);

    return ordered != 0 && atomic_load(&place->done) != ordered;
}

status worker_start(struct agent *agent, int index, bool *child)
{
    struct place_memory *memory = &agent->places[index];

    *child = false;
    if (atomic_load(&memory->taken) == atomic_load(&memory->ordered))
        atomic_store(&memory->done, atomic_load(&memory->ordered));
    agent->workers[index].process = (pid_t)++next_process;
    agent->workers[index].fence_ns = 0;
    agent->changed = true;
    return OK;
}

static void end_process(struct host *host, int index)
{
    struct worker *w = &host->workers[index];

    if (place_is_busy(&host->memories[index])) {
        w->died_with = atomic_load(&host->memories[index].ordered);
        w->ended = SIGKILL;
    }
    w->process = 0;
    w->again_ns = 0;
    host->agent.changed = true;
    host->next_ns = net.now_ns; /* the kernel wakes its agent */
}

bool workers_reap(struct agent *agent) { (void)agent; return false; }

void workers_signal(struct agent *agent, const struct node_signal *what)
{
    struct host *host = host_of(agent);

    if (what->place < 0 || what->place >= PLACES ||
        !place_is_busy(&agent->places[what->place]) ||
        atomic_load(&agent->places[what->place].taken) != what->order)
        return;
    if (what->number == SIGKILL) end_process(host, what->place);
    else host->places[what->place].asked = true;
}

void workers_fence(struct agent *agent, int64_t grace_ms)
{
    for (int i = 0; i < PLACES; i++) {
        struct worker *w = &agent->workers[i];

        if (!place_is_busy(&agent->places[i])) continue;
        if (w->process == 0)
            atomic_store(&agent->places[i].done,
                         atomic_load(&agent->places[i].ordered));
        else if (w->fence_ns == 0)
            w->fence_ns = clock_ns() + grace_ms * 1000000;
    }
}

void workers_look(struct agent *agent)
{
    for (int i = 0; i < PLACES; i++) {
        struct worker *w = &agent->workers[i];

        if (w->process == 0 || w->fence_ns == 0) continue;
        if (!place_is_busy(&agent->places[i])) w->fence_ns = 0;
        else if (clock_ns() > w->fence_ns) end_process(host_of(agent), i);
    }
}

void workers_order(struct agent *agent, const struct order *order)
{
    struct place_memory *memory;

    if (order->place < 0 || order->place >= PLACES) return;
    memory = &agent->places[order->place];
    if (place_is_busy(memory)) return;
    agent->workers[order->place].fence_ns = 0;
    memory->order = *order;
    atomic_store(&memory->ordered, order->number);
    atomic_store(&memory->taken, order->number);
    agent->changed = true;
    model_order(host_of(agent), order->place);
}

char worker_state(const struct agent *agent, int index,
                  struct kept_time *kept)
{
    (void)agent, (void)index, (void)kept;
    return 'S';
}

void worker_report(const struct agent *agent, int index,
                   struct slot_report *out)
{
    const struct host *host = host_of(agent);
    const struct worker *w = &host->workers[index];
    const struct place_memory *m = &host->memories[index];
    const struct place *p = &host->places[index];
    const struct board_page *page = &host->board->pages[index];

    memset(out, 0, sizeof *out);
    *out = (struct slot_report){
        .place = index, .lives = w->process != 0, .process = w->process,
        .died_with = w->died_with, .ended = w->ended, .state = 'S',
        .ordered = atomic_load(&m->ordered), .done = atomic_load(&m->done),
        .taken = atomic_load(&m->taken), .rank = m->order.rank,
        .generation = m->order.generation, .size = m->order.size,
        .phase = p->phase, .result = p->result, .source = p->source,
        .from_step = p->from, .step = atomic_load(&page->step),
        .step_ns = atomic_load(&page->step_ns),
        .beats = atomic_load(&page->flight.beats),
        .doing = flight_doing(&page->flight)};
}

/* ---- courier.h ---- */

status courier_start(struct agent *agent, bool *child)
{
    (void)agent;
    *child = false;
    return OK;
}

void courier_stop(struct agent *agent) { (void)agent; }
bool courier_look(struct agent *agent) { (void)agent; return false; }

void courier_partners(struct agent *agent, const struct node_beat *beat)
{
    struct host *host = host_of(agent);

    for (int i = 0; i < PARTNERS_MOST; i++) {
        const int named = host_named(beat->partners[i].name);

        if (host->partners[i] != named) host->held &= ~(1u << i);
        host->partners[i] = named;
    }
}

uint32_t courier_held(const struct agent *agent)
{
    return host_of(agent)->held;
}

void courier_stores(struct agent *agent, const struct node_stores *stores)
{
    (void)agent;
    (void)stores;
}

/* At once, if the other machine can be reached. */
void courier_move(struct agent *agent, const struct node_move *what)
{
    struct host *host = host_of(agent);
    const int to = host_named(what->name);

    if (what->rank < 0 || what->rank >= RANKS || to < 1 || to > HOSTS) return;
    if (hosts[to].runs && !net.cut[net.host][to] && !net.cut[to][net.host])
        hosts[to].copies[what->rank] = host->copies[what->rank];
    if (host->moves < RANKS) host->moved[host->moves++] = *what;
}

bool courier_moved(struct agent *agent, struct node_move *what)
{
    struct host *host = host_of(agent);

    if (host->moves == 0) return false;
    *what = host->moved[--host->moves];
    return true;
}

/* ---- agents ---- */

static size_t host_board_bytes(void)
{
    return sizeof(struct board) + PLACES * sizeof(struct board_page);
}

static void host_board_clear(struct host *host)
{
    host->board->lease_ns = 0;
    for (int i = 0; i < PLACES; i++) {
        memset(&host->board->pages[i], 0, sizeof *host->board->pages);
    }
}

/* A new process of the machine's agent; its memory is empty. */
static void host_start(int index)
{
    struct host *host = &hosts[index];
    const int before = net.host;
    struct board *board = host->board;

    net.host = index;
    memset(host, 0, sizeof *host);
    host->board = board != NULL ? board : calloc(1, host_board_bytes());
    CHECK(host->board != NULL);
    host->board->size = PLACES;
    host_board_clear(host);
    host->how = (struct agent_how){.join = "10.0.0.0:1", .token = "",
                                   .slots = SLOTS};
    host->agent = (struct agent){
        .how = &host->how, .signals = -1, .up.descriptor = -1,
        .count = PLACES, .began_ns = clock_ns(), .board = host->board,
        .workers = host->workers, .places = host->memories};
    snprintf(host->agent.name, sizeof host->agent.name, "h%d", index);
    for (int i = 0; i < RANKS; i++)
        host->copies[i] = (struct copy){.step = {-1, -1}};
    host->runs = true;
    host->next_ns = net.now_ns;
    net.host = before;
}

/* Its ranks end with it; the system closes its connections, unless the machine
 * is gone with it. */
static void host_kill(int index)
{
    struct host *host = &hosts[index];

    for (int i = 0; i < PLACES; i++) {
        atomic_store(&host->memories[i].done,
                     atomic_load(&host->memories[i].ordered));
        host->workers[i].process = 0;
    }
    for (int i = 0; i < RANKS; i++)
        host->copies[i] = (struct copy){.step = {-1, -1}};
    host->runs = false;
    net_kill(index);
}

static void host_turn(int index)
{
    struct host *host = &hosts[index];
    bool child = false;
    status result;

    if (!host->runs || host->stopped || host->stands ||
        net.now_ns < net.busy_ns[index])
        return;
    net.host = index;
    result = agent_turn(&host->agent, &child);
    host->next_ns = net.now_ns + 50000000;
    if (host->agent.up.descriptor < 0 && result == OK &&
        host->next_ns < net.busy_ns[index])
        host->next_ns = net.busy_ns[index];
    net_find_news(index);
    net.host = 0;
    if (result == OK && !host->agent.over) return;
    status_clear();
    host_kill(index);
    host->start_ns = net.now_ns + 1000000000;
}

#endif
