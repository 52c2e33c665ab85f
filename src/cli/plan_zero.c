/* SPDX-License-Identifier: Apache-2.0 */
/* plan_zero.c - how often gradients are reduced, and the price of each choice.
 * Both choices are really planned, alone, as if the run had no other. */
#include "cli/plan_zero.h"

#include <string.h>

#include "setup/rounds.h"

/* One choice, of one rank. */
struct price {
    int rounds;            /* reductions of a step; 0: it is not possible */
    int64_t gradients;     /* bytes kept: sums, or whole gradients */
    int64_t partials;      /* ... of leaves that wait for others */
    int64_t rooms;         /* ... of units until they are reduced */
    int64_t sent;          /* bytes of a step */
    int64_t copies;        /* ... of them between ranks with the same shard */
    int64_t saved;         /* bytes that formats of few bits do not send */
};

static int64_t bytes_sent(const struct exchanges *exchanges)
{
    int64_t bytes = 0;

    for (int i = 0; i < exchanges->count; i++) {
        const struct exchange *e = &exchanges->items[i];

        if (e->what == SENT_GRADIENTS && (e->group.kind != GROUP_AXIS ||
                                          e->group.number != AXIS_CONTEXT))
            bytes += e->bytes;
    }
    return bytes;
}

/* Shards of mesh.shard are added up over mesh.data in every round, too: a tree
 * over leaves adds those of a round before it adds rounds. */
static int64_t bytes_between_copies(const struct exchanges *exchanges)
{
    int64_t bytes = 0;

    for (int i = 0; i < exchanges->count; i++)
        if (exchanges->items[i].between_copies)
            bytes += exchanges->items[i].bytes;
    return bytes;
}

/* Bytes of all that fsdp.gather_format and zero_format change. */
static int64_t bytes_formatted(const struct exchanges *exchanges)
{
    int64_t bytes = 0;

    for (int i = 0; i < exchanges->count; i++) {
        const enum sent what = exchanges->items[i].what;

        if (what == SENT_GRADIENTS || what == SENT_WEIGHTS ||
            what == SENT_LARGEST_OPERANDS)
            bytes += exchanges->items[i].bytes;
    }
    return bytes;
}

/* Bytes that all numbers as they are would take more than `sent`. */
static status find_saved(const struct setup *setup, int rank, int64_t sent,
                         int64_t *saved)
{
    struct setup plain = *setup;
    struct draft draft;

    *saved = 0;
    if (!plain.request.divided.gather.codes &&
        plain.request.reduction.bits == 0)
        return OK;
    plain.request.divided.gather.codes = false;
    plain.request.reduction.bits = 0;
    TRY(draft_build_alone(&draft, &plain, rank));
    *saved = bytes_formatted(&draft.exchanges) - sent;
    draft_free(&draft);
    return OK;
}

static status price_now(struct setup *setup, int rank, struct price *out)
{
    const struct memory_row *memory;
    struct draft draft;

    TRY(draft_build_alone(&draft, setup, rank));
    memory = draft.pipeline.memory;
    out->rounds = stage_rounds(&draft.pipeline.stages[0]);
    out->gradients = (int64_t)memory[MEMORY_GRADIENTS].bytes;
    out->partials = (int64_t)memory[MEMORY_PARTIALS].bytes;
    out->rooms = (int64_t)memory[MEMORY_BUCKETS].bytes;
    out->sent = bytes_sent(&draft.exchanges);
    out->copies = bytes_between_copies(&draft.exchanges);
    out->saved = bytes_formatted(&draft.exchanges);
    draft_free(&draft);
    return find_saved(setup, rank, out->saved, &out->saved);
}

static int64_t kept(const struct price *price)
{
    return price->gradients + price->partials + price->rooms;
}

/* Why a step cannot reduce gradients after each micro-batch, or "". */
static const char *why_not(const struct setup *setup, char out[ROUNDS_REASON])
{
    if (setup->request.reduction.rounds > 0) return "";
    if (setup->request.divided.division.gradients == 0)
        return "zero divides no gradients; zero2, fsdp and hsdp do";
    return rounds_obstacle(setup, out) != NULL ? out : "";
}

/* As if zero_reduce were `choice`, which is possible. */
static status price_of(struct setup *setup, int rank, const char *choice,
                       struct price *out)
{
    const struct options_set *asked = setup->set;
    const struct grid grid = setup->grid;
    struct options_set set = *asked;
    status result;

    *out = (struct price){0};
    set.values.zero_reduce = choice;
    setup->set = &set;
    result = setup_use_grid(setup, &grid);
    if (result == OK) result = price_now(setup, rank, out);
    setup->set = asked;
    TRY(result);
    TRY(setup_use_grid(setup, &grid));
    return result;
}

static void add_row(struct table *table, const char *choice, bool used,
                    const struct price *price)
{
    table_text(table, choice);
    table_bool(table, used);
    table_integer(table, price->rounds);
    table_bytes(table, price->gradients);
    table_bytes(table, price->partials);
    table_bytes(table, price->rooms);
    table_bytes(table, price->sent);
    table_bytes(table, price->copies);
    table_bytes(table, price->saved);
    table_text(table, "");
}

static void add_impossible(struct table *table, const char *choice,
                           const char *why)
{
    table_text(table, choice);
    table_bool(table, false);
    for (int i = 0; i < 7; i++) table_text(table, NULL);
    table_text(table, why);
}

status plan_zero(struct setup *setup, int rank, struct table *table)
{
    static const struct table_column columns[] = {
        {"zero_reduce", "zero_reduce", false}, {"used", "used", false},
        {"reductions", "reductions", true},
        {"gradients", "gradients_bytes", true},
        {"partial", "partials_bytes", true}, {"units", "units_bytes", true},
        {"sent in a step", "sent_bytes", true},
        {"between copies", "copies_bytes", true},
        {"saved by formats", "saved_bytes", true}, {"", "reason", false}};
    const bool rounds = setup->request.reduction.rounds > 0;
    char reason[ROUNDS_REASON];
    const char *why = why_not(setup, reason);
    struct price price;

    table_begin(table, columns, 10);
    if (why[0] != 0) {
        add_impossible(table, "each", why);
    } else {
        TRY(price_of(setup, rank, "each", &price));
        add_row(table, "each", rounds, &price);
    }
    TRY(price_of(setup, rank, "once", &price));
    add_row(table, "once", !rounds, &price);
    return OK;
}

/* The axis beside which auto reduces once. */
static const char *axis_beside(const struct stage_request *r)
{
    return r->layout.mesh.size[AXIS_PIPE] > 1      ? "mesh.pipe"
           : r->layout.mesh.size[AXIS_CONTEXT] > 1 ? "mesh.context"
                                            : "numerics.grid_context";
}

status plan_zero_warn(struct setup *setup, int rank)
{
    const struct stage_request *r = &setup->request;
    const struct options *o = &setup->set->values;
    char has[32], sends[32], would[32], more[32], reason[ROUNDS_REASON];
    const char *why = why_not(setup, reason);
    struct price once, each;

    if (r->divided.division.gradients == 0 || r->reduction.rounds > 0 ||
        strcmp(o->zero_reduce, "auto") != 0 ||
        division_ranks(&r->divided.division, &r->layout.mesh) == 1)
        return OK;
    TRY(price_of(setup, rank, "once", &once));
    text_bytes(has, (size_t)kept(&once));
    if (why[0] != 0) {
        fprintf(stderr, "warning: zero=%s keeps whole gradients, %s on this "
                        "rank: %s (docs/zero.md)\n", o->zero, has, why);
        return OK;
    }
    TRY(price_of(setup, rank, "each", &each));
    if (kept(&each) >= kept(&once)) {
        fprintf(stderr, "warning: zero=%s keeps whole gradients beside %s: %s "
                        "on this rank; zero_reduce=each would keep no less "
                        "(docs/zero.md)\n", o->zero, axis_beside(r), has);
        return OK;
    }
    text_bytes(sends, (size_t)once.sent);
    text_bytes(would, (size_t)kept(&each));
    text_bytes(more, (size_t)each.sent);
    fprintf(stderr, "warning: zero=%s keeps whole gradients beside %s: %s on "
                    "this rank, which sends %s of them a step; with "
                    "zero_reduce=each it keeps %s and sends %s "
                    "(docs/zero.md)\n", o->zero, axis_beside(r), has, sends,
            would, more);
    return OK;
}
