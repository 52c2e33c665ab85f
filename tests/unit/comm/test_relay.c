/* SPDX-License-Identifier: Apache-2.0 */
/* test_relay.c - mirrors src/comm/relay.c: rows that go once to each node. */
#include "comm/traffic.h"
#include "tests/test.h"

/* Nodes of consecutive ranks; rank s has MINE rows, of which others want some:
 * nobody, one or several ranks of a node. */
enum { MINE = 9, NODES_MOST = 3, EACH_MOST = 2, RELAY_RANKS = 6 };
struct relay_case { int nodes, each; };

static bool wants(int sender, int row, int rank)
{
    return (sender * 7 + row * 5 + rank * rank * 3) % 7 < 3;
}

static bool node_wants(int sender, int row, int node, int each)
{
    for (int i = 0; i < each; i++)
        if (wants(sender, row, node * each + i)) return true;
    return false;
}

static float relay_number(int sender, int row)
{
    return (float)(100 * sender + row);
}

struct relay_lists {
    int64_t out[NODES_MOST], in[NODES_MOST], to[EACH_MOST], from[EACH_MOST];
    int32_t picks[EACH_MOST * NODES_MOST * MINE];
    int ranks[RELAY_RANKS];
    float rows[NODES_MOST * MINE];
    float expected[RELAY_RANKS * MINE];
    int64_t sent, between, come;
};

/* The n-th node whose rows a rank passes on: its own is the last. */
static int passed_node(int n, int own, int nodes)
{
    if (n == nodes - 1) return own;
    return n < own ? n : n + 1;
}

/* The rows of one sender, from number `row` on, that rank `to` picks. */
static int32_t *pick(struct relay_lists *l, struct relay_case c, int sender,
                     int to, int32_t *picks)
{
    const int node = to / c.each, from = sender / c.each;
    int32_t row = 0;

    for (int n = 0; n < c.nodes && passed_node(n, node, c.nodes) != from; n++)
        row += (int32_t)l->in[passed_node(n, node, c.nodes)];
    l->in[from] = 0;
    for (int r = 0; r < MINE; r++) {
        if (!node_wants(sender, r, node, c.each)) continue;
        if (wants(sender, r, to)) *picks++ = row;
        l->in[from]++;
        row++;
    }
    return picks;
}

static void relay_passed(struct relay_lists *l, struct relay_case c, int me)
{
    const int node = me / c.each, place = me % c.each;
    int32_t *picks = l->picks;

    for (int j = 0; j < c.each; j++) {
        const int32_t *before = picks;

        for (int n = 0; n < c.nodes; n++)
            picks = pick(l, c,
                         passed_node(n, node, c.nodes) * c.each + place,
                         node * c.each + j, picks);
        l->to[j] = picks - before;
        if (j != place) l->sent += picks - before;
    }
}

static void relay_fill(struct relay_lists *l, struct relay_case c, int me)
{
    const int own = me / c.each;
    int64_t rows = 0;

    memset(l, 0, sizeof *l);
    for (int i = 0; i < c.nodes * c.each; i++) l->ranks[i] = i;
    for (int node = 0; node < c.nodes; node++)
        for (int r = 0; r < MINE; r++) {
            if (!node_wants(me, r, node, c.each)) continue;
            l->rows[rows++] = relay_number(me, r);
            l->out[node]++;
            if (node != own) l->sent++;
            if (node != own) l->between++;
        }
    relay_passed(l, c, me);
    for (int place = 0; place < c.each; place++)
        for (int n = 0; n < c.nodes; n++) {
            const int sender = passed_node(n, own, c.nodes) * c.each + place;

            for (int r = 0; r < MINE; r++) {
                if (!wants(sender, r, me)) continue;
                l->expected[l->come++] = relay_number(sender, r);
                l->from[place]++;
            }
        }
}

static int64_t relay_sum(const int64_t *counts, int count)
{
    int64_t sum = 0;

    for (int i = 0; i < count; i++) sum += counts[i];
    return sum;
}

static status relay_body(void *argument, struct group *world)
{
    const struct relay_case c = *(const struct relay_case *)argument;
    struct relay_lists l;
    float got[RELAY_RANKS * MINE], room[2 * RELAY_RANKS * MINE + 64];
    struct traffic_row row;

    group_limit_ms(world, 20000);
    group_nodes(world, c.each);
    relay_fill(&l, c, world->rank);
    const struct comm_relay relay = {
        .nodes = c.nodes, .each = c.each, .node = world->rank / c.each,
        .place = world->rank % c.each, .ranks = l.ranks, .out = l.out,
        .in = l.in, .to = l.to, .from = l.from, .picks = l.picks,
        .row_bytes = sizeof(float)};
    const struct comm_call call = {
        .kind = COMM_ALL_TO_ALL, .algorithm = ALGORITHM_HIERARCHY,
        .in = tensor_1d(l.rows, DTYPE_F32, relay_sum(l.out, c.nodes)),
        .out = tensor_1d(got, DTYPE_F32, l.come), .relay = &relay,
        .scratch = room, .scratch_bytes = sizeof room};

    comm_traffic_reset(world);
    TRY(comm_run(world, &call));
    if (memcmp(got, l.expected, (size_t)l.come * sizeof(float)) != 0)
        FAIL(ERR_VERIFY, "rank %d has other rows", world->rank);
    if (comm_traffic(world, &row, 1) != 1 ||
        row.bytes != l.sent * (int64_t)sizeof(float) ||
        row.between != l.between * (int64_t)sizeof(float))
        FAIL(ERR_VERIFY, "rank %d sent %lld bytes, %lld between nodes",
             world->rank, (long long)row.bytes, (long long)row.between);
    return OK;
}

TEST(rows_go_once_to_each_node)
{
    static struct relay_case cases[] = {
        {1, 1}, {1, 2}, {2, 1}, {2, 2}, {3, 1}, {3, 2}};

    for (int i = 0; i < ROWS(cases); i++)
        IS_OK(ranks_run(cases[i].nodes * cases[i].each, relay_body,
                        &cases[i]));
}

static status uneven_body(void *argument, struct group *world)
{
    static const int64_t one[1] = {1}, two[1] = {2};
    static const int ranks[1] = {0};
    static const int32_t picks[1] = {0};
    float cells[2] = {0};
    const struct comm_relay relay = {
        .nodes = 1, .each = 1, .ranks = ranks, .out = one, .in = two,
        .to = one, .from = one, .picks = picks, .row_bytes = sizeof(float)};
    const struct comm_call call = {
        .kind = COMM_ALL_TO_ALL, .algorithm = ALGORITHM_HIERARCHY,
        .in = tensor_1d(cells, DTYPE_F32, 1),
        .out = tensor_1d(cells + 1, DTYPE_F32, 1), .relay = &relay};

    (void)argument;
    return comm_run(world, &call);
}

TEST(relays_of_other_counts_are_refused)
{
    FAILS(ranks_run(1, uneven_body, NULL), ERR_CONFIG, "do not fit 1 ranks");
}

TEST_MAIN(rows_go_once_to_each_node, relays_of_other_counts_are_refused)
