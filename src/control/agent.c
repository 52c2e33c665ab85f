/* SPDX-License-Identifier: Apache-2.0 */
/* agent.c - one for each node: listens to the supervisor, and says how the
 * ranks of the node are. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <unistd.h>
#include "base/arena.h"
#include "base/clock.h"
#include "base/oom_kills.h"
#include "base/room.h"
#include "comm/crew.h"
#include "comm/inheritance.h"
#include "comm/patience.h"
#include "comm/process_world.h"
#include "control/courier.h"

enum { LOOK_MS = 50, REPORT_MS = 100, AGAIN_MS = 300, KNOCK_MS = 2000,
       KNOCK_LEAST_MS = 50,
       REFUSED_AGAIN_MS = 2000, REFUSED_MS = 30000, SILENCE_MOST_MS = 1300000,
       ALONE_MS = 60000, FIRST_MS = 1800000,
       FILES_OWN = 20, FILES_EACH = 1 /* with the process of each place */ };

/* ---- opening ---- */

static status open_places(struct agent *agent)
{
    const size_t bytes = (size_t)agent->count * sizeof *agent->places;

    TRY(memory_take((size_t)agent->count, sizeof *agent->workers,
                    (void **)&agent->workers));
    for (int i = 0; i < agent->count; i++) agent->workers[i].descriptor = -1;
    agent->places = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                         MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (agent->places == MAP_FAILED) {
        agent->places = NULL;
        FAIL(ERR_MEMORY, "%zu bytes of shared memory: %s", bytes,
             strerror(errno));
    }
    TRY(board_make(&agent->board, agent->count, &agent->board_file));
    TRY(inherited_memory("lockstep-state", 0, &agent->state_file));
    TRY(inherited_memory("lockstep-messages",
                         (int64_t)PROCESSES_MOST * RING_BYTES,
                         &agent->shared_file));
    atomic_store(&agent->board->state_file, agent->state_file);
    return OK;
}

static status agent_open(struct agent *agent)
{
    char side[DOOR_ADDRESS_BYTES], who[64];

    snprintf(who, sizeof who, "the agent of %d slots", agent->how->slots);
    TRY(room_for_files(FILES_OWN + FILES_EACH * agent->how->slots, who));
    TRY(token_read(&agent->token, agent->how->token));
    TRY(door_near_side(agent->how->join, side));
    TRY(door_open(&agent->door, side, &agent->token, 0));
    TRY(inherited_token(&agent->token, &agent->token_file));
    TRY(open_places(agent));
    return crew_watch(&agent->signals);
}

static void agent_close(struct agent *agent)
{
    for (int i = 0; agent->workers != NULL && i < agent->count; i++)
        if (agent->workers[i].process != 0)
            kill(agent->workers[i].process, SIGKILL);
    for (int i = 0; agent->workers != NULL && i < agent->count; i++) {
        struct pollfd one = {.fd = agent->workers[i].descriptor,
                             .events = POLLIN};

        if (agent->workers[i].process != 0) poll(&one, 1, 5000);
    }
    if (agent->workers != NULL) workers_reap(agent);
    courier_stop(agent);
    agent->up.resets = false; /* no rank lives */
    wire_close(&agent->up);
    door_close(&agent->door);
    board_close(agent->board);
    if (agent->places != NULL)
        munmap(agent->places, (size_t)agent->count * sizeof *agent->places);
    memory_free(agent->workers);
    crew_unwatch(&agent->signals);
}

/* ---- the supervisor ---- */

/* How long the supervisor may be silent. */
static int64_t silence_ms(const struct agent *agent)
{
    const int64_t here = patience_ms(agent->up.descriptor);

    return here > agent->lease_ms ? here : agent->lease_ms;
}

static status check_silence(const struct agent *agent)
{
    const int64_t since_ns = clock_ns() - agent->up.heard_ns;

    if (since_ns > (int64_t)NODE_LEASE_MS * 1000000 && /* a system call less */
        since_ns > silence_ms(agent) * 1000000)
        FAIL(ERR_PEER, "silent for %lld ms", (long long)silence_ms(agent));
    return OK;
}

static status report(struct agent *agent)
{
    static char bytes[WIRE_BYTES];
    struct node_report head = {.now_ns = clock_ns(), .turn = agent->turn,
                               .beat_ns = agent->beat_ns,
                               .held = courier_held(agent)};
    size_t used = sizeof head;

    for (int i = 0; i < agent->count; i++) {
        struct slot_report one;

        if (agent->workers[i].process == 0 &&
            atomic_load(&agent->places[i].ordered) == 0)
            continue;
        if (used + sizeof one > sizeof bytes) break;
        worker_report(agent, i, &one);
        memcpy(bytes + used, &one, sizeof one);
        used += sizeof one;
        head.places++;
    }
    memcpy(bytes, &head, sizeof head);
    agent->changed = false;
    agent->told_ns = clock_ns();
    return wire_put(&agent->up, WIRE_REPORT, bytes, used);
}

static status introduce(struct agent *agent)
{
    struct node_hello hello = {.slots = agent->how->slots,
                               .places = agent->count};

    snprintf(hello.name, sizeof hello.name, "%s", agent->name);
    snprintf(hello.address, sizeof hello.address, "%s", agent->door.address);
    TRY(wire_put(&agent->up, WIRE_HELLO, &hello, sizeof hello));
    return report(agent);
}

static bool is_busy(const struct agent *agent)
{
    for (int i = 0; i < agent->count; i++)
        if (place_is_busy(&agent->places[i])) return true;
    return false;
}

/* Nobody is waited for beyond the lease of ranks that live. */
static int64_t knock_ms(const struct agent *agent)
{
    const int64_t end = atomic_load(&agent->board->lease_ns);
    const int64_t left = (end - clock_ns()) / 1000000 + 1;

    if (end == 0 || !is_busy(agent) || left >= KNOCK_MS) return KNOCK_MS;
    return left > KNOCK_LEAST_MS ? left : KNOCK_LEAST_MS;
}

/* Ranks that live wait for no name server, which may be as far away as the
 * supervisor. Where nobody listens any more, the name may be another machine's
 * by now. */
static const char *where_to(const struct agent *agent)
{
    return agent->reached[0] != '\0' && !agent->left && is_busy(agent)
               ? agent->reached : agent->how->join;
}

/* Where no supervisor listens none has begun another generation, and the next
 * one waits for as long before it does. If this machine has no way to some of
 * the name's addresses, as of IPv6, that says nothing yet: its own link may be
 * down. Then the supervisor's last address must refuse as well, again. */
static void see_knock(struct agent *agent, enum door_end end, int64_t lease)
{
    if (end == DOOR_NOBODY) lease_renew(agent->board, lease);
    if (end == DOOR_NOBODY) agent->left = true;
    if (end == DOOR_NO_WAY || end == DOOR_IN) agent->left = false;
}

/* A supervisor that does not let this agent in is final; nobody there is not,
 * nor is a network that is slow. */
static status join(struct agent *agent)
{
    const int64_t lease = clock_ns() + (int64_t)NODE_LEASE_MS * 1000000;
    const struct visitor self = {.purpose = DOOR_AGENT,
                                 .size = agent->how->slots};
    const bool first = agent->parted_ns == 0;
    enum door_end end;
    int descriptor;
    status result;

    agent->next_try_ns = clock_ns() + (int64_t)AGAIN_MS * 1000000;
    result = door_knock(&descriptor, where_to(agent), &self, &agent->token,
                        knock_ms(agent), &end);
    see_knock(agent, end, lease);
    if (result == OK) door_far_side(descriptor, agent->reached);
    if (result == OK)
        result = wire_open(&agent->up, descriptor, &agent->token, false);
    agent->up.resets = true;
    agent->beat_ns = 0;
    if (result == OK) result = introduce(agent);
    if (result == OK) {
        /* Later ones are renewed by beats alone: ranks that this supervisor
         * could not end are not to live on because it is back. */
        if (atomic_load(&agent->board->lease_ns) == 0)
            lease_renew(agent->board, lease);
        if (agent->refused_ns != 0) return OK;
        if (first) fprintf(stderr, "agent     %s joined %s, %d slots\n",
                           agent->name, agent->how->join, agent->how->slots);
        else fprintf(stderr, "agent     %s is back at %s\n", agent->name,
                     agent->how->join);
        return OK;
    }
    if (first && (end == DOOR_REFUSED || result == ERR_CONFIG))
        return status_pass(result, __FILE__, __LINE__);
    status_clear();
    return OK;
}

static void part(struct agent *agent)
{
    if (agent->refused_ns != 0)
        agent->next_try_ns = clock_ns() + (int64_t)REFUSED_AGAIN_MS * 1000000;
    else if (!agent->over)
        fprintf(stderr, "agent     %s lost its supervisor (%s); its ranks go "
                        "on while they have a lease\n", agent->name,
                status_message());
    status_clear();
    wire_close(&agent->up);
    agent->parted_ns = clock_ns();
}

static int64_t tries_ms(const struct agent *agent)
{
    return REFUSED_MS + agent->refused.silence_ms;
}

/* Its own last connection may not have been missed yet, as where this machine
 * was started again: it tries until it must have been. */
static void hear_refusal(struct agent *agent, const struct node_refused *said)
{
    if (agent->refused_ns == 0) {
        agent->refused_ns = clock_ns();
        agent->refused = *said;
        agent->refused.why[sizeof said->why - 1] = '\0';
        if (said->silence_ms < 0 || said->silence_ms > SILENCE_MOST_MS)
            agent->refused.silence_ms = SILENCE_MOST_MS;
        fprintf(stderr, "agent     %s is not taken (%s); it tries again for "
                "%lld s\n", agent->name, agent->refused.why,
                (long long)tries_ms(agent) / 1000);
    }
}

static status check_refusal(const struct agent *agent, bool busy)
{
    if (agent->refused_ns == 0 || busy ||
        clock_ns() - agent->refused_ns < tries_ms(agent) * 1000000)
        return OK;
    FAIL(ERR_PEER, "%s does not take this agent: %s", agent->how->join,
         agent->refused.why);
}

/* An echo of the future would be of another agent. */
static void hear_beat(struct agent *agent, const struct node_beat *beat)
{
    if (agent->refused_ns != 0)
        fprintf(stderr, "agent     %s joined %s, %d slots\n", agent->name,
                agent->how->join, agent->how->slots);
    agent->refused_ns = 0;
    agent->lease_ms = beat->lease_ms < NODE_LEASE_MS ? NODE_LEASE_MS
                      : beat->lease_ms > NODE_LEASE_MOST_MS
                          ? NODE_LEASE_MOST_MS : beat->lease_ms;
    if (beat->echo_ns > 0 && beat->echo_ns <= clock_ns())
        lease_renew(agent->board,
                    beat->echo_ns + agent->lease_ms * 1000000);
    agent->turn = beat->turn;
    agent->beat_ns = beat->sent_ns;
    patience_tell(agent->up.descriptor, silence_ms(agent));
    courier_partners(agent, beat);
}

static void hear(struct agent *agent, const struct wire_head *head,
                 const void *bytes)
{
    switch ((enum wire_kind)head->kind) {
    case WIRE_ORDER:
        if (head->bytes == sizeof(struct order)) workers_order(agent, bytes);
        break;
    case WIRE_SIGNAL:
        if (head->bytes == sizeof(struct node_signal))
            workers_signal(agent, bytes);
        break;
    case WIRE_FENCE:
        workers_fence(agent, FENCE_GRACE_MS);
        break;
    case WIRE_BEAT:
        if (head->bytes == sizeof(struct node_beat)) hear_beat(agent, bytes);
        break;
    case WIRE_MOVE:
        if (head->bytes == sizeof(struct node_move))
            courier_move(agent, bytes);
        break;
    case WIRE_STORES:
        if (head->bytes == sizeof(struct node_stores))
            courier_stores(agent, bytes);
        break;
    case WIRE_REFUSED:
        if (head->bytes == sizeof(struct node_refused))
            hear_refusal(agent, bytes);
        break;
    case WIRE_RECORDS:
        if (head->bytes == sizeof(struct record_ask) &&
            agent_records(agent, bytes) != OK)
            status_clear(); /* the next look sees that it is gone */
        break;
    case WIRE_END:
        agent->over = true;
        break;
    default:
        break;
    }
}

static void talk(struct agent *agent)
{
    const struct wire_head *head;
    const void *bytes;
    struct node_move moved;
    status result = OK;

    do {
        result = wire_get(&agent->up, &head, &bytes);
        if (result == OK && head != NULL) hear(agent, head, bytes);
    } while (result == OK && head != NULL);
    if (result == OK) result = check_silence(agent);
    while (result == OK && courier_moved(agent, &moved))
        result = wire_put(&agent->up, WIRE_MOVED, &moved, sizeof moved);
    if (result == OK && (agent->changed || clock_ns() - agent->told_ns >
                                               (int64_t)REPORT_MS * 1000000))
        result = report(agent);
    if (result != OK) part(agent);
}

/* ---- the node ---- */

/* One beyond the slots is started for an order. True in a process of the node
 * that shall end. */
static bool start_missing(struct agent *agent)
{
    bool child = false;

    for (int i = 0; i < agent->count && !child; i++) {
        const struct worker *w = &agent->workers[i];

        if (w->process != 0 || clock_ns() < w->again_ns) continue;
        if (i >= agent->how->slots && !place_is_busy(&agent->places[i]))
            continue;
        if (worker_start(agent, i, &child) != OK) status_clear();
    }
    return child;
}

/* Ranks whose lease has ended may have been replaced by now: they end. What
 * came while this process stood still has been heard before. */
static void guard_lease(struct agent *agent)
{
    const int64_t now = clock_ns();

    if (!lease_is_over(agent->board, now) || !is_busy(agent)) {
        agent->late_ns = 0;
        agent->late_told = false;
        return;
    }
    if (agent->late_ns == 0) agent->late_ns = now;
    if (now - agent->late_ns < (int64_t)LEASE_LOOK_MS * 1000000) return;
    if (!agent->late_told)
        fprintf(stderr, "agent     %s has not heard from the supervisor for "
                "%lld ms: its ranks end\n", agent->name,
                (long long)(agent->lease_ms > NODE_LEASE_MS ? agent->lease_ms
                                                            : NODE_LEASE_MS));
    agent->late_told = true;
    workers_fence(agent, 0);
}

/* Without a supervisor ranks go on while they can: a step needs all of them. If
 * one is lost, the others end by themselves; if one stands still, nobody else
 * would end them. */
static status live_alone(struct agent *agent)
{
    const int64_t now = clock_ns();
    const bool busy = is_busy(agent);

    if (busy && ranks_stand_still(agent)) workers_fence(agent, 0);
    if (!busy && agent->parted_ns != 0 &&
        now - agent->parted_ns > (int64_t)ALONE_MS * 1000000)
        FAIL(ERR_PEER, "%s: the supervisor is gone for %d s, and no rank "
             "works here any more", agent->how->join, ALONE_MS / 1000);
    if (agent->parted_ns == 0 &&
        now - agent->began_ns > (int64_t)FIRST_MS * 1000000)
        FAIL(ERR_PEER, "%s: no supervisor has answered for %d minutes",
             agent->how->join, FIRST_MS / 60000);
    TRY(check_refusal(agent, busy));
    /* Ranks without a lease end first. */
    if (now >= agent->next_try_ns && agent->late_ns == 0) TRY(join(agent));
    return OK;
}

static status wait_for_news(struct agent *agent, bool *stopped)
{
    struct pollfd polls[PLACES_MOST + PLACES_EXTRA + DOOR_POLLS + 4];
    struct signalfd_siginfo info;
    int used = 0;

    polls[used++] = (struct pollfd){.fd = agent->signals, .events = POLLIN};
    if (agent->up.descriptor >= 0)
        polls[used++] = (struct pollfd){.fd = agent->up.descriptor,
                                        .events = POLLIN};
    for (int i = 0; i < agent->count; i++)
        if (agent->workers[i].descriptor >= 0)
            polls[used++] = (struct pollfd){
                .fd = agent->workers[i].descriptor, .events = POLLIN};
    poll(polls, (nfds_t)used, LOOK_MS);
    *stopped = read(agent->signals, &info, sizeof info) ==
               (ssize_t)sizeof info;
    return OK;
}

status agent_turn(struct agent *agent, bool *child)
{
    workers_reap(agent);
    workers_look(agent);
    *child = courier_look(agent);
    if (*child) return OK;
    if (agent->up.descriptor >= 0) talk(agent);
    guard_lease(agent);
    if (agent->up.descriptor < 0) TRY(live_alone(agent));
    *child = start_missing(agent);
    return OK;
}

/* *child: this is a process of the node that shall end. */
static status agent_live(struct agent *agent, bool *child)
{
    bool stopped = false;

    TRY(courier_start(agent, child));
    if (!*child) *child = start_missing(agent);
    if (*child) return OK;
    TRY(join(agent));
    while (!agent->over && !*child) {
        TRY(wait_for_news(agent, &stopped));
        if (stopped)
            FAIL(ERR_STOPPED, "agent %s was asked to leave; its ranks end",
                 agent->name);
        TRY(agent_turn(agent, child));
    }
    return OK;
}

static void find_name(struct agent *agent)
{
    char host[NODE_NAME_BYTES] = "node";

    gethostname(host, sizeof host - 1);
    snprintf(agent->name, sizeof agent->name, "%s",
             agent->how->name != NULL ? agent->how->name : host);
}

status agent_run(const struct agent_how *how)
{
    static struct agent agent;
    bool child = false;
    status result;

    agent = (struct agent){.how = how, .signals = -1, .up.descriptor = -1,
                           .token_file = -1, .shared_file = -1,
                           .state_file = -1, .board_file = -1,
                           .count = how->slots + PLACES_EXTRA,
                           .began_ns = clock_ns()};
    find_name(&agent);
    oom_kills_watch();
    result = agent_open(&agent);
    if (result == OK) result = agent_live(&agent, &child);
    if (child) return OK;
    agent_close(&agent);
    return result == OK ? OK : status_pass(result, __FILE__, __LINE__);
}
