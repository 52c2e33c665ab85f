/* SPDX-License-Identifier: Apache-2.0 */
/* report.c - one HTML file about a run, complete in itself. */
#include "report/report.h"

#include <math.h>
#include <string.h>
#include "base/arena.h"
#include "base/file.h"
#include "base/text.h"
#include "kernels/math.h"
#include "report/chart.h"
#include "observe/layers.h"
#include "observe/ledger.h"
#include "observe/notes.h"
#include "observe/metrics.h"
#include "report/report_style.h"
#include "report/report_validation.h"

/* Columns of the curves, cut out of the metrics. */
struct curves {
    int64_t steps, validations; /* points */
    double *step, *loss, *smooth, *lr, *speed, *speed_smooth, *norm,
        *norm_smooth, *peak, *busiest, *idle, *waited, *scratch;
    double *val_step, *val_loss, *val_bits;
    const struct metrics_row *last, *last_validation, *best; /* NULL: none */
    const struct metrics_row *copies; /* the last with copies elsewhere */
    double seconds; /* sum of step times */
    struct metrics_table table;
    struct arena *arena; /* borrowed */
};

static status escaped(struct text *out, const char *string)
{
    return string != NULL ? html_escape(out, string, strlen(string)) : OK;
}

/* A mean over neighbours, earlier and later ones alike, that fades with a
 * fiftieth of the run: what the eye would draw through the noise. Symmetric, so
 * that a steep curve is not shifted. weight [count] is scratch. */
static void smooth(double *out, double *weight, const double *in,
                   int64_t count)
{
    const double keep = count > 200 ? 1 - 100 / (double)count : 0.5;
    double sum = 0, total = 0;

    for (int64_t i = 0; i < count; i++) { /* this one and the earlier */
        const bool known = isfinite(in[i]);

        sum = keep * sum + (known ? in[i] : 0);
        total = keep * total + known;
        out[i] = sum;
        weight[i] = total;
    }
    sum = total = 0;
    for (int64_t i = count - 1; i >= 0; i--) { /* the later */
        const bool known = isfinite(in[i]);

        out[i] += sum;
        weight[i] += total;
        out[i] = weight[i] > 0 ? out[i] / weight[i] : (double)NAN;
        sum = keep * (sum + (known ? in[i] : 0));
        total = keep * (total + known);
    }
}

static status curves_take(struct curves *curves, struct arena *arena,
                          int64_t rows)
{
    double **columns[] = {
        &curves->step,     &curves->loss,         &curves->smooth,
        &curves->lr,       &curves->speed,        &curves->speed_smooth,
        &curves->norm,     &curves->norm_smooth,  &curves->peak,
        &curves->val_step, &curves->val_loss,     &curves->val_bits,
        &curves->busiest, &curves->idle,          &curves->waited,
        &curves->scratch};

    for (size_t i = 0; i < sizeof columns / sizeof *columns; i++) {
        void *column;

        TRY(arena_take_array(arena, (size_t)rows, sizeof(double), &column));
        *columns[i] = column;
    }
    return OK;
}

static status curves_read(struct curves *curves, struct arena *arena,
                          const char *path)
{
    const struct metrics_table *table = &curves->table;

    curves->arena = arena;
    TRY(metrics_read(&curves->table, arena, path));
    TRY(curves_take(curves, arena, table->count));
    for (int64_t i = 0; i < table->count; i++) {
        const struct metrics_row *row = &table->rows[i];
        const int64_t at = curves->steps, v = curves->validations;

        if (row->kind == METRICS_VALIDATION) {
            curves->val_step[v] = (double)row->step;
            curves->val_loss[v] = row->val_loss;
            curves->val_bits[v] = row->val_bits_per_byte;
            curves->validations++;
            curves->last_validation = row;
            if (row->val_best_step == row->step) curves->best = row;
            continue;
        }
        curves->step[at] = (double)row->step;
        curves->loss[at] = row->loss;
        curves->lr[at] = row->lr;
        curves->speed[at] = row->tokens_per_s;
        curves->norm[at] = row->grad_norm;
        curves->busiest[at] = row->expert_busiest;
        curves->idle[at] = 100 * row->copy_idle_share;
        curves->waited[at] = row->copy_wait_ms;
        if (isfinite(row->copy_idle_share)) curves->copies = row;
        curves->peak[at] = 100 * row->peak_fraction;
        if (isfinite(row->step_ms)) curves->seconds += row->step_ms / 1000;
        curves->steps++;
        curves->last = row;
    }
    smooth(curves->smooth, curves->scratch, curves->loss,
           curves->steps);
    smooth(curves->speed_smooth, curves->scratch, curves->speed,
           curves->steps);
    smooth(curves->norm_smooth, curves->scratch, curves->norm,
           curves->steps);
    return OK;
}

static status card_chart(struct text *out, const struct chart *chart)
{
    TRY(text_append_string(out, "<div class=\"card\">\n"));
    TRY(chart_svg(out, chart));
    return text_append_string(out, "</div>\n");
}

static status chart_loss(struct text *out, const struct report_input *input,
                         const struct curves *c)
{
    char level[48];
    struct chart chart = {
        .title = "Loss", .x_name = "step", .y_name = "loss",
        .y_unit = "nats per token",
        .series = {{.name = "training, each step", .style = CHART_FAINT,
                    .colour = 1, .x = c->step, .y = c->loss,
                    .count = c->steps},
                   {.name = "training", .style = CHART_LINE, .colour = 1,
                    .x = c->step, .y = c->smooth, .count = c->steps,
                    .band = c->loss, .band_name = "this step"},
                   {.name = "validation", .style = CHART_DOTS, .colour = 2,
                    .x = c->val_step, .y = c->val_loss,
                    .count = c->validations, .band = c->val_bits,
                    .band_name = "bits per byte"}},
        .series_count = 3};

    if (input->vocab > 1) {
        chart.has_level = true;
        chart.level = math_log((double)input->vocab);
        snprintf(level, sizeof level, "ln V = %.2f: knows nothing",
                 chart.level);
        chart.level_name = level;
    }
    return card_chart(out, &chart);
}

/* The routing that made the speed, of a mixture of experts. */
static status chart_experts(struct text *out, const struct curves *c)
{
    const struct chart chart = {
        .title = "Tokens of the busiest expert over the mean",
        .x_name = "step", .y_name = "times the mean", .y_unit = "",
        .series = {{.name = "the worst block", .style = CHART_LINE,
                    .colour = 1, .x = c->step, .y = c->busiest,
                    .count = c->steps}},
        .series_count = 1, .from_zero = true};

    if (c->last == NULL || !(c->last->expert_busiest > 0)) return OK;
    return card_chart(out, &chart);
}

/* Copies of the state on other nodes, where there are some. */
static status chart_copies(struct text *out, const struct curves *c)
{
    const struct chart chart = {
        .title = "Copies sent in idle time of the network",
        .x_name = "step", .y_name = "share of their bytes so far",
        .y_unit = "%",
        .series = {{.name = "node of rank 0", .style = CHART_LINE,
                    .colour = 1, .x = c->step, .y = c->idle,
                    .count = c->steps, .band = c->waited,
                    .band_name = "ms that the step waited"}},
        .series_count = 1, .from_zero = true};

    if (c->copies == NULL) return OK;
    return card_chart(out, &chart);
}

static status charts(struct text *out, const struct report_input *input,
                     const struct curves *c)
{
    const struct chart speed = {
        .title = "Throughput", .x_name = "step", .y_name = "tokens per second",
        .y_unit = "tokens/s",
        .series = {{.name = "each step", .style = CHART_FAINT, .colour = 1,
                    .x = c->step, .y = c->speed, .count = c->steps},
                   {.name = "smoothed", .style = CHART_LINE, .colour = 1,
                    .x = c->step, .y = c->speed_smooth, .count = c->steps,
                    .band = c->peak, .band_name = "percent of peak"}},
        .series_count = 2, .from_zero = true};
    const struct chart rate = {
        .title = "Learning rate", .x_name = "step", .y_name = "learning rate",
        .y_unit = "",
        .series = {{.name = "learning rate", .style = CHART_LINE, .colour = 1,
                    .x = c->step, .y = c->lr, .count = c->steps}},
        .series_count = 1, .from_zero = true};
    const struct chart norm = {
        .title = "Gradient norm before clipping", .x_name = "step",
        .y_name = "norm", .y_unit = "",
        .series = {{.name = "each step", .style = CHART_FAINT, .colour = 1,
                    .x = c->step, .y = c->norm, .count = c->steps},
                   {.name = "smoothed", .style = CHART_LINE, .colour = 1,
                    .x = c->step, .y = c->norm_smooth, .count = c->steps,
                    .band = c->norm, .band_name = "this step"}},
        .series_count = 2, .from_zero = true};

    TRY(text_append_string(out, "<div class=\"charts\">\n"));
    TRY(chart_loss(out, input, c));
    TRY(card_chart(out, &rate));
    TRY(card_chart(out, &speed));
    TRY(card_chart(out, &norm));
    TRY(chart_experts(out, c));
    TRY(chart_copies(out, c));
    return text_append_string(out, "</div>\n");
}

static status tile(struct text *out, const char *value, const char *name)
{
    TRY(text_append_string(out, "<div class=\"tile\"><b>"));
    TRY(escaped(out, value));
    TRY(text_append_string(out, "</b><span>"));
    TRY(escaped(out, name));
    return text_append_string(out, "</span></div>\n");
}

static status tiles(struct text *out, const struct report_input *input,
                    const struct curves *c)
{
    char value[80], part[32];

    TRY(text_append_string(out, "<div class=\"tiles\">\n"));
    if (c->last != NULL) {
        snprintf(value, sizeof value, "%lld/%lld", (long long)c->last->step,
                 (long long)input->steps_planned);
        TRY(tile(out, value, "steps"));
        TRY(tile(out, text_count(part, c->last->tokens), "tokens"));
        snprintf(value, sizeof value, "%.4g", c->smooth[c->steps - 1]);
        TRY(tile(out, value, "training loss, smoothed"));
    }
    if (c->last_validation != NULL &&
        isfinite(c->last_validation->val_loss)) {
        snprintf(value, sizeof value, "%.4g", c->last_validation->val_loss);
        TRY(tile(out, value, "validation loss"));
        if (isfinite(c->last_validation->val_bits_per_byte)) {
            snprintf(value, sizeof value, "%.3f",
                     c->last_validation->val_bits_per_byte);
            TRY(tile(out, value, "validation, bits per byte"));
        }
        if (c->best != NULL) {
            snprintf(value, sizeof value, "%.4g", c->best->val_loss);
            snprintf(part, sizeof part, "lowest, step %lld",
                     (long long)c->best->step);
            TRY(tile(out, value, part));
        }
    }
    if (c->last != NULL) {
        TRY(tile(out, text_duration(part, c->seconds), "in steps"));
        if (isfinite(c->speed_smooth[c->steps - 1])) {
            snprintf(value, sizeof value, "%s",
                     text_count(part,
                                (int64_t)c->speed_smooth[c->steps - 1]));
            TRY(tile(out, value, "tokens per second"));
        }
        if (c->last->expert_busiest > 0) {
            snprintf(value, sizeof value, "%.2f", c->last->expert_busiest);
            TRY(tile(out, value, "busiest expert over the mean"));
        }
        if (c->copies != NULL) {
            snprintf(value, sizeof value, "%.1f%%",
                     100 * c->copies->copy_idle_share);
            TRY(tile(out, value, "of copies sent in idle time"));
        }
        if (isfinite(c->peak[c->steps - 1])) {
            snprintf(value, sizeof value, "%.0f%%", c->peak[c->steps - 1]);
            TRY(tile(out, value, "of the machine's peak"));
        }
    }
    return text_append_string(out, "</div>\n");
}

static status header(struct text *out, const struct report_input *input)
{
    const char *mood = input->exit_code == 0 ? "good"
                       : input->exit_code == 75 ? "wait" : "bad";

    TRY(text_append_string(
        out, "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n"
             "<meta charset=\"utf-8\">\n<meta name=\"viewport\" "
             "content=\"width=device-width,initial-scale=1\">\n<title>"));
    TRY(escaped(out, input->title));
    TRY(text_append_string(out, " - lockstep</title>\n<style>\n"));
    TRY(text_append_string(out, report_style));
    TRY(text_append_string(out, "</style>\n</head>\n<body>\n<header>\n<h1>"));
    TRY(escaped(out, input->title));
    TRY(text_printf(out, "</h1>\n<p><span class=\"pill %s\">", mood));
    TRY(escaped(out, input->outcome));
    return text_printf(out,
                       "</span> <span class=\"soft\">exit %d</span></p>\n"
                       "</header>\n",
                       input->exit_code);
}

static status sample(struct text *out, const struct report_input *input)
{
    if (input->sample == NULL) return OK;
    TRY(text_append_string(out, "<h2>What the model writes</h2>\n"
                                "<div class=\"card\"><pre>"
                                "<span class=\"prompt\">"));
    TRY(escaped(out, input->prompt));
    TRY(text_append_string(out, "</span>"));
    TRY(escaped(out, input->sample));
    return text_append_string(out, "</pre></div>\n");
}

static status facts(struct text *out, const char *title,
                    const struct report_fact *rows, int count)
{
    if (count == 0) return OK;
    TRY(text_printf(out, "<div class=\"card\"><table>\n<tr><th "
                         "colspan=\"2\">%s</th></tr>\n", title));
    for (int i = 0; i < count; i++) {
        TRY(text_append_string(out, "<tr><td>"));
        TRY(escaped(out, rows[i].name));
        TRY(text_append_string(out, "</td><td>"));
        TRY(escaped(out, rows[i].value));
        TRY(text_append_string(out, "</td></tr>\n"));
    }
    return text_append_string(out, "</table></div>\n");
}

static status memory(struct text *out, const struct report_input *input)
{
    char shown[32];
    int64_t total = 0;

    for (int i = 0; i < input->memory_count; i++)
        total += input->memory[i].bytes;
    if (total <= 0) return OK;
    TRY(text_append_string(
        out, "<h2>Memory, as planned before the first step</h2>\n"
             "<div class=\"card\"><table>\n<tr><th>what</th>"
             "<th class=\"num\">bytes</th><th class=\"num\">share</th>"
             "<th class=\"wide\"></th></tr>\n"));
    for (int i = 0; i < input->memory_count; i++) {
        const double share = 100 * (double)input->memory[i].bytes /
                             (double)total;

        TRY(text_append_string(out, "<tr><td>"));
        TRY(escaped(out, input->memory[i].name));
        TRY(text_printf(
            out, "</td><td class=\"num\" title=\"%lld bytes\">%s</td>"
                 "<td class=\"num\">%.1f%%</td><td><div class=\"bar\" "
                 "style=\"width:%.1f%%\"></div></td></tr>\n",
            (long long)input->memory[i].bytes,
            text_bytes(shown, (uint64_t)input->memory[i].bytes), share,
            share));
    }
    TRY(text_printf(out,
                    "<tr><td>total</td><td class=\"num\" title=\"%lld "
                    "bytes\">%s</td><td></td><td></td></tr>\n</table>",
                    (long long)total, text_bytes(shown, (uint64_t)total)));
    if (input->memory_picture != NULL)
        TRY(text_printf(out, "<details><summary>over a micro-batch, by owner"
                             "</summary>%s</details>",
                        input->memory_picture));
    return text_append_string(out, "</div>\n");
}

static status event_row(struct text *out, int64_t number,
                        const struct ledger_event *event)
{
    const struct policy_verdict *v = &event->verdict;

    TRY(text_printf(out, "<tr><td>%lld</td><td>%lld</td><td>%s: %s",
                    (long long)number, (long long)event->step,
                    policy_causes[v->cause], policy_subjects[v->what]));
    if (isfinite(v->value) && isfinite(v->threshold))
        TRY(text_printf(out, " %.4g above %.4g", v->value, v->threshold));
    return text_printf(out,
                       "</td><td>%s</td><td>%lld</td><td>%lld from %lld"
                       "</td></tr>\n",
                       policy_action_name(v->action),
                       (long long)event->back_to, (long long)event->samples,
                       (long long)event->first);
}

/* Prints the ledger's events; prints nothing if there are none. */
static status events(struct text *out, const struct report_input *input)
{
    struct ledger ledger = {0};
    status result = OK;

    if (input->run == NULL) return OK;
    TRY_GOTO(done, result, ledger_open(&ledger, input->run, false));
    if (ledger.count == 0) goto done;
    TRY_GOTO(done, result, text_append_string(
        out, "<h2>Steps that went wrong</h2>\n<div class=\"card\"><table>\n"
             "<tr><th>event</th><th>step</th><th>cause</th><th>action</th>"
             "<th>went on after step</th><th>samples of the order</th>"
             "</tr>\n"));
    for (int64_t i = 0; i < ledger.count; i++)
        TRY_GOTO(done, result, event_row(out, i + 1, &ledger.events[i]));
    result = text_append_string(out, "</table></div>\n");
done:
    ledger_close(&ledger);
    return result;
}

/* Prints what people wrote down; prints nothing if nobody did. */
static status notes_section(struct text *out, const struct report_input *input)
{
    struct notes notes;
    struct arena arena;
    status result = OK;

    if (input->run == NULL) return OK;
    arena_init(&arena, "notes", 0);
    TRY_GOTO(done, result, notes_read(&notes, &arena, input->run));
    if (notes.count == 0) goto done;
    TRY_GOTO(done, result, text_append_string(
        out, "<h2>Notes</h2>\n<div class=\"card\"><table>\n"
             "<tr><th>after step</th><th class=\"wide\">note</th></tr>\n"));
    for (int64_t i = 0; i < notes.count; i++) {
        TRY_GOTO(done, result, text_printf(out, "<tr><td>%lld</td><td>",
                                           (long long)notes.items[i].step));
        TRY_GOTO(done, result, escaped(out, notes.items[i].text));
        TRY_GOTO(done, result, text_append_string(out, "</td></tr>\n"));
    }
    result = text_append_string(out, "</table></div>\n");
done:
    arena_free(&arena);
    return result;
}

static status prediction_causes_table(struct text *out,
                                      const struct report_prediction *p)
{
    if (p->cause_count == 0) return OK;
    TRY(text_append_string(out, "<table>\n<tr><th>rank 0</th><th>measured, ms"
                                "</th><th>predicted, ms</th></tr>\n"));
    for (int i = 0; i < p->cause_count; i++)
        TRY(text_printf(out, "<tr><td>%s</td><td>%.4g</td><td>%.4g</td></tr>\n",
                        p->causes[i].name, p->causes[i].measured_ms,
                        p->causes[i].predicted_ms));
    return text_append_string(out, "</table>\n");
}

/* The step that was predicted, and where it went wrong. */
static status prediction_section(struct text *out,
                                 const struct report_input *input)
{
    const struct report_prediction *p = input->prediction;

    if (p == NULL || p->steps == 0) return OK;
    TRY(text_append_string(out, "<h2>Prediction beside measurement</h2>\n"
                                "<div class=\"card\"><p>By "));
    TRY(escaped(out, p->machine));
    TRY(text_printf(out, " a step takes %.4g ms; measured: %.4g ms, the mean "
                         "of %lld. The prediction is %+.1f%% off; %.0f%% of "
                         "its critical path is neither measured nor fitted."
                         "</p>\n", p->predicted_ms, p->measured_ms,
                    (long long)p->steps,
                    100 * (p->predicted_ms / p->measured_ms - 1),
                    100 * p->guessed_share));
    if (p->noise[0] != 0)
        TRY(text_printf(out, "<p>Noisy, not judged: %s.</p>\n", p->noise));
    if (p->count > 0)
        TRY(text_append_string(out, "<table>\n<tr><th>largest differences of "
                                    "rank 0, with waiting</th><th>instruction"
                                    "</th><th>measured, ms</th><th>predicted, "
                                    "ms</th></tr>\n"));
    for (int i = 0; i < p->count; i++)
        TRY(text_printf(out, "<tr><td>%s</td><td>%d</td><td>%.4g</td>"
                             "<td>%.4g</td></tr>\n", p->items[i].what,
                        p->items[i].instruction, p->items[i].measured_ms,
                        p->items[i].predicted_ms));
    if (p->count > 0) TRY(text_append_string(out, "</table>\n"));
    TRY(prediction_causes_table(out, p));
    return text_append_string(out, "</div>\n");
}

static status profile_section(struct text *out,
                              const struct report_input *input)
{
    char title[96];

    if (input->profile == NULL) return OK;
    snprintf(title, sizeof title, "A step of %.4g ms on rank 0, mean of %lld",
             input->profile->step_ms, (long long)input->profile->steps);
    TRY(text_append_string(out, "<h2>Where the time of a step goes</h2>\n"
                                "<div class=\"card\">\n"));
    TRY(profile_svg(input->profile, title, out));
    if (input->ranks > 1)
        TRY(profile_ranks_svg(input->rank_kinds, input->ranks, out));
    TRY(text_append_string(out, "<details><summary>the numbers"
                                "</summary>\n"));
    TRY(profile_html(input->profile, out));
    return text_append_string(out, "</details></div>\n");
}

static const char *origin_name(enum option_origin origin)
{
    switch (origin) {
    case ORIGIN_FILE: return "file";
    case ORIGIN_COMMAND_LINE: return "command line";
    case ORIGIN_ENVIRONMENT: return "environment";
    case ORIGIN_SEARCH: return "search";
    case ORIGIN_RUN: return "run";
    case ORIGIN_DEFAULT: break;
    }
    return "default";
}

/* Is the value what it would be if nobody had set it? A run that resumes knows
 * values, not who set them first. */
static status is_default(const struct options_set *set,
                         const struct options_set *defaults, const char *name,
                         bool *out)
{
    struct text value = {0}, other = {0};
    status result;

    TRY_GOTO(done, result, options_get_text(set, name, &value));
    TRY_GOTO(done, result, options_get_text(defaults, name, &other));
    *out = value.length == other.length &&
           (value.length == 0 ||
            memcmp(value.bytes, other.bytes, value.length) == 0);
done:
    text_free(&value);
    text_free(&other);
    return result;
}

static status option_row(struct text *out, const struct options_set *set,
                         const char *name, enum option_origin origin)
{
    struct text value = {0};
    status result;

    TRY_GOTO(done, result, options_get_text(set, name, &value));
    TRY_GOTO(done, result,
             text_printf(out, "<tr><td><code>%s</code></td><td><code>", name));
    TRY_GOTO(done, result, html_escape(out, value.bytes, value.length));
    TRY_GOTO(done, result,
             text_printf(out, "</code></td><td>%s</td></tr>\n",
                         origin_name(origin)));
done:
    text_free(&value);
    return result;
}

static const char options_head[] =
    "<table>\n<tr><th>option</th><th>value</th><th>set by</th></tr>\n";

/* The options that differ from their defaults, or were set although they do
 * not (want false), or all the others. */
static status option_rows(struct text *out, const struct options_set *set,
                          const struct options_set *defaults, bool want)
{
    TRY(text_append_string(out, options_head));
    for (int i = 0; i < options_count(); i++) {
        const char *name = option_name(i);
        const enum option_origin origin = options_origin(set, name);
        bool same = origin == ORIGIN_DEFAULT;

        if (origin == ORIGIN_RUN)
            TRY(is_default(set, defaults, name, &same));
        if (same == want) TRY(option_row(out, set, name, origin));
    }
    return text_append_string(out, "</table>\n");
}

/* First the options that were set, then the defaults behind a fold. */
static status options(struct text *out, const struct options_set *set)
{
    struct options_set defaults = {0};
    status result;

    if (set == NULL) return OK;
    TRY_GOTO(done, result, options_init(&defaults));
    TRY_GOTO(done, result,
             text_append_string(out, "<h2>Configuration</h2>\n"
                                     "<div class=\"card\">"));
    TRY_GOTO(done, result, option_rows(out, set, &defaults, false));
    TRY_GOTO(done, result,
             text_append_string(out, "<details><summary>the defaults"
                                     "</summary>"));
    TRY_GOTO(done, result, option_rows(out, set, &defaults, true));
    TRY_GOTO(done, result, text_append_string(out, "</details></div>\n"));
done:
    options_free(&defaults);
    return result;
}

static status page(struct text *out, const struct report_input *input,
                   const struct curves *c)
{
    TRY(header(out, input));
    TRY(tiles(out, input, c));
    TRY(charts(out, input, c));
    TRY(report_validation(out, c->arena, &c->table));
    TRY(report_samples(out, input->samples_path));
    TRY(events(out, input));
    TRY(notes_section(out, input));
    TRY(sample(out, input));
    TRY(text_append_string(out, "<h2>Model and machine</h2>\n"
                                "<div class=\"two\">\n"));
    TRY(facts(out, "model", input->model, input->model_count));
    TRY(facts(out, "machine", input->machine, input->machine_count));
    TRY(text_append_string(out, "</div>\n"));
    TRY(layers_html(out, input->layers_path));
    TRY(prediction_section(out, input));
    TRY(profile_section(out, input));
    TRY(memory(out, input));
    TRY(options(out, input->options));
    return text_append_string(out, "</body>\n</html>\n");
}

status report_write(const struct report_input *input, const char *path)
{
    struct arena arena = {0};
    struct curves curves = {0};
    struct text out = {0};
    status result;

    arena_init(&arena, "report", 0);
    TRY_GOTO(done, result, curves_read(&curves, &arena, input->metrics_path));
    TRY_GOTO(done, result, page(&out, input, &curves));
    TRY_GOTO(done, result, file_write_atomic(path, out.bytes, out.length));
done:
    text_free(&out);
    arena_free(&arena);
    return result;
}
