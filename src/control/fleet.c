/* SPDX-License-Identifier: Apache-2.0 */
/* fleet.c - agents come, report, fall silent and go. */
#include "control/fleet.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include "base/arena.h"
#include "base/clock.h"
#include "base/status_kept.h"
#include "comm/patience.h"

enum {
    DEATH_MS = 100,       /* ranks whose agent died have ended by then */
    FENCE_AGAIN_MS = 500, /* an order to end ranks is repeated */
    FAR_MS = 1000,        /* longer patience with a node is worth a line */
    LEASE_STEP_MS = 500,  /* leases become longer by so much: few lines */
    END_MS = 2000,        /* for agents to hear that the run is over */
    REFUSED_MS = 5000,    /* between two lines about refusals */
    FENCE_MOST_MS = 10000 /* then a node whose ranks do not end is given up */
};

static const struct crew_far far_calls;

/* ---- opening ---- */

status fleet_open(struct fleet *fleet, const char *listen,
                  const struct token *token, int most, int replicas)
{
    *fleet = (struct fleet){.token = *token, .most = most,
                            .replicas = replicas,
                            .lease_most_ms = NODE_LEASE_MS,
                            .lease_wish_ms = NODE_LEASE_MS};
    for (int i = 0; i < NEWCOMERS; i++) fleet->newcomers[i].descriptor = -1;
    TRY(memory_take((size_t)most, sizeof *fleet->at, (void **)&fleet->at));
    TRY(memory_take((size_t)most, sizeof *fleet->home,
                    (void **)&fleet->home));
    for (int i = 0; i < most; i++) {
        fleet->at[i] = (struct rank_seat){.node = -1};
        fleet_settle(fleet, i, -1);
    }
    fleet->far = far_calls;
    fleet->far.fleet = fleet;
    return door_open(&fleet->door, listen, token, 0);
}

/* Until they have hung up, all that an agent sends arrives: a connection that
 * breaks under a report would take the end with it, which comes behind. */
static void await_hanging_up(struct fleet *fleet)
{
    const int64_t end = clock_ns() + (int64_t)END_MS * 1000000;
    struct pollfd polls[NODES_MOST];
    const struct wire_head *head;
    const void *bytes;
    nfds_t here = 1;

    while (here > 0 && clock_ns() < end) {
        here = 0;
        for (int i = 0; i < fleet->count; i++) {
            struct wire *wire = &fleet->nodes[i].wire;

            while (wire_get(wire, &head, &bytes) == OK && head != NULL)
                continue;
            if (wire->descriptor >= 0)
                polls[here++] = (struct pollfd){.fd = wire->descriptor,
                                                .events = POLLIN};
        }
        if (here > 0) poll(polls, here, 20);
    }
}

void fleet_end(struct fleet *fleet)
{
    struct status_trace kept;

    if (fleet->at == NULL) return; /* it was not opened */
    status_keep(&kept);
    door_close(&fleet->door); /* nobody comes any more */
    for (int i = 0; i < NEWCOMERS; i++) wire_close(&fleet->newcomers[i]);
    for (int i = 0; i < fleet->count; i++)
        if (fleet->nodes[i].wire.descriptor >= 0)
            (void)wire_put(&fleet->nodes[i].wire, WIRE_END, NULL, 0);
    await_hanging_up(fleet);
    (void)status_again(OK, &kept);
}

void fleet_close(struct fleet *fleet)
{
    if (fleet->at == NULL) return;
    for (int i = 0; i < NEWCOMERS; i++) wire_close(&fleet->newcomers[i]);
    for (int i = 0; i < fleet->count; i++) {
        wire_close(&fleet->nodes[i].wire);
        memory_free(fleet->nodes[i].seats);
    }
    memory_free(fleet->at);
    memory_free(fleet->home);
    memory_free(fleet->records);
    door_close(&fleet->door);
    *fleet = (struct fleet){0};
}

/* ---- ranks ---- */

static int rank_of(const struct fleet *fleet, int node, int place)
{
    for (int i = 0; i < fleet->crew->size; i++)
        if (fleet->at[i].node == node && fleet->at[i].place == place &&
            fleet->at[i].order != 0)
            return i;
    return -1;
}

/* A report has the newest calls only: one that an earlier report showed open
 * may have ended between the two. Where it has not, the new one says so. */
static void settle_calls(struct flight *flight, const struct slot_report *r)
{
    for (int i = 0; i < REPORT_ENTRIES; i++) {
        const uint64_t number = r->last[i].number;
        struct flight_entry *e = &flight->entries[number % FLIGHT_ENTRIES];

        if (number != 0 && e->number == number && e->ended_ns == 0)
            e->ended_ns = e->began_ns;
    }
}

/* The page of a far rank, with the times of this machine's clock. */
static void mirror(struct board_page *page, const struct slot_report *r,
                   int64_t ahead_ns)
{
    memcpy(page->sentence, r->sentence, sizeof page->sentence);
    page->sentence[sizeof page->sentence - 1] = '\0';
    for (int i = REPORT_ENTRIES; i-- > 0;)
        fleet_note_call(&page->flight, &r->last[i], ahead_ns);
    atomic_store(&page->flight.count, r->calls);
    atomic_store(&page->flight.beats, r->beats);
    flight_mirror(&page->flight, &r->doing);
    atomic_store(&page->from_step, r->from_step);
    atomic_store(&page->planned_ns, r->planned_ns);
    atomic_store(&page->met_ppm, r->met_ppm);
    atomic_store(&page->copied, r->copied);
    atomic_store(&page->carried[0], r->carried);
    board_copies_mirror(page, &r->copies);
    atomic_store(&page->step_most_ns, r->step_most_ns);
    atomic_store(&page->source, r->source);
    atomic_store(&page->result, r->result);
    atomic_store(&page->verdict, r->verdict);
    atomic_store(&page->step_ns, fleet_time(r->step_ns, ahead_ns));
    atomic_store(&page->step, r->step);
    atomic_store(&page->process, r->process);
    atomic_store(&page->phase, r->phase);
}

static void see_rank(struct fleet *fleet, int rank, const struct slot_report *r,
                     const struct slot_report *before, int64_t ahead_ns)
{
    struct crew_member *m = &fleet->crew->members[rank];
    const uint64_t order = fleet->at[rank].order;

    settle_calls(&fleet->board->pages[rank].flight, before);
    if (r->taken == order && m->lives)
        mirror(&fleet->board->pages[rank], r, ahead_ns);
    m->state = (char)r->state;
    m->kept = r->kept;
    m->heard_ns = clock_ns();
    if (r->taken == order && r->died_with != order && r->process != 0) {
        m->process = (pid_t)r->process;
        m->began = r->began;
    }
    if (r->died_with == order) {
        m->ended = r->ended;
        m->gone = true;
    } else if (r->done >= order && r->taken == order &&
               r->result != ERR_PEER) {
        m->gone = true; /* it says on its page how it ended */
    }
}

/* ---- nodes ---- */

/* An agent that lives never ends a connection in order, and its ranks die with
 * it. In all other cases they may live until their lease ends. */
static int64_t last_life_ns(const struct node *node, const char *why)
{
    const int64_t least = node->heard_ns + (int64_t)NODE_LEASE_MS * 1000000;

    if (strstr(why, "was closed") != NULL)
        return node->lost_ns + (int64_t)DEATH_MS * 1000000;
    return (least > node->leased_ns ? least : node->leased_ns) +
           (int64_t)NODE_MARGIN_MS * 1000000;
}

static void lose(struct fleet *fleet, int index, const char *cause)
{
    struct node *node = &fleet->nodes[index];
    char why[WIRE_WHY_BYTES]; /* the cause may be the wire's */
    int ranks = 0;

    snprintf(why, sizeof why, "%s",
             cause[0] != '\0' ? cause : "the connection broke");
    wire_close(&node->wire);
    node->here = false;
    for (int i = 0; i < fleet->crew->size; i++) {
        struct crew_member *m = &fleet->crew->members[i];

        if (fleet->at[i].node != index || fleet->at[i].order == 0 ||
            !m->lives)
            continue;
        ranks++;
        m->gone = true;
        snprintf(m->why, sizeof m->why, "was lost with node %.30s: %.40s",
                 node->name, why);
    }
    fleet_homeless(fleet, index);
    node->lost_ns = clock_ns();
    fleet->losses++;
    node->silent_ns = last_life_ns(node, why);
    if (ranks > 0) fleet_count_failure(node);
    fprintf(stderr, "node      %s is gone (%s)%s\n", node->name, why,
            node->failures >= NODE_FAILURES_MOST
                ? "; it failed twice in a day and is not used again" : "");
    fleet_pair(fleet);
}

/* Whether a place of the node may still be a rank. */
static bool is_busy(const struct node *node)
{
    for (int i = 0; i < node->places; i++) {
        const struct slot_report *r = &node->seats[i].report;

        if (r->ordered != 0 && r->done != r->ordered) return true;
    }
    return false;
}

/* A rank of an order that nobody remembers. */
static void end_stranger(struct fleet *fleet, int index,
                         const struct slot_report *r)
{
    const struct node_signal said = {r->ordered, r->place, SIGKILL};

    if (r->ordered == 0 || r->done == r->ordered) return;
    if (wire_put(&fleet->nodes[index].wire, WIRE_SIGNAL, &said,
                 sizeof said) != OK)
        status_clear();
}

static void take_report(struct fleet *fleet, int index, const char *bytes,
                        size_t length)
{
    struct node *node = &fleet->nodes[index];
    const struct node_report *head = (const void *)bytes;
    struct slot_report r, before;

    if (length < sizeof *head || head->places < 0 ||
        fleet_time(head->now_ns, 0) == 0 ||
        length != sizeof *head + (size_t)head->places * sizeof r)
        return;
    const int64_t ahead_ns = head->now_ns - clock_ns();
    const int places = head->places;

    /* A beat goes before any order: the lease of its last ranks is old. */
    if (!node->reported) fleet->beat_ns = 0;
    node->reported = true;
    node->heard_ns = clock_ns();
    node->echo_ns = head->now_ns;
    if (head->beat_ns >= node->asked_ns) node->asked_ns = 0;
    fleet_held(fleet, index, head->turn, head->held);
    for (int i = 0; i < places; i++) {
        int rank;

        memcpy(&r, bytes + sizeof *head + (size_t)i * sizeof r, sizeof r);
        if (r.place < 0 || r.place >= node->places) continue;
        before = node->seats[r.place].report;
        node->seats[r.place].report = r;
        rank = rank_of(fleet, index, r.place);
        if (rank >= 0) see_rank(fleet, rank, &r, &before, ahead_ns);
        else if (!fleet->adopts) end_stranger(fleet, index, &r);
        if (r.ordered > fleet->last_order) fleet->last_order = r.ordered;
        if (node->wire.descriptor < 0) return; /* and `bytes` are gone */
    }
    if (is_busy(node)) return;
    if (node->unfenced) fleet->beat_ns = 0;
    node->unfenced = false;
}

/* An answer to another supervisor, or to an earlier question, is none. */
static void see_move(struct fleet *fleet, int index,
                     const struct node_move *moved)
{
    const int rank = moved->rank;

    if (rank < 0 || rank >= fleet->crew->size || fleet->at[rank].node < 0)
        return;
    fleet->moved += fleet->home[rank].node == index &&
                    strncmp(fleet->nodes[fleet->at[rank].node].name,
                            moved->name, sizeof moved->name) == 0;
}

/* It says nothing, or its words come but it hears none: a link that is open in
 * one direction. */
static status check_link(const struct node *node)
{
    const int64_t now = clock_ns();
    const int64_t least_ns = (int64_t)NODE_LEASE_MS * 1000000;
    int64_t most_ms;

    if (now - node->wire.heard_ns <= least_ns &&
        (node->asked_ns == 0 || now - node->asked_ns <= least_ns))
        return OK;
    most_ms = patience_ms(node->wire.descriptor);
    if (now - node->wire.heard_ns > most_ms * 1000000)
        FAIL(ERR_PEER, "%ssilent for %lld ms",
             patience_is_acknowledged(node->wire.descriptor) ? "its agent is "
                                                             : "",
             (long long)most_ms);
    if (node->asked_ns != 0 && now - node->asked_ns > most_ms * 1000000)
        FAIL(ERR_PEER, "deaf for %lld ms", (long long)most_ms);
    return OK;
}

static void listen_to(struct fleet *fleet, int index)
{
    struct node *node = &fleet->nodes[index];
    const struct wire_head *head = NULL;
    struct node_move moved;
    const void *bytes;
    status result;

    do {
        result = wire_get(&node->wire, &head, &bytes);
        if (result != OK || head == NULL) break;
        if (head->kind == WIRE_MOVED && head->bytes == sizeof moved) {
            memcpy(&moved, bytes, sizeof moved);
            see_move(fleet, index, &moved);
        }
        if (head->kind == WIRE_RECORDS_ANSWER)
            fleet_take_records(fleet, index, bytes, head->bytes);
        else if (head->kind == WIRE_REPORT) /* may end the connection */
            take_report(fleet, index, bytes, head->bytes);
    } while (result == OK && head != NULL);
    if (result == OK) result = check_link(node);
    if (result == OK) return;
    char why[WIRE_WHY_BYTES];

    snprintf(why, sizeof why, "%s", status_message());
    status_clear();
    lose(fleet, index, why);
}

static struct node *find_node(struct fleet *fleet, const char *name)
{
    for (int i = 0; i < fleet->count; i++)
        if (strcmp(fleet->nodes[i].name, name) == 0) return &fleet->nodes[i];
    return NULL;
}

/* A known name is the same node: it comes back. NULL: it is not taken. */
static struct node *node_for(struct fleet *fleet,
                             const struct node_hello *hello, const char **why)
{
    struct node *node = find_node(fleet, hello->name);

    if (hello->slots < 1 || hello->places < hello->slots ||
        hello->places > PLACES_MOST + PLACES_EXTRA || hello->name[0] == '\0')
        *why = "what it says of itself makes no sense";
    else if (node != NULL && node->wire.descriptor >= 0)
        *why = "another agent has its name: give it another one with --name";
    else if (node != NULL && node->places != hello->places)
        *why = "an agent with its name had other slots: give it another name";
    else if (node == NULL && fleet->count == NODES_MOST)
        *why = "there is no room for more agents";
    if (*why != NULL || node != NULL) return *why == NULL ? node : NULL;
    node = &fleet->nodes[fleet->count];
    *node = (struct node){.wire.descriptor = -1};
    fleet_unpaired(node);
    if (memory_take((size_t)hello->places, sizeof *node->seats,
                    (void **)&node->seats) != OK) {
        status_clear();
        *why = "no memory";
        return NULL;
    }
    fleet->count++;
    return node;
}

/* Said here once in a while: the agent tries again. */
static void refuse(struct fleet *fleet, struct wire *wire,
                   const struct node_hello *hello, const char *why)
{
    struct node_refused refused = {2 * patience_ms(wire->descriptor), ""};

    if (clock_ns() > fleet->refused_ns &&
        fprintf(stderr, "node      %s is not taken: %s\n", hello->name, why))
        fleet->refused_ns = clock_ns() + REFUSED_MS * INT64_C(1000000);
    snprintf(refused.why, sizeof refused.why, "%s", why);
    if (wire_put(wire, WIRE_REFUSED, &refused, sizeof refused) != OK)
        status_clear();
    wire_close(wire);
}

static void admit(struct fleet *fleet, struct wire *wire,
                  const struct node_hello *said)
{
    struct node_hello hello = *said;
    struct node *node;
    const char *why = NULL;

    hello.name[NODE_NAME_BYTES - 1] = hello.address[DOOR_ADDRESS_BYTES - 1] = 0;
    if ((node = node_for(fleet, &hello, &why)) == NULL) {
        refuse(fleet, wire, &hello, why);
        return;
    }
    snprintf(node->name, sizeof node->name, "%s", hello.name);
    snprintf(node->address, sizeof node->address, "%s", hello.address);
    node->slots = hello.slots;
    node->places = hello.places;
    node->wire = *wire;
    node->here = true;
    node->reported = false;
    node->joined_order = fleet->last_order;
    node->heard_ns = clock_ns();
    node->echo_ns = node->asked_ns = 0;
    for (int i = 0; i < node->places; i++)
        node->seats[i].report = (struct slot_report){0};
    *wire = (struct wire){.descriptor = -1};
    fprintf(stderr, "node      %s joined: %d slots, %d nodes are here\n",
            node->name, node->slots, fleet_nodes(fleet));
    fleet_tell_hidden(fleet, node);
    if (fleet->stores.directory[0] != '\0' &&
        wire_put(&node->wire, WIRE_STORES, &fleet->stores,
                 sizeof fleet->stores) != OK)
        status_clear(); /* the next look sees that it is gone */
    fleet_pair(fleet);
}

static void hear_newcomers(struct fleet *fleet)
{
    for (int i = 0; i < NEWCOMERS; i++) {
        struct wire *wire = &fleet->newcomers[i];
        const struct wire_head *head;
        const void *bytes;

        if (wire->descriptor < 0) continue;
        if (wire_get(wire, &head, &bytes) != OK) {
            status_clear();
            continue;
        }
        if (head != NULL && (head->kind != WIRE_HELLO ||
                             head->bytes != sizeof(struct node_hello)))
            wire_close(wire);
        else if (head != NULL)
            admit(fleet, wire, bytes);
        else if (clock_ns() - wire->heard_ns >
                 (DOOR_MS + patience_more_ms(wire->descriptor)) * 1000000)
            wire_close(wire);
    }
}

static void welcome(struct fleet *fleet)
{
    struct visitor visitor;
    int descriptor;

    while (door_step(&fleet->door, &visitor, &descriptor)) {
        struct wire *wire = &fleet->newcomers[0];

        for (int i = 0; i < NEWCOMERS; i++)
            if (fleet->newcomers[i].descriptor < 0)
                wire = &fleet->newcomers[i];
        if (door_answer(&descriptor, visitor.purpose != DOOR_AGENT
                            ? "this is where agents join" : NULL) != OK) {
            status_clear();
            continue;
        }
        if (descriptor < 0) continue;
        wire_close(wire);
        if (wire_open(wire, descriptor, &fleet->token, true) != OK)
            status_clear();
    }
}

/* ---- for the crew ---- */

static int far_polls(void *argument, struct pollfd *polls)
{
    struct fleet *fleet = argument;
    int used = door_polls(&fleet->door, polls);

    for (int i = 0; i < NEWCOMERS; i++)
        if (fleet->newcomers[i].descriptor >= 0)
            polls[used++] = (struct pollfd){
                .fd = fleet->newcomers[i].descriptor, .events = POLLIN};
    for (int i = 0; i < fleet->count; i++)
        if (fleet->nodes[i].wire.descriptor >= 0)
            polls[used++] = (struct pollfd){
                .fd = fleet->nodes[i].wire.descriptor, .events = POLLIN};
    return used;
}

static void name_partners(const struct fleet *fleet, const struct node *node,
                          struct node_beat *said)
{
    for (int i = 0; i < PARTNERS_MOST; i++) {
        const struct node *partner = node->partners[i] >= 0
            ? &fleet->nodes[node->partners[i]] : NULL;
        struct node_partner *named = &said->partners[i];

        if (partner == NULL || partner->wire.descriptor < 0) continue;
        memcpy(named->name, partner->name, sizeof named->name);
        memcpy(named->address, partner->address, sizeof named->address);
    }
}

/* Once, and again where it has become much slower. */
static void tell_slow(struct node *node)
{
    const int descriptor = node->wire.descriptor;
    const int64_t more_ms = patience_more_ms(descriptor);

    if (more_ms < FAR_MS || more_ms < 2 * node->told_ms) return;
    fprintf(stderr, "node      %s is far away: round trips of %lld ms; it "
            "counts as lost after %.1f s of silence\n", node->name,
            (long long)patience_round_us(descriptor) / 1000,
            1e-3 * (double)patience_ms(descriptor));
    node->told_ms = more_ms;
}

static int64_t longer_lease_ms(int64_t wanted)
{
    const int64_t steps = (wanted + LEASE_STEP_MS - 1) / LEASE_STEP_MS;

    return steps * LEASE_STEP_MS < NODE_LEASE_MOST_MS
               ? steps * LEASE_STEP_MS : NODE_LEASE_MOST_MS;
}

/* How long a lease of the node is: as long as it may be silent, if the journal
 * has one that is as long. */
static int64_t lease_ms(struct fleet *fleet, struct node *node)
{
    const int64_t wanted = patience_ms(node->wire.descriptor);

    patience_tell(node->wire.descriptor, wanted);
    tell_slow(node);
    if (fleet->lease_wish_ms < wanted)
        fleet->lease_wish_ms = longer_lease_ms(wanted);
    return wanted < fleet->lease_most_ms ? wanted : fleet->lease_most_ms;
}

static void beat(struct fleet *fleet)
{
    if (clock_ns() - fleet->beat_ns < (int64_t)NODE_BEAT_MS * 1000000) return;
    fleet->beat_ns = clock_ns();
    for (int i = 0; i < fleet->count; i++) {
        struct node *node = &fleet->nodes[i];
        struct node_beat said = {.turn = node->turn, .sent_ns = fleet->beat_ns,
                                 .echo_ns = node->unfenced ? 0
                                                           : node->echo_ns};

        if (node->wire.descriptor < 0) continue;
        said.lease_ms = lease_ms(fleet, node);
        if (said.echo_ns > 0 &&
            node->heard_ns + said.lease_ms * 1000000 > node->leased_ns)
            node->leased_ns = node->heard_ns + said.lease_ms * 1000000;
        if (node->asked_ns == 0) node->asked_ns = said.sent_ns;
        name_partners(fleet, node, &said);
        if (wire_put(&node->wire, WIRE_BEAT, &said, sizeof said) == OK)
            continue;
        status_clear();
        lose(fleet, i, node->wire.why);
    }
}

static void far_step(void *argument)
{
    struct fleet *fleet = argument;

    welcome(fleet);
    hear_newcomers(fleet);
    for (int i = 0; i < fleet->count; i++) {
        struct node *node = &fleet->nodes[i];

        if (node->wire.descriptor >= 0) listen_to(fleet, i);
        else if (node->here) lose(fleet, i, node->wire.why);
    }
    beat(fleet);
}

static void far_signal(void *argument, int rank, int number)
{
    struct fleet *fleet = argument;
    const struct rank_seat *at = &fleet->at[rank];
    const struct node_signal said = {at->order, at->place, number};

    if (at->order == 0 || fleet->nodes[at->node].wire.descriptor < 0 ||
        number == SIGKILL) /* the fence does that, after its grace */
        return;
    if (wire_put(&fleet->nodes[at->node].wire, WIRE_SIGNAL, &said,
                 sizeof said) == OK)
        return;
    status_clear();
    lose(fleet, at->node, fleet->nodes[at->node].wire.why);
}

void fleet_look(struct fleet *fleet, int wait_ms)
{
    struct pollfd polls[CREW_FAR_POLLS];

    poll(polls, (nfds_t)far_polls(fleet, polls), wait_ms);
    far_step(fleet);
}

/* Orders that were just sent are not in a report yet. Those of an earlier
 * connection are, or a new agent has taken the old one's place. */
static bool knows_orders(const struct fleet *fleet, int index)
{
    for (int i = 0; i < fleet->crew->size; i++) {
        const struct rank_seat *at = &fleet->at[i];

        if (at->node == index && at->order > fleet->nodes[index].joined_order &&
            fleet->nodes[index].seats[at->place].report.ordered < at->order)
            return false;
    }
    return true;
}

static bool is_idle(const struct fleet *fleet, int index)
{
    const struct node *node = &fleet->nodes[index];

    if (node->wire.descriptor < 0 || node->unfenced)
        return clock_ns() >= node->silent_ns;
    return node->reported && !is_busy(node) && knows_orders(fleet, index);
}

static bool all_idle(const struct fleet *fleet)
{
    for (int i = 0; i < fleet->count; i++)
        if (!is_idle(fleet, i)) return false;
    return true;
}

/* The message may have gone to a connection that is lost by now, or to a place
 * whose process was just being replaced: it is sent again. */
static void send_fence(struct fleet *fleet, bool all)
{
    for (int i = 0; i < fleet->count; i++) {
        struct node *node = &fleet->nodes[i];

        if (node->wire.descriptor < 0 || (!all && is_idle(fleet, i)) ||
            wire_put(&node->wire, WIRE_FENCE, NULL, 0) == OK)
            continue;
        status_clear();
        lose(fleet, i, node->wire.why);
    }
}

/* Nodes whose ranks do not end are lost. Their lease ends them, if anything
 * does; it is not renewed while `unfenced` holds. */
static void give_up(struct fleet *fleet)
{
    for (int i = 0; i < fleet->count; i++) {
        struct node *node = &fleet->nodes[i];

        if (node->wire.descriptor < 0 || node->unfenced || is_idle(fleet, i))
            continue;
        node->unfenced = true;
        lose(fleet, i, "no answer: its ranks did not end");
    }
}

static void far_fence(void *argument)
{
    struct fleet *fleet = argument;
    const int64_t end = clock_ns() + (int64_t)FENCE_MOST_MS * 1000000;
    int64_t again = clock_ns() + (int64_t)FENCE_AGAIN_MS * 1000000;

    send_fence(fleet, true);
    while (!all_idle(fleet)) {
        fleet_look(fleet, 20);
        if (clock_ns() > end) give_up(fleet);
        if (clock_ns() < again) continue;
        send_fence(fleet, false);
        again = clock_ns() + (int64_t)FENCE_AGAIN_MS * 1000000;
    }
    for (int i = 0; i < fleet->crew->size; i++) {
        fleet->crew->members[i].lives = false;
        if (fleet->at[i].order != 0) fleet->at[i].last = fleet->at[i].order;
        fleet->at[i].order = 0;
    }
}

static const struct crew_far far_calls = {
    .polls = far_polls, .step = far_step, .signal = far_signal,
    .fence = far_fence};
