/* SPDX-License-Identifier: Apache-2.0 */
/* chart.h - a line chart as inline SVG: axes with ticks and units, a legend,
 * points that tell their value under the mouse. Colours are CSS variables of
 * the page (--series-1, --series-2, --ink, --grid). */
#ifndef LOCKSTEP_REPORT_CHART_H
#define LOCKSTEP_REPORT_CHART_H

#include <stdbool.h>
#include <stdint.h>
#include "base/text.h"

enum { CHART_SERIES_MAX = 4 };

enum chart_style {
    CHART_LINE,  /* a clear line */
    CHART_FAINT, /* a thin pale one: raw values behind a smoothed line */
    CHART_DOTS   /* a line with a visible dot at each point */
};

struct chart_series {
    const char *name;       /* borrowed; of the legend */
    enum chart_style style;
    int colour;             /* 1 or 2 */
    const double *x, *y;    /* borrowed, [count]; x ascends; points that are
                             * not finite are left out */
    int64_t count;
    const double *band;     /* borrowed, [count], or NULL: a third value that
                             * the hover text names with `band_name` */
    const char *band_name;
};

struct chart {
    const char *title;      /* borrowed, as all texts */
    const char *x_name;     /* "step" */
    const char *y_name;     /* "loss" */
    const char *y_unit;     /* "nats"; "" if none */
    struct chart_series series[CHART_SERIES_MAX];
    int series_count;
    bool from_zero;         /* the y axis begins at 0 */
    bool has_level;         /* a dashed horizontal line */
    double level;
    const char *level_name; /* "ln V = 7.62" */
};

/* Appends one <svg> element. Nothing to draw gives a note instead. */
status chart_svg(struct text *out, const struct chart *chart);

/* Appends `string` with &, <, >, and quotes as entities. Bytes that are not
 * UTF-8 become U+FFFD. */
status html_escape(struct text *out, const char *string, size_t length);

/* At most `capacity` ticks at multiples of 1, 2 or 5 times a power of ten
 * inside [least, greatest]; returns the count. */
int chart_ticks(double least, double greatest, double *ticks, int capacity);

#endif
