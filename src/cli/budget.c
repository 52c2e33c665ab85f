/* SPDX-License-Identifier: Apache-2.0 */
/* budget.c - `budget`: what a number of FLOPs, tokens or days buys. */
#include <math.h>
#include <string.h>
#include "cli/forecast.h"
#include "cli/run.h"
#include "cli/table.h"
#include "planner/budget.h"
#include "planner/this_machine.h"

struct asked {
    struct machine machine;
    int64_t devices;
    double mfu, unique, batch_tokens, price, watts;
    int64_t context, width, layers;
    struct budget budget;
    double rate;      /* FLOP/s of all devices */
    double days;
};

static const double shares[] = {1, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.25};
enum { SHARES = (int)(sizeof shares / sizeof *shares), WARNINGS = 4,
       WARNING_BYTES = 240 };

static status read_target(struct asked *a, const struct arguments *arguments)
{
    static const char *const names[] = {"tokens", "flops", "days"};
    double values[3];
    int given = -1, count = 0;

    for (int i = 0; i < 3; i++) {
        TRY(forecast_amount(arguments, names[i], &values[i]));
        if (!arguments_has(arguments, names[i])) continue;
        given = i;
        count++;
    }
    if (count != 1)
        FAIL(ERR_USAGE, "budget needs one of --tokens T, --flops F and "
                        "--days D, found %d", count);
    if (given == 0) budget_from_tokens(&a->budget, values[0]);
    else
        budget_from_flops(&a->budget, given == 1 ? values[1]
                                                 : values[2] * 86400 *
                                                       a->rate);
    if (a->budget.parameters < 1)
        FAIL(ERR_USAGE, "--%s: %g FLOP train %g parameters; expected one or "
                        "more", names[given], a->budget.flops,
             a->budget.parameters);
    a->days = given == 2 ? values[2] : a->budget.flops / a->rate / 86400;
    return OK;
}

/* Devices from --ranks, or from --nodes with the machine's devices. */
static status read_devices(struct asked *a, const struct arguments *arguments)
{
    const int64_t each = (int64_t)a->machine.value[M_DEVICES];
    int64_t nodes = 0;

    a->devices = 1;
    TRY(arguments_integer(arguments, "ranks", 1, FORECAST_RANKS, &a->devices));
    TRY(arguments_integer(arguments, "nodes", 1, FORECAST_RANKS, &nodes));
    if (nodes == 0) return OK;
    if (!arguments_has(arguments, "ranks")) a->devices = nodes * each;
    if (a->devices % nodes != 0 || a->devices / nodes > each)
        FAIL(ERR_USAGE, "--ranks %lld: expected a multiple of --nodes %lld, at "
                        "most %lld: a node of %s has %lld devices",
             (long long)a->devices, (long long)nodes, (long long)(nodes * each),
             a->machine.name, (long long)each);
    return OK;
}

static status read_asked(struct asked *a, const struct arguments *arguments)
{
    const char *name = arguments_text(arguments, "machine", NULL);
    char key[MACHINE_KEY_BYTES];

    if (name == NULL)
        FAIL(ERR_USAGE, "budget needs --machine FILE or PRESET; lockstep "
                        "machines lists the presets");
    this_machine_key(key);
    TRY(machine_open(&a->machine, &(struct machine_choice){
        name, key, arguments_has(arguments, "foreign"), NULL}));
    TRY(read_devices(a, arguments));
    a->mfu = 0.4;
    TRY(arguments_real(arguments, "mfu", 0.001, 1, &a->mfu));
    TRY(forecast_amount(arguments, "unique", &a->unique));
    TRY(forecast_amount(arguments, "batch", &a->batch_tokens));
    TRY(forecast_amount(arguments, "price", &a->price));
    TRY(forecast_amount(arguments, "watts", &a->watts));
    TRY(arguments_integer(arguments, "context", 1, 1 << 24, &a->context));
    a->rate = (double)a->devices * a->mfu * a->machine.value[M_PEAK_16];
    return read_target(a, arguments);
}

/* Width of a model of N parameters, as wide as 128 times its layers. */
static double width_of(double parameters)
{
    double width = 128;

    while (12 * (width / 128) * width * width < parameters) width += 128;
    return width;
}

/* Attention's part of the FLOPs: 12 L h s / 2 beside 6 N, causal. */
static double attention_share(const struct asked *a)
{
    const double h = width_of(a->budget.parameters);
    const double attention = 6 * (h / 128) * h * (double)a->context;

    return attention / (attention + 6 * a->budget.parameters);
}

static int warn(const struct asked *a, char out[][WARNING_BYTES])
{
    const double critical = budget_critical_batch(a->budget.loss);
    const double epochs = a->unique > 0 ? a->budget.tokens / a->unique : 0;
    int n = 0;

    if (a->batch_tokens > 2 * critical)
        snprintf(out[n++], WARNING_BYTES, "a batch of %.3g tokens is above the "
                 "critical %.3g at this loss: more tokens are needed for the "
                 "same loss", a->batch_tokens, critical);
    if (epochs > 4)
        snprintf(out[n++], WARNING_BYTES, "%.3g unique tokens are seen %.1f "
                 "times: they are worth %.3g new ones; up to 4 epochs cost "
                 "almost nothing", a->unique, epochs,
                 budget_repeated_worth(a->unique, epochs));
    if (a->context > 0 && attention_share(a) > 0.2)
        snprintf(out[n++], WARNING_BYTES, "at %lld tokens of context %.0f%% "
                 "of the FLOPs are attention: 6 N D is too low by that",
                 (long long)a->context, 100 * attention_share(a));
    if (a->days > 180)
        snprintf(out[n++], WARNING_BYTES, "%.0f days: models of next year will "
                 "be better by then", a->days);
    return n;
}

static void write_smaller(const struct asked *a, struct json_writer *w)
{
    json_write_key(w, "smaller");
    json_write_array(w);
    for (int i = 0; i < SHARES; i++) {
        double tokens, compute;

        budget_smaller(shares[i], &tokens, &compute);
        json_write_object(w);
        json_write_key_real(w, "size_factor", shares[i]);
        json_write_key_real(w, "parameters", shares[i] * a->budget.parameters);
        json_write_key_real(w, "tokens", tokens * a->budget.tokens);
        json_write_key_real(w, "compute_overhead", compute);
        json_write_key_real(w, "days", a->days * (1 + compute));
        json_write_object_end(w);
    }
    json_write_array_end(w);
}

static void write_money(const struct asked *a, struct json_writer *w)
{
    const double hours = 24 * a->days * (double)a->devices;

    json_write_key(w, "energy_kwh");
    if (a->watts > 0) json_write_real(w, hours * a->watts / 1000);
    else json_write_null(w);
    json_write_key(w, "cost");
    if (a->price > 0) json_write_real(w, hours * a->price);
    else json_write_null(w);
}

static status print_json(const struct asked *a)
{
    char warnings[WARNINGS][WARNING_BYTES];
    const int count = warn(a, warnings);
    struct json_writer w = {0};

    json_write_begin(&w, 2);
    json_write_object(&w);
    json_write_key_integer(&w, "version", 1);
    json_write_key_real(&w, "flops", a->budget.flops);
    json_write_key_real(&w, "parameters", a->budget.parameters);
    json_write_key_real(&w, "tokens", a->budget.tokens);
    json_write_key_real(&w, "loss", a->budget.loss);
    json_write_key_real(&w, "days", a->days);
    write_money(a, &w);
    json_write_key_integer(&w, "devices", a->devices);
    json_write_key_real(&w, "mfu", a->mfu);
    json_write_key_real(&w, "critical_batch_tokens",
                        budget_critical_batch(a->budget.loss));
    json_write_key(&w, "attention_share");
    if (a->context > 0) json_write_real(&w, attention_share(a));
    else json_write_null(&w);
    write_smaller(a, &w);
    json_write_key(&w, "warnings");
    json_write_array(&w);
    for (int i = 0; i < count; i++) json_write_string(&w, warnings[i]);
    json_write_array_end(&w);
    json_write_object_end(&w);
    return json_print(&w, stdout);
}

static status print_text(const struct asked *a)
{
    static const struct table_column columns[] = {
        {"size", "size", true}, {"parameters", "parameters", true},
        {"tokens", "tokens", true}, {"compute", "compute", true},
        {"days", "days", true}};
    char warnings[WARNINGS][WARNING_BYTES];
    const int count = warn(a, warnings);
    struct table t = {0};
    status result;

    printf("%.4g FLOP on %lld x %s at an MFU of %.0f%%: %.4g days\n"
           "Chinchilla: %.4g parameters, %.4g tokens, loss %.3f by the fit; "
           "critical batch %.3g tokens\n\n", a->budget.flops,
           (long long)a->devices, a->machine.name, 100 * a->mfu, a->days,
           a->budget.parameters, a->budget.tokens, a->budget.loss,
           budget_critical_batch(a->budget.loss));
    if (a->watts > 0)
        printf("energy %.4g kWh\n", 24 * a->days * (double)a->devices *
                                        a->watts / 1000);
    if (a->price > 0)
        printf("cost %.6g\n", 24 * a->days * (double)a->devices * a->price);
    printf("Smaller models that are trained longer to the same loss:\n");
    table_begin(&t, columns, 5);
    for (int i = 0; i < SHARES; i++) {
        double tokens, compute;
        char more[32];

        budget_smaller(shares[i], &tokens, &compute);
        snprintf(more, sizeof more, "%+.1f%%", 100 * compute);
        table_real(&t, shares[i], 3);
        table_real(&t, shares[i] * a->budget.parameters, 4);
        table_real(&t, tokens * a->budget.tokens, 4);
        table_text(&t, more);
        table_real(&t, a->days * (1 + compute), 4);
    }
    result = table_print(&t, stdout);
    table_free(&t);
    for (int i = 0; i < count; i++) printf("warning: %s\n", warnings[i]);
    return result;
}

status command_budget(struct arguments *arguments)
{
    struct asked a = {.devices = 1};
    status result = read_asked(&a, arguments);

    if (result == OK)
        result = arguments_has(arguments, "json") ? print_json(&a)
                                                  : print_text(&a);
    machine_free(&a.machine);
    return result;
}
