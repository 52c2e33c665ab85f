/* SPDX-License-Identifier: Apache-2.0 */
/* state_copies.c - copies of state in the idle time of a planned step. */
#include "planner/state_copies.h"

#include <stdlib.h>

#include "base/arena.h"
#include "planner/memory.h"
#include "planner/network.h"

/* A device whose memory the host does not read has so much less to it. */
static const double apart_share = 0.1;

/* ---- what travels ---- */

double state_copies_pass(const struct cost *cost, double bytes)
{
    const double *v = cost->machine->value;
    const bool apart = v[M_HOST_RATE] < apart_share * v[M_MEMORY_RATE];

    return apart || cost->layout->stored.split_masters
               ? bytes / v[M_HOST_RATE] : 0;
}

double state_copies_bytes(const struct layout *layout,
                          const struct shape *shape, int position)
{
    struct layout here = *layout;
    struct memory memory;

    here.offload = OFFLOAD_NONE; /* wherever the state lies, it is copied */
    memory_of(&here, shape, position, &memory);
    return memory.weights + memory.states;
}

/* Number of a rank along the axis. */
static int along(const struct layout *l, enum cause axis, int rank)
{
    const struct group_shape group = group_of(l, axis);

    return rank / group.stride % group.ranks;
}

bool state_copies_same(const struct layout *l, const struct shape *s, int a,
                       int b)
{
    const bool divided = l->zero > 0;
    const struct { enum cause axis; bool cuts; } axes[] = {
        {CAUSE_PIPE, true}, {CAUSE_TENSOR, true},
        {CAUSE_EXPERT, divided || s->experts > 0},
        {CAUSE_CONTEXT, l->expert_context && s->experts > 0},
        {CAUSE_SHARD, divided},
        {CAUSE_DATA, divided && (!l->whole_shards || l->parts[1])}};

    for (size_t i = 0; i < sizeof axes / sizeof *axes; i++)
        if (axes[i].cuts &&
            along(l, axes[i].axis, a) != along(l, axes[i].axis, b))
            return false;
    return true;
}

/* ---- when the network is idle ---- */

/* The network is used by so much more from then on. */
struct change { double at, by; };

struct usage {
    struct change *changes;  /* owned */
    int count, capacity;
};

static status use(struct usage *usage, const struct timed *item, double share)
{
    const struct change both[] = {{item->begin, share}, {item->end, -share}};

    for (int i = 0; i < 2; i++) {
        void *changes = usage->changes;

        TRY(memory_next(&changes, &usage->capacity, usage->count, 256,
                        sizeof *usage->changes));
        usage->changes = changes;
        usage->changes[usage->count++] = both[i];
    }
    return OK;
}

/* The share of an instruction in which its ranks talk to other nodes. */
static double talking(const struct steps *steps, const struct timed *item)
{
    const struct spent *span = &steps->spans[item->kind];
    const double whole = spent_seconds(span);

    if (item->ports == 2) return 1;
    if (whole <= 0 || span->network <= 0) return 0;
    return span->network < whole ? span->network / whole : 1;
}

static bool is_among(int list, int first, int last)
{
    return list >= first && list <= last;
}

/* Messages of the node that has ranks of those lists, both ways. */
static status find_usage(struct usage *usage, const struct steps *steps,
                         int first, int last)
{
    for (int r = 0; r < steps->lists.ranks; r++)
        for (int i = 0; i < steps->lists.lists[r].count; i++) {
            const struct timed *item = &steps->lists.lists[r].items[i];
            const bool ours = is_among(r, first, last) ||
                              (item->sender > 0 &&
                               is_among(item->sender - 1, first, last));
            const double share = ours ? talking(steps, item) : 0;

            if (share > 0 && item->end > item->begin)
                TRY(use(usage, item, share));
        }
    return OK;
}

static int earlier(const void *a, const void *b)
{
    const struct change *x = a, *y = b;

    return x->at < y->at ? -1 : x->at > y->at;
}

/* When ranks of those lists come to the step's norm. */
static double window_of(const struct steps *steps, int first, int last)
{
    double window = -1, end = 0;

    for (int r = first; r <= last; r++) {
        double norm = -1;

        for (int i = 0; i < steps->lists.lists[r].count; i++) {
            const struct timed *item = &steps->lists.lists[r].items[i];

            if (steps->items[item->kind] == ITEM_NORM && item->begin > norm)
                norm = item->begin;
            if (item->end > end) end = item->end;
        }
        if (norm >= 0 && (window < 0 || norm < window)) window = norm;
    }
    return window < 0 ? end : window;
}

/* ---- placing ---- */

static status add_span(struct state_copies *out, const struct copy_span *span)
{
    struct copy_span *before = out->span_count > 0
                                   ? &out->spans[out->span_count - 1] : NULL;
    void *spans = out->spans;

    if (span->end <= span->begin) return OK;
    if (before != NULL && before->first == span->first &&
        before->waited_for == span->waited_for && before->end == span->begin) {
        before->end = span->end;
        return OK;
    }
    TRY(memory_next(&spans, &out->span_capacity, out->span_count, 64,
                    sizeof *out->spans));
    out->spans = spans;
    out->spans[out->span_count++] = *span;
    return OK;
}

/* The copies of a node. */
struct load {
    int first, last;       /* lists of its ranks */
    double travel_s, window_s;
    double idle_s, left_s; /* found */
};

/* From `begin` on nothing changes until `end`. */
static status fill(struct state_copies *out, struct load *load, double begin,
                   double end, double idle)
{
    const double until = end < load->window_s ? end : load->window_s;
    const double room = (until - begin) * idle;
    double part;

    if (room <= 0) return OK;
    load->idle_s += room;
    part = room < load->left_s ? room : load->left_s;
    load->left_s -= part;
    return add_span(out, &(struct copy_span){load->first, load->last, false,
                                             begin, begin + part / idle});
}

static status fill_idle(struct state_copies *out, struct load *load,
                        const struct usage *usage)
{
    double used = 0, at = 0;

    load->left_s = load->travel_s;
    for (int i = 0; i <= usage->count; i++) {
        const double next = i < usage->count ? usage->changes[i].at
                                             : load->window_s;

        /* Sums of shares that come and go are a rounding off. */
        if (next > at && used < 1 - 1e-9)
            TRY(fill(out, load, at, next, used > 1e-9 ? 1 - used : 1));
        if (next > at) at = next;
        if (i < usage->count) used += usage->changes[i].by;
    }
    return add_span(out, &(struct copy_span){load->first, load->last, true,
                                             load->window_s,
                                             load->window_s + load->left_s});
}

static bool is_worse(const struct state_copies *out, const struct load *load)
{
    return load->left_s > out->wait_s ||
           (load->left_s == out->wait_s && load->travel_s > out->travel_s);
}

static status place_node(struct state_copies *out, const struct steps *steps,
                         double rate, struct load *load, double bytes)
{
    struct usage usage = {NULL, 0, 0};
    status result;

    load->travel_s = bytes / rate;
    load->window_s = window_of(steps, load->first, load->last);
    result = find_usage(&usage, steps, load->first, load->last);
    if (result == OK && usage.count > 0)
        qsort(usage.changes, (size_t)usage.count, sizeof *usage.changes,
              earlier);
    if (result == OK) result = fill_idle(out, load, &usage);
    memory_free(usage.changes);
    TRY(result);
    if (!is_worse(out, load)) return OK;
    out->node_bytes = bytes;
    out->travel_s = load->travel_s;
    out->window_s = load->window_s;
    out->idle_s = load->idle_s;
    out->wait_s = load->left_s;
    return OK;
}

/* Bytes a second of copies that go to so many nodes at once: one connection
 * each, and each uses one port. */
static double copies_rate(const struct cost *cost, int streams)
{
    const double *v = cost->machine->value;
    const double ports = v[M_NICS] > 0 ? v[M_NICS] : v[M_DEVICES];

    return v[M_NIC_RATE] * v[M_NIC] * (streams < ports ? streams : ports);
}

status state_copies_place(struct state_copies *out, const struct steps *steps,
                          const struct cost *cost,
                          const struct copies_sent *sent)
{
    const struct layout *l = cost->layout;
    const int team = pipe_team(l), each = l->per_node;
    const double rate = copies_rate(cost, sent->streams);
    double bytes = 0;
    status result = OK;

    *out = (struct state_copies){.node_bytes = 0};
    for (int n = 0; n < sent->nodes && result == OK; n++) {
        struct load load = {.first = n * each / team,
                            .last = (layout_node_end(l, n) - 1) / team};
        const int next = (n + 1) * each / team;

        if (sent->node_bytes[n] > bytes) bytes = sent->node_bytes[n];
        /* Nodes whose ranks are in the same lists differ in bytes alone: the
         * one that sends most stands for them. */
        if (n + 1 < sent->nodes && next == load.first &&
            (layout_node_end(l, n + 1) - 1) / team == load.last)
            continue;
        if (bytes > 0)
            result = place_node(out, steps, rate, &load, bytes);
        bytes = 0;
    }
    if (result != OK) state_copies_free(out);
    return result;
}

void state_copies_free(struct state_copies *copies)
{
    memory_free(copies->spans);
    *copies = (struct state_copies){.node_bytes = 0};
}
