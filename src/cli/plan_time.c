/* SPDX-License-Identifier: Apache-2.0 */
/* plan_time.c - `plan --time`: seconds, where they go, memory, cost. */
#include "cli/plan_time.h"

#include <string.h>

#include "base/file.h"
#include "cli/plan_copies.h"
#include "cli/table.h"
#include "planner/advise.h"
#include "planner/draw.h"
#include "planner/memory.h"
#include "planner/network.h"
#include "train/found_layouts.h"

struct bill { double days, energy_kwh, cost; }; /* 0: was not asked for */
struct amounts { double tokens, watts, price; };

struct view {
    struct forecast forecast;
    struct prediction prediction;
    struct amounts asked;
    struct bill bill;
    struct steps steps;
    struct advice advice;
    double lists_share; /* of compare_lists */
    struct plan_copies copies;
    double own_ports_s; /* step, if each device had a port; 0: it does */
    bool explain;
};

/* Tokens of the run: --tokens, or what the configuration trains. */
static double tokens_of_run(const struct view *v)
{
    const struct options *o = &v->forecast.set.values;

    if (v->asked.tokens > 0) return v->asked.tokens;
    if (o->train.tokens > 0) return (double)o->train.tokens;
    return (double)o->train.steps * (double)o->train.batch *
           (double)o->data.sequence;
}

static status read_amounts(struct amounts *asked,
                           const struct arguments *arguments)
{
    TRY(forecast_amount(arguments, "tokens", &asked->tokens));
    TRY(forecast_amount(arguments, "watts", &asked->watts));
    return forecast_amount(arguments, "price", &asked->price);
}

static status fill_bill(struct view *v)
{
    const struct amounts *a = &v->asked;
    const double hours = tokens_of_run(v) / v->prediction.tokens_per_s / 3600;

    if ((a->watts > 0 || a->price > 0) && hours <= 0)
        FAIL(ERR_USAGE, "--%s needs --tokens T, or train.tokens or "
                        "train.steps in the configuration",
             a->watts > 0 ? "watts" : "price");
    if (a->tokens > 0) v->bill.days = hours / 24;
    v->bill.energy_kwh = a->watts * v->forecast.ranks * hours / 1000;
    v->bill.cost = a->price * v->forecast.ranks * hours;
    return OK;
}

/* ---- for programs ---- */

static void real_or_null(struct json_writer *w, const char *key, double value)
{
    json_write_key(w, key);
    if (value > 0) json_write_real(w, value);
    else json_write_null(w);
}

static void write_axes(struct json_writer *w, const struct prediction *p)
{
    json_write_key(w, "exposed_comm_s");
    json_write_object(w);
    for (int axis = AXIS_PIPE; axis < AXIS_COUNT; axis++)
        json_write_key_real(w, axis_name((enum axis)axis),
                            p->exposed_s[axis]);
    json_write_object_end(w);
}

static void write_path(struct json_writer *w, const struct prediction *p)
{
    json_write_key(w, "critical_path_s");
    json_write_object(w);
    for (int i = 0; i < CAUSES; i++)
        json_write_key_real(w, cause_names[i], p->path_s[i]);
    json_write_object_end(w);
    json_write_key(w, "resources_s");
    json_write_object(w);
    for (int i = 0; i < CLOCK_RESOURCES; i++)
        json_write_key_real(w, clock_resource_names[i], p->resource_s[i]);
    json_write_object_end(w);
    json_write_key(w, "critical_path");
    json_write_array(w);
    for (int i = 0; i < p->part_count; i++) {
        json_write_object(w);
        json_write_key_text(w, "what", step_item_names[p->parts[i].item]);
        json_write_key_integer(w, "pipe_rank", p->parts[i].rank);
        json_write_key(w, "stage"); /* null: the whole rank's, as its update */
        if (p->parts[i].stage >= 0) json_write_integer(w, p->parts[i].stage);
        else json_write_null(w);
        json_write_key_integer(w, "count", p->parts[i].count);
        json_write_key_real(w, "seconds", p->parts[i].seconds);
        json_write_object_end(w);
    }
    json_write_array_end(w);
}

static void write_memory(struct json_writer *w, const struct view *v)
{
    const struct prediction *p = &v->prediction;
    struct memory m;

    memory_of(&v->forecast.layout, &v->forecast.shape, p->memory_position,
              &m);
    json_write_key(w, "memory");
    json_write_object(w);
    json_write_key_integer(w, "pipe_rank", p->memory_position);
    json_write_key_real(w, "weights_bytes", m.weights);
    json_write_key_real(w, "gradients_bytes", m.gradients);
    json_write_key_real(w, "states_bytes", m.states);
    json_write_key_real(w, "activations_bytes", m.activations);
    json_write_key_real(w, "logits_bytes", m.logits);
    json_write_key_real(w, "gathered_bytes", m.gathered);
    json_write_key_real(w, "libraries_bytes", m.foreign);
    json_write_object_end(w);
}

static void write_advice(struct json_writer *w, const struct view *v)
{
    json_write_key(w, "advice");
    if (v->prediction.fits) {
        json_write_null(w);
        return;
    }
    json_write_array(w);
    for (int i = 0; i < v->advice.count; i++) {
        const struct advised *a = &v->advice.items[i];

        json_write_object(w);
        json_write_key_text(w, "change", a->what);
        json_write_key_real(w, "memory_bytes", a->memory_bytes);
        json_write_key_real(w, "step_s", a->step_s);
        json_write_key(w, "plan_only");
        json_write_bool(w, a->plan_only);
        json_write_object_end(w);
    }
    json_write_array_end(w);
}

static void write_noise(struct json_writer *w, const struct machine *machine)
{
    json_write_key(w, "profile_quiet");
    if (machine->moments.before.product_s > 0)
        json_write_bool(w, moments_are_quiet(&machine->moments));
    else
        json_write_null(w); /* a preset, or a file of a person */
    json_write_key(w, "profile_left_out");
    machine_left_out_write(machine, w);
}

static void write_ports(struct json_writer *w, const struct view *v)
{
    json_write_key(w, "shared_ports");
    if (v->own_ports_s <= 0) {
        json_write_null(w);
        return;
    }
    json_write_object(w);
    json_write_key_integer(w, "ports",
                           (int64_t)v->forecast.machine.value[M_NICS]);
    json_write_key_integer(w, "ranks", v->forecast.layout.per_node);
    json_write_key_real(w, "seconds", v->prediction.step_s - v->own_ports_s);
    json_write_object_end(w);
}

static void write_explanation(struct json_writer *w, const struct view *v)
{
    json_write_key(w, "explain");
    if (!v->explain) {
        json_write_null(w);
        return;
    }
    json_write_object(w);
    write_path(w, &v->prediction);
    write_memory(w, v);
    write_noise(w, &v->forecast.machine);
    write_ports(w, v);
    json_write_key_real(w, "offloaded_bytes", v->prediction.offloaded_bytes);
    json_write_key(w, "plan_only");
    json_write_bool(w, v->forecast.offload != 0);
    json_write_object_end(w);
}

static status print_json(const struct view *v)
{
    const struct prediction *p = &v->prediction;
    struct json_writer w = {0};

    json_write_begin(&w, 2);
    json_write_object(&w);
    json_write_key_integer(&w, "version", 1);
    json_write_key_real(&w, "step_s", p->step_s);
    json_write_key_real(&w, "tokens_per_s", p->tokens_per_s);
    json_write_key_real(&w, "mfu", p->mfu);
    json_write_key_real(&w, "mfu_noncausal", p->mfu_noncausal);
    json_write_key_real(&w, "hfu", p->hfu);
    json_write_key_real(&w, "bubble_rate", p->bubble_rate);
    json_write_key_real(&w, "idle_share", p->idle_share);
    write_axes(&w, p);
    json_write_key_integer(&w, "memory_bytes", (int64_t)p->memory_bytes);
    json_write_key_integer(&w, "memory_limit_bytes",
                           (int64_t)p->memory_limit);
    json_write_key(&w, "fits");
    json_write_bool(&w, p->fits);
    json_write_key_real(&w, "guessed_share", p->guessed_share);
    real_or_null(&w, "days", v->bill.days);
    real_or_null(&w, "energy_kwh", v->bill.energy_kwh);
    real_or_null(&w, "cost", v->bill.cost);
    json_write_key(&w, "plan_only");
    json_write_bool(&w, v->forecast.offload != 0);
    json_write_key_text(&w, "step_by",
                        v->forecast.walked ? "lists" : "stages");
    write_advice(&w, v);
    json_write_key(&w, "copies");
    plan_copies_write(&v->copies, p->step_s, &w);
    write_explanation(&w, v);
    json_write_object_end(&w);
    return json_print(&w, stdout);
}

/* ---- for people ---- */

static void row(struct table *t, const char *what, double value, int digits,
                const char *unit)
{
    table_text(t, what);
    table_real(t, value, digits);
    table_text(t, unit);
}

static void memory_row(struct table *t, const struct view *v)
{
    const struct prediction *p = &v->prediction;
    char text[96], limit[32];

    table_text(t, "memory");
    table_bytes(t, (int64_t)p->memory_bytes);
    snprintf(text, sizeof text, "of %s: the largest rank, at pipe rank %d, %s",
             text_bytes(limit, (uint64_t)p->memory_limit), p->memory_position,
             p->fits ? "fits" : "does not fit");
    table_text(t, text);
}

/* A profile whose sentinels lie apart predicts no better than they do. */
static void noise_row(struct table *t, const struct machine *machine)
{
    char text[SENTINEL_NOISE];

    moments_noise(&machine->moments, text);
    if (text[0] == '\0') return;
    table_text(t, "noisy");
    table_text(t, "");
    table_text(t, text);
}

/* Sizes that `calibrate` had no time or no room for. */
static void left_out_row(struct table *t, const struct machine *machine)
{
    const struct left_out *l = &machine->left_out;
    char text[192];

    if (l->products + l->works + l->roundings + l->large == 0) return;
    snprintf(text, sizeof text, "%d products, %d other works and %d roundings "
             "were not measured: the nearest sizes stand for them, and count "
             "as guessed", l->products + l->large, l->works, l->roundings);
    table_text(t, "left out");
    table_text(t, "");
    table_text(t, text);
}

static void fill_table(const struct view *v, struct table *t)
{
    static const struct table_column columns[] = {
        {"what", "what", false}, {"value", "value", true},
        {"unit", "unit", false}};
    const struct prediction *p = &v->prediction;
    char layout[160];

    table_begin(t, columns, 3);
    table_text(t, "layout");
    table_text(t, "");
    table_text(t, layout_text(&v->forecast.layout, layout, sizeof layout));
    row(t, "step", p->step_s, 5, "s");
    row(t, "tokens", p->tokens_per_s, 6, "a second, all ranks");
    row(t, "MFU", 100 * p->mfu, 4, "%, causal attention counted half");
    row(t, "MFU, not causal", 100 * p->mfu_noncausal, 4,
        "%, as most papers count");
    row(t, "HFU", 100 * p->hfu, 4, "%, with recomputation");
    row(t, "bubble rate", 100 * p->bubble_rate, 4, "%, of the pipeline");
    row(t, "idle", 100 * p->idle_share, 4, "%, of all ranks' time");
    for (int axis = AXIS_PIPE; axis < AXIS_COUNT; axis++) {
        char what[48];

        if (p->exposed_s[axis] <= 0) continue;
        snprintf(what, sizeof what, "exposed: %s",
                 axis_name((enum axis)axis));
        row(t, what, p->exposed_s[axis], 4, "s");
    }
    memory_row(t, v);
    row(t, "guessed", 100 * p->guessed_share, 3,
        "%, of the critical path: neither measured nor fitted");
    if (p->offloaded_bytes > 0) {
        table_text(t, "offloaded");
        table_bytes(t, (int64_t)p->offloaded_bytes);
        table_text(t, "of that rank; plan only: the executor cannot do it");
    }
    table_text(t, "lists");
    table_text(t, "");
    table_text(t, v->forecast.walked ? "the executor's own"
                                     : "whole stages");
    noise_row(t, &v->forecast.machine);
    left_out_row(t, &v->forecast.machine);
    if (v->bill.days > 0) row(t, "run", v->bill.days, 4, "days");
    if (v->bill.energy_kwh > 0) row(t, "energy", v->bill.energy_kwh, 5, "kWh");
    if (v->bill.cost > 0) row(t, "cost", v->bill.cost, 6, "");
}

static void explain_causes(const struct view *v)
{
    const struct prediction *p = &v->prediction;

    printf("\nThe critical path by cause:\n");
    for (int i = 0; i < CAUSES; i++)
        if (p->path_s[i] > 0)
            printf("  %-13s %10.4g s  %5.1f%%\n", cause_names[i], p->path_s[i],
                   100 * p->path_s[i] / p->step_s);
    if (v->own_ports_s > 0)
        printf("  %-13s %10.4g s  %5.1f%%  of the above: %d ranks of a node "
               "share %.0f network port%s\n", "shared ports",
               p->step_s - v->own_ports_s,
               100 * (1 - v->own_ports_s / p->step_s),
               v->forecast.layout.per_node, v->forecast.machine.value[M_NICS],
               v->forecast.machine.value[M_NICS] > 1 ? "s" : "");
    printf("\nLanes, busy on the mean rank:\n");
    for (int i = 0; i < CLOCK_RESOURCES; i++)
        if (p->resource_s[i] > 0)
            printf("  %-13s %10.4g s  %5.1f%%\n", clock_resource_names[i],
                   p->resource_s[i], 100 * p->resource_s[i] / p->step_s);
    printf("\nThe critical path by name, the longest first:\n");
    for (int i = 0; i < p->part_count; i++) {
        const struct path_part *part = &p->parts[i];

        printf("  %4d x %-9s pipe rank %d", part->count,
               step_item_names[part->item], part->rank);
        if (part->stage >= 0) printf(", stage %d", part->stage);
        printf(": %.4g s\n", part->seconds);
    }
}

/* As Lockstep its own plan decides. */
static bool confirmed(struct view *v, struct advised *a, double most)
{
    struct forecast *f = &v->forecast;
    struct candidate c = {.layout = a->layout};
    bool fits;

    a->step_s *= v->lists_share;
    if (f->as != AS_LOCKSTEP || f->exact_bytes <= 0) return true;
    fits = found_fits(f, &c, most);
    a->memory_bytes = c.memory_bytes;
    if (c.prediction.step_s > 0) a->step_s = c.prediction.step_s;
    return fits;
}

/* Appends " with NAME=VALUE", or " and ..." to one that is there. */
static void name_setting(struct advised *a, const char *name, const char *value)
{
    const size_t used = strlen(a->what);

    snprintf(a->what + used, sizeof a->what - used, " %s %s=%s",
             strstr(a->what, " with ") == NULL ? "with" : "and", name, value);
}

/* More tensor ranks may need more leaves of the numerics grid. */
static void name_grid(const struct forecast *f, struct advised *a)
{
    const int leaves = layout_leaves(&f->layout, &f->shape).tensor;
    char ranks[16];

    if (f->as != AS_LOCKSTEP || leaves % a->layout.tensor == 0 ||
        strcmp(f->set.values.numerics.mode, "fast") == 0)
        return;
    snprintf(ranks, sizeof ranks, "%d", a->layout.tensor);
    name_setting(a, "numerics.grid_tensor", ranks);
}

/* The first pipeline takes the schedule that the advice was timed with. */
static void name_schedule(const struct forecast *f, struct advised *a)
{
    const struct options *o = &f->set.values;

    if (f->layout.pipe > 1 || a->layout.pipe == 1) return;
    if (strcmp(o->schedule.name, a->layout.schedule) != 0)
        name_setting(a, "schedule.name", a->layout.schedule);
    if (o->schedule.chunks > 0) name_setting(a, "schedule.chunks", "0");
}

/* How much longer than whole stages the executor's own lists take: advice is
 * timed by whole stages, and its price is a difference from the step. */
static status compare_lists(struct view *v, const struct cost *cost)
{
    const struct weather weather = {.max_memory = v->forecast.max_memory};
    struct prediction whole;

    v->lists_share = 1;
    if (!v->forecast.walked) return OK;
    TRY(predict(&whole, cost, &weather));
    v->lists_share = v->prediction.step_s / whole.step_s;
    return OK;
}

/* The cheapest changes that fit: one, or more at once where those that are
 * enough alone are fewer than ADVICES. */
static status find_advice(struct view *v, const struct cost *cost)
{
    const double most = v->prediction.memory_limit;
    struct advice *kept = &v->advice, tried;

    TRY(compare_lists(v, cost));
    for (int at_once = 1;
         at_once <= ADVICE_AT_ONCE && kept->count < ADVICES; at_once++) {
        TRY(advise(&tried, cost, kept, most, at_once));
        for (int i = 0; i < tried.count && kept->count < ADVICES; i++) {
            struct advised *a = &tried.items[i];

            if (!confirmed(v, a, most)) continue;
            name_grid(&v->forecast, a);
            name_schedule(&v->forecast, a);
            kept->items[kept->count++] = *a;
        }
    }
    for (int i = 1; i < kept->count; i++) { /* more may be the cheapest */
        const struct advised a = kept->items[i];
        int at = i;

        for (; at > 0 && kept->items[at - 1].step_s > a.step_s; at--)
            kept->items[at] = kept->items[at - 1];
        kept->items[at] = a;
    }
    return OK;
}

static void print_advice(const struct view *v)
{
    static const char *const counts[ADVICES] = {
        "No change makes it fit, nor do two or three at once.",
        "No other change makes it fit, nor do two or three others at once.",
        "Only these two make it fit, of three changes at once at most."};

    for (int i = 0; i < v->advice.count; i++) {
        const struct advised *a = &v->advice.items[i];
        char bytes[32];

        printf("%s%s: %s a rank, the step takes %.4g s (%+.1f%%)\n",
               i == 0 ? "\nChanges that make it fit, the cheapest first:\n  "
                      : "  ",
               a->what, text_bytes(bytes, (uint64_t)a->memory_bytes),
               a->step_s, 100 * (a->step_s / v->prediction.step_s - 1));
    }
    if (!v->prediction.fits && v->advice.count < ADVICES)
        printf("%s%s\n", v->advice.count == 0 ? "\n" : "",
               counts[v->advice.count]);
}

static status print_text(struct view *v)
{
    struct table table = {0};
    status result;

    fill_table(v, &table);
    result = table_print(&table, stdout);
    table_free(&table);
    TRY(result);
    if (v->explain) explain_causes(v);
    plan_copies_print(&v->copies, v->prediction.step_s);
    print_advice(v);
    return OK;
}

/* The same step if each device had a port: what sharing them costs. */
static status compare_ports(struct view *v, const struct weather *weather)
{
    struct forecast *f = &v->forecast;
    double *ports = &f->machine.value[M_NICS];
    const double shared = *ports;
    const struct cost cost = forecast_cost(f);
    struct steps steps = {0};
    struct prediction own;
    status result;

    if (f->layout.per_node >= f->ranks ||
        node_ports(&f->machine, f->layout.per_node) >=
            node_ports(&f->machine, 1))
        return OK;
    *ports = 0;
    result = forecast_steps(f, &steps);
    if (result == OK) result = predict_steps(&own, &steps, &cost, weather);
    *ports = shared;
    steps_free(&steps);
    if (result == OK) v->own_ports_s = own.step_s;
    return result;
}

static status run_view(struct view *v, struct arguments *arguments)
{
    const char *view = arguments_text(arguments, "explain", "time");
    const char *picture = arguments_text(arguments, "draw", NULL);
    struct weather weather = {0};
    struct cost cost;

    if (strcmp(view, "time") != 0)
        FAIL(ERR_USAGE, "--explain %s: with --time there is --explain time "
                        "alone; leave --time out", view);
    TRY(read_amounts(&v->asked, arguments));
    TRY(file_may_write(picture));
    TRY(forecast_open(&v->forecast, arguments));
    TRY(forecast_layout(&v->forecast));
    cost = forecast_cost(&v->forecast);
    weather.memory_bytes = v->forecast.exact_bytes;
    weather.max_memory = v->forecast.max_memory;
    TRY(forecast_steps(&v->forecast, &v->steps));
    TRY(predict_steps(&v->prediction, &v->steps, &cost, &weather));
    if (v->forecast.exact_bytes > 0)
        v->prediction.memory_position = v->forecast.exact_position;
    TRY(plan_copies_find(&v->copies, arguments, &v->forecast, &v->steps,
                         v->prediction.step_s));
    TRY(fill_bill(v));
    if (v->explain) TRY(compare_ports(v, &weather));
    if (!v->prediction.fits) TRY(find_advice(v, &cost));
    if (picture != NULL)
        TRY(draw_steps(&v->steps, &v->prediction, &v->copies.sent,
                       picture));
    if (arguments_has(arguments, "json")) return print_json(v);
    return print_text(v);
}

status plan_time(struct arguments *arguments)
{
    struct view view = {
        .explain = arguments_has(arguments, "explain")};
    char need[32], limit[32];
    status result = run_view(&view, arguments);

    if (result == OK && !view.prediction.fits) {
        text_bytes(need, (uint64_t)view.prediction.memory_bytes);
        text_bytes(limit, (uint64_t)view.prediction.memory_limit);
        result = status_fail(ERR_FIT, __FILE__, __LINE__,
                             "the rank at pipe rank %d needs %s; the machine "
                             "has %s", view.prediction.memory_position, need,
                             limit);
        if (view.advice.count > 0)
            status_hint(result, "the cheapest change that fits: %s",
                        view.advice.items[0].what);
    }
    plan_copies_free(&view.copies);
    steps_free(&view.steps);
    forecast_free(&view.forecast);
    return result;
}
