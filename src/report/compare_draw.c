/* SPDX-License-Identifier: Apache-2.0 */
/* compare_draw.c - the losses of two runs over each other, and how far they are
 * apart, as a picture or a page. */
#include "report/compare_runs.h"

#include <math.h>
#include <string.h>

#include "base/file.h"
#include "report/chart.h"
#include "report/report_style.h"

enum { CHARTS = 3, WIDTH = 640, HEIGHT = 300 };

/* Columns of one run. */
struct columns {
    double *step, *loss, *val_step, *val_loss;
    int64_t steps, validations;
};

static status columns_read(struct columns *c, struct arena *arena,
                           const struct metrics_table *table)
{
    double **const arrays[] = {&c->step, &c->loss, &c->val_step,
                               &c->val_loss};

    *c = (struct columns){0};
    for (int i = 0; i < 4; i++) {
        void *memory;

        TRY(arena_take_array(arena, (size_t)table->count + 1, sizeof(double),
                             &memory));
        *arrays[i] = memory;
    }
    for (int64_t i = 0; i < table->count; i++) {
        const struct metrics_row *row = &table->rows[i];

        if (row->kind == METRICS_STEP) {
            c->step[c->steps] = (double)row->step;
            c->loss[c->steps++] = row->loss;
        } else {
            c->val_step[c->validations] = (double)row->step;
            c->val_loss[c->validations++] = row->val_loss;
        }
    }
    return OK;
}

/* |a - b| of the steps that both have. */
static status differences(struct columns *out, struct arena *arena,
                          const struct columns *a, const struct columns *b)
{
    void *steps, *losses;

    *out = (struct columns){0};
    TRY(arena_take_array(arena, (size_t)a->steps + 1, sizeof(double), &steps));
    TRY(arena_take_array(arena, (size_t)a->steps + 1, sizeof(double),
                         &losses));
    out->step = steps;
    out->loss = losses;
    for (int64_t i = 0, j = 0; i < a->steps && j < b->steps;) {
        if (a->step[i] == b->step[j]) {
            out->step[out->steps] = a->step[i];
            out->loss[out->steps++] = fabs(a->loss[i] - b->loss[j]);
        }
        const bool next_a = a->step[i] <= b->step[j];
        const bool next_b = a->step[i] >= b->step[j];

        i += next_a;
        j += next_b;
    }
    return OK;
}

static struct chart_series series(const char *name, int colour,
                                  const double *x, const double *y,
                                  int64_t count)
{
    return (struct chart_series){.name = name, .colour = colour, .x = x,
                                 .y = y, .count = count};
}

static status make_charts(struct chart charts[CHARTS], struct arena *arena,
                          const struct runs_compared *runs,
                          const char *const names[2])
{
    struct columns c[3];

    TRY(columns_read(&c[0], arena, &runs->a));
    TRY(columns_read(&c[1], arena, &runs->b));
    TRY(differences(&c[2], arena, &c[0], &c[1]));
    for (int i = 0; i < CHARTS; i++)
        charts[i] = (struct chart){.x_name = "step", .y_name = "loss",
                                   .y_unit = "nats", .series_count = 2};
    charts[0].title = "Training loss";
    charts[1].title = "Validation loss";
    for (int i = 0; i < 2; i++) {
        charts[0].series[i] = series(names[i], i + 1, c[i].step, c[i].loss,
                                     c[i].steps);
        charts[1].series[i] = series(names[i], i + 1, c[i].val_step,
                                     c[i].val_loss, c[i].validations);
        charts[1].series[i].style = CHART_DOTS;
    }
    charts[2].title = "Size of the difference of training losses";
    charts[2].series[0] = series("difference", 1, c[2].step, c[2].loss,
                                 c[2].steps);
    charts[2].series_count = 1;
    charts[2].from_zero = true;
    return OK;
}

/* A chart is an svg element; inside another one it needs its place. */
static status place_chart(struct text *out, const struct chart *chart, int y)
{
    static const char begins[] = "<svg ";
    struct text inner = {0};
    status result;

    TRY_GOTO(done, result, chart_svg(&inner, chart));
    TRY_GOTO(done, result,
             text_printf(out, "<svg x=\"0\" y=\"%d\" width=\"%d\" "
                              "height=\"%d\" ", y, WIDTH, HEIGHT));
    TRY_GOTO(done, result,
             text_append_string(out, inner.bytes + sizeof begins - 1));
done:
    text_free(&inner);
    return result;
}

static status picture(struct text *out, const struct chart charts[CHARTS])
{
    TRY(text_printf(out, "<svg xmlns=\"http://www.w3.org/2000/svg\" "
                         "viewBox=\"0 0 %d %d\">\n<style>%s</style>\n"
                         "<rect class=\"paper\" width=\"100%%\" "
                         "height=\"100%%\"/>\n", WIDTH, CHARTS * HEIGHT,
                    report_style));
    for (int i = 0; i < CHARTS; i++)
        TRY(place_chart(out, &charts[i], i * HEIGHT));
    return text_append_string(out, "</svg>\n");
}

static status page(struct text *out, const struct chart charts[CHARTS],
                   const struct runs_compared *runs)
{
    struct text words = {0};
    status result;

    TRY_GOTO(done, result, runs_describe(runs, &words));
    TRY_GOTO(done, result,
             text_printf(out, "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n"
                              "<meta charset=\"utf-8\">\n<title>Two runs - "
                              "lockstep</title>\n<style>\n%s</style>\n"
                              "</head>\n<body>\n<h1>Two runs</h1>\n"
                              "<div class=\"card\"><pre>", report_style));
    TRY_GOTO(done, result, html_escape(out, words.bytes, words.length));
    TRY_GOTO(done, result, text_append_string(out, "</pre></div>\n"
                                                   "<div class=\"charts\">"));
    for (int i = 0; i < CHARTS; i++) {
        TRY_GOTO(done, result,
                 text_append_string(out, "<div class=\"card\">\n"));
        TRY_GOTO(done, result, chart_svg(out, &charts[i]));
        TRY_GOTO(done, result, text_append_string(out, "</div>\n"));
    }
    TRY_GOTO(done, result,
             text_append_string(out, "</div>\n</body>\n</html>\n"));
done:
    text_free(&words);
    return result;
}

status runs_draw(const struct runs_compared *runs, const char *name_a,
                 const char *name_b, const char *path)
{
    const char *const names[2] = {name_a, name_b};
    const bool html = text_ends_with(path, ".html");
    struct chart charts[CHARTS];
    struct arena arena = {0};
    struct text out = {0};
    status result;

    if (!html && !text_ends_with(path, ".svg"))
        FAIL(ERR_USAGE, "--draw: %s ends in neither .svg nor .html", path);
    arena_init(&arena, "comparison", 0);
    TRY_GOTO(done, result, make_charts(charts, &arena, runs, names));
    TRY_GOTO(done, result, html ? page(&out, charts, runs)
                                : picture(&out, charts));
    TRY_GOTO(done, result, file_write_named(path, out.bytes, out.length));
done:
    text_free(&out);
    arena_free(&arena);
    return result;
}
