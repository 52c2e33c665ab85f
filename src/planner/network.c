/* SPDX-License-Identifier: Apache-2.0 */
/* network.c - collectives: from a measured table, or latency and rate of the
 * path. The ranks of a node share its network ports; all groups of a kind talk
 * at the same time, so by max-min fairness each member has an equal part of
 * them. Where several lists share a node, the simulator divides its ports at
 * every moment. */
#include "planner/network.h"

#include <string.h>

#include "kernels/math.h"

/* Rank numbers follow pipe, data, shard, context, expert, tensor. */
struct group_shape group_of(const struct layout *l, enum cause axis)
{
    const struct { enum cause axis; int size; } fast_first[] = {
        {CAUSE_TENSOR, l->tensor}, {CAUSE_EXPERT, l->expert},
        {CAUSE_CONTEXT, l->context}, {CAUSE_SHARD, l->shard},
        {CAUSE_DATA, l->data}, {CAUSE_PIPE, l->pipe}};
    int stride = 1;

    for (int i = 0; i < 6; i++) {
        if (fast_first[i].axis == axis)
            return (struct group_shape){fast_first[i].size, stride};
        stride *= fast_first[i].size;
    }
    return (struct group_shape){1, 1};
}

struct group_shape expert_group(const struct layout *l)
{
    const struct expert_ranks e = layout_experts(l);

    return (struct group_shape){e.ranks, e.stride};
}

double node_ports(const struct machine *machine, int talking)
{
    const double *v = machine->value;
    const double own = v[M_NICS] > v[M_DEVICES] ? v[M_NICS] / v[M_DEVICES] : 1;
    const double fair = v[M_NICS] / talking;

    return v[M_NICS] > 0 && fair < own ? fair : own;
}

int pipe_team(const struct layout *l)
{
    return layout_ranks(l) / l->pipe;
}

bool pipe_leaves(const struct layout *l, int from, int to)
{
    const int team = pipe_team(l), node = l->per_node;

    if (node < 1 || team >= node) return from != to;
    for (int i = 0; i < team; i++)
        if ((from * team + i) / node != (to * team + i) / node) return true;
    return false;
}

int group_on_node(const struct layout *l, struct group_shape group)
{
    const int members = l->per_node / group.stride;

    return members < 1 ? 1 : members < group.ranks ? members : group.ranks;
}

/* The share of a device's links that a group inside a node uses: those of the
 * axes of the torus along which its members lie. */
static double link_share(const struct cost *cost, int members)
{
    const double axes = cost->machine->value[M_LINK_AXES];
    const int node = cost->layout->per_node;

    if (axes <= 1 || members < 2 || node < 2) return 1;
    const double along = axes * math_log(members) / math_log(node);

    return (along < 1 ? 1 : along > axes ? axes : along) / axes;
}

/* Bytes a second of one member to the next, all groups of its kind active. A
 * ring over the members of a node leaves it once for all of them: they use the
 * ports of all. */
static double group_rate(const struct cost *cost, struct group_shape group)
{
    const double *v = cost->machine->value;
    const int members = group_on_node(cost->layout, group);
    const double link = v[M_LINK_RATE] * v[M_LINK] *
                        link_share(cost, members);
    const double nic = v[M_NIC_RATE] * v[M_NIC] * members *
                       node_ports(cost->machine, cost->layout->per_node);

    if (members >= group.ranks) return link;
    return nic < link ? nic : link;
}

static double group_latency(const struct cost *cost,
                            struct group_shape group)
{
    return group_on_node(cost->layout, group) >= group.ranks
               ? cost->machine->value[M_LINK_LATENCY]
               : cost->machine->value[M_NIC_LATENCY];
}

/* Seconds until the first byte of a collective has gone round. Libraries of
 * GPUs send halves of sums in rings, whose latency grows with every member;
 * whole sums in trees, as Lockstep sends all of them. */
static double first_byte(const struct cost *cost, enum collective op,
                         struct group_shape group)
{
    const double *v = cost->machine->value;
    const double n = group.ranks;
    const double nodes = n / group_on_node(cost->layout, group);
    const double latency = group_latency(cost, group);
    double hops = 0;

    if (op == COLLECTIVE_SEND) return latency;
    for (double reach = 1; reach < n; reach *= 2) hops += 1;
    if (op == COLLECTIVE_ALL_REDUCE) return 2 * hops * latency;
    if (cost->layout->as == AS_LOCKSTEP || op == COLLECTIVE_ALL_TO_ALL)
        return hops * latency;
    return nodes > 1 ? nodes * v[M_NIC_LATENCY] +
                           (n - nodes) * v[M_LINK_LATENCY]
                     : (n - 1) * latency;
}

/* Seconds from the table: log-log between its sizes, the last rate beyond. */
static double from_table(const struct measured_collective *row, double bytes)
{
    int i = 1;

    if (row->count == 1 || bytes <= row->bytes[0])
        return row->seconds[0] *
               (row->count == 1 && bytes > row->bytes[0]
                    ? bytes / row->bytes[0] : 1);
    while (i < row->count - 1 && bytes > row->bytes[i]) i++;
    if (bytes > row->bytes[i]) return row->seconds[i] * bytes / row->bytes[i];
    const double part = math_log(bytes / row->bytes[i - 1]) /
                        math_log(row->bytes[i] / row->bytes[i - 1]);

    return row->seconds[i - 1] *
           math_exp(part * math_log(row->seconds[i] / row->seconds[i - 1]));
}

static const struct measured_collective *
find_table(const struct cost *cost, enum collective op, int ranks, bool inside)
{
    const struct machine *m = cost->machine;

    for (int i = 0; i < m->collective_count; i++) {
        const struct measured_collective *c = &m->collectives[i];
        const bool network = strcmp(c->path, "network") == 0;

        if (strcmp(c->op, collective_names[op]) == 0 &&
            c->ranks == ranks && network != inside)
            return c;
    }
    return NULL;
}

/* The share that a program's exchange of rows reaches, unless the machine's was
 * measured or set; 0: the machine's. */
static double rows_share(const struct cost *cost, int constant, double own)
{
    const enum mark mark = cost->machine->mark[constant];

    return own > 0 && (mark == MARK_FITTED || mark == MARK_ASSUMED)
               ? own : cost->machine->value[constant];
}

/* Each member sends straight to each: over the links of its node to those that
 * are there, through its own port to others, at the same time. */
static double all_to_all(const struct cost *cost, struct group_shape group,
                         double bytes, struct rows_once once)
{
    const double *v = cost->machine->value;
    const double each = bytes / group.ranks;
    const int near = group_on_node(cost->layout, group);
    const struct habits *h = &habits_of[cost->layout->as];
    const bool library = cost->layout->rows_straight;
    const double link =
        rows_share(cost, M_LINK, library ? 0 : h->rows_link);
    const double port = rows_share(cost, M_NIC, library ? h->library_port
                                                        : h->rows_port);
    const double inside = (once.inside > 0 ? once.inside * bytes
                                           : (near - 1) * each) /
                          (v[M_LINK_RATE] * link);
    const double ports = once.outside * (group.ranks - near) * each /
                         (v[M_NIC_RATE] * port *
                          node_ports(cost->machine, cost->layout->per_node));

    return inside > ports ? inside : ports;
}

/* No fit or measurement is behind a rate. */
static bool is_guess(const struct machine *machine)
{
    return machine->mark[M_LINK] == MARK_ASSUMED ||
           machine->collective_count > 0;
}

static double collective(const struct cost *cost, enum collective op,
                         struct group_shape group, double bytes,
                         struct rows_once once, double *guessed)
{
    const double n = group.ranks;
    const struct measured_collective *row;
    const double rate = group_rate(cost, group);
    double seconds;

    if (group.ranks < 2 && op != COLLECTIVE_SEND) return 0;
    row = find_table(cost, op, group.ranks,
                     group_on_node(cost->layout, group) >= group.ranks);
    if (row != NULL) return from_table(row, bytes);
    seconds = first_byte(cost, op, group);
    if (op == COLLECTIVE_ALL_REDUCE)
        seconds += 2 * (n - 1) / n * bytes / rate;
    else if (op == COLLECTIVE_ALL_TO_ALL)
        seconds += all_to_all(cost, group, bytes, once);
    else
        seconds += (op == COLLECTIVE_SEND ? 1 : (n - 1) / n) * bytes / rate;
    if (is_guess(cost->machine)) *guessed += seconds;
    return seconds;
}

/* Over the links of the node, or through the ports, with all ranks of the node
 * that are at that position. */
double cost_transfer(const struct cost *cost, bool leaves, double *guessed)
{
    const double *v = cost->machine->value;
    const struct layout *l = cost->layout;
    const int team = pipe_team(l);
    const double bytes = cost_border_bytes(cost);
    const struct measured_collective *row =
        find_table(cost, COLLECTIVE_SEND, l->pipe, !leaves);
    const double port = v[M_NIC_RATE] * v[M_NIC] *
                        node_ports(cost->machine,
                                   team < l->per_node ? team : l->per_node);
    const double link = v[M_LINK_RATE] * v[M_LINK] *
                        link_share(cost, group_on_node(
                                             l, group_of(l, CAUSE_PIPE)));

    if (row != NULL) return from_table(row, bytes);
    const double seconds = v[leaves ? M_NIC_LATENCY : M_LINK_LATENCY] +
                           bytes / (leaves && port < link ? port : link);

    if (is_guess(cost->machine)) *guessed += seconds;
    return seconds;
}

double cost_collective(const struct cost *cost, enum collective op,
                       struct group_shape group, double bytes,
                       double *guessed)
{
    return collective(cost, op, group, bytes, (struct rows_once){1, 0},
                      guessed);
}

double cost_exchange(const struct cost *cost, struct group_shape group,
                     double bytes, struct rows_once once, double *guessed)
{
    return collective(cost, COLLECTIVE_ALL_TO_ALL, group, bytes, once,
                      guessed);
}
