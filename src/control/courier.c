/* SPDX-License-Identifier: Apache-2.0 */
/* courier.c - carries copies of the ranks' state from node to node. */
#include "control/courier.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include "base/clock.h"
#include "base/fault.h"
#include "comm/crew.h"
#include "control/courier_slots.h"

enum { KNOCK_MS = 1000, ANSWER_MS = 20000, START_MS = 500,
       AGAIN_MS = 200, AGAIN_MOST_MS = 300000, /* twice as long after each
                         * copy in a row that was refused */
       OFFER_MS = 5000, /* a rank of the partner may finish a step so much
                         * later */
       OFFER_COPIES = 64 /* sent without an offer, after one was refused */,
       LOST_MS = 6000 /* then ranks go on without a second copy */,
       STOPPED_MS = 30000 /* as long as ranks wait for one copy */ };

/* ---- sending ---- */

struct sender {
    struct agent *agent;
    struct courier_link *link;
    int number;            /* of the link */
    struct wire wire;      /* to the partner */
    uint64_t turn;         /* of the partner that it is for */
    int64_t next_try_ns, lost_ns; /* 0: it is there, and took copies of all */
    int refusals;          /* connections in a row that ended with a copy */
    uint64_t *sent;        /* owned, [places]: copies of the page that are
                            * there, and for which order */
    uint64_t *order;
    struct offer {
        uint64_t copies, order; /* of the page and its place: offered */
        int64_t began_ns, next_ns;
        int refused;       /* copies since, until one is offered again */
    } *offers;             /* owned, [places] */
    struct copy_pace pace; /* of copies that ranks wait for */
    int64_t carried_ns;    /* when a copy last was */
    double used_s;         /* of processors, as told to the ranks */
};

static status await_answer(struct wire *wire, struct copy_head *answer)
{
    const int64_t end = clock_ns() + (int64_t)ANSWER_MS * 1000000;
    const struct wire_head *head;
    const void *bytes;

    for (;;) {
        struct pollfd one = {.fd = wire->descriptor, .events = POLLIN};

        TRY(wire_get(wire, &head, &bytes));
        if (head != NULL) break;
        if (clock_ns() > end) FAIL(ERR_PEER, "no answer to a copy");
        poll(&one, 1, 100);
    }
    if (head->kind != WIRE_COPIED || head->bytes != sizeof *answer)
        FAIL(ERR_PEER, "another answer than expected");
    memcpy(answer, bytes, sizeof *answer);
    return OK;
}

/* One slot; *whole: it is there, and was whole when it left. ERR_PEER, too: it
 * was, but is not there. */
static status send_slot(struct wire *wire, struct copy_slot *slot,
                        struct copy_head *head, struct copy_pace *pace,
                        bool *whole)
{
    struct copy_head answer;

    TRY(wire_put(wire, WIRE_COPY, head, sizeof *head));
    TRY(wire_put_bulk(wire, slot->state, (size_t)head->state_length));
    if (head->twin == 0) TRY(courier_rows_send(wire, slot, head, pace));
    TRY(await_answer(wire, &answer));
    if (atomic_load(&slot->step) != head->step ||
        atomic_load(&slot->spoilt) != head->spoilt)
        return OK;
    *whole = answer.whole == COPY_WHOLE && answer.rank == head->rank &&
             answer.step == head->step;
    if (!*whole && head->twin == 0) FAIL(ERR_PEER, "a copy was not taken");
    return OK;
}

static status connect_to(struct sender *s, struct wire *wire,
                         const char *address)
{
    const struct visitor self = {.purpose = DOOR_AGENT};
    int descriptor;

    TRY(door_knock(&descriptor, address, &self, &s->agent->token, KNOCK_MS,
                   NULL));
    return wire_open(wire, descriptor, &s->agent->token, false);
}

/* As a receiver does it (courier_keep.c). */
static bool fill(const struct agent *agent, const struct copy_head *head,
                 const struct copy_memory *memory, struct copy_slot *slot)
{
    bool may;

    atomic_store(&agent->courier->fills, true);
    may = courier_may_write(agent, head);
    if (fault_point("courier.fill") != OK) status_clear();
    if (may) copy_slot_fill(memory, slot);
    atomic_store(&agent->courier->fills, false);
    return may;
}

/* Both slots of a rank go to another node, with rows, which are filled in here:
 * of no rank that is seated here. */
static status send_rank(struct sender *s, struct wire *wire,
                        struct copy_head head, bool *any)
{
    const struct copy_memory memory = {s->agent->state_file,
                                       (uint64_t)head.ranks, head.slot_bytes};

    for (head.index = 0; head.index < COPY_SLOTS; head.index++) {
        struct copy_slot *slot = courier_slot(s->agent->state_file, &head,
                                              false);
        bool whole = false;

        if (slot == NULL || (slot->twin != 0 &&
                             !fill(s->agent, &head, &memory, slot)))
            continue;
        head_from_slot(&head, slot);
        if (head_is_sound(&head))
            TRY(send_slot(wire, slot, &head, NULL, &whole));
        *any = *any || whole;
    }
    return OK;
}

static void do_moves(struct sender *s)
{
    struct courier *c = s->agent->courier;

    while (atomic_load(&c->move_done) < atomic_load(&c->move_asked)) {
        struct courier_move *m =
            &c->moves[atomic_load(&c->move_done) % MOVES_MOST];
        const struct copy_head head = {.rank = m->what.rank,
                                       .ranks = m->ranks,
                                       .slot_bytes = m->slot_bytes};
        struct wire wire = {.descriptor = -1};
        bool any = false;

        if (m->slot_bytes == 0 ||
            connect_to(s, &wire, m->what.address) != OK ||
            send_rank(s, &wire, head, &any) != OK)
            status_clear();
        wire_close(&wire);
        m->what.whole = any;
        atomic_fetch_add(&c->move_done, 1);
    }
}

/* Memory of another layout may hold anything where a head would be. */
static int newest(struct copy_slot *const slots[COPY_SLOTS])
{
    if (!copy_magic_is(slots[0]->magic)) return 1;
    if (!copy_magic_is(slots[1]->magic)) return 0;
    return atomic_load(&slots[1]->step) > atomic_load(&slots[0]->step);
}

/* Asks the partner whether a rank of its own has the same rows, as replicas do:
 * then head->twin names it. *later: it may have them soon. */
static status offer(struct sender *s, struct offer *o, struct copy_head *head,
                    struct offer is, bool *later)
{
    const int64_t now = clock_ns();
    struct copy_head answer;
    const bool again = o->copies == is.copies && o->order == is.order;

    *later = again && now < o->next_ns;
    if (*later || (o->refused > 0 && o->refused++ < OFFER_COPIES)) return OK;
    if (!again) {
        *o = is;
        o->began_ns = now;
    }
    TRY(wire_put(&s->wire, WIRE_OFFER, head, sizeof *head));
    TRY(await_answer(&s->wire, &answer));
    if (answer.rank != head->rank || answer.step != head->step ||
        answer.twin > (uint64_t)head->ranks)
        FAIL(ERR_PEER, "an answer to another offer");
    head->twin = answer.twin;
    *later = answer.whole == COPY_LATER &&
             now - o->began_ns < (int64_t)OFFER_MS * 1000000;
    o->next_ns = now + (now - o->began_ns) / 4;
    o->refused = !*later && head->twin == 0;
    return OK;
}

/* Ranks of places behind that one whose copies are still to be sent. */
static uint64_t copies_behind(const struct sender *s, int index)
{
    uint64_t behind = 0;

    for (int i = index + 1; i < s->agent->count; i++)
        behind += place_is_busy(&s->agent->places[i]) &&
                  atomic_load(&s->agent->board->pages[i].copies) != s->sent[i];
    return behind;
}

/* The newest copy of a rank, where its slots are; *kept: it is there, from that
 * slot. */
static status carry_newest(struct sender *s, int index, struct offer is,
                           struct copy_head *head,
                           const struct copy_slot **kept)
{
    const int64_t copied =
        atomic_load(&s->agent->board->pages[index].copied);
    struct copy_slot *slots[COPY_SLOTS];
    bool later = false, whole = false;

    for (int i = 0; i < COPY_SLOTS; i++) {
        head->index = i;
        slots[i] = courier_slot(s->agent->state_file, head, false);
        if (slots[i] == NULL) return OK;
    }
    head->index = newest(slots);
    head_from_slot(head, slots[head->index]);
    if (!head_is_sound(head) || head->step < copied)
        return OK; /* averages are in the newest one for a while */
    TRY(offer(s, &s->offers[index], head, is, &later));
    if (later) return OK;
    TRY(fault_point("courier.carry"));
    copy_pace_begin(&s->pace, index, head->twin == 0 ? head->rows : 0,
               head->rows * copies_behind(s, index));
    TRY(send_slot(&s->wire, slots[head->index], head, &s->pace, &whole));
    copy_pace_end(&s->pace);
    if (whole) *kept = slots[head->index];
    return OK;
}

/* Tells the rank, unless the page is another one's meanwhile, or a rewind has
 * undone the step: it would be told after this, or is seen here. */
static bool tell_carried(const struct sender *s, int index, uint64_t number,
                         const struct copy_head *head,
                         const struct copy_slot *kept)
{
    const struct place_memory *place = &s->agent->places[index];
    _Atomic int64_t *carried =
        &s->agent->board->pages[index].carried[s->number];

    if (!is_page_of(place, number)) return false;
    atomic_store(carried, head->step);
    if (is_page_of(place, number) &&
        atomic_load(&kept->step) == head->step &&
        atomic_load(&kept->spoilt) == head->spoilt)
        return true;
    atomic_store(carried, -1);
    return false;
}

/* The newest copy of a place's rank, unless it is there already. */
static status carry(struct sender *s, int index)
{
    struct agent *a = s->agent;
    struct board_page *page = &a->board->pages[index];
    const struct place_memory *place = &a->places[index];
    const uint64_t number = atomic_load(&place->ordered);
    const struct order *order = &place->order;
    const bool seated = place_is_busy(place) && is_page_of(place, number);
    const uint64_t copies = atomic_load(&page->copies);
    const struct copy_slot *kept = NULL;
    struct copy_head head = {.rank = order->rank, .ranks = order->size,
                             .slot_bytes = atomic_load(&page->slot_bytes)};

    if (!seated || !is_page_of(place, number) || head.slot_bytes == 0 ||
        copies == 0 ||
        (s->sent[index] == copies && s->order[index] == number))
        return OK;
    atomic_store(&a->courier->slot_bytes, head.slot_bytes);
    atomic_store(&a->courier->ranks, head.ranks);
    TRY(carry_newest(s, index, (struct offer){copies, number, 0, 0, 0}, &head,
                     &kept));
    if (kept == NULL) return OK;
    courier_used(a, &s->used_s);
    s->carried_ns = clock_ns();
    if (!tell_carried(s, index, number, &head, kept)) return OK;
    s->sent[index] = copies;
    s->order[index] = number;
    return OK;
}

/* Ranks wait on for a while: a link may be down for a moment, and going on
 * would leave them without a second copy. */
static void part(struct sender *s)
{
    int64_t again_ms = AGAIN_MS;

    for (int i = 1; i < s->refusals && again_ms < AGAIN_MOST_MS; i++)
        again_ms *= 2;
    if (again_ms > AGAIN_MOST_MS) again_ms = AGAIN_MOST_MS;
    if (s->lost_ns == 0) s->lost_ns = clock_ns();
    for (int i = 0; i < s->agent->count; i++)
        atomic_store(&s->agent->board->pages[i].carried[s->number], -1);
    wire_close(&s->wire);
    memset(s->sent, 0, (size_t)s->agent->count * sizeof *s->sent);
    memset(s->offers, 0, (size_t)s->agent->count * sizeof *s->offers);
    s->next_try_ns = clock_ns() + again_ms * 1000000;
}

/* A partner that lets this node in may refuse each copy: ranks wait for it
 * while it is tried, and not between tries. */
static void keep_partner(struct sender *s)
{
    _Atomic int *carries = &s->agent->board->carries[s->number];
    char address[DOOR_ADDRESS_BYTES];

    if (atomic_load(&s->link->turn) != s->turn) {
        s->turn = atomic_load(&s->link->turn);
        s->lost_ns = s->refusals = 0;
        part(s);
        s->next_try_ns = 0;
        atomic_store(&s->link->seen, s->turn);
    }
    memcpy(address, s->link->partner.address, sizeof address);
    address[sizeof address - 1] = '\0';
    if (address[0] == '\0' ||
        (s->wire.descriptor < 0 && s->lost_ns != 0 &&
         clock_ns() - s->lost_ns > (int64_t)LOST_MS * 1000000))
        atomic_store(carries, 0);
    if (s->wire.descriptor >= 0 || address[0] == '\0' ||
        clock_ns() < s->next_try_ns)
        return;
    if (connect_to(s, &s->wire, address) != OK) {
        status_clear();
        part(s);
        return;
    }
    copy_pace_open(&s->pace, s->agent, s->wire.descriptor);
    atomic_store(carries, 1);
}

/* Sleeps until the next look for a copy, longer if the last copy was carried
 * long ago: a look costs a processor some microseconds. */
static void rest(const struct sender *s)
{
    const int64_t since = (clock_ns() - s->carried_ns) / 64;
    const long most = 5000000, least = 500000;
    const struct timespec pause = {0, since > most    ? most
                                      : since < least ? least
                                                      : (long)since};

    nanosleep(&pause, NULL);
}

/* A new partner counts once its sender has begun anew. */
static bool is_held(const struct agent *agent, int number)
{
    const struct courier_link *link = &agent->courier->links[number];
    bool busy = false;

    if (link->partner.address[0] == '\0' ||
        atomic_load(&link->seen) != atomic_load(&link->turn))
        return false;
    for (int i = 0; i < agent->count; i++) {
        if (!place_is_busy(&agent->places[i])) continue;
        busy = true;
        if (atomic_load(&agent->board->pages[i].carried[number]) <= 0)
            return false;
    }
    return busy;
}

static void send_for_ever(struct agent *agent)
{
    static uint64_t sent[PLACES_MOST + PLACES_EXTRA],
        order[PLACES_MOST + PLACES_EXTRA];
    static struct offer offers[PLACES_MOST + PLACES_EXTRA];
    struct sender s = {.agent = agent, .wire.descriptor = -1, .sent = sent,
                       .order = order, .offers = offers,
                       .number = agent->link,
                       .link = &agent->courier->links[agent->link]};
    const pid_t parent = getppid();

    while (getppid() == parent) {
        if (s.number == 0) do_moves(&s);
        keep_partner(&s);
        for (int i = 0; i < agent->count && s.wire.descriptor >= 0; i++)
            if (carry(&s, i) != OK) {
                status_clear();
                s.refusals++;
                part(&s);
            }
        /* It takes those of each rank. */
        if (s.wire.descriptor >= 0 && is_held(agent, s.number))
            s.lost_ns = s.refusals = 0;
        rest(&s);
    }
}

/* ---- in the agent ---- */

static status start(struct agent *agent, pid_t *process, const char *name,
                    void (*live)(struct agent *agent), bool *child)
{
    const pid_t parent = getpid();

    fflush(NULL);
    *process = fork();
    if (*process < 0)
        FAIL(ERR_MEMORY, "a process cannot be started: %s", strerror(errno));
    if (*process > 0) return OK;
    *child = true;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    setpgid(0, 0);
    prctl(PR_SET_NAME, name);
    if (agent->up.descriptor >= 0) close(agent->up.descriptor);
    if (getppid() == parent) live(agent);
    return OK;
}

static bool is_needed(const struct agent *agent, int index)
{
    return index == 0 || index == PARTNERS_MOST ||
           agent->courier->links[index].partner.address[0] != '\0';
}

static status start_one(struct agent *agent, int index, bool *child)
{
    agent->link = index;
    return index < PARTNERS_MOST
               ? start(agent, &agent->couriers[index], "lockstep:sends",
                       send_for_ever, child)
               : start(agent, &agent->couriers[index], "lockstep:keeps",
                       courier_keep, child);
}

status courier_start(struct agent *agent, bool *child)
{
    void *mapped = mmap(NULL, sizeof *agent->courier, PROT_READ | PROT_WRITE,
                        MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    *child = false;
    if (mapped == MAP_FAILED)
        FAIL(ERR_MEMORY, "no shared memory: %s", strerror(errno));
    agent->courier = mapped;
    for (int i = 0; i <= PARTNERS_MOST && !*child; i++)
        if (is_needed(agent, i)) TRY(start_one(agent, i, child));
    return OK;
}

static void see_end(struct agent *agent, int index)
{
    if (agent->couriers[index] <= 0 ||
        waitpid(agent->couriers[index], NULL, WNOHANG) !=
            agent->couriers[index])
        return;
    agent->couriers[index] = 0;
    if (index == PARTNERS_MOST) atomic_store(&agent->courier->receives, false);
    if (index == 0) atomic_store(&agent->courier->fills, false);
    if (index < PARTNERS_MOST)
        atomic_store(&agent->board->carries[index], 0);
    fprintf(stderr, "agent     %s: the process that %s copies has ended; it "
            "is started again\n", agent->name,
            index < PARTNERS_MOST ? "sends" : "keeps");
}

/* One that somebody stopped, and left so: ranks would wait for it in vain at
 * each copy. see_end says that ranks need not wait. */
static void end_stopped(struct agent *agent, int index)
{
    const pid_t process = agent->couriers[index];
    int64_t *since_ns = &agent->courier_stopped_ns[index];
    const int64_t now = clock_ns();

    if (process <= 0 || crew_state(process) != 'T') {
        *since_ns = 0;
        return;
    }
    if (*since_ns == 0) *since_ns = now;
    if (now - *since_ns < (int64_t)STOPPED_MS * 1000000) return;
    fprintf(stderr, "agent     %s: the process that sends copies (%d) has been "
            "stopped for %d s; it is ended\n", agent->name, (int)process,
            STOPPED_MS / 1000);
    kill(process, SIGKILL);
}

bool courier_look(struct agent *agent)
{
    bool child = false;

    for (int i = 0; i <= PARTNERS_MOST && !child; i++) {
        if (i < PARTNERS_MOST) end_stopped(agent, i);
        see_end(agent, i);
        if (agent->couriers[i] > 0 || !is_needed(agent, i) ||
            clock_ns() < agent->courier_next_ns[i])
            continue;
        agent->courier_next_ns[i] = clock_ns() + (int64_t)START_MS * 1000000;
        if (start_one(agent, i, &child) != OK) status_clear();
    }
    return child;
}

static void end_one(struct agent *agent, int index)
{
    if (agent->couriers[index] <= 0) return;
    kill(agent->couriers[index], SIGKILL);
    while (waitpid(agent->couriers[index], NULL, 0) < 0 && errno == EINTR)
        continue;
    agent->couriers[index] = 0;
}

/* courier_look starts it again. */
static void halt(struct agent *agent, int index, _Atomic bool *writes)
{
    if (!atomic_load(writes)) return;
    end_one(agent, index);
    atomic_store(writes, false);
    agent->courier_next_ns[index] = 0;
    if (index < PARTNERS_MOST)
        atomic_store(&agent->board->carries[index], 0);
}

void courier_halt(struct agent *agent)
{
    if (agent->courier == NULL) return;
    halt(agent, PARTNERS_MOST, &agent->courier->receives);
    halt(agent, 0, &agent->courier->fills);
}

void courier_stop(struct agent *agent)
{
    for (int i = 0; i <= PARTNERS_MOST; i++) end_one(agent, i);
    if (agent->courier != NULL)
        munmap(agent->courier, sizeof *agent->courier);
    agent->courier = NULL;
}

void courier_partners(struct agent *agent, const struct node_beat *beat)
{
    int partners = 0;

    for (int i = 0; i < PARTNERS_MOST; i++) {
        struct courier_link *link = &agent->courier->links[i];
        const struct node_partner *named = &beat->partners[i];

        partners += named->address[0] != '\0';
        if (memcmp(&link->partner, named, sizeof *named) == 0) continue;
        link->partner = *named;
        atomic_fetch_add(&link->turn, 1);
    }
    atomic_store(&agent->board->partners, partners);
}

uint32_t courier_held(const struct agent *agent)
{
    uint32_t held = 0;

    for (int i = 0; i < PARTNERS_MOST; i++)
        held |= (uint32_t)is_held(agent, i) << i;
    return held;
}

void courier_stores(struct agent *agent, const struct node_stores *stores)
{
    struct stores named = {.directory = ""};

    if (fault_point("agent.stores") != OK) status_clear();
    memcpy(named.run, stores->run, sizeof named.run - 1);
    memcpy(named.directory, stores->directory, sizeof named.directory - 1);
    /* A supervisor that came back says it again, while others read. */
    if (memcmp(&agent->courier->stores, &named, sizeof named) == 0) return;
    agent->courier->stores = named;
    atomic_store(&agent->courier->stores_named, true);
}

void courier_move(struct agent *agent, const struct node_move *what)
{
    struct courier *c = agent->courier;
    struct courier_move *m =
        &c->moves[atomic_load(&c->move_asked) % MOVES_MOST];

    if (atomic_load(&c->move_asked) - agent->moves_told >= MOVES_MOST) return;
    m->what = *what;
    m->what.address[sizeof m->what.address - 1] = '\0';
    m->slot_bytes = atomic_load(&c->slot_bytes);
    m->ranks = atomic_load(&c->ranks);
    atomic_fetch_add(&c->move_asked, 1);
}

bool courier_moved(struct agent *agent, struct node_move *what)
{
    struct courier *c = agent->courier;

    if (agent->moves_told >= atomic_load(&c->move_done)) return false;
    *what = c->moves[agent->moves_told++ % MOVES_MOST].what;
    return true;
}
