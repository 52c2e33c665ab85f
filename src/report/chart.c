/* SPDX-License-Identifier: Apache-2.0 */
/* chart.c - a line chart as inline SVG: axes with ticks and units, a legend,
 * points that tell their value under the mouse. */
#include "report/chart.h"

#include <math.h>
#include <string.h>

/* The drawing in SVG units; the page scales it. */
enum {
    WIDTH = 640,
    HEIGHT = 300,
    LEFT = 58,
    RIGHT = 14,
    TOP = 40,
    BOTTOM = 40,
    TICKS_MAX = 12,
    TICKS_WANTED = 6,
    BUCKETS = 400,   /* columns of a long curve: two points each */
    HOVER_MAX = 160, /* points with a hover text */
    LABEL_BYTES = 32
};

static double lesser(double a, double b)
{
    return a < b ? a : b;
}

static double greater(double a, double b)
{
    return a > b ? a : b;
}

struct frame {
    double x_least, x_greatest, y_least, y_greatest;
};

static const char *entity_of(unsigned char byte)
{
    switch (byte) {
    case '&': return "&amp;";
    case '<': return "&lt;";
    case '>': return "&gt;";
    case '"': return "&quot;";
    case '\'': return "&#39;";
    default: break;
    }
    /* Control characters have no place in HTML. */
    if ((byte < ' ' && byte != '\n' && byte != '\t') || byte == 0x7F)
        return "\xEF\xBF\xBD";
    return NULL;
}

static status escape_utf8(struct text *out, const char *string, size_t length)
{
    size_t run = 0; /* bytes that stand for themselves */

    for (size_t at = 0; at < length; at++) {
        const char *entity = entity_of((unsigned char)string[at]);

        if (entity == NULL) {
            run++;
            continue;
        }
        TRY(text_append(out, string + at - run, run));
        TRY(text_append_string(out, entity));
        run = 0;
    }
    return text_append(out, string + length - run, run);
}

status html_escape(struct text *out, const char *string, size_t length)
{
    struct text mended = {0};
    size_t bad;
    status result;

    if (!text_utf8_invalid(string, length, &bad))
        return escape_utf8(out, string, length);
    TRY_GOTO(done, result, text_append_utf8(&mended, string, length));
    TRY_GOTO(done, result, escape_utf8(out, mended.bytes, mended.length));
done:
    text_free(&mended);
    return result;
}

static status escape(struct text *out, const char *string)
{
    return html_escape(out, string, strlen(string));
}

/* The smallest of 1, 2, 5 times a power of ten that is not below `rough`. */
static double nice_step(double rough)
{
    double power = 1;

    while (power > rough) power /= 10;
    while (power * 10 <= rough) power *= 10;
    if (rough <= power) return power;
    if (rough <= 2 * power) return 2 * power;
    if (rough <= 5 * power) return 5 * power;
    return 10 * power;
}

int chart_ticks(double least, double greatest, double *ticks, int capacity)
{
    const double span = greatest - least;
    double step;
    int64_t first;
    int count = 0;

    if (!(span > 1e-300) || !isfinite(span) || capacity < 1) return 0;
    step = nice_step(span / TICKS_WANTED);
    if (!(fabs(least / step) < 1e15)) return 0;
    first = (int64_t)(least / step);
    if ((double)first * step < least - 1e-9 * span) first++;
    for (int64_t i = first; count < capacity; i++) {
        const double value = (double)i * step;

        if (value > greatest + 1e-9 * span) break;
        ticks[count++] = value;
    }
    return count;
}

/* 1500 as 1.5k, 0.0003 as 3e-4: what fits beside an axis. */
static const char *label(char out[LABEL_BYTES], double value)
{
    const double size = fabs(value);
    char *exponent;

    if (size >= 1e9)
        snprintf(out, LABEL_BYTES, "%.4gG", value / 1e9);
    else if (size >= 1e6)
        snprintf(out, LABEL_BYTES, "%.4gM", value / 1e6);
    else if (size >= 1e4)
        snprintf(out, LABEL_BYTES, "%.4gk", value / 1e3);
    else
        snprintf(out, LABEL_BYTES, "%.4g", value);
    exponent = strstr(out, "e-0");
    if (exponent != NULL)
        memmove(exponent + 2, exponent + 3, strlen(exponent + 3) + 1);
    return out;
}

static bool is_point(const struct chart_series *series, int64_t i)
{
    return isfinite(series->x[i]) && isfinite(series->y[i]);
}

static bool frame_find(struct frame *frame, const struct chart *chart)
{
    bool any = false;

    *frame = (struct frame){(double)INFINITY, -(double)INFINITY,
                            (double)INFINITY, -(double)INFINITY};
    for (int s = 0; s < chart->series_count; s++) {
        const struct chart_series *series = &chart->series[s];

        for (int64_t i = 0; i < series->count; i++) {
            if (!is_point(series, i)) continue;
            any = true;
            frame->x_least = lesser(frame->x_least, series->x[i]);
            frame->x_greatest = greater(frame->x_greatest, series->x[i]);
            frame->y_least = lesser(frame->y_least, series->y[i]);
            frame->y_greatest = greater(frame->y_greatest, series->y[i]);
        }
    }
    if (!any) return false;
    if (chart->has_level) {
        frame->y_least = lesser(frame->y_least, chart->level);
        frame->y_greatest = greater(frame->y_greatest, chart->level);
    }
    if (chart->from_zero) frame->y_least = lesser(0, frame->y_least);
    if (frame->x_greatest <= frame->x_least)
        frame->x_greatest = frame->x_least + 1;
    if (frame->y_greatest <= frame->y_least) {
        const double margin = greater(fabs(frame->y_least) * 0.05, 1e-12);

        frame->y_greatest += margin;
        if (!chart->from_zero) frame->y_least -= margin;
    }
    frame->y_greatest += 0.04 * (frame->y_greatest - frame->y_least);
    return true;
}

static double place_x(const struct frame *frame, double x)
{
    return LEFT + (x - frame->x_least) /
                      (frame->x_greatest - frame->x_least) *
                      (WIDTH - LEFT - RIGHT);
}

static double place_y(const struct frame *frame, double y)
{
    return HEIGHT - BOTTOM -
           (y - frame->y_least) / (frame->y_greatest - frame->y_least) *
               (HEIGHT - TOP - BOTTOM);
}

static status draw_axes(struct text *out, const struct chart *chart,
                        const struct frame *frame)
{
    double ticks[TICKS_MAX];
    char shown[LABEL_BYTES];
    int count =
        chart_ticks(frame->y_least, frame->y_greatest, ticks, TICKS_MAX);

    for (int i = 0; i < count; i++)
        TRY(text_printf(out,
                        "<line class=\"grid\" x1=\"%d\" x2=\"%d\" "
                        "y1=\"%.1f\" y2=\"%.1f\"/><text class=\"tick end\" "
                        "x=\"%d\" y=\"%.1f\">%s</text>\n",
                        LEFT, WIDTH - RIGHT, place_y(frame, ticks[i]),
                        place_y(frame, ticks[i]), LEFT - 8,
                        place_y(frame, ticks[i]) + 4, label(shown, ticks[i])));
    count = chart_ticks(frame->x_least, frame->x_greatest, ticks, TICKS_MAX);
    for (int i = 0; i < count; i++)
        TRY(text_printf(out,
                        "<line class=\"mark\" x1=\"%.1f\" x2=\"%.1f\" "
                        "y1=\"%d\" y2=\"%d\"/><text class=\"tick mid\" "
                        "x=\"%.1f\" y=\"%d\">%s</text>\n",
                        place_x(frame, ticks[i]), place_x(frame, ticks[i]),
                        HEIGHT - BOTTOM, HEIGHT - BOTTOM + 4,
                        place_x(frame, ticks[i]), HEIGHT - BOTTOM + 18,
                        label(shown, ticks[i])));
    TRY(text_printf(out,
                    "<line class=\"axis\" x1=\"%d\" x2=\"%d\" y1=\"%d\" "
                    "y2=\"%d\"/><text class=\"name end\" x=\"%d\" y=\"%d\">",
                    LEFT, WIDTH - RIGHT, HEIGHT - BOTTOM, HEIGHT - BOTTOM,
                    WIDTH - RIGHT, HEIGHT - 6));
    TRY(escape(out, chart->x_name));
    return text_append_string(out, "</text>\n");
}

static status draw_level(struct text *out, const struct chart *chart,
                         const struct frame *frame)
{
    const double y = place_y(frame, chart->level);

    if (!chart->has_level) return OK;
    TRY(text_printf(out,
                    "<line class=\"level\" x1=\"%d\" x2=\"%d\" y1=\"%.1f\" "
                    "y2=\"%.1f\"/><text class=\"tick end\" x=\"%d\" "
                    "y=\"%.1f\">",
                    LEFT, WIDTH - RIGHT, y, y, WIDTH - RIGHT - 2, y - 5));
    TRY(escape(out, chart->level_name));
    return text_append_string(out, "</text>\n");
}

static status point_add(struct text *out, const struct chart_series *series,
                        const struct frame *frame, int64_t i)
{
    return text_printf(out, "%.1f,%.1f ", place_x(frame, series->x[i]),
                       place_y(frame, series->y[i]));
}

/* All points, or of each of BUCKETS stretches the lowest and the highest, in
 * order: a long curve keeps its spikes. */
static status draw_points(struct text *out, const struct chart_series *series,
                          const struct frame *frame)
{
    const int64_t stretch = series->count > 2 * BUCKETS
                                ? (series->count + BUCKETS - 1) / BUCKETS
                                : 1;

    for (int64_t first = 0; first < series->count; first += stretch) {
        int64_t low = -1, high = -1;

        for (int64_t i = first; i < first + stretch && i < series->count;
             i++) {
            if (!is_point(series, i)) continue;
            if (low < 0 || series->y[i] < series->y[low]) low = i;
            if (high < 0 || series->y[i] > series->y[high]) high = i;
        }
        if (low < 0) continue;
        TRY(point_add(out, series, frame, low < high ? low : high));
        if (low != high)
            TRY(point_add(out, series, frame, low < high ? high : low));
    }
    return OK;
}

static status draw_line(struct text *out, const struct chart_series *series,
                        const struct frame *frame)
{
    TRY(text_printf(out, "<polyline class=\"line s%d%s\" points=\"",
                    series->colour,
                    series->style == CHART_FAINT ? " faint" : ""));
    TRY(draw_points(out, series, frame));
    return text_append_string(out, "\"/>\n");
}

/* Dots that show themselves and their text under the mouse. */
static status draw_hover(struct text *out, const struct chart *chart,
                         const struct chart_series *series,
                         const struct frame *frame)
{
    const int64_t stride = (series->count + HOVER_MAX - 1) / HOVER_MAX;

    if (series->style == CHART_FAINT) return OK;
    for (int64_t i = 0; i < series->count; i += stride) {
        if (!is_point(series, i)) continue;
        TRY(text_printf(out,
                        "<circle class=\"%s s%d\" cx=\"%.1f\" cy=\"%.1f\" "
                        "r=\"4\"><title>",
                        series->style == CHART_DOTS ? "dot" : "hit",
                        series->colour, place_x(frame, series->x[i]),
                        place_y(frame, series->y[i])));
        TRY(escape(out, chart->x_name));
        TRY(text_printf(out, " %.6g: ", series->x[i]));
        TRY(escape(out, series->name));
        TRY(text_printf(out, " %.5g %s", series->y[i], chart->y_unit));
        if (series->band != NULL && isfinite(series->band[i]))
            TRY(text_printf(out, ", %s %.5g", series->band_name,
                            series->band[i]));
        TRY(text_append_string(out, "</title></circle>\n"));
    }
    return OK;
}

static status draw_legend(struct text *out, const struct chart *chart)
{
    int x = 6;

    for (int s = 0; s < chart->series_count; s++) {
        const struct chart_series *series = &chart->series[s];

        if (series->count == 0 || chart->series_count == 1) continue;
        TRY(text_printf(out,
                        "<line class=\"line s%d%s\" x1=\"%d\" x2=\"%d\" "
                        "y1=\"31\" y2=\"31\"/><text class=\"tick\" x=\"%d\" "
                        "y=\"35\">",
                        series->colour,
                        series->style == CHART_FAINT ? " faint" : "", x, x + 18,
                        x + 24));
        TRY(escape(out, series->name));
        TRY(text_append_string(out, "</text>\n"));
        x += 40 + 7 * (int)strlen(series->name);
    }
    return OK;
}

status chart_svg(struct text *out, const struct chart *chart)
{
    struct frame frame;

    CHECK(chart->series_count <= CHART_SERIES_MAX);
    TRY(text_printf(out,
                    "<svg viewBox=\"0 0 %d %d\" role=\"img\">\n"
                    "<text class=\"title\" x=\"6\" y=\"16\">",
                    WIDTH, HEIGHT));
    TRY(escape(out, chart->title));
    if (chart->y_unit[0] != '\0') {
        TRY(text_append_string(out, "<tspan class=\"unit\"> in "));
        TRY(escape(out, chart->y_unit));
        TRY(text_append_string(out, "</tspan>"));
    }
    TRY(text_append_string(out, "</text>\n"));
    if (!frame_find(&frame, chart))
        return text_printf(out,
                           "<text class=\"tick mid\" x=\"%d\" y=\"%d\">"
                           "nothing was measured</text>\n</svg>\n",
                           WIDTH / 2, HEIGHT / 2);
    TRY(draw_axes(out, chart, &frame));
    TRY(draw_level(out, chart, &frame));
    TRY(draw_legend(out, chart));
    for (int s = 0; s < chart->series_count; s++)
        TRY(draw_line(out, &chart->series[s], &frame));
    for (int s = 0; s < chart->series_count; s++)
        TRY(draw_hover(out, chart, &chart->series[s], &frame));
    return text_append_string(out, "</svg>\n");
}
