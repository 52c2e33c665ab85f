/* SPDX-License-Identifier: Apache-2.0 */
/* overlay.c - loss curves of several layouts on top of each other. */
#include "report/overlay.h"

#include <math.h>
#include <string.h>

#include "base/file.h"
#include "base/text.h"
#include "report/chart.h"

enum { WIDTH = 860, PLOT_LEFT = 60, PLOT_RIGHT = 460, PLOT_TOP = 40,
       PLOT_BOTTOM = 330, LEGEND_LEFT = 484, LINE = 18, TICKS = 6 };

static const char *const colours[] = {
    "#1b1b1b", "#d1495b", "#00798c", "#edae49", "#66a182", "#8d6a9f",
    "#2e4057", "#e07a5f", "#3d85c6", "#7a9e1f", "#b5838d", "#6c757d"};
/* Curves with one colour differ in their dashes. */
static const char *const dashes[] = {"none", "9 5", "3 4", "12 4 3 4"};
enum {
    COLOURS = sizeof colours / sizeof *colours,
    DASHES = sizeof dashes / sizeof *dashes
};

struct frame_of {
    double least, most; /* losses */
    int64_t steps;
};

static double x_of(const struct frame_of *f, double step)
{
    const double span = f->steps > 1 ? (double)(f->steps - 1) : 1;

    return PLOT_LEFT + (PLOT_RIGHT - PLOT_LEFT) * step / span;
}

static double y_of(const struct frame_of *f, double loss)
{
    const double span = f->most > f->least ? f->most - f->least : 1;

    return PLOT_BOTTOM - (PLOT_BOTTOM - PLOT_TOP) * (loss - f->least) / span;
}

static status axes(struct text *out, const struct frame_of *f)
{
    double ticks[TICKS];
    const int count = chart_ticks(f->least, f->most, ticks, TICKS);

    for (int i = 0; i < count; i++)
        TRY(text_printf(out,
                        "<line x1=\"%d\" x2=\"%d\" y1=\"%.1f\" y2=\"%.1f\" "
                        "stroke=\"#ddd\"/><text x=\"%d\" y=\"%.1f\" "
                        "text-anchor=\"end\">%g</text>\n",
                        PLOT_LEFT, PLOT_RIGHT, y_of(f, ticks[i]),
                        y_of(f, ticks[i]), PLOT_LEFT - 8,
                        y_of(f, ticks[i]) + 4, ticks[i]));
    TRY(text_printf(out, "<text x=\"%d\" y=\"%d\">1</text><text x=\"%d\" "
                         "y=\"%d\" text-anchor=\"end\">step %lld</text>\n",
                    PLOT_LEFT, PLOT_BOTTOM + 20, PLOT_RIGHT, PLOT_BOTTOM + 20,
                    (long long)f->steps));
    return text_printf(out, "<text x=\"%d\" y=\"%d\">loss (nats)</text>\n",
                       PLOT_LEFT, PLOT_TOP - 14);
}

/* The first curve is the widest line, the last one hair. */
static status curve(struct text *out, const struct frame_of *f,
                    const struct overlay_curve *curve, int index, int count)
{
    const char *colour = colours[index % COLOURS];
    const char *dash = dashes[index / COLOURS % DASHES];
    const double width = 2 + 14.0 * (count - 1 - index) / (count + 1);
    const int y = PLOT_TOP + LINE * index;

    TRY(text_printf(out, "<polyline fill=\"none\" stroke=\"%s\" "
                         "stroke-width=\"%.1f\" stroke-linejoin=\"round\" "
                         "stroke-dasharray=\"%s\" points=\"", colour, width,
                    dash));
    for (int64_t i = 0; i < f->steps; i++)
        if (isfinite(curve->losses[i]))
            TRY(text_printf(out, "%.2f,%.2f ", x_of(f, (double)i),
                            y_of(f, curve->losses[i])));
    TRY(text_printf(out, "\"/>\n<line x1=\"%d\" x2=\"%d\" y1=\"%d\" "
                         "y2=\"%d\" stroke=\"%s\" stroke-width=\"4\" "
                         "stroke-dasharray=\"%s\"/>"
                         "<text x=\"%d\" y=\"%d\">",
                    LEGEND_LEFT, LEGEND_LEFT + 20, y, y, colour, dash,
                    LEGEND_LEFT + 28, y + 4));
    TRY(html_escape(out, curve->name, strlen(curve->name)));
    return text_append_string(out, "</text>\n");
}

static struct frame_of frame_of(const struct overlay_curve *curves, int count,
                                int64_t steps)
{
    struct frame_of f = {.least = INFINITY, .most = -INFINITY,
                         .steps = steps};

    for (int c = 0; c < count; c++)
        for (int64_t i = 0; i < steps; i++) {
            const double loss = curves[c].losses[i];

            if (!isfinite(loss)) continue;
            if (loss < f.least) f.least = loss;
            if (loss > f.most) f.most = loss;
        }
    return f;
}

/* Curves that cover each other look like one. */
static status note_equal(struct text *out, const struct overlay_curve *curves,
                         int count, int64_t steps)
{
    int equal = 1;

    for (int i = 1; i < count; i++)
        equal += memcmp(curves[i].losses, curves[0].losses,
                        (size_t)steps * sizeof(double)) == 0;
    return text_printf(out, "<text x=\"%d\" y=\"%d\" fill=\"#555\">%d of "
                            "%d curves are the first one, bit by bit:</text>\n"
                            "<text x=\"%d\" y=\"%d\" fill=\"#555\">they "
                            "lie on top of each other, the last one thinnest"
                            "</text>\n", PLOT_LEFT, PLOT_BOTTOM + 44, equal,
                       count, PLOT_LEFT, PLOT_BOTTOM + 60);
}

static status draw(struct text *out, const struct overlay_curve *curves,
                   int count, int64_t steps)
{
    const struct frame_of f = frame_of(curves, count, steps);
    const int legend = PLOT_TOP + LINE * count + 20;
    const int least = PLOT_BOTTOM + 76;
    const int height = legend > least ? legend : least;

    TRY(text_printf(out, "<svg xmlns=\"http://www.w3.org/2000/svg\" "
                         "viewBox=\"0 0 %d %d\" font-family=\"sans-serif\" "
                         "font-size=\"12\">\n<rect width=\"100%%\" "
                         "height=\"100%%\" fill=\"#fff\"/>\n",
                    WIDTH, height));
    TRY(axes(out, &f));
    for (int i = 0; i < count; i++)
        TRY(curve(out, &f, &curves[i], i, count));
    TRY(note_equal(out, curves, count, steps));
    return text_append_string(out, "</svg>\n");
}

status overlay_write(const struct overlay_curve *curves, int count,
                     int64_t steps, const char *path)
{
    struct text text = {0};
    status result;

    TRY_GOTO(done, result, draw(&text, curves, count, steps));
    TRY_GOTO(done, result, file_write_named(path, text.bytes, text.length));
done:
    text_free(&text);
    return result;
}
