/* SPDX-License-Identifier: Apache-2.0 */
/* fleet_seat.c - which place becomes which rank. */
#include <stdio.h>
#include <string.h>
#include "base/clock.h"
#include "control/fleet.h"

int fleet_nodes(const struct fleet *fleet)
{
    int here = 0;

    for (int i = 0; i < fleet->count; i++)
        here += fleet->nodes[i].wire.descriptor >= 0;
    return here;
}

const struct node *fleet_hidden(const struct fleet *fleet,
                                const struct node *newcomer,
                                const struct node **other)
{
    const bool hidden = door_is_loopback(newcomer->address);

    for (int i = 0; i < fleet->count; i++) {
        const struct node *node = &fleet->nodes[i];

        if (node->wire.descriptor < 0 ||
            door_is_loopback(node->address) == hidden)
            continue;
        *other = hidden ? node : newcomer;
        return hidden ? newcomer : node;
    }
    return NULL;
}

void fleet_tell_hidden(const struct fleet *fleet, const struct node *node)
{
    const struct node *other = NULL;
    const struct node *hidden = fleet_hidden(fleet, node, &other);

    if (hidden == NULL) return;
    fprintf(stderr, "notice    node %s is at the loopback address: if node %s "
            "is another machine, it cannot reach it; let the agent join by "
            "this machine's address in the network\n", hidden->name,
            other->name);
}

static bool node_is_used(const struct node *node)
{
    return node->wire.descriptor >= 0 && node->reported && !node->unfenced &&
           !node->wrong && node->failures < NODE_FAILURES_MOST;
}

void fleet_count_failure(struct node *node)
{
    const int64_t day_ns = INT64_C(86400) * 1000000000;

    if (node->failures == 1 && clock_ns() - node->failed_ns > day_ns)
        node->failures = 0;
    node->failed_ns = clock_ns();
    node->failures++;
}

bool fleet_forgive(struct fleet *fleet)
{
    bool found = false;

    for (int i = 0; i < fleet->count; i++) {
        struct node *node = &fleet->nodes[i];

        if (node->wire.descriptor < 0 || node->failures < NODE_FAILURES_MOST)
            continue;
        node->failures = NODE_FAILURES_MOST - 1;
        fprintf(stderr, "node      %s failed twice, but no other is left: it "
                "is used again\n", node->name);
        found = true;
    }
    return found;
}

/* A place that failed once may go on at once; from the second time on it has a
 * pause that doubles. */
static bool seat_rests(const struct seat *seat)
{
    int64_t pause_ms = SEAT_PAUSE_MS;

    if (seat->failures < 2) return false;
    for (int i = 2; i < seat->failures && pause_ms < SEAT_PAUSE_MOST_MS; i++)
        pause_ms *= 2;
    return clock_ns() - seat->failed_ns < pause_ms * 1000000;
}

static bool seat_is_free(const struct fleet *fleet, int node, int place)
{
    const struct seat *seat = &fleet->nodes[node].seats[place];

    for (int i = 0; i < fleet->crew->size; i++)
        if (fleet->at[i].order != 0 && fleet->at[i].node == node &&
            fleet->at[i].place == place)
            return false;
    return place >= fleet->nodes[node].slots || !seat_rests(seat);
}

int fleet_usable(const struct fleet *fleet)
{
    int usable = 0;

    for (int i = 0; i < fleet->count; i++) {
        const struct node *node = &fleet->nodes[i];

        for (int j = 0; j < node->slots && node_is_used(node); j++)
            usable += !seat_rests(&node->seats[j]);
    }
    return usable;
}

void fleet_blame(struct fleet *fleet, int rank)
{
    const struct rank_seat *at = &fleet->at[rank];
    struct seat *seat;

    if (at->order == 0) return;
    seat = &fleet->nodes[at->node].seats[at->place];
    if (clock_ns() - seat->failed_ns > (int64_t)SEAT_MEMORY_MS * 1000000)
        seat->failures = 0;
    seat->failures++;
    seat->failed_ns = clock_ns();
    seat->failed_order = at->order;
}

void fleet_quarantine(struct fleet *fleet, int rank)
{
    const struct rank_seat *at = &fleet->at[rank];
    struct node *node;

    if (at->node < 0) return;
    node = &fleet->nodes[at->node];
    if (!node->wrong)
        fprintf(stderr, "node      %s computes wrong numbers; it is not used "
                "again\n", node->name);
    node->wrong = true;
}

bool fleet_is_wrong(const struct fleet *fleet)
{
    for (int i = 0; i < fleet->count; i++)
        if (!fleet->nodes[i].wrong) return false;
    return fleet->count > 0;
}

/* The free place of the node that failed least; -1: none. */
static int best_place(const struct fleet *fleet, int index, bool crowded)
{
    const struct node *node = &fleet->nodes[index];
    const int most = crowded ? node->places : node->slots;
    int best = -1;

    if (!node_is_used(node)) return -1;
    for (int i = 0; i < most; i++)
        if (seat_is_free(fleet, index, i) &&
            (best < 0 || (i < node->slots && node->seats[i].failures <
                                                 node->seats[best].failures)))
            best = i;
    return best;
}

static bool give_place(struct fleet *fleet, int rank, int node, int place)
{
    if (place < 0) return false;
    fleet->at[rank] = (struct rank_seat){node, place,
                                         .order = fleet->last_order + 1};
    fleet->last_order++;
    return true;
}

static bool take_place(struct fleet *fleet, int rank, int node, bool crowded)
{
    return node >= 0 && give_place(fleet, rank, node,
                                   best_place(fleet, node, crowded));
}

/* A rank that did not fail stays in its process. */
static bool stay(struct fleet *fleet, int rank)
{
    const int node = fleet->at[rank].node, place = fleet->at[rank].place;

    return node >= 0 && node_is_used(&fleet->nodes[node]) &&
           place < fleet->nodes[node].slots &&
           fleet->nodes[node].seats[place].failed_order <
               fleet->at[rank].last &&
           seat_is_free(fleet, node, place) &&
           give_place(fleet, rank, node, place);
}

static bool sit(struct fleet *fleet, int rank, bool crowded)
{
    if (take_place(fleet, rank, fleet->home[rank].node, crowded)) return true;
    for (int i = 0; i < fleet->count; i++)
        if (take_place(fleet, rank, i, false)) return true;
    for (int i = 0; i < fleet->count && crowded; i++)
        if (take_place(fleet, rank, i, true)) return true;
    return false;
}

status fleet_seat(struct fleet *fleet, bool crowded)
{
    const int size = fleet->crew->size;

    for (int i = 0; i < fleet->most; i++) {
        if (fleet->at[i].order != 0) fleet->at[i].last = fleet->at[i].order;
        fleet->at[i].order = 0;
    }
    for (int i = 0; i < size; i++) stay(fleet, i);
    for (int i = 0; i < size; i++)
        if (fleet->at[i].order == 0 && !sit(fleet, i, crowded))
            FAIL(ERR_PEER, "%d ranks, but the %d agents have only %d places",
                 size, fleet_nodes(fleet), fleet_usable(fleet));
    return OK;
}

/* Where ranks find the shards that they need. */
static void name_nodes(const struct fleet *fleet, struct order *order)
{
    size_t used = 0;

    order->nodes[0] = '\0';
    if (fleet->stores.directory[0] == '\0') return;
    for (int i = 0; i < fleet->count; i++) {
        const struct node *node = &fleet->nodes[i];

        if (node->wire.descriptor >= 0 && used < sizeof order->nodes)
            used += (size_t)snprintf(order->nodes + used,
                                     sizeof order->nodes - used, "%s %s\n",
                                     node->name, node->address);
    }
}

status fleet_order(struct fleet *fleet, int rank, struct order *order)
{
    const struct rank_seat *at = &fleet->at[rank];
    struct crew_member *m = &fleet->crew->members[rank];
    int here = 0;

    for (int i = 0; i < fleet->crew->size; i++)
        here += fleet->at[i].node == at->node;
    order->number = at->order;
    order->place = at->place;
    order->rank = rank;
    order->size = fleet->crew->size;
    order->here = here;
    order->shares = here == fleet->crew->size;
    name_nodes(fleet, order);
    *m = (struct crew_member){.far = true, .lives = true, .descriptor = -1};
    m->process = (pid_t)fleet->nodes[at->node].seats[at->place].report.process;
    m->began = fleet->nodes[at->node].seats[at->place].report.began;
    fleet_settle(fleet, rank, at->node);
    if (wire_put(&fleet->nodes[at->node].wire, WIRE_ORDER, order,
                 sizeof *order) == OK)
        return OK;
    m->gone = true;
    snprintf(m->why, sizeof m->why, "was lost with node %.40s",
             fleet->nodes[at->node].name);
    return ERR_PEER;
}

void fleet_believe(struct fleet *fleet, int rank, const char *name, int place,
                   uint64_t order)
{
    struct crew_member *m = &fleet->crew->members[rank];

    *m = (struct crew_member){.far = true, .lives = true, .descriptor = -1};
    fleet->at[rank] = (struct rank_seat){.node = -1};
    for (int i = 0; i < fleet->count; i++)
        if (strcmp(fleet->nodes[i].name, name) == 0 && place >= 0 &&
            place < fleet->nodes[i].places &&
            fleet->nodes[i].wire.descriptor >= 0)
            fleet->at[rank] = (struct rank_seat){i, place, order, order};
    if (fleet->at[rank].order == 0) {
        m->gone = true;
        snprintf(m->why, sizeof m->why, "was lost with node %.40s", name);
    } else {
        const struct rank_seat *at = &fleet->at[rank];
        const struct slot_report *r = &fleet->nodes[at->node]
                                           .seats[at->place].report;

        fleet_settle(fleet, rank, at->node);
        m->process = (pid_t)r->process;
        m->began = r->began;
    }
    if (order > fleet->last_order) fleet->last_order = order;
}
