/* SPDX-License-Identifier: Apache-2.0 */
/* simulator.c - the event loop: a tournament of ends, and resources that
 * wait. */
#include "planner/simulator.h"

#include <string.h>

#include "base/arena.h"
#include "planner/fair_share.h"

const char *const clock_resource_names[CLOCK_RESOURCES] = {
    "compute", "pipe down", "pipe up", "data", "host", "offload"};

/* ---- lists ---- */

status timed_lists_begin(struct timed_lists *lists, int ranks)
{
    void *memory = NULL;

    *lists = (struct timed_lists){0};
    TRY(memory_take((size_t)ranks, sizeof *lists->lists, &memory));
    lists->lists = memory;
    lists->ranks = ranks;
    return OK;
}

void timed_lists_free(struct timed_lists *lists)
{
    for (int32_t r = 0; r < lists->ranks; r++) {
        memory_free(lists->lists[r].items);
        memory_free(lists->lists[r].needs);
    }
    memory_free(lists->lists);
    *lists = (struct timed_lists){0};
}

status timed_reserve(struct timed_list *list, int32_t items, int32_t needs)
{
    void *memory = NULL;

    TRY(memory_take((size_t)items + 1, sizeof *list->items, &memory));
    list->items = memory;
    list->capacity = items + 1;
    TRY(memory_take((size_t)needs + 1, sizeof *list->needs, &memory));
    list->needs = memory;
    list->need_capacity = needs + 1;
    return OK;
}

status timed_add(struct timed_list *list, const struct timed *item,
                 int32_t *index)
{
    void *items = list->items;

    TRY(memory_next(&items, &list->capacity, list->count, 64,
                    sizeof *list->items));
    list->items = items;
    list->items[list->count] = *item;
    list->items[list->count].first_need = list->need_count;
    list->items[list->count].needs = 0;
    *index = list->count++;
    return OK;
}

status timed_put_need(struct timed_list *list, struct timed_need need)
{
    if (list->need_count == list->need_capacity) {
        const int32_t room = list->need_capacity > 0 ? 2 * list->need_capacity
                                                     : 64;
        void *needs = list->needs;

        TRY(memory_grow(&needs, (size_t)room, sizeof *list->needs));
        list->needs = needs;
        list->need_capacity = room;
    }
    list->needs[list->need_count++] = need;
    return OK;
}

status timed_need(struct timed_list *list, int32_t rank, int32_t index)
{
    list->items[list->count - 1].needs++;
    return timed_put_need(list, (struct timed_need){rank, index});
}

int32_t timed_meeting(const struct timed_list *list, int32_t meeting)
{
    for (int32_t i = list->count - 1; meeting > 0 && i >= 0; i--)
        if (list->items[i].meeting == meeting) return i;
    return -1;
}

/* ---- the clock ---- */

struct resource_state {
    double ends;             /* the active item, at its rate; NEVER: none is */
    double left;             /* seconds alone of the active one */
    double rate, since;
    int32_t next, active;    /* items of this resource; -1: none is active */
    int32_t met;             /* needs of `next` that are done, from the first */
    int32_t waits;           /* next resource in the list of those that wait for
                              * the same instruction; -1: none */
    int ports;               /* of the active one; 0: none is */
};

static const double NEVER = 1e300;

/* The item that ends next on a rank. */
struct rank_next { double at; int32_t resource; };

/* The active instructions of a rank: a bit of each resource, and how many talk
 * over each path. */
enum { PATHS = 2 };
struct rank_active {
    uint8_t resources, talk[PATHS + 1];
    bool plays;              /* again: it is one of clock->players */
};

struct clock {
    struct timed_lists *lists;
    const struct clock_rules *rules;
    struct clock_result *out;
    struct resource_state *resources;  /* owned, [ranks * CLOCK_RESOURCES] */
    int32_t *first_item;       /* owned, [ranks + 1] */
    int32_t *waiters;          /* owned, [items]: first resource, -1 */
    int32_t *follows;          /* owned, [items]: next item of the resource */
    int32_t *needs;            /* owned: items that all items need, in order */
    int64_t *first_need;       /* owned, [ranks]: of the rank's items */
    bool *over;                /* owned, [items] */
    struct rank_active *active;/* owned, [ranks] */
    struct rank_next *soonest; /* owned, [leaves] */
    int32_t *winners;          /* owned, [2 * leaves]: a tournament of ranks;
                                * winners[1]: the rank on which something ends
                                * next */
    int32_t leaves;            /* a power of two */
    int32_t *players;          /* owned, [ranks]: those to play again */
    int32_t player_count;
    struct fair_flow *flows;   /* owned, [ranks * CLOCK_RESOURCES] */
    int32_t *flow_of;          /* owned, [ranks * CLOCK_RESOURCES]; -1: none */
    struct fair_link *links;   /* owned: two of each node, one of each rank */
    bool flows_changed;        /* since the ports were divided */
    int64_t done;
    double now;
};

/* The first of two ranks, where items of both end at once. */
static int32_t sooner(const struct clock *c, int32_t a, int32_t b)
{
    return c->soonest[b].at < c->soonest[a].at ? b : a;
}

/* Another item than before ends next on the rank, or at another time. */
static void play_again(struct clock *c, int32_t rank)
{
    c->active[rank].plays = false;
    for (int32_t node = (c->leaves + rank) / 2; node > 0; node /= 2) {
        const int32_t winner = sooner(c, c->winners[2 * node],
                                      c->winners[2 * node + 1]);

        if (winner != rank && c->winners[node] == winner) return;
        c->winners[node] = winner;
    }
}

/* Once all rates are set. */
static void play(struct clock *c)
{
    while (c->player_count > 0) play_again(c, c->players[--c->player_count]);
}

/* ---- ports of nodes ---- */

/* The part of its node's ports that a rank has while nothing else talks. */
static double alone_ports(const struct clock_nodes *n)
{
    return n->ports / n->flows < n->own ? n->ports / n->flows : n->own;
}

/* Divides the ports of all nodes among the messages that are under way. One
 * arrives at the node of its list, leaves that of its sender, and has no more
 * than its rank's ports. */
static void share_ports(struct clock *c)
{
    const struct clock_nodes *n = c->rules->nodes;
    const int32_t links = 2 * n->nodes + c->lists->ranks;
    int count = 0;

    for (int32_t i = 0; i < links; i++)
        c->links[i].left = i < 2 * n->nodes ? n->ports : n->own;
    for (int32_t i = 0; i < c->lists->ranks * CLOCK_RESOURCES; i++) {
        const int32_t rank = i / CLOCK_RESOURCES;
        const struct resource_state *state = &c->resources[i];

        c->flow_of[i] = -1;
        if (state->active < 0 || state->ports != 2) continue;
        const int32_t sender =
            c->lists->lists[rank].items[state->active].sender;
        const int32_t from = sender > 0 ? sender - 1 : rank;

        c->flow_of[i] = count;
        c->flows[count++] = (struct fair_flow){
            .link = {2 * n->nodes + rank, 2 * n->of[rank],
                     2 * n->of[from] + 1},
            .times = {1, n->flows, n->flows}};
    }
    fair_share(c->flows, count, c->links, links);
    c->flows_changed = false;
    c->out->divided++;
}

/* How many times longer beside something else, where messages are inside a
 * node or leave it. */
static double beside_of(const struct clock *c, double times, bool leaves)
{
    const double wire = c->rules->wire;

    return leaves && wire > 0 ? 1 + (times - 1) * wire : times;
}

/* How fast the active instruction of a resource goes beside the others. */
static double rate_of(const struct clock *c, const struct resource_state *mine,
                      int resource, const struct rank_active *active)
{
    const struct clock_nodes *nodes = c->rules->nodes;
    const int ports = mine[resource].ports;

    if (resource == CLOCK_COMPUTE)
        return active->talk[1] + active->talk[2] > 0
                   ? 1 / beside_of(c, c->rules->compute_beside,
                                   active->talk[1] == 0) : 1;
    if (ports == 0) return 1;
    const double beside =
        mine[CLOCK_COMPUTE].active >= 0
            ? beside_of(c, c->rules->comm_beside, ports == 2) : 1;

    if (ports == 2 && nodes != NULL)
        return c->flows[c->flow_of[mine - c->resources + resource]].rate /
               alone_ports(nodes) / beside;
    return 1.0 / active->talk[ports] / beside;
}

static void set_rank_rates(struct clock *c, int32_t rank)
{
    struct resource_state *mine =
        &c->resources[(size_t)rank * CLOCK_RESOURCES];
    const struct rank_active *active = &c->active[rank];
    struct rank_next next = {NEVER, 0};

    for (unsigned left = active->resources; left != 0; left &= left - 1) {
        const int i = __builtin_ctz(left);
        struct resource_state *resource = &mine[i];
        const double rate = rate_of(c, mine, i, active);

        if (rate != resource->rate) {
            resource->left -= (c->now - resource->since) * resource->rate;
            if (resource->left < 0) resource->left = 0;
            resource->since = c->now;
            resource->rate = rate;
            resource->ends = c->now + resource->left / rate;
        }
        if (resource->ends < next.at)
            next = (struct rank_next){resource->ends, i};
    }
    if (next.at != c->soonest[rank].at && !c->active[rank].plays) {
        c->active[rank].plays = true;
        c->players[c->player_count++] = rank;
    }
    c->soonest[rank] = next;
}

static bool has_flow(const struct clock *c, int32_t rank)
{
    const int32_t *mine = &c->flow_of[rank * CLOCK_RESOURCES];

    for (int i = 0; i < CLOCK_RESOURCES; i++)
        if (mine[i] >= 0) return true;
    return false;
}

/* After an instruction of the rank began or ended. Other ranks have other rates
 * only where messages leave nodes that began or ended. */
static void set_rates(struct clock *c, int32_t rank)
{
    if (c->rules->nodes == NULL || !c->flows_changed) {
        set_rank_rates(c, rank);
        return;
    }
    share_ports(c);
    for (int32_t r = 0; r < c->lists->ranks; r++)
        if (r == rank || has_flow(c, r)) set_rank_rates(c, r);
}

/* The first need of the resource's next item that is not done; -1: none. */
static int32_t blocking(const struct clock *c, int32_t rank,
                        struct resource_state *resource)
{
    const struct timed *item = &c->lists->lists[rank].items[resource->next];
    const int32_t *needs = c->needs + c->first_need[rank] + item->first_need;

    for (; resource->met < item->needs; resource->met++)
        if (!c->over[needs[resource->met]]) return needs[resource->met];
    return -1;
}

/* How many times as long as alone on a healthy rank. */
static double slowness(const struct clock_rules *r, int32_t rank,
                       const struct timed *item)
{
    const double link = r->slow_link ? r->slow_link[rank] : 1;
    const double slow = r->slow ? r->slow[rank] : 1;
    const double sent = r->messages ? r->messages[item->kind] : 0;

    if (item->resource != CLOCK_COMPUTE) return link;
    return slow + (link - slow) * sent;
}

/* Begins the resource's next instruction, or waits for what it needs. */
static bool try_start(struct clock *c, int32_t which)
{
    const int32_t rank = which / CLOCK_RESOURCES;
    struct resource_state *state = &c->resources[which];
    struct timed *items = c->lists->lists[rank].items;
    int32_t block;

    if (state->active >= 0 || state->next < 0) return false;
    block = blocking(c, rank, state);
    if (block >= 0) {
        state->waits = c->waiters[block];
        c->waiters[block] = which;
        return false;
    }
    state->active = state->next;
    state->next = c->follows[c->first_item[rank] + state->active];
    state->met = 0;
    state->left = items[state->active].seconds *
                  slowness(c->rules, rank, &items[state->active]);
    state->since = c->now;
    state->rate = 0;
    state->ports = items[state->active].ports;
    c->active[rank].resources |= (uint8_t)(1u << which % CLOCK_RESOURCES);
    c->active[rank].talk[state->ports]++;
    c->flows_changed = c->flows_changed || state->ports == 2;
    items[state->active].begin = c->now;
    return true;
}

static void finish(struct clock *c, int32_t which)
{
    const int32_t rank = which / CLOCK_RESOURCES;
    struct resource_state *state = &c->resources[which];
    const int32_t index = state->active;
    struct timed *item = &c->lists->lists[rank].items[index];
    int32_t waiter = c->waiters[c->first_item[rank] + index];

    item->end = c->now;
    c->over[c->first_item[rank] + index] = true;
    c->out->busy[item->resource] += item->end - item->begin;
    c->done++;
    if (item->end >= c->out->end) {
        c->out->end = item->end;
        c->out->last_rank = rank;
        c->out->last_index = index;
    }
    c->flows_changed = c->flows_changed || state->ports == 2;
    c->active[rank].resources ^= (uint8_t)(1u << which % CLOCK_RESOURCES);
    c->active[rank].talk[state->ports]--;
    state->active = -1;
    state->ends = NEVER;
    state->ports = 0;
    try_start(c, which);
    set_rates(c, rank);
    while (waiter >= 0) {
        const int32_t next = c->resources[waiter].waits;

        c->resources[waiter].waits = -1;
        if (try_start(c, waiter)) set_rates(c, waiter / CLOCK_RESOURCES);
        waiter = next;
    }
}

/* Behind the last item of its resource. */
static void put_last(struct clock *c, int32_t rank, int32_t index,
                     int32_t last[CLOCK_RESOURCES])
{
    struct timed *item = &c->lists->lists[rank].items[index];

    item->before = last[item->resource];
    if (item->before >= 0)
        c->follows[c->first_item[rank] + item->before] = index;
    else
        c->resources[rank * CLOCK_RESOURCES + item->resource].next = index;
    last[item->resource] = index;
}

/* The items with turns. Nothing waits yet: `waiters` has room for them. */
static status put_turns(struct clock *c, int32_t rank,
                        int32_t last[CLOCK_RESOURCES])
{
    const struct timed_list *list = &c->lists->lists[rank];
    int32_t *of = c->waiters + c->first_item[rank];
    int32_t known = 0;

    for (int32_t i = 0; i < list->count && list->turns > 0; i++) {
        const int32_t turn = list->items[i].turn;

        if (turn == 0) continue;
        if (turn < 0 || turn > list->turns || list->turns > list->count ||
            of[turn - 1] >= 0)
            FAIL(ERR_VERIFY, "rank %d, instruction %d: turn %d of %d", rank, i,
                 turn, list->turns);
        of[turn - 1] = i;
        known++;
    }
    if (known != list->turns)
        FAIL(ERR_VERIFY, "rank %d: %d of %d turns", rank, known, list->turns);
    for (int32_t turn = 0; turn < list->turns; turn++) {
        put_last(c, rank, of[turn], last);
        of[turn] = -1;
    }
    return OK;
}

/* Links each item to the next one of its resource, and checks what it needs. */
static status link_rank(struct clock *c, int32_t rank)
{
    struct timed_list *list = &c->lists->lists[rank];
    int32_t last[CLOCK_RESOURCES];

    for (int i = 0; i < CLOCK_RESOURCES; i++) {
        last[i] = -1;
        c->resources[rank * CLOCK_RESOURCES + i] =
            (struct resource_state){.ends = NEVER, .next = -1, .active = -1,
                                    .waits = -1};
    }
    for (int32_t i = 0; i < list->count; i++) {
        struct timed *item = &list->items[i];

        if (item->resource >= CLOCK_RESOURCES || !(item->seconds >= 0) ||
            item->seconds > 1e15)
            FAIL(ERR_VERIFY, "rank %d, instruction %d: resource %d, %g seconds",
                 rank, i, item->resource, item->seconds);
        if (item->ports > PATHS)
            FAIL(ERR_VERIFY, "rank %d, instruction %d: ports of path %d; "
                             "expected 0 to %d", rank, i, item->ports, PATHS);
        if (item->sender < 0 || item->sender > c->lists->ranks)
            FAIL(ERR_VERIFY, "rank %d, instruction %d is sent by rank %d, "
                             "which is not there", rank, i, item->sender - 1);
        int32_t *needs = c->needs + c->first_need[rank] + item->first_need;

        for (int32_t n = 0; n < item->needs; n++) {
            const struct timed_need need = list->needs[item->first_need + n];

            if (need.rank < 0 || need.rank >= c->lists->ranks ||
                need.index < 0 ||
                need.index >= c->lists->lists[need.rank].count)
                FAIL(ERR_VERIFY, "rank %d, instruction %d needs instruction "
                                 "%d of rank %d, which is not there", rank, i,
                     need.index, need.rank);
            needs[n] = c->first_item[need.rank] + need.index;
        }
        item->end = -1;
        c->waiters[c->first_item[rank] + i] = -1;
        c->follows[c->first_item[rank] + i] = -1;
        if (item->turn == 0) put_last(c, rank, i, last);
    }
    return put_turns(c, rank, last);
}

static status clock_open(struct clock *c)
{
    const int32_t nodes = c->rules->nodes != NULL ? c->rules->nodes->nodes : 0;
    const int32_t ranks = c->lists->ranks;
    int64_t items = 0, needs = 0;
    void *memory = NULL;

    TRY(memory_take((size_t)ranks + 1, sizeof *c->first_need, &memory));
    c->first_need = memory;
    for (int32_t r = 0; r < ranks; r++) {
        c->first_need[r] = needs;
        items += c->lists->lists[r].count;
        needs += c->lists->lists[r].need_count;
    }
    if (items > INT32_MAX / 2)
        FAIL(ERR_CONFIG, "%lld instructions are more than can be simulated",
             (long long)items);
    TRY(memory_take((size_t)ranks * CLOCK_RESOURCES, sizeof *c->resources,
                    &memory));
    c->resources = memory;
    TRY(memory_take((size_t)ranks + 1, sizeof *c->first_item, &memory));
    c->first_item = memory;
    TRY(memory_take((size_t)items + 1, sizeof *c->waiters, &memory));
    c->waiters = memory;
    TRY(memory_take((size_t)items + 1, sizeof *c->follows, &memory));
    c->follows = memory;
    TRY(memory_take((size_t)needs + 1, sizeof *c->needs, &memory));
    c->needs = memory;
    TRY(memory_take((size_t)items + 1, sizeof *c->over, &memory));
    c->over = memory;
    TRY(memory_take((size_t)ranks * CLOCK_RESOURCES, sizeof *c->flows,
                    &memory));
    c->flows = memory;
    TRY(memory_take((size_t)ranks * CLOCK_RESOURCES, sizeof *c->flow_of,
                    &memory));
    c->flow_of = memory;
    TRY(memory_take((size_t)(ranks + 2 * nodes), sizeof *c->links, &memory));
    c->links = memory;
    TRY(memory_take((size_t)ranks, sizeof *c->active, &memory));
    c->active = memory;
    TRY(memory_take((size_t)ranks, sizeof *c->players, &memory));
    c->players = memory;
    for (c->leaves = 1; c->leaves < ranks; c->leaves *= 2) continue;
    TRY(memory_take((size_t)c->leaves, sizeof *c->soonest, &memory));
    c->soonest = memory;
    TRY(memory_take((size_t)c->leaves, 2 * sizeof *c->winners, &memory));
    c->winners = memory;
    for (int32_t i = 0; i < c->leaves; i++) {
        c->soonest[i] = (struct rank_next){NEVER, 0};
        c->winners[c->leaves + i] = i;
    }
    for (int32_t i = c->leaves - 1; i > 0; i--)
        c->winners[i] = c->winners[2 * i];
    c->first_item[0] = 0;
    for (int32_t r = 0; r < ranks; r++)
        c->first_item[r + 1] = c->first_item[r] + c->lists->lists[r].count;
    for (int32_t r = 0; r < ranks; r++) TRY(link_rank(c, r));
    return OK;
}

static status deadlock(const struct clock *c)
{
    for (int32_t i = 0; i < c->lists->ranks * CLOCK_RESOURCES; i++) {
        const int32_t rank = i / CLOCK_RESOURCES, next = c->resources[i].next;
        int32_t block, at = 0;

        if (next < 0) continue;
        block = blocking(c, rank, &c->resources[i]);
        while (at < c->lists->ranks && c->first_item[at + 1] <= block) at++;
        FAIL(ERR_VERIFY, "rank %d, instruction %d waits for ever for "
                         "instruction %d of rank %d", rank, next,
             block - c->first_item[at], at);
    }
    FAIL(ERR_VERIFY, "the simulator lost an instruction");
}

status clock_run(struct timed_lists *lists, const struct clock_rules *rules,
                 struct clock_result *out)
{
    struct clock c = {.lists = lists, .rules = rules, .out = out};
    status result;

    *out = (struct clock_result){0};
    TRY_GOTO(done, result, clock_open(&c));
    for (int32_t i = 0; i < lists->ranks * CLOCK_RESOURCES; i++)
        try_start(&c, i);
    for (int32_t r = 0; r < lists->ranks; r++) set_rates(&c, r);
    play(&c);
    while (c.soonest[c.winners[1]].at < NEVER) {
        const int32_t rank = c.winners[1];

        c.now = c.soonest[rank].at;
        finish(&c, rank * CLOCK_RESOURCES + c.soonest[rank].resource);
        play(&c);
    }
    if (c.done != c.first_item[lists->ranks]) result = deadlock(&c);
done:
    memory_free(c.resources);
    memory_free(c.first_item);
    memory_free(c.waiters);
    memory_free(c.follows);
    memory_free(c.needs);
    memory_free(c.first_need);
    memory_free(c.over);
    memory_free(c.active);
    memory_free(c.players);
    memory_free(c.soonest);
    memory_free(c.winners);
    memory_free(c.flows);
    memory_free(c.flow_of);
    memory_free(c.links);
    return result;
}

/* ---- the critical path ---- */

/* The instruction that ended last before this one began: on its resource, or of
 * its needs. */
static struct timed_need decides(const struct timed_lists *lists, int32_t rank,
                                 int32_t index)
{
    const struct timed_list *list = &lists->lists[rank];
    const struct timed *item = &list->items[index];
    struct timed_need best = {-1, -1};
    double latest = -1;

    if (item->before >= 0) {
        best = (struct timed_need){rank, item->before};
        latest = list->items[item->before].end;
    }
    for (int32_t n = 0; n < item->needs; n++) {
        const struct timed_need need = list->needs[item->first_need + n];
        const double end = lists->lists[need.rank].items[need.index].end;

        if (end > latest) {
            latest = end;
            best = need;
        }
    }
    return best;
}

void clock_critical(const struct timed_lists *lists,
                    const struct clock_result *result, critical_visit *visit,
                    void *context)
{
    struct timed_need at = {result->last_rank, result->last_index};

    while (at.rank >= 0 && lists->lists[at.rank].count > 0) {
        visit(context, at.rank, &lists->lists[at.rank].items[at.index]);
        at = decides(lists, at.rank, at.index);
    }
}
