/* SPDX-License-Identifier: Apache-2.0 */
/* courier_keep.c - receives copies of other nodes' ranks, and serves files to
 * their agents. */
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>
#include "base/clock.h"
#include "base/fault.h"
#include "control/courier.h"
#include "control/courier_slots.h"
#include "control/far_files.h"

enum { STORES_MS = 20000, PEERS_MOST = 16 };

/* The rows, or who has them. */
static status receive_rows(struct agent *agent, struct wire *wire,
                           const struct copy_head *head,
                           struct copy_slot *slot, bool *whole)
{
    bool behind;

    slot->twin = head->twin;
    if (head->twin != 0) {
        *whole = courier_slot_twin(agent, head, &behind) == head->twin &&
                 slot->state_sum == copy_sum(slot->state, slot->state_length);
        return OK;
    }
    TRY(courier_rows_receive(wire, head, slot, whole));
    if (*whole) courier_slot_kept(head->rank);
    return OK;
}

static status receive_slot(struct agent *agent, struct wire *wire,
                           const struct copy_head *head, bool *whole)
{
    struct copy_slot *slot = courier_slot(agent->state_file, head, true);

    if (slot == NULL) FAIL(ERR_MEMORY, "no memory for a copy");
    copy_slot_spoil(slot);
    slot->magic = head->magic;
    slot->ranks = (uint64_t)head->ranks;
    slot->bytes = head->rows;
    slot->layout = head->layout;
    slot->carried = 1;
    slot->sum = head->sum;
    slot->state_sum = head->state_sum;
    slot->state_length = head->state_length;
    TRY(wire_get_bulk(wire, slot->state, (size_t)head->state_length));
    TRY(receive_rows(agent, wire, head, slot, whole));
    if (*whole) atomic_store(&slot->step, head->step);
    return OK;
}

/* Says first that it writes: then either this sees that the rank is seated, or
 * the agent sees this, and ends it (courier_halt). */
static status receive_apart(struct agent *agent, struct wire *wire,
                            const struct copy_head *head, bool *whole)
{
    status result;

    atomic_store(&agent->courier->receives, true);
    if (!courier_may_write(agent, head)) {
        atomic_store(&agent->courier->receives, false);
        FAIL(ERR_PEER, "a copy that could lie where a rank's state is");
    }
    result = receive_slot(agent, wire, head, whole);
    atomic_store(&agent->courier->receives, false);
    return result;
}

static status answer_offer(const struct agent *agent, struct wire *wire,
                           struct copy_head copy)
{
    bool behind;

    copy.twin = courier_slot_twin(agent, &copy, &behind);
    copy.whole = copy.twin == 0 && behind ? COPY_LATER : COPY_TORN;
    return wire_put(wire, WIRE_COPIED, &copy, sizeof copy);
}

static status serve_peer(struct agent *agent, struct wire *wire)
{
    static double used_s;
    const struct wire_head *head;
    const void *bytes;
    struct copy_head copy;
    bool whole = false;

    TRY(wire_get(wire, &head, &bytes));
    if (head == NULL) return OK;
    if ((head->kind != WIRE_COPY && head->kind != WIRE_OFFER) ||
        head->bytes != sizeof copy)
        FAIL(ERR_PEER, "another message than a copy");
    memcpy(&copy, bytes, sizeof copy);
    if (!head_is_sound(&copy))
        FAIL(ERR_PEER, "a copy that makes no sense");
    if (head->kind == WIRE_OFFER) return answer_offer(agent, wire, copy);
    TRY(receive_apart(agent, wire, &copy, &whole));
    courier_used(agent, &used_s);
    copy.whole = whole ? COPY_WHOLE : COPY_TORN;
    atomic_store(&agent->courier->slot_bytes, copy.slot_bytes);
    atomic_store(&agent->courier->ranks, copy.ranks);
    return wire_put(wire, WIRE_COPIED, &copy, sizeof copy);
}

/* A reader may come before the supervisor has said where the files are: an
 * empty list would be a wrong answer. */
static bool await_stores(const struct courier *courier)
{
    const int64_t end = clock_ns() + (int64_t)STORES_MS * 1000000;

    while (!atomic_load(&courier->stores_named) && clock_ns() < end)
        poll(NULL, 0, 10);
    return atomic_load(&courier->stores_named);
}

/* A process for each who reads files: a slow disk holds up nobody else. */
static void serve_files(struct agent *agent, int descriptor)
{
    const pid_t parent = getpid();
    struct wire wire = {.descriptor = -1};
    const pid_t process = fork();

    if (process != 0) {
        close(descriptor);
        return;
    }
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    prctl(PR_SET_NAME, "lockstep:files");
    door_close(&agent->door);
    if (getppid() == parent &&
        wire_open(&wire, descriptor, &agent->token, true) == OK &&
        await_stores(agent->courier))
        far_files_serve(&wire, &agent->courier->stores);
    _exit(0);
}

static void welcome(struct agent *agent, struct wire *peers)
{
    struct visitor visitor;
    int descriptor;

    while (door_step(&agent->door, &visitor, &descriptor)) {
        struct wire *wire = &peers[0];

        for (int i = 0; i < PEERS_MOST; i++)
            if (peers[i].descriptor < 0) wire = &peers[i];
        if (door_answer(&descriptor, NULL) != OK) status_clear();
        if (descriptor < 0) continue;
        if (visitor.purpose == DOOR_FILES) {
            serve_files(agent, descriptor);
            continue;
        }
        wire_close(wire);
        if (wire_open(wire, descriptor, &agent->token, true) != OK)
            status_clear();
    }
}

void courier_keep(struct agent *agent)
{
    struct pollfd polls[DOOR_POLLS + PEERS_MOST];
    struct wire peers[PEERS_MOST];
    const pid_t parent = getppid();

    for (int i = 0; i < PEERS_MOST; i++)
        peers[i] = (struct wire){.descriptor = -1};
    signal(SIGCHLD, SIG_IGN); /* those who serve files */
    while (getppid() == parent) {
        int used = door_polls(&agent->door, polls);

        for (int i = 0; i < PEERS_MOST; i++)
            if (peers[i].descriptor >= 0)
                polls[used++] = (struct pollfd){.fd = peers[i].descriptor,
                                                .events = POLLIN};
        poll(polls, (nfds_t)used, 200);
        welcome(agent, peers);
        for (int i = 0; i < PEERS_MOST; i++)
            if (peers[i].descriptor >= 0 &&
                serve_peer(agent, &peers[i]) != OK) {
                status_clear();
                wire_close(&peers[i]);
            }
    }
}
