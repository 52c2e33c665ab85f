/* SPDX-License-Identifier: Apache-2.0 */
/* simulate.c - `simulate`: slow ranks, slow links and failures; a step, a day
 * and a month with them. */
#include <string.h>
#include "cli/forecast.h"
#include "cli/replay.h"
#include "cli/run.h"
#include "cli/table.h"
#include "planner/perturb.h"

static const double ETTR_LEAST = 1e-6; /* less is no progress */

struct played {
    struct forecast forecast;
    struct perturb perturb;
    struct steps steps;
    struct perturbed step;
    struct reliability reliability;
    bool fails;            /* reliability was asked for */
    int nodes;
    double tokens;         /* of the run; 0: not asked */
};

static double ettr(const struct played *p)
{
    return p->fails ? p->reliability.exact_ettr : 1;
}

/* Tokens of so many days. */
static double trained(const struct played *p, double days)
{
    return p->step.slow.tokens_per_s * 86400 * days * ettr(p);
}

static double days_of(const struct played *p)
{
    return p->tokens / (p->step.slow.tokens_per_s * 86400 * ettr(p));
}

static void write_reliability(const struct played *p, struct json_writer *w)
{
    const struct reliability *r = &p->reliability;

    json_write_key(w, "reliability");
    if (!p->fails) {
        json_write_null(w);
        return;
    }
    json_write_object(w);
    json_write_key_real(w, "mtbf_s", r->mtbf_s);
    json_write_key_real(w, "failures_per_day", r->failures_a_day);
    json_write_key_real(w, "checkpoint_interval_s", r->interval_s);
    json_write_key_real(w, "best_interval_s", r->best_interval_s);
    json_write_key_real(w, "ettr", r->exact_ettr);
    json_write_key_real(w, "ettr_best_interval", r->best_ettr);
    json_write_key_real(w, "ettr_monte_carlo", r->simulated_ettr);
    json_write_object_end(w);
}

static status print_json(const struct played *p)
{
    struct json_writer w = {0};

    json_write_begin(&w, 2);
    json_write_object(&w);
    json_write_key_integer(&w, "version", 1);
    json_write_key_real(&w, "healthy_step_s", p->step.healthy.step_s);
    json_write_key_real(&w, "step_s", p->step.slow.step_s);
    json_write_key_real(&w, "slowdown", p->step.slow.step_s /
                                            p->step.healthy.step_s);
    json_write_key_real(&w, "tokens_per_s", p->step.slow.tokens_per_s);
    json_write_key_real(&w, "idle_share", p->step.slow.idle_share);
    json_write_key_integer(&w, "classes", p->step.classes);
    json_write_key_integer(&w, "simulated", p->step.simulated);
    json_write_key_text(&w, "step_by",
                        p->forecast.walked ? "lists" : "stages");
    write_reliability(p, &w);
    json_write_key_real(&w, "tokens_per_day", trained(p, 1));
    json_write_key_real(&w, "tokens_per_month", trained(p, 30));
    json_write_key(&w, "days");
    if (p->tokens > 0) json_write_real(&w, days_of(p));
    else json_write_null(&w);
    json_write_object_end(&w);
    return json_print(&w, stdout);
}

static void row(struct table *t, const char *what, double value,
                const char *unit)
{
    table_text(t, what);
    table_real(t, value, 5);
    table_text(t, unit);
}

static status print_text(const struct played *p)
{
    static const struct table_column columns[] = {
        {"what", "what", false}, {"value", "value", true},
        {"unit", "unit", false}};
    const struct reliability *r = &p->reliability;
    struct table t = {0};
    status result;

    table_begin(&t, columns, 3);
    row(&t, "step, all well", p->step.healthy.step_s, "s");
    row(&t, "step", p->step.slow.step_s, "s");
    row(&t, "slower", 100 * (p->step.slow.step_s / p->step.healthy.step_s - 1),
        "%");
    row(&t, "idle", 100 * p->step.slow.idle_share,
        "%, of the ranks of the slowest pipeline");
    row(&t, "classes", p->step.classes, "of pipelines that differ");
    table_text(&t, "lists");
    table_text(&t, "");
    table_text(&t, p->forecast.walked ? "the executor's own" : "whole stages");
    if (p->fails) {
        row(&t, "time between failures", r->mtbf_s / 3600, "h");
        row(&t, "checkpoint interval", r->interval_s, "s");
        row(&t, "best interval", r->best_interval_s, "s");
        row(&t, "ETTR", 100 * r->exact_ettr, "%, exact");
        row(&t, "ETTR, played", 100 * r->simulated_ettr,
            "%, with random failures");
        row(&t, "ETTR, best interval", 100 * r->best_ettr, "%");
    }
    row(&t, "a day", trained(p, 1), "tokens");
    row(&t, "a month", trained(p, 30), "tokens");
    if (p->tokens > 0) row(&t, "run", days_of(p), "days");
    result = table_print(&t, stdout);
    table_free(&t);
    return result;
}

/* ---- measured durations in place of costs ---- */

static status print_replay(const struct replayed *r, bool as_json)
{
    struct json_writer w = {0};

    if (!as_json) {
        printf("measured  %10.5g s, mean of %d steps\n"
               "replayed  %10.5g s, %+.2f%%: the clock with the measured times "
               "of %d instructions\npredicted %10.5g s, %+.2f%%\n",
               r->measured_s, r->steps, r->replayed_s,
               100 * (r->replayed_s / r->measured_s - 1), r->instructions,
               r->predicted_s, 100 * (r->predicted_s / r->measured_s - 1));
        for (int i = 0; i < r->largest_count; i++)
            printf("%sinstruction %d, %s: measured %.4g s, predicted %.4g s\n",
                   i == 0 ? "The largest differences:\n  " : "  ",
                   r->largest[i].number, r->largest[i].what,
                   r->largest[i].measured_s, r->largest[i].predicted_s);
        return OK;
    }
    json_write_begin(&w, 2);
    json_write_object(&w);
    json_write_key_integer(&w, "version", 1);
    json_write_key_real(&w, "measured_s", r->measured_s);
    json_write_key_real(&w, "replayed_s", r->replayed_s);
    json_write_key_real(&w, "predicted_s", r->predicted_s);
    json_write_key_real(&w, "replay_error",
                        r->replayed_s / r->measured_s - 1);
    json_write_key_real(&w, "prediction_error",
                        r->predicted_s / r->measured_s - 1);
    json_write_key(&w, "step_errors");
    json_write_array(&w);
    for (int i = 0; i < r->steps; i++) json_write_real(&w, r->errors[i]);
    json_write_array_end(&w);
    json_write_key(&w, "largest_differences");
    json_write_array(&w);
    for (int i = 0; i < r->largest_count; i++) {
        json_write_object(&w);
        json_write_key_integer(&w, "instruction", r->largest[i].number);
        json_write_key_text(&w, "what", r->largest[i].what);
        json_write_key_real(&w, "measured_s", r->largest[i].measured_s);
        json_write_key_real(&w, "predicted_s", r->largest[i].predicted_s);
        json_write_object_end(&w);
    }
    json_write_array_end(&w);
    json_write_object_end(&w);
    return json_print(&w, stdout);
}

static status play_trace(struct played *p, struct arguments *arguments,
                         const char *trace)
{
    struct replayed replayed;

    TRY(forecast_open(&p->forecast, arguments));
    TRY(forecast_layout(&p->forecast));
    TRY(replay(&replayed, &p->forecast, trace));
    return print_replay(&replayed, arguments_has(arguments, "json"));
}

static status play(struct played *p, struct arguments *arguments)
{
    const char *path = arguments_text(arguments, "perturb", NULL);
    const char *trace = arguments_text(arguments, "replay", NULL);
    struct forecast *f = &p->forecast;
    struct cost cost;

    if ((path == NULL) == (trace == NULL))
        FAIL(ERR_USAGE, "simulate needs one of --perturb FILE and --replay "
                        "TRACE (docs/planner.md)");
    if (trace != NULL) return play_trace(p, arguments, trace);
    TRY(forecast_amount(arguments, "tokens", &p->tokens));
    TRY(forecast_open(f, arguments));
    TRY(forecast_layout(f));
    TRY(perturb_read(&p->perturb, path, f->ranks));
    if (p->perturb.slow_count + p->perturb.link_count > 0)
        TRY(layout_check_order(&f->layout, &f->set.values));
    cost = forecast_cost(f);
    f->clocks = f->layout.data * f->layout.shard; /* unfolded or not */
    TRY(forecast_steps(f, &p->steps));
    TRY(perturb_step(&p->step, &p->perturb, &p->steps, &cost,
                     arguments_has(arguments, "unfold")));
    p->nodes = layout_nodes(&f->layout);
    p->fails = p->perturb.failures.per_node_day > 0;
    if (p->fails)
        reliability_of(&p->reliability, &p->perturb.failures, p->nodes);
    if (p->fails && p->reliability.exact_ettr < ETTR_LEAST)
        FAIL(ERR_CONFIG, "%s: failures come every %.4g s, faster than the run "
                         "restarts and redoes its work: it makes no progress",
             path, p->reliability.mtbf_s);
    return arguments_has(arguments, "json") ? print_json(p) : print_text(p);
}

status command_simulate(struct arguments *arguments)
{
    struct played p = {.nodes = 0};
    const status result = play(&p, arguments);

    perturb_free(&p.perturb);
    steps_free(&p.steps);
    forecast_free(&p.forecast);
    return result;
}
