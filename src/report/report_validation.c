/* SPDX-License-Identifier: Apache-2.0 */
/* report_validation.c - the part of a run's report about named sets, tasks and
 * continued prompts. */
#include "report/report_validation.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/json.h"
#include "report/chart.h"

enum { NAME_BYTES = 160, SAMPLES_BYTES_MAX = 1 << 26, SAMPLES_SHOWN = 400 };

/* ---- curves ---- */

/* "task.facts." of "task.facts.acc". */
static size_t stem_length(const char *name)
{
    const char *dot = strrchr(name, '.');

    return dot == NULL ? 0 : (size_t)(dot - name) + 1;
}

static double value_of(const struct metrics_row *row, const char *name)
{
    for (int i = 0; i < row->extra_count; i++)
        if (strcmp(row->extras[i].name, name) == 0)
            return row->extras[i].value;
    return (double)NAN;
}

/* The values of one metric over the validations. */
struct curve { double *x, *y; int64_t count; };

static status read_curve(struct curve *curve, struct arena *arena,
                         const struct metrics_table *table, const char *stem,
                         const char *metric)
{
    char name[NAME_BYTES];
    void *memory;

    snprintf(name, sizeof name, "%s%s", stem, metric);
    TRY(arena_take_array(arena, 2 * (size_t)table->count + 2,
                         sizeof *curve->x, &memory));
    *curve = (struct curve){.x = memory,
                            .y = (double *)memory + table->count + 1};
    for (int64_t i = 0; i < table->count; i++) {
        const double value = value_of(&table->rows[i], name);

        if (!isfinite(value)) continue;
        curve->x[curve->count] = (double)table->rows[i].step;
        curve->y[curve->count++] = value;
    }
    return OK;
}

/* The form in which a set or a task is drawn: the first form with a value other
 * than 0. */
struct form {
    const char *metric, *second, *y_name, *y_unit;
    bool from_zero;
};
static const struct form forms[] = {
    {"loss", NULL, "loss", "nats per token", false},
    {"acc", "acc_norm", "share of items", "share right", true},
    {"perplexity", NULL, "perplexity", "perplexity", false},
    {"bits_per_byte", NULL, "bits per byte", "bits per byte", false}};
enum { FORMS = sizeof forms / sizeof *forms };

static status draw(struct text *out, const char *title,
                   const struct form *form, const struct curve *curves)
{
    const struct chart chart = {
        .title = title, .x_name = "step", .y_name = form->y_name,
        .y_unit = form->y_unit, .from_zero = form->from_zero,
        .series = {{.name = form->metric, .style = CHART_DOTS, .colour = 1,
                    .x = curves[0].x, .y = curves[0].y,
                    .count = curves[0].count},
                   {.name = form->second, .style = CHART_DOTS, .colour = 2,
                    .x = curves[1].x, .y = curves[1].y,
                    .count = curves[1].count}},
        .series_count = curves[1].count > 0 ? 2 : 1};

    TRY(text_append_string(out, "<div class=\"card\">\n"));
    TRY(chart_svg(out, &chart));
    return text_append_string(out, "</div>\n");
}

static bool is_flat(const struct curve *curve)
{
    for (int64_t i = 0; i < curve->count; i++)
        if (curve->y[i] != 0) return false;
    return true;
}

/* stem: "val.code." */
static status draw_stem(struct text *out, struct arena *arena,
                        const struct metrics_table *table, const char *stem)
{
    const char *name = strchr(stem, '.') + 1;
    char title[NAME_BYTES];

    snprintf(title, sizeof title, "%s%.*s",
             strncmp(stem, "val.", 4) == 0 ? "Validation: " : "Task: ",
             (int)strlen(name) - 1, name);
    for (int i = 0; i < FORMS; i++) {
        struct curve curves[2] = {{0}};

        TRY(read_curve(&curves[0], arena, table, stem, forms[i].metric));
        if (is_flat(&curves[0])) continue;
        if (forms[i].second != NULL)
            TRY(read_curve(&curves[1], arena, table, stem, forms[i].second));
        return draw(out, title, &forms[i], curves);
    }
    return OK;
}

static const struct metrics_row *last_row(const struct metrics_table *table)
{
    for (int64_t i = table->count - 1; i >= 0; i--)
        if (table->rows[i].extra_count > 0) return &table->rows[i];
    return NULL;
}

static status draw_all(struct text *out, struct arena *arena,
                       const struct metrics_table *table,
                       const struct metrics_row *last)
{
    size_t before = 0;

    TRY(text_append_string(out, "<div class=\"charts\">\n"));
    for (int i = 0; i < last->extra_count; i++) {
        const char *name = last->extras[i].name;
        const size_t length = stem_length(name);
        char stem[NAME_BYTES];

        if (length == 0 || length >= sizeof stem || strchr(name, '.') ==
                                                        strrchr(name, '.'))
            continue;
        if (i > 0 && length == before &&
            strncmp(name, last->extras[i - 1].name, length) == 0)
            continue; /* the same set or task */
        before = length;
        snprintf(stem, sizeof stem, "%.*s", (int)length, name);
        TRY(draw_stem(out, arena, table, stem));
    }
    return text_append_string(out, "</div>\n");
}

/* ---- values ---- */

static status value_rows(struct text *out, const struct metrics_row *row)
{
    for (int i = 0; i < row->extra_count; i++) {
        const struct metrics_extra *extra = &row->extras[i];
        char error[NAME_BYTES];

        if (text_ends_with(extra->name, "_stderr")) continue;
        snprintf(error, sizeof error, "%s_stderr", extra->name);
        TRY(text_append_string(out, "<tr><td><code>"));
        TRY(html_escape(out, extra->name, strlen(extra->name)));
        TRY(text_printf(out, "</code></td><td class=\"num\">%.5g</td>",
                        extra->value));
        if (isfinite(value_of(row, error)))
            TRY(text_printf(out, "<td class=\"num\">&plusmn; %.2g</td></tr>\n",
                            value_of(row, error)));
        else
            TRY(text_append_string(out, "<td></td></tr>\n"));
    }
    return OK;
}

status report_validation(struct text *out, struct arena *arena,
                         const struct metrics_table *table)
{
    const struct metrics_row *last = last_row(table);

    if (last == NULL) return OK;
    TRY(text_append_string(out, "<h2>Sets and tasks</h2>\n"));
    TRY(draw_all(out, arena, table, last));
    TRY(text_printf(out, "<div class=\"card\"><details><summary>values after "
                         "step %lld</summary>\n<table>\n<tr><th>metric</th>"
                         "<th class=\"num\">value</th><th class=\"num\">"
                         "standard error</th></tr>\n",
                    (long long)last->step));
    TRY(value_rows(out, last));
    return text_append_string(out, "</table></details></div>\n");
}

/* ---- samples ---- */

static status put_sample(struct text *out, const struct json *sample)
{
    const struct json *prompt = json_get(sample, "prompt");
    const struct json *text = json_get(sample, "text");
    const struct json *step = json_get(sample, "step");

    if (prompt == NULL || prompt->kind != JSON_STRING || text == NULL ||
        text->kind != JSON_STRING || step == NULL ||
        step->kind != JSON_INTEGER)
        return OK; /* not a line of ours */
    TRY(text_printf(out, "<pre><span class=\"soft\">step %lld</span>\n"
                         "<span class=\"prompt\">", (long long)step->integer));
    TRY(html_escape(out, prompt->string, (size_t)prompt->string_length));
    TRY(text_append_string(out, "</span>"));
    TRY(html_escape(out, text->string, (size_t)text->string_length));
    return text_append_string(out, "</pre>\n");
}

/* The line that begins at `at`, parsed; NULL at the end or when torn. */
static const struct json *next_sample(const struct text *text, size_t *at,
                                      struct arena *arena)
{
    const char *line = text->bytes + *at;
    const char *end = *at < text->length
                          ? memchr(line, '\n', text->length - *at) : NULL;
    const struct json *root = NULL;

    arena_reset(arena);
    if (end == NULL) return NULL;
    *at += (size_t)(end - line) + 1;
    if (json_read(&root, arena, line, (size_t)(end - line), "samples") == OK)
        return root;
    status_clear(); /* the report is about what can be read */
    return NULL;
}

static int64_t step_of(const struct json *sample)
{
    const struct json *step = json_get(sample, "step");

    return step != NULL && step->kind == JSON_INTEGER ? step->integer : -1;
}

/* Writes the samples of the last step, or the newest of earlier steps. */
static status put_samples(struct text *out, const struct text *text,
                          int64_t last, bool earlier)
{
    const struct json *sample;
    struct arena arena = {0};
    int64_t count = 0, number = 0;
    status result = OK;
    size_t at = 0;

    arena_init(&arena, "samples", 0);
    while ((sample = next_sample(text, &at, &arena)) != NULL)
        count += step_of(sample) != last;
    at = 0;
    while ((sample = next_sample(text, &at, &arena)) != NULL) {
        const bool old = step_of(sample) != last;

        if (old != earlier) continue;
        if (old && number++ < count - SAMPLES_SHOWN) continue;
        TRY_GOTO(done, result, put_sample(out, sample));
    }
done:
    arena_free(&arena);
    return result;
}

static int64_t last_step(const struct text *text)
{
    const struct json *sample;
    struct arena arena = {0};
    int64_t last = -1;
    size_t at = 0;

    arena_init(&arena, "samples", 0);
    while ((sample = next_sample(text, &at, &arena)) != NULL)
        last = step_of(sample);
    arena_free(&arena);
    return last;
}

status report_samples(struct text *out, const char *path)
{
    struct text text = {0};
    status result;

    if (path == NULL || !file_exists(path)) return OK;
    TRY_GOTO(done, result, file_read_regular(path, SAMPLES_BYTES_MAX, &text));
    if (text.length == 0) goto done;
    const int64_t last = last_step(&text);

    TRY_GOTO(done, result,
             text_append_string(out, "<h2>How it continues the prompts</h2>\n"
                                     "<div class=\"card\">\n"));
    TRY_GOTO(done, result, put_samples(out, &text, last, false));
    TRY_GOTO(done, result,
             text_append_string(out, "<details><summary>earlier"
                                     "</summary>\n"));
    TRY_GOTO(done, result, put_samples(out, &text, last, true));
    TRY_GOTO(done, result, text_append_string(out, "</details></div>\n"));
done:
    text_free(&text);
    return result;
}
