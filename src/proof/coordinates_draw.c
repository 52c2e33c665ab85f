/* SPDX-License-Identifier: Apache-2.0 */
/* coordinates_draw.c - a coordinate check as a picture: how far training moved
 * each activation, over the width, both axes in powers of two. */
#include <math.h>
#include <string.h>

#include "base/file.h"
#include "kernels/math.h"
#include "report/chart.h"
#include "proof/coordinates.h"

enum { WIDTH = 900, HEIGHT = 400, TOP = 60, BOTTOM = 350, PANEL = 380,
       FIRST = 70, SECOND = 490 };

struct axes {
    double least, most;         /* log2 of changes */
    double narrow, wide;        /* log2 of widths */
    const double *widths;
    int count;
};

static double log2_of(double x)
{
    return math_log(x) / 0x1.62e42fefa39efp-1; /* ln 2 */
}

static double y_of(const struct axes *a, double value)
{
    const double span = a->most > a->least ? a->most - a->least : 1;

    return BOTTOM - (BOTTOM - TOP) * (log2_of(value) - a->least) / span;
}

static double x_of(const struct axes *a, int left, double width)
{
    const double span = a->wide > a->narrow ? a->wide - a->narrow : 1;

    return left + PANEL * (log2_of(width) - a->narrow) / span;
}

static struct axes find_axes(const struct coordinates_panel panels[2],
                             const double *widths, int count)
{
    struct axes a = {INFINITY, -INFINITY, log2_of(widths[0]),
                     log2_of(widths[count - 1]), widths, count};

    for (int p = 0; p < 2; p++)
        for (int w = 0; w < count; w++)
            for (int i = 0; i < panels[p].items[w].count; i++) {
                const double value = panels[p].items[w].changes[i];

                if (!(value > 0)) continue;
                if (log2_of(value) < a.least) a.least = log2_of(value);
                if (log2_of(value) > a.most) a.most = log2_of(value);
            }
    a.least = floor(a.least);
    a.most = ceil(a.most);
    return a;
}

static status draw_grid(struct text *out, const struct axes *a, int left,
                        const double *widths, int count)
{
    for (double level = a->least; level <= a->most; level++) {
        const double value = math_exp(level * 0x1.62e42fefa39efp-1);
        const double y = y_of(a, value);

        TRY(text_printf(out, "<line x1=\"%d\" x2=\"%d\" y1=\"%.1f\" "
                             "y2=\"%.1f\" stroke=\"#ddd\"/>", left,
                        left + PANEL, y, y));
        if (left == FIRST)
            TRY(text_printf(out, "<text x=\"%d\" y=\"%.1f\" "
                                 "text-anchor=\"end\">%.3g</text>\n",
                            left - 8, y + 4, value));
    }
    for (int w = 0; w < count; w++)
        TRY(text_printf(out, "<text x=\"%.1f\" y=\"%d\" "
                             "text-anchor=\"middle\">%g</text>\n",
                        x_of(a, left, widths[w]), BOTTOM + 20, widths[w]));
    return OK;
}

/* Blocks go from blue to red; the logits are black and wide. */
static status draw_line(struct text *out, const struct axes *a, int left,
                        const struct coordinates_panel *panel, int index)
{
    const struct coordinates *first = panel->items;
    const bool logits = index == first->count - 1;
    const int red = 220 * index / (first->count > 1 ? first->count - 1 : 1);

    TRY(text_printf(out, "<polyline fill=\"none\" stroke=\"rgb(%d,60,%d)\" "
                         "stroke-width=\"%g\" points=\"", logits ? 0 : red,
                    logits ? 0 : 220 - red, logits ? 3.0 : 1.5));
    for (int w = 0; w < a->count; w++)
        if (panel->items[w].changes[index] > 0)
            TRY(text_printf(out, "%.1f,%.1f ", x_of(a, left, a->widths[w]),
                            y_of(a, panel->items[w].changes[index])));
    TRY(text_append_string(out, "\"><title>"));
    TRY(html_escape(out, first->names[index], strlen(first->names[index])));
    return text_append_string(out, "</title></polyline>\n");
}

static status draw(struct text *out, const struct coordinates_panel panels[2],
                   const double *widths, int count)
{
    const struct axes a = find_axes(panels, widths, count);

    TRY(text_printf(out, "<svg xmlns=\"http://www.w3.org/2000/svg\" "
                         "viewBox=\"0 0 %d %d\" font-family=\"sans-serif\" "
                         "font-size=\"12\">\n<rect width=\"100%%\" "
                         "height=\"100%%\" fill=\"#fff\"/>\n<text x=\"%d\" "
                         "y=\"22\">mean change of each activation over the "
                         "width; blocks from blue to red, logits black"
                         "</text>\n", WIDTH, HEIGHT, FIRST));
    for (int p = 0; p < 2; p++) {
        const int left = p == 0 ? FIRST : SECOND;

        TRY(text_printf(out, "<text x=\"%d\" y=\"%d\" font-weight=\"bold\">"
                             "%s</text>\n", left, TOP - 14,
                        panels[p].title));
        TRY(draw_grid(out, &a, left, widths, count));
        for (int i = 0; i < panels[p].items->count; i++)
            TRY(draw_line(out, &a, left, &panels[p], i));
    }
    return text_append_string(out, "</svg>\n");
}

status coordinates_draw(const struct coordinates_panel panels[2],
                        const double *widths, int count, const char *path)
{
    struct text text = {0};
    status result;

    TRY_GOTO(done, result, draw(&text, panels, widths, count));
    TRY_GOTO(done, result, file_write_named(path, text.bytes, text.length));
done:
    text_free(&text);
    return result;
}
