/* SPDX-License-Identifier: Apache-2.0 */
/* agent_place.c - the processes of a node: warm spares that become ranks. */
#include "control/agent_place.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include "base/clock.h"
#include "comm/crew.h"
#include "comm/inheritance.h"
#include "control/courier.h"

enum { WORDS_MOST = 512, IDLE_DEATHS_MS = 200, IDLE_DEATHS_MOST = 6,
       QUIET_MS = 150 };

bool place_is_busy(const struct place_memory *place)
{
    const uint64_t ordered = atomic_load(&place->ordered);

    return ordered != 0 && atomic_load(&place->done) != ordered;
}

/* ---- in the process ---- */

static status set_path(const char *name, int descriptor)
{
    char path[64];

    snprintf(path, sizeof path, "/proc/self/fd/%d", descriptor);
    if (setenv(name, path, 1) != 0)
        FAIL(ERR_MEMORY, "no memory for the environment");
    return OK;
}

/* The rank's machine (setup/hosts.h), and those that keep shards of the run
 * (far_files.h). */
static status set_nodes(const struct agent *agent, const struct order *order)
{
    char nodes[NODES_TEXT_BYTES];

    memcpy(nodes, order->nodes, sizeof nodes);
    nodes[sizeof nodes - 1] = '\0';
    if (setenv("LOCKSTEP_NODE", agent->name, 1) != 0)
        FAIL(ERR_MEMORY, "no memory for the environment");
    if (nodes[0] == '\0')
        unsetenv("LOCKSTEP_NODES");
    else if (setenv("LOCKSTEP_NODES", nodes, 1) != 0)
        FAIL(ERR_MEMORY, "no memory for the environment");
    return OK;
}

/* The environment says who the rank is, as for every rank (comm/process.h). */
static status become(const struct agent *agent, const struct order *order)
{
    TRY(inherited_number("LOCKSTEP_RANK", (uint64_t)order->rank));
    TRY(inherited_number("LOCKSTEP_RANKS", (uint64_t)order->size));
    TRY(inherited_number("LOCKSTEP_GENERATION", order->generation));
    TRY(inherited_number("LOCKSTEP_JOB", order->job));
    TRY(set_path("LOCKSTEP_TOKEN", agent->token_file));
    if (order->shares)
        TRY(set_path("LOCKSTEP_SHARED", agent->shared_file));
    else
        unsetenv("LOCKSTEP_SHARED");
    TRY(set_nodes(agent, order));
    if (setenv("LOCKSTEP_MEET", order->meet, 1) != 0)
        FAIL(ERR_MEMORY, "no memory for the environment");
    if (chdir(order->folder) != 0)
        FAIL(ERR_MISSING, "%s: the folder of the supervisor is not on this "
             "node: %s", order->folder, strerror(errno));
    return OK;
}

static status split(const struct order *order, char *text,
                    char *argv[WORDS_MOST + 1])
{
    char *at = text;

    memcpy(text, order->text, ORDER_BYTES);
    text[ORDER_BYTES - 1] = '\0';
    if (order->words < 1 || order->words > WORDS_MOST)
        FAIL(ERR_PEER, "an order of %d words", order->words);
    for (int i = 0; i < order->words; i++) {
        if (at >= text + ORDER_BYTES) FAIL(ERR_PEER, "an order that is cut");
        argv[i] = at;
        at += strlen(at) + 1;
    }
    argv[order->words] = NULL;
    return OK;
}

static status obey(struct agent *agent, const struct order *order)
{
    static char text[ORDER_BYTES];
    static char *argv[WORDS_MOST + 1];
    char name[24];

    snprintf(name, sizeof name, "lockstep:%d", order->rank);
    prctl(PR_SET_NAME, name);
    TRY(become(agent, order));
    TRY(split(order, text, argv));
    return agent->how->work(order->words, argv);
}

/* A process of the node, for ever. */
static void live(struct agent *agent, int index)
{
    const struct timespec pause = {0, 2000000};
    struct place_memory *place = &agent->places[index];
    const pid_t parent = getppid();
    static struct order order;

    for (;;) {
        const uint64_t number = atomic_load(&place->ordered);
        status result;

        if (getppid() != parent) return;
        if (number == atomic_load(&place->done)) {
            nanosleep(&pause, NULL);
            continue;
        }
        order = place->order;
        memset(&agent->board->pages[index], 0, sizeof(struct board_page));
        atomic_store(&agent->board->generation, order.generation);
        atomic_store(&agent->board->here, order.here);
        atomic_store(&place->taken, number);
        board_sit(agent->board, index);
        atomic_store(&agent->board->pages[index].seated, order.rank + 1);
        result = obey(agent, &order);
        board_end(result, result == OK ? "" : status_message());
        status_clear();
        fflush(NULL);
        atomic_store(&place->done, number);
        prctl(PR_SET_NAME, PLACE_SPARE);
    }
}

/* ---- in the agent ---- */

/* An order that the last process took is not done again; one that it did not
 * take is. */
status worker_start(struct agent *agent, int index, bool *child)
{
    struct worker *w = &agent->workers[index];
    struct place_memory *place = &agent->places[index];
    const pid_t parent = getpid();

    *child = false;
    fflush(NULL);
    if (atomic_load(&place->taken) == atomic_load(&place->ordered))
        atomic_store(&place->done, atomic_load(&place->ordered));
    w->process = fork();
    if (w->process < 0) {
        w->process = 0;
        FAIL(ERR_MEMORY, "a process cannot be started: %s", strerror(errno));
    }
    if (w->process == 0) {
        *child = true;
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != parent) return OK;
        setpgid(0, 0);
        prctl(PR_SET_NAME, PLACE_SPARE);
        if (agent->up.descriptor >= 0) close(agent->up.descriptor);
        door_close(&agent->door);
        crew_unwatch(&agent->signals);
        live(agent, index);
        return OK;
    }
    w->descriptor = (int)syscall(SYS_pidfd_open, w->process, 0);
    w->began = crew_began(w->process);
    w->fence_ns = 0;
    agent->changed = true;
    return OK;
}

static void reap(struct agent *agent, int index)
{
    struct worker *w = &agent->workers[index];
    const struct place_memory *place = &agent->places[index];
    const bool busy = place_is_busy(place) && atomic_load(&place->taken) ==
                                                  atomic_load(&place->ordered);
    int64_t pause_ms;
    int ended = 0;

    while (waitpid(w->process, &ended, 0) < 0 && errno == EINTR) continue;
    close(w->descriptor);
    w->descriptor = -1;
    w->process = 0;
    w->fence_ns = 0;
    if (busy) {
        w->ended = crew_ended(ended);
        w->died_with = atomic_load(&place->ordered);
        w->idle_deaths = 0;
    } else if (w->idle_deaths < IDLE_DEATHS_MOST) {
        w->idle_deaths++;
    }
    pause_ms = w->idle_deaths > 0 ? IDLE_DEATHS_MS << w->idle_deaths : 0;
    w->again_ns = clock_ns() + pause_ms * 1000000;
    agent->changed = true;
}

bool workers_reap(struct agent *agent)
{
    bool found = false;

    for (int i = 0; i < agent->count; i++) {
        const struct worker *w = &agent->workers[i];
        struct pollfd one = {.fd = w->descriptor, .events = POLLIN};

        if (w->process == 0 || poll(&one, 1, 0) <= 0) continue;
        reap(agent, i);
        found = true;
    }
    return found;
}

static void kill_one(const struct worker *w, int number)
{
    if (w->descriptor >= 0)
        syscall(SYS_pidfd_send_signal, w->descriptor, number, NULL, 0);
}

void workers_signal(struct agent *agent, const struct node_signal *what)
{
    if (what->place < 0 || what->place >= agent->count) return;
    const struct place_memory *place = &agent->places[what->place];

    if (!place_is_busy(place) || atomic_load(&place->taken) != what->order ||
        what->number < 1 || what->number > 31)
        return;
    kill_one(&agent->workers[what->place], what->number);
}

/* No process has taken it, and none will. */
static void drop_order(struct place_memory *place)
{
    atomic_store(&place->done, atomic_load(&place->ordered));
}

void workers_fence(struct agent *agent, int64_t grace_ms)
{
    for (int i = 0; i < agent->count; i++) {
        struct worker *w = &agent->workers[i];

        if (!place_is_busy(&agent->places[i])) continue;
        if (w->process == 0) drop_order(&agent->places[i]);
        else if (w->fence_ns == 0)
            w->fence_ns = clock_ns() + grace_ms * 1000000;
    }
}

void workers_look(struct agent *agent)
{
    for (int i = 0; i < agent->count; i++) {
        struct worker *w = &agent->workers[i];

        if (w->process == 0 || w->fence_ns == 0) continue;
        if (!place_is_busy(&agent->places[i])) w->fence_ns = 0;
        else if (clock_ns() > w->fence_ns) kill_one(w, SIGKILL);
    }
}

void workers_order(struct agent *agent, const struct order *order)
{
    struct place_memory *place;

    if (order->place < 0 || order->place >= agent->count) return;
    place = &agent->places[order->place];
    if (place_is_busy(place)) return; /* the supervisor sees that */
    agent->workers[order->place].fence_ns = 0;
    place->order = *order;
    place->order.meet[sizeof place->order.meet - 1] = '\0';
    door_through(place->order.meet, agent->up.descriptor);
    atomic_store(&place->coming, order->number);
    courier_halt(agent);
    atomic_store(&place->ordered, order->number);
    agent->changed = true;
}

static void copy_page(const struct agent *agent, int index,
                      struct slot_report *out)
{
    struct board_page *page = &agent->board->pages[index];
    const uint64_t calls = atomic_load(&page->flight.count);

    out->phase = atomic_load(&page->phase);
    out->result = atomic_load(&page->result);
    out->verdict = atomic_load(&page->verdict); /* before its sentence */
    out->source = atomic_load(&page->source);
    out->step = atomic_load(&page->step);
    out->step_ns = atomic_load(&page->step_ns);
    out->step_most_ns = atomic_load(&page->step_most_ns);
    out->planned_ns = atomic_load(&page->planned_ns);
    out->met_ppm = atomic_load(&page->met_ppm);
    out->from_step = atomic_load(&page->from_step);
    out->copied = atomic_load(&page->copied);
    out->carried = board_carried(agent->board, page);
    out->copies = board_copies_cost(page);
    out->beats = atomic_load(&page->flight.beats);
    out->calls = calls;
    out->doing = flight_doing(&page->flight);
    memcpy(out->sentence, page->sentence, sizeof out->sentence);
    out->sentence[sizeof out->sentence - 1] = '\0';
    for (uint64_t i = 0; i < REPORT_ENTRIES && i < calls; i++)
        out->last[i] = page->flight.entries[(calls - i) % FLIGHT_ENTRIES];
    /* Calls that it is still in may be older. */
    const struct flight_entry position = flight_position(&page->flight);
    const struct flight_entry aside = flight_aside(&page->flight);

    if (position.ended_ns == 0 && position.number + REPORT_ENTRIES <= calls)
        out->last[REPORT_ENTRIES - 1] = position;
    if (aside.number != 0 && aside.number + REPORT_ENTRIES <= calls)
        out->last[REPORT_ENTRIES - 2] = aside;
}

/* Threads of a rank that gets on need not be looked at. */
static void look_at_threads(struct worker *w, const struct flight *flight)
{
    const uint64_t beats = atomic_load(&flight->beats);
    const int64_t now = clock_ns();

    if (beats != w->beats) {
        w->beats = beats;
        w->beats_ns = now;
    }
    if (now - w->beats_ns > (int64_t)QUIET_MS * 1000000)
        thread_clock_look(&w->threads, w->process, now);
}

char worker_state(const struct agent *agent, int index,
                  struct kept_time *kept)
{
    struct worker *w = &agent->workers[index];

    look_at_threads(w, &agent->board->pages[index].flight);
    *kept = w->threads.kept;
    return crew_state(w->process);
}

void worker_report(const struct agent *agent, int index,
                   struct slot_report *out)
{
    const struct worker *w = &agent->workers[index];
    const struct place_memory *place = &agent->places[index];

    *out = (struct slot_report){
        .place = index, .lives = w->process != 0, .process = w->process,
        .began = w->began, .died_with = w->died_with, .ended = w->ended,
        .ordered = atomic_load(&place->ordered),
        .done = atomic_load(&place->done),
        .taken = atomic_load(&place->taken),
        .generation = place->order.generation, .rank = place->order.rank,
        .size = place->order.size};
    if (out->ordered == 0) return;
    if (place_is_busy(place) && w->process != 0)
        out->state = worker_state(agent, index, &out->kept);
    if (out->taken == out->ordered) copy_page(agent, index, out);
}
