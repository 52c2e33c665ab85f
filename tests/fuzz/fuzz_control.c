/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_control.c - whatever comes over connections of the control plane:
 * src/control/wire.c, fleet*.c (what agents say to a supervisor) and agent.c,
 * agent_place.c (what a supervisor says to an agent).
 *
 * The input is a list of records of 16 bytes. Each becomes one message with a
 * sound head, number and proof, of any kind, with fields of any value, or one
 * that is cut, too long, repeated, or proved with another token; or it is what
 * the supervisor does meanwhile. A mutator keeps records whole. What is wrong
 * must end its connection, and nobody may believe a place, a rank or a lease
 * that cannot be. */
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "control/agent_place.h"
#include "control/courier.h"
#include "control/fleet.h"
#include "tests/fuzz/mutate.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { RECORD = 16, RECORDS = 48, LINKS = 4, RANKS = 4, SLOTS = 3,
       PLACES = SLOTS + 2, BYTES = 1 << 16, KINDS = 20 };

struct record {
    uint8_t side, kind, how, place;
    uint8_t rank, size, name, fill;
    int32_t number;
    uint32_t order;
};
_Static_assert(sizeof(struct record) == RECORD, "a record is 16 bytes");

static struct token token;
static struct fleet fleet;
static struct crew crew;
static struct crew_member members[RANKS];
static struct rank_records wanted[RANKS]; /* the supervisor asks all the time */
static struct board *board, *far_board;
static struct wire links[LINKS];    /* the agents' ends */
static struct wire master;          /* the supervisor's end to `agent` */
static struct agent agent;
static struct agent_how how = {.join = "127.0.0.1:1", .slots = SLOTS};
static struct worker workers[PLACES];
static struct place_memory places[PLACES];
static struct courier courier;

/* ---- messages ---- */

static const int32_t extremes[] = {0, 1, -1, 2, RANKS, 512, 576, 577,
                                   INT32_MAX, INT32_MIN};

static int32_t field(const struct record *r, int shift)
{
    const uint8_t pick = (uint8_t)(r->fill >> shift);

    if (pick % 4 != 0) return r->place % 8;
    return pick % 8 == 0 ? r->number
                         : extremes[pick / 8 % (sizeof extremes /
                                                sizeof *extremes)];
}

static void name_of(const struct record *r, char out[NODE_NAME_BYTES])
{
    memset(out, r->name >= 250 ? 'x' : 0, NODE_NAME_BYTES);
    out[0] = (char)('a' + r->name % 5);
    if (r->name == 249) out[0] = '\0';
}

static size_t make_hello(const struct record *r, char *out)
{
    struct node_hello hello = {.slots = field(r, 0), .places = field(r, 2)};

    if (r->how % 2 == 0) {
        hello.slots = 1 + r->place % 4;
        hello.places = hello.slots + r->rank % 4;
    }
    name_of(r, hello.name);
    memcpy(out, &hello, sizeof hello);
    return sizeof hello;
}

static size_t make_report(const struct record *r, char *out)
{
    struct node_report head = {.now_ns = clock_ns() + r->number,
                               .places = r->size % 4,
                               .beat_ns = field(r, 3)};
    struct slot_report one = {
        .place = field(r, 0), .rank = field(r, 1), .size = field(r, 2),
        .lives = 1, .process = r->number, .ordered = r->order,
        .taken = r->order - r->how % 2, .done = r->rank % 3 ? 0 : r->order,
        .died_with = r->rank % 5 ? 0 : r->order, .ended = r->number,
        .phase = field(r, 1), .source = field(r, 2), .result = field(r, 3),
        .step = r->number, .step_ns = r->fill == 81 ? INT64_MIN : r->number,
        .calls = r->order, .beats = r->order};
    size_t used = sizeof head;

    memset(one.sentence, 'x', sizeof one.sentence);
    for (int i = 0; i < REPORT_ENTRIES; i++) {
        one.last[i].number = r->order - (uint32_t)i;
        one.last[i].began_ns = r->fill == 79 ? INT64_MIN : r->number;
        one.last[i].ended_ns = r->fill == 80 ? INT64_MAX : 0;
        memset(one.last[i].group, 'g', sizeof one.last[i].group);
    }
    for (int i = 0; i < head.places; i++) {
        memcpy(out + used, &one, sizeof one);
        used += sizeof one;
        if (one.place < INT32_MAX) one.place++;
    }
    if (r->fill == 77) head.places = r->number;
    if (r->fill == 78) head.now_ns = INT64_MIN + r->order;
    memcpy(out, &head, sizeof head);
    return used;
}

static size_t make_order(const struct record *r, char *out)
{
    static struct order order;

    memset(&order, r->how % 2 ? 'x' : 0, sizeof order);
    order.number = r->order;
    order.generation = r->rank;
    order.place = field(r, 0);
    order.rank = field(r, 1);
    order.size = field(r, 2);
    order.words = field(r, 3);
    memcpy(out, &order, sizeof order);
    return sizeof order;
}

static size_t make_small(const struct record *r, char *out)
{
    struct node_signal signal = {r->order, field(r, 0), field(r, 2)};
    struct node_move move = {.rank = field(r, 0), .whole = 1};
    struct node_beat beat = {.echo_ns = r->how % 4 == 3
                                            ? INT64_MAX - r->order
                                            : clock_ns() - r->number,
                             .sent_ns = field(r, 1),
                             .lease_ms = r->fill == 76 ? INT64_MAX : r->number};

    name_of(r, move.name);
    beat.turn = r->how % 4;
    name_of(r, beat.partners[r->how % PARTNERS_MOST].name);
    if (r->name >= 250) memset(move.address, 'x', sizeof move.address);
    if (r->kind % KINDS == WIRE_SIGNAL) {
        memcpy(out, &signal, sizeof signal);
        return sizeof signal;
    }
    if (r->kind % KINDS == WIRE_BEAT) {
        memcpy(out, &beat, sizeof beat);
        return sizeof beat;
    }
    memcpy(out, &move, sizeof move);
    return sizeof move;
}

static size_t make_records(const struct record *r, char *out)
{
    const struct record_ask ask = {.order = r->order, .newest = r->size,
                                   .place = field(r, 0), .rank = field(r, 1)};
    struct record_answer head = {.order = r->order, .asked = 0,
                                 .newest = r->fill == 79 ? UINT64_MAX
                                                         : (uint64_t)r->size,
                                 .now_ns = clock_ns() + r->number,
                                 .rank = field(r, 1), .count = r->size % 4};
    struct flight_entry one = {.began_ns = r->number, .peer = r->number,
                               .kind = r->number, .channel = r->how};
    size_t used = sizeof head;

    if (r->kind % KINDS == WIRE_RECORDS) {
        memcpy(out, &ask, sizeof ask);
        return sizeof ask;
    }
    memset(one.group, 'g', sizeof one.group);
    for (int i = 0; i < head.count; i++) {
        one.number = head.newest - (uint64_t)i;
        memcpy(out + used, &one, sizeof one);
        used += sizeof one;
    }
    if (r->fill == 77) head.count = r->number;
    if (r->fill == 78) head.now_ns = INT64_MIN + r->order;
    memcpy(out, &head, sizeof head);
    return used;
}

static size_t make_message(const struct record *r, char *out)
{
    const uint32_t kind = r->kind % KINDS;

    if (kind == WIRE_HELLO) return make_hello(r, out);
    if (kind == WIRE_REPORT) return make_report(r, out);
    if (kind == WIRE_ORDER) return make_order(r, out);
    if (kind == WIRE_RECORDS || kind == WIRE_RECORDS_ANSWER)
        return make_records(r, out);
    return make_small(r, out);
}

/* ---- sending ---- */

static void connect_pair(struct wire *client, struct wire *server)
{
    int ends[2];

    CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends) == 0);
    CHECK(wire_open(server, ends[0], &token, true) == OK);
    CHECK(wire_open(client, ends[1], &token, false) == OK);
}

/* True: the other side must end the connection. */
static bool send_record(struct wire *wire, const struct record *r)
{
    static char bytes[BYTES];
    size_t length = make_message(r, bytes);
    /* Too many, or so few that the next message ends them, whatever it is. */
    const uint32_t claimed = r->order > WIRE_BYTES
                                 ? r->order
                                 : r->order % (sizeof(struct wire_head) + 1);
    const struct wire_head raw = {.kind = r->kind, .bytes = claimed,
                                  .number = wire->sent + 1};

    if (r->how >= 250) { /* no proof */
        if (send(wire->descriptor, &raw, sizeof raw, MSG_NOSIGNAL) < 0)
            return false;
        return raw.bytes > WIRE_BYTES;
    }
    if (r->how >= 240) length = length > r->rank ? length - r->rank - 1 : 0;
    else if (r->how >= 230) length += 1 + (size_t)r->rank;
    if (r->how >= 220 && r->how < 230) wire->token.key[0] ^= 1;
    if (r->how >= 210 && r->how < 220) wire->sent--;
    if (wire_put(wire, r->kind % KINDS, bytes, length) != OK) {
        status_clear();
        return false;
    }
    return r->how >= 210 && r->how < 230;
}

/* ---- the supervisor ---- */

static void check_fleet(void)
{
    CHECK(fleet.count >= 0 && fleet.count <= NODES_MOST);
    for (int i = 0; i < fleet.count; i++) {
        const struct node *n = &fleet.nodes[i];

        CHECK(memchr(n->name, 0, sizeof n->name) != NULL && n->name[0] != 0);
        CHECK(n->slots >= 1 && n->places >= n->slots &&
              n->places <= PLACES_MOST + PLACES_EXTRA);
        for (int k = 0; k < PARTNERS_MOST; k++) {
            CHECK(n->partners[k] >= -1 && n->partners[k] < fleet.count);
            CHECK(n->holders[k] >= -1 && n->holders[k] < fleet.count);
        }
    }
    for (int i = 0; i < RANKS; i++) {
        const struct rank_seat *at = &fleet.at[i];

        CHECK(fleet.home[i].node >= -1 && fleet.home[i].node < fleet.count);
        CHECK(memchr(board->pages[i].sentence, 0, BOARD_SENTENCE_BYTES));
        if (at->order == 0) continue;
        CHECK(at->node >= 0 && at->node < fleet.count);
        CHECK(at->place >= 0 && at->place < fleet.nodes[at->node].places);
    }
}

/* Places become ranks, or one is told to stop. */
static void supervise(const struct record *r)
{
    static struct order order;
    char text[256];

    crew.size = 1 + r->size % RANKS;
    if (r->rank % 4 == 0) fleet_blame(&fleet, r->place % crew.size);
    if (r->rank % 4 == 1) fleet_forgive(&fleet);
    if (r->rank % 4 == 2)
        fleet.far.signal(&fleet, r->place % crew.size, 10);
    fleet_survives(&fleet, text);
    if (fleet_seat(&fleet, r->how % 2) != OK) {
        status_clear();
        return;
    }
    for (int i = 0; i < crew.size; i++) {
        order = (struct order){.generation = 1, .words = 1};
        if (fleet_order(&fleet, i, &order) != OK) status_clear();
    }
}

static void to_supervisor(const struct record *r)
{
    struct wire *wire = &links[r->place / 8 % LINKS];
    bool wrong;

    if (wire->descriptor < 0) {
        if (fleet.newcomers[0].descriptor >= 0) return;
        connect_pair(wire, &fleet.newcomers[0]);
    }
    for (int i = 0; i < RANKS; i++)
        wanted[i] = (struct rank_records){.left = r->size, .asked = true};
    wrong = send_record(wire, r);
    fleet_look(&fleet, 0);
    check_fleet();
    if (!wrong) return;
    const struct wire_head *head;
    const void *bytes;

    do {
        if (wire_get(wire, &head, &bytes) != OK) status_clear();
    } while (wire->descriptor >= 0 && head != NULL);
    CHECK(wire->descriptor < 0);
}

/* ---- the agent ---- */

static void to_agent(const struct record *r)
{
    bool child = false;

    if (agent.up.descriptor < 0) {
        wire_close(&master);
        connect_pair(&agent.up, &master);
    }
    send_record(&master, r);
    if (agent_turn(&agent, &child) != OK) status_clear();
    CHECK(!child);
    CHECK(atomic_load(&far_board->lease_ns) <=
          clock_ns() + (int64_t)NODE_LEASE_MOST_MS * 1000000);
    for (int i = 0; i < PLACES; i++)
        CHECK(atomic_load(&places[i].ordered) == 0 ||
              places[i].order.place == i);
    const struct wire_head *head;
    const void *bytes;

    while (master.descriptor >= 0 && wire_get(&master, &head, &bytes) == OK &&
           head != NULL)
        continue;
    status_clear();
}

/* ---- one input ---- */

static void begin(void)
{
    static int files[2];

    if (board == NULL) {
        CHECK(token_draw(&token) == OK);
        CHECK(board_make(&board, RANKS, &files[0]) == OK);
        CHECK(board_make(&far_board, PLACES, &files[1]) == OK);
        CHECK(freopen("/dev/null", "w", stdout) != NULL);
    }
    board_clear(board);
    memset(members, 0, sizeof members);
    memset(workers, 0, sizeof workers);
    memset(places, 0, sizeof places);
    memset(&courier, 0, sizeof courier);
    atomic_store(&far_board->lease_ns, 0);
    CHECK(fleet_open(&fleet, "127.0.0.1:0", &token, RANKS,
                     PARTNERS_MOST + 1) == OK);
    crew = (struct crew){.size = RANKS, .members = members, .far = &fleet.far};
    fleet.crew = &crew;
    fleet.board = board;
    fleet.records = wanted;
    for (int i = 0; i < LINKS; i++) links[i].descriptor = -1;
    master = (struct wire){.descriptor = -1};
    agent = (struct agent){
        .how = &how, .name = "a", .token = token, .up.descriptor = -1,
        .began_ns = clock_ns(), .next_try_ns = INT64_MAX, .signals = -1,
        .board = far_board, .places = places, .workers = workers,
        .count = PLACES, .courier = &courier,
        .courier_next_ns = {INT64_MAX, INT64_MAX, INT64_MAX}};
    for (int i = 0; i < PLACES; i++) /* none that could be signalled */
        workers[i] = (struct worker){.process = 1, .descriptor = -1};
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct record r;

    begin();
    for (size_t i = 0; i < RECORDS && (i + 1) * RECORD <= size; i++) {
        memcpy(&r, data + i * RECORD, sizeof r);
        if (r.side % 8 == 7) supervise(&r);
        else if (r.side % 2 == 0) to_supervisor(&r);
        else to_agent(&r);
    }
    check_fleet();
    for (int i = 0; i < LINKS; i++) wire_close(&links[i]);
    wire_close(&master);
    wire_close(&agent.up);
    fleet.records = NULL; /* not the fleet's own */
    fleet_close(&fleet);
    return 0;
}

/* ---- the mutator ---- */

static void draw_record(uint8_t *out)
{
    static const uint8_t kinds[] = {WIRE_HELLO, WIRE_REPORT, WIRE_REPORT,
                                    WIRE_BEAT, WIRE_ORDER, WIRE_SIGNAL,
                                    WIRE_FENCE, WIRE_MOVE, WIRE_MOVED,
                                    WIRE_COPY, WIRE_END};
    struct record r;

    for (size_t i = 0; i < sizeof r; i++)
        ((uint8_t *)&r)[i] = (uint8_t)draw(256);
    r.kind = kinds[draw(sizeof kinds)];
    r.order = (uint32_t)draw(8);
    r.number = (int32_t)draw_number(r.number);
    if (draw(8) != 0) r.how = (uint8_t)draw(8); /* mostly sound */
    memcpy(out, &r, sizeof r);
}

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t room,
                               unsigned seed)
{
    static const struct record_form form = {0, RECORD, RECORDS, draw_record};

    mutate_seed(seed);
    return mutate_record_list(&form, data, size, room);
}
