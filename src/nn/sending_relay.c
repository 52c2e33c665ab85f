/* SPDX-License-Identifier: Apache-2.0 */
/* sending_relay.c - rows that go once to each node, and there to the ranks that
 * have experts of their tokens (comm/relay.c).
 *
 * All ranks have all choices, so each lists by itself what it sends, passes on
 * and gets. Rows lie by sender and token:
 *
 *   mine     tokens of this rank: those that node 0 wants, node 1, ...
 *   passed   tokens of the same place of each other node that this node wants,
 *            then this rank's
 *   theirs   what this node's place 0 passes on to this rank, place 1, ...
 *
 * A row comes to a rank once, whatever number of its experts the token chose:
 * the products read it where it lies. Their results return straight. */
#include "nn/sending.h"

#include "mesh/group.h"

bool sending_relays(const struct program *p)
{
    return mesh_expert_nodes(&p->layout.mesh) > 1;
}

/* ---- sizes ---- */

struct nodes { int count, each, members; };

static struct nodes nodes_of(const struct program *p)
{
    const int count = mesh_expert_nodes(&p->layout.mesh);
    const int members = mesh_expert_ranks(&p->layout.mesh);

    return (struct nodes){count, members / count, members};
}

/* Tokens of all that have this rank's place: so many rows can come to it. */
static int64_t most_passed(const struct program *p,
                           const struct router_form *form)
{
    const struct nodes nodes = nodes_of(p);
    const int own =
        mesh_expert_seat(&p->layout.mesh,
                         mesh_expert_rank(&p->layout.mesh, &p->layout.place))
            .place;
    int64_t most = 0;

    for (int m = 0; m < nodes.members; m++)
        if (mesh_expert_seat(&p->layout.mesh, m).place == own)
            most += sending_entries_at(p, form, m) / form->choices;
    return most;
}

/* Ranks of a node that can want one row. */
static int64_t wanted_most(const struct program *p,
                           const struct router_form *form)
{
    const struct nodes nodes = nodes_of(p);
    const int64_t choices = (int64_t)form->choices * experts_cut(p);

    return choices < nodes.each ? choices : nodes.each;
}

static size_t picks_bytes(const struct program *p,
                          const struct router_form *form)
{
    return arena_aligned(
        (size_t)(most_passed(p, form) * wanted_most(p, form)) *
        sizeof(int32_t));
}

static size_t lists_bytes(const struct nodes *nodes)
{
    return arena_aligned(sizeof(struct relay_lists)) +
           arena_aligned(2 * (size_t)(nodes->count + nodes->each) *
                         sizeof(int64_t)) +
           arena_aligned((size_t)nodes->members * sizeof(int));
}

size_t sending_relay_bytes(const struct program *p,
                           const struct router_form *form)
{
    const struct nodes nodes = nodes_of(p);

    return sending_relays(p) ? lists_bytes(&nodes) + picks_bytes(p, form) : 0;
}

size_t sending_room_bytes(const struct program *p,
                          const struct router_form *form, int64_t row_bytes)
{
    const int64_t rows = sending_relays(p) ? most_passed(p, form) : 0;

    return comm_relay_bytes(rows, rows, row_bytes);
}

struct relay_lists *sending_relay_lie(const struct sending *s, void *memory)
{
    const struct program *p = s->run->program;
    const struct nodes nodes = nodes_of(p);
    struct relay_lists *l = memory;

    if (!sending_relays(p)) return NULL;
    l->out = (int64_t *)(void *)((char *)memory +
                                 arena_aligned(sizeof *l));
    l->in = l->out + nodes.count;
    l->to = l->in + nodes.count;
    l->from = l->to + nodes.each;
    l->picks = (int32_t *)(void *)((char *)memory + lists_bytes(&nodes));
    l->ranks = (int *)(void *)((char *)l->picks -
                               arena_aligned((size_t)nodes.members *
                                             sizeof(int)));
    return l;
}

/* ---- choices ---- */

/* The ranks first, first + stride, ... in a circle: the one at `place` passes
 * on all blocks but the next one's. */
struct around { int first, stride, count, place; };

static int64_t passed_on(const struct program *p,
                         const struct router_form *form, struct around c)
{
    int64_t entries = 0;

    for (int i = 0; i < c.count && c.count > 1; i++)
        if (i != (c.place + 1) % c.count)
            entries += sending_entries_at(p, form, c.first + i * c.stride);
    return entries;
}

struct joined sending_joined(const struct program *p,
                             const struct router_form *form)
{
    const int ranks = mesh_expert_ranks(&p->layout.mesh);
    const int own = mesh_expert_rank(&p->layout.mesh, &p->layout.place);
    const int each = mesh_expert_run(&p->layout.mesh);
    const int64_t entries = sending_entries_at(p, form, own);
    struct joined sent = {entries * (ranks - 1), 0};

    if (each == 0) {
        for (int m = 0; m < ranks; m++)
            if (mesh_expert_seat(&p->layout.mesh, m).node !=
                mesh_expert_seat(&p->layout.mesh, own).node)
                sent.between += entries;
        return sent;
    }
    sent.all = sent.between = passed_on(
        p, form, (struct around){own % each, each, ranks / each, own / each});
    for (int node = 0; node < ranks / each; node++)
        sent.all += passed_on(
            p, form, (struct around){node * each, 1, each, own % each});
    return sent;
}

/* ---- who wants what ---- */

/* Rows of pairs [first, last) of each holder. */
struct wish {
    const struct sending *s;
    const int64_t *first, *last;
    int held, sources, cut;
};

static struct wish wish_of(const struct sending *s,
                           const struct sent_half *half)
{
    const struct program *p = s->run->program;

    return (struct wish){
        s, half != NULL ? half->first : s->pairs,
        half != NULL ? half->last : s->ends,
        experts_held(p, s->form.experts).count, experts_sources(p),
        experts_cut(p)};
}

static int64_t token_of(const struct sending *s, int member, int64_t n)
{
    return sending_entry(s, member, n * s->form.choices) / s->form.choices;
}

static int64_t tokens_of(const struct sending *s, int member)
{
    return sending_entries_at(s->run->program, &s->form, member) /
           s->form.choices;
}

/* Whether the holder gets a row for an expert that the token chose. */
static bool holder_wants(const struct wish *w, int64_t token, int expert,
                         int holder)
{
    const int source = (int)(token / w->s->run->program->size.tokens);
    const int64_t pair =
        (int64_t)(expert % w->held) * w->sources + source;

    return pair >= w->first[holder] && pair < w->last[holder];
}

static bool rank_wants(const struct wish *w, int64_t token, int holder)
{
    const int choices = w->s->form.choices;
    const int32_t *chosen = w->s->joined.chosen + token * choices;

    for (int c = 0; c < choices; c++)
        if (chosen[c] >= 0 && chosen[c] / w->held == holder / w->cut &&
            holder_wants(w, token, chosen[c], holder))
            return true;
    return false;
}

static bool node_wants(const struct wish *w, int64_t token, int node)
{
    const int choices = w->s->form.choices;
    const int32_t *chosen = w->s->joined.chosen + token * choices;

    for (int c = 0; c < choices; c++)
        for (int i = 0; i < w->cut && chosen[c] >= 0; i++) {
            const int holder = chosen[c] / w->held * w->cut + i;

            if (w->s->relay.node[holder] == node &&
                holder_wants(w, token, chosen[c], holder))
                return true;
        }
    return false;
}

/* ---- lists ---- */

static void begin_relay(const struct sending *s, struct relay_lists *l)
{
    const struct program *p = s->run->program;
    const struct nodes nodes = nodes_of(p);
    const struct expert_seat own = mesh_expert_seat(
        &p->layout.mesh, mesh_expert_rank(&p->layout.mesh, &p->layout.place));

    for (int m = 0; m < nodes.members; m++) {
        const struct expert_seat seat = mesh_expert_seat(&p->layout.mesh, m);

        l->ranks[seat.node * nodes.each + seat.place] = m;
    }
    l->relay = (struct comm_relay){
        .nodes = nodes.count, .each = nodes.each, .node = own.node,
        .place = own.place, .ranks = l->ranks, .out = l->out, .in = l->in,
        .to = l->to, .from = l->from, .picks = l->picks};
}

/* The rank of a node with this one's place. */
static int peer_at(const struct relay_lists *l, int node)
{
    return l->ranks[node * l->relay.each + l->relay.place];
}

static int64_t list_mine(struct sending *s, const struct wish *w,
                         struct relay_lists *l, int32_t *tokens)
{
    const int own = peer_at(l, l->relay.node);
    int64_t rows = 0;

    for (int node = 0; node < l->relay.nodes; node++) {
        const int64_t before = rows;

        for (int64_t n = 0; n < tokens_of(s, own); n++)
            if (node_wants(w, token_of(s, own, n), node))
                tokens[rows++] = (int32_t)n;
        l->out[node] = rows - before;
    }
    return rows;
}

/* The nodes whose rows are passed on, in this order: the others, then this. */
static int nth_node(const struct relay_lists *l, int i)
{
    if (i == l->relay.nodes - 1) return l->relay.node;
    return i < l->relay.node ? i : i + 1;
}

/* The rows that a rank of this node picks of those that come to this one. */
static void list_picks(struct sending *s, const struct wish *w,
                       struct relay_lists *l, int place)
{
    const int here = l->relay.node;
    const int holder = l->ranks[here * l->relay.each + place];
    int32_t *picks = l->picks;
    int64_t row = 0, count = 0;

    for (int i = 0; i < place; i++) picks += l->to[i];
    for (int i = 0; i < l->relay.nodes; i++) {
        const int node = nth_node(l, i), peer = peer_at(l, node);
        const int64_t before = row;

        for (int64_t n = 0; n < tokens_of(s, peer); n++) {
            const int64_t token = token_of(s, peer, n);

            if (!node_wants(w, token, here)) continue;
            if (rank_wants(w, token, holder)) picks[count++] = (int32_t)row;
            row++;
        }
        l->in[node] = row - before;
    }
    l->to[place] = count;
}

/* Numbers the tokens whose rows come to this rank as they arrive. */
static int64_t list_theirs(struct sending *s, const struct wish *w,
                           const struct relay_lists *l, int64_t *from)
{
    const int own = peer_at(l, l->relay.node);
    int64_t rows = 0;

    for (int place = 0; place < l->relay.each; place++) {
        const int64_t before = rows;

        for (int i = 0; i < l->relay.nodes; i++) {
            const int sender =
                l->ranks[nth_node(l, i) * l->relay.each + place];

            for (int64_t n = 0; n < tokens_of(s, sender); n++) {
                const int64_t token = token_of(s, sender, n);

                if (rank_wants(w, token, own))
                    s->relay.where[token] = (int32_t)rows++;
            }
        }
        from[place] = rows - before;
    }
    return rows;
}

static struct relay_lists *lists_of(const struct sending *s,
                                    const struct sent_half *half)
{
    return half != NULL ? half->relay : s->relay.turn;
}

void sending_relay_list(struct sending *s, const struct sent_half *half,
                        int64_t own, int64_t *mine, int64_t *theirs)
{
    const struct wish w = wish_of(s, half);
    struct relay_lists *l = lists_of(s, half);

    begin_relay(s, l);
    *mine = list_mine(s, &w, l, s->tokens + own);
    for (int place = 0; place < l->relay.each; place++)
        list_picks(s, &w, l, place);
    *theirs = list_theirs(s, &w, l, l->from);
}

int64_t sending_relay_arrivals(struct sending *s,
                               const struct sent_half *half,
                               const struct turn *turn, int32_t *arrival)
{
    const struct wish w = wish_of(s, half);
    const struct relay_lists *l = lists_of(s, half);
    const int32_t *entries = turn->lists.groups.entries;

    const int64_t come = list_theirs(s, &w, l, l->from);

    for (int64_t i = 0; i < turn->rows; i++)
        arrival[i] = s->relay.where[entries[i] / s->form.choices];
    return come;
}

/* ---- messages ---- */

static void count_routed(struct run *run, const struct comm_relay *r)
{
    int64_t across = 0, inside = 0;

    for (int i = 0; i < r->nodes; i++)
        if (i != r->node) across += r->out[i];
    for (int i = 0; i < r->each; i++)
        if (i != r->place) inside += r->to[i];
    run->counted.routed.calls++;
    run->counted.routed.bytes += (across + inside) * r->row_bytes;
    run->counted.routed.between += across * r->row_bytes;
}

status sending_relay_go(struct sending *s, struct sent_half *half,
                        struct tensor mine, struct tensor theirs)
{
    struct group *group = s->run->groups[AXIS_EXPERT];
    struct relay_lists *l = lists_of(s, half);
    const struct comm_call call = {
        .kind = COMM_ALL_TO_ALL, .algorithm = ALGORITHM_HIERARCHY,
        .in = tensor_1d(mine.data, mine.dtype, tensor_count(&mine)),
        .out = tensor_1d(theirs.data, theirs.dtype, tensor_count(&theirs)),
        .relay = &l->relay, .scratch = s->relay.room,
        .scratch_bytes = s->relay.room_bytes};

    CHECK(group != NULL);
    l->relay.row_bytes = mine.shape[1] * dtype_bytes(mine.dtype);
    count_routed(s->run, &l->relay);
    if (half == NULL) return comm_run(group, &call);
    return comm_start(group, &call, half->handle);
}
