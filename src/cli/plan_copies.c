/* SPDX-License-Identifier: Apache-2.0 */
/* plan_copies.c - copies of the ranks' state in a planned step. */
#include "cli/plan_copies.h"

#include <stdio.h>
#include <string.h>

#include "base/arena.h"
#include "control/copies_place.h"
#include "planner/network.h"
#include "train/copy_every.h"

/* Bytes of a rank's copy: of its place on the pipe. */
static double bytes_of(const struct forecast *f, int rank)
{
    const int position = rank / pipe_team(&f->layout);

    return f->walked ? f->state_bytes[position]
                     : state_copies_bytes(&f->layout, &f->shape, position);
}

/* Whether the rows are on the node already, or another rank of its own brings
 * them: as couriers find out by checksums (control/courier_slots.c). */
static bool is_there(const struct forecast *f, int rank, int node)
{
    const int each = f->layout.per_node;

    for (int r = rank / each * each; r < rank; r++)
        if (state_copies_same(&f->layout, &f->shape, r, rank)) return true;
    for (int r = node * each; r < layout_node_end(&f->layout, node); r++)
        if (state_copies_same(&f->layout, &f->shape, r, rank)) return true;
    return false;
}

static double node_bytes(const struct forecast *f, int node,
                         const int partners[PARTNERS_MOST])
{
    const int begin = node * f->layout.per_node;
    double bytes = 0;

    for (int r = begin; r < layout_node_end(&f->layout, node); r++)
        for (int i = 0; i < PARTNERS_MOST; i++)
            if (partners[i] >= 0 && !is_there(f, r, partners[i]))
                bytes += bytes_of(f, r);
    return bytes;
}

/* A run has at most NODES_MOST nodes; of a larger plan the first NODES_MOST
 * stand for all. */
static int nodes_of(const struct forecast *f)
{
    const int nodes = layout_nodes(&f->layout);

    return nodes < NODES_MOST ? nodes : NODES_MOST;
}

static status send_copies(struct plan_copies *out, const struct forecast *f,
                          const struct steps *steps, int replicas)
{
    static int partners[NODES_MOST][PARTNERS_MOST];
    static double bytes[NODES_MOST];
    const struct cost cost = forecast_cost(f);
    const int nodes = nodes_of(f);

    copies_place(nodes, replicas, partners, out->survives);
    for (int i = 0; i < PARTNERS_MOST; i++)
        out->partners += partners[0][i] >= 0;
    if (out->partners == 0) return OK;
    for (int n = 0; n < nodes; n++)
        bytes[n] = node_bytes(f, n, partners[n]);
    return state_copies_place(&out->sent, steps, &cost, &(struct copies_sent){
        bytes, nodes, out->partners});
}

static void find_largest(struct plan_copies *out, const struct forecast *f)
{
    const struct cost cost = forecast_cost(f);

    for (int i = 0; i < f->layout.pipe; i++) {
        const double bytes = bytes_of(f, i * pipe_team(&f->layout));

        if (bytes > out->bytes) out->bytes = bytes;
    }
    out->pass_s = state_copies_pass(&cost, out->bytes);
}

static status read_flags(struct plan_copies *out,
                         const struct arguments *arguments, int64_t *replicas)
{
    const char *said = arguments_text(arguments, "copies", NULL);

    *replicas = 2;
    TRY(arguments_integer(arguments, "replicas", 1, PARTNERS_MOST + 1,
                          replicas));
    out->asked = said != NULL;
    if (said == NULL && arguments_has(arguments, "replicas"))
        FAIL(ERR_USAGE, "--replicas is for planned copies; add --copies K");
    if (said == NULL || strcmp(said, "auto") == 0) return OK;
    return arguments_integer(arguments, "copies", 1, 1000000, &out->every);
}

/* Seconds that a step stands still for its copy. */
static double cost_of(const struct plan_copies *copies)
{
    return copies->pass_s + copies->sent.wait_s;
}

status plan_copies_find(struct plan_copies *out,
                        const struct arguments *arguments,
                        const struct forecast *f, const struct steps *steps,
                        double step_s)
{
    int64_t replicas;

    *out = (struct plan_copies){.asked = false};
    TRY(read_flags(out, arguments, &replicas));
    if (!out->asked) return OK;
    if (f->layout.as != AS_LOCKSTEP)
        FAIL(ERR_USAGE, "--copies: Lockstep alone keeps copies of its state; "
                        "leave --as out");
    find_largest(out, f);
    TRY(send_copies(out, f, steps, (int)replicas));
    out->cheap_every = copy_every_steps(cost_of(out), step_s);
    if (out->every == 0) out->every = out->cheap_every;
    return OK;
}

void plan_copies_free(struct plan_copies *copies)
{
    state_copies_free(&copies->sent);
}

static double share_of_time(const struct plan_copies *c, double step_s)
{
    return cost_of(c) / (step_s * (double)c->every);
}

/* The share of the bytes leaving a node that travels in idle time. */
static double idle_share(const struct plan_copies *c)
{
    return c->sent.travel_s > 0 ? 1 - c->sent.wait_s / c->sent.travel_s : 1;
}

static void print_travel(const struct plan_copies *c)
{
    const struct state_copies *s = &c->sent;
    char text[32];

    if (c->partners == 0) {
        printf("  no other node: they stay in the memory of this one\n");
        return;
    }
    if (s->node_bytes == 0) {
        printf("  nothing travels: each rank's partner has the same rows\n");
        return;
    }
    printf("  %s leave a node for %d other%s: %.4g s alone; its network is "
           "idle for %.4g s of the %.4g s until the norm\n",
           text_bytes(text, (uint64_t)s->node_bytes), c->partners,
           c->partners > 1 ? "s" : "", s->travel_s, s->idle_s, s->window_s);
    if (s->wait_s > 0)
        printf("  %.1f%% travel in idle time, ranks wait %.4g s for the rest\n",
               100 * idle_share(c), s->wait_s);
    else
        printf("  they fit into the idle time of one step\n");
}

void plan_copies_print(const struct plan_copies *c, double step_s)
{
    char text[32];

    if (!c->asked) return;
    printf("\nCopies of the state, %s a rank, after every %lld step%s:\n",
           text_bytes(text, (uint64_t)c->bytes), (long long)c->every,
           c->every > 1 ? "s" : "");
    print_travel(c);
    if (c->pass_s > 0)
        printf("  a rank stands still for %.4g s to make one\n", c->pass_s);
    printf("  they cost %.2f%% of the time; K %lld is the smallest that costs "
           "no more than 1%%\n", 100 * share_of_time(c, step_s),
           (long long)c->cheap_every);
    if (c->survives[0] != '\0') printf("  %s\n", c->survives);
}

void plan_copies_write(const struct plan_copies *c, double step_s,
                       struct json_writer *w)
{
    const struct state_copies *s = &c->sent;

    if (!c->asked) {
        json_write_null(w);
        return;
    }
    json_write_object(w);
    json_write_key_integer(w, "every", c->every);
    json_write_key_integer(w, "cheap_every", c->cheap_every);
    json_write_key_real(w, "bytes", c->bytes);
    json_write_key_integer(w, "partners", c->partners);
    json_write_key_real(w, "node_bytes", s->node_bytes);
    json_write_key_real(w, "travel_s", s->travel_s);
    json_write_key_real(w, "window_s", s->window_s);
    json_write_key_real(w, "idle_s", s->idle_s);
    json_write_key_real(w, "idle_share", idle_share(c));
    json_write_key(w, "fits");
    json_write_bool(w, s->wait_s <= 0);
    json_write_key_real(w, "pass_s", c->pass_s);
    json_write_key_real(w, "exposed_s", s->wait_s);
    json_write_key_real(w, "cost_share", share_of_time(c, step_s));
    json_write_key_text(w, "survives", c->survives);
    json_write_object_end(w);
}
