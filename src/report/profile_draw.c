/* SPDX-License-Identifier: Apache-2.0 */
/* profile_draw.c - a profile as a picture and as a table of a page. */
#include "observe/profile.h"

#include <string.h>

#include "report/chart.h"

enum {
    WIDTH = 760, LEFT = 190, RIGHT = 185, TOP = 48, STACK = 30, LEGEND = 26,
    ROW = 20, BAR = 13, BELOW = 34, ROWS_SHOWN = 24,
    RANKS_SHOWN = 64
};

/* One for each kind; readable on white and on black. */
static const char *const colours[METER_KINDS] = {
    "#2f6fde", "#8a4fd0", "#d9822b", "#2a9d8f", "#c9a227", "#6c8a3a",
    "#b0b7c0", "#d64550"};

static status escaped(struct text *out, const char *string)
{
    return html_escape(out, string, strlen(string));
}

static double share_of(const struct profile *p, double ms)
{
    return p->step_ms > 0 ? ms / p->step_ms : 0;
}

/* The step from left to right, one piece a kind, with its share where there is
 * room for it. */
static status draw_stack(const struct profile *p, struct text *out)
{
    double x = 10;

    for (int k = 0; k < METER_KINDS; k++) {
        const double share = share_of(p, p->kind_ms[k]);
        const double width = share * (WIDTH - 20);

        if (width <= 0) continue;
        TRY(text_printf(out, "<rect x=\"%.2f\" y=\"%d\" width=\"%.2f\" "
                             "height=\"%d\" fill=\"%s\"><title>%s: %.4g ms, "
                             "%.2f%%</title></rect>\n", x, TOP, width, STACK,
                        colours[k], meter_kind_name((enum meter_kind)k),
                        p->kind_ms[k], 100 * share));
        if (width > 44)
            TRY(text_printf(out, "<text x=\"%.2f\" y=\"%d\" "
                                 "style=\"fill:#fff\" "
                                 "text-anchor=\"middle\">%.1f%%</text>\n",
                            x + width / 2, TOP + STACK / 2 + 4, 100 * share));
        x += width;
    }
    return OK;
}

static status draw_legend(const struct profile *p, struct text *out)
{
    int x = 10;
    const int y = TOP + STACK + 10;

    for (int k = 0; k < METER_KINDS; k++) {
        const char *name = meter_kind_name((enum meter_kind)k);

        if (p->kind_ms[k] <= 0) continue;
        TRY(text_printf(out, "<rect x=\"%d\" y=\"%d\" width=\"10\" "
                             "height=\"10\" fill=\"%s\"/><text x=\"%d\" "
                             "y=\"%d\">%s</text>\n", x, y, colours[k], x + 14,
                        y + 9, name));
        x += 26 + 15 * (int)strlen(name) / 2;
    }
    return OK;
}

/* The longest rows, whatever their kinds: indices into the profile. */
static int longest(const struct profile *p, int order[METER_ROWS_MAX])
{
    for (int i = 0; i < p->count; i++) {
        int at = i;

        for (; at > 0 && p->rows[order[at - 1]].ms < p->rows[i].ms; at--)
            order[at] = order[at - 1];
        order[at] = i;
    }
    return p->count < ROWS_SHOWN ? p->count : ROWS_SHOWN;
}

/* A bar of what the row took; the part in full colour is what it would take
 * at its limit. */
static status draw_row(const struct profile *p, const struct profile_row *row,
                       int y, double scale, struct text *out)
{
    const double width = row->ms * scale;
    const double limit =
        row->limit_ms < row->ms ? row->limit_ms * scale : width;

    TRY(text_printf(out, "<text x=\"%d\" y=\"%d\" text-anchor=\"end\">",
                    LEFT - 8, y + BAR - 2));
    TRY(escaped(out, row->name));
    if (row->label[0] != '\0') TRY(text_append_string(out, " "));
    TRY(escaped(out, row->label));
    TRY(text_printf(out, "</text>\n<rect x=\"%d\" y=\"%d\" width=\"%.2f\" "
                         "height=\"%d\" fill=\"%s\" opacity=\"%s\"/>\n",
                    LEFT, y, width > 0.5 ? width : 0.5, BAR,
                    colours[row->kind], row->limit_ms > 0 ? "0.45" : "1"));
    if (row->limit_ms > 0)
        TRY(text_printf(out, "<rect x=\"%d\" y=\"%d\" width=\"%.2f\" "
                             "height=\"%d\" fill=\"%s\"/>\n", LEFT, y, limit,
                        BAR, colours[row->kind]));
    TRY(text_printf(out, "<text x=\"%.2f\" y=\"%d\" "
                         "style=\"fill:#778\">%.4g ms, %.1f%%",
                    LEFT + width + 6, y + BAR - 2, row->ms,
                    100 * share_of(p, row->ms)));
    if (row->limit_ms > 0)
        TRY(text_printf(out, "; limit %.0f%%",
                        100 * row->limit_ms / row->ms));
    return text_append_string(out, "</text>\n");
}

status profile_svg(const struct profile *profile, const char *title,
                   struct text *out)
{
    int order[METER_ROWS_MAX];
    const int shown = longest(profile, order);
    const int first = TOP + STACK + LEGEND + 16;
    const int height = first + shown * ROW + BELOW;
    const double most = shown > 0 ? profile->rows[order[0]].ms : 0;
    const double scale = most > 0 ? (WIDTH - LEFT - RIGHT) / most : 0;

    TRY(text_printf(out, "<svg xmlns=\"http://www.w3.org/2000/svg\" "
                         "viewBox=\"0 0 %d %d\" font-family=\"sans-serif\" "
                         "font-size=\"11\">\n<rect class=\"paper\" "
                         "width=\"100%%\" height=\"100%%\" "
                         "fill=\"#fff\"/>\n"
                         "<text x=\"10\" y=\"28\" font-size=\"15\">",
                    WIDTH, height));
    TRY(escaped(out, title));
    TRY(text_append_string(out, "</text>\n"));
    TRY(draw_stack(profile, out));
    TRY(draw_legend(profile, out));
    for (int i = 0; i < shown; i++)
        TRY(draw_row(profile, &profile->rows[order[i]], first + i * ROW,
                     scale, out));
    TRY(text_printf(out, "<text x=\"10\" y=\"%d\" "
                         "style=\"fill:#778\">full colour: what the limits "
                         "measured in this run allow; faint: the rest of what "
                         "it took</text>\n", height - 12));
    return text_append_string(out, "</svg>\n");
}

status profile_ranks_svg(const double *kinds, int ranks, struct text *out)
{
    const int shown = ranks < RANKS_SHOWN ? ranks : RANKS_SHOWN;
    double most = 0;

    for (int r = 0; r < ranks; r++) {
        double sum = 0;

        for (int k = 0; k < METER_KINDS; k++) sum += kinds[r * METER_KINDS + k];
        if (sum > most) most = sum;
    }
    TRY(text_printf(out, "<svg xmlns=\"http://www.w3.org/2000/svg\" "
                         "viewBox=\"0 0 %d %d\" font-family=\"sans-serif\" "
                         "font-size=\"11\">\n<rect class=\"paper\" "
                         "width=\"100%%\" height=\"100%%\" "
                         "fill=\"#fff\"/>\n", WIDTH,
                    shown * ROW + 12));
    for (int r = 0; r < shown; r++) {
        double x = 70;

        TRY(text_printf(out, "<text x=\"62\" y=\"%d\" text-anchor=\"end\">"
                             "rank %d</text>\n", r * ROW + 6 + BAR - 2, r));
        for (int k = 0; k < METER_KINDS && most > 0; k++) {
            const double ms = kinds[r * METER_KINDS + k];
            const double width = ms / most * (WIDTH - 80);

            if (width <= 0) continue;
            TRY(text_printf(out, "<rect x=\"%.2f\" y=\"%d\" width=\"%.2f\" "
                                 "height=\"%d\" fill=\"%s\"><title>%s: "
                                 "%.4g ms</title></rect>\n", x, r * ROW + 6,
                            width, BAR, colours[k],
                            meter_kind_name((enum meter_kind)k), ms));
            x += width;
        }
    }
    return text_append_string(out, "</svg>\n");
}

static status html_row(const struct profile *p, const struct profile_row *row,
                       struct text *out)
{
    char bytes[32] = "";

    if (row->bytes > 0) text_bytes(bytes, (uint64_t)row->bytes);
    TRY(text_printf(out, "<tr><td>%s</td><td>", meter_kind_name(row->kind)));
    TRY(escaped(out, row->name));
    TRY(text_append_string(out, " "));
    TRY(escaped(out, row->label));
    TRY(text_printf(out, "</td><td class=\"num\">%.6g</td><td class=\"num\">"
                         "%.4g</td><td class=\"num\">%.1f%%</td>"
                         "<td class=\"num\">%s</td>", row->calls, row->ms,
                    100 * share_of(p, row->ms), bytes));
    if (row->flops > 0 && row->ms > 0)
        TRY(text_printf(out, "<td class=\"num\">%.3g</td><td class=\"num\">"
                             "%.4g</td>", 1e-9 * row->flops,
                        1e-6 * row->flops / row->ms));
    else
        TRY(text_append_string(out, "<td></td><td></td>"));
    if (row->bytes > 0 && row->ms > 0)
        TRY(text_printf(out, "<td class=\"num\">%.4g</td>",
                        1e-6 * row->bytes / row->ms));
    else
        TRY(text_append_string(out, "<td></td>"));
    if (row->limit_ms > 0 && row->ms > 0)
        return text_printf(out, "<td class=\"num\">%.0f%%</td></tr>\n",
                           100 * row->limit_ms / row->ms);
    return text_append_string(out, "<td></td></tr>\n");
}

status profile_html(const struct profile *profile, struct text *out)
{
    TRY(text_append_string(
        out, "<table>\n<tr><th>kind</th><th>kernel</th><th class=\"num\">"
             "calls</th><th class=\"num\">ms</th><th class=\"num\">share</th>"
             "<th class=\"num\">bytes</th><th class=\"num\">GFLOP</th>"
             "<th class=\"num\">GFLOP/s</th><th class=\"num\">GB/s</th>"
             "<th class=\"num\">of limit</th></tr>\n"));
    for (int i = 0; i < profile->count; i++)
        TRY(html_row(profile, &profile->rows[i], out));
    return text_append_string(out, "</table>\n");
}
