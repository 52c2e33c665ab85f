/* SPDX-License-Identifier: Apache-2.0 */
/* draw.c - the predicted step as an SVG. */
#include "planner/draw.h"

#include <stdio.h>

#include "base/file.h"

enum { WIDTH = 1200, LEFT = 110, ROW = 18, GAP = 6, TOP = 60,
       DRAWN_RANKS = 64, DRAWN_ITEMS = 60000 };

static const char *const colours[STEP_ITEMS] = {
    "#4878a8", "#d98a3d", "#7aa65a", "#c4643c", "#b9a0c9", "#8fb8c9",
    "#8467a8", "#999999", "#3f6f4f", "#a0a8d0", "#c9b458", "#d0d0d0"};

static bool resource_is_used(const struct timed_list *list, int resource)
{
    for (int i = 0; i < list->count; i++)
        if (list->items[i].resource == resource && list->items[i].seconds > 0)
            return true;
    return false;
}

static double end_of(const struct steps *steps,
                     const struct state_copies *copies)
{
    double end = 0;

    for (int i = 0; i < copies->span_count; i++)
        if (copies->spans[i].end > end) end = copies->spans[i].end;

    for (int r = 0; r < steps->lists.ranks; r++)
        for (int i = 0; i < steps->lists.lists[r].count; i++)
            if (steps->lists.lists[r].items[i].end > end)
                end = steps->lists.lists[r].items[i].end;
    return end;
}

/* A bar of a row, in seconds; `end`: of the picture. */
struct bar {
    double begin, end;
    const char *colour, *title;
};

static status draw_bar(const struct bar *bar, double end, int y,
                       struct text *out)
{
    const double scale = (WIDTH - LEFT - 10) / end;

    return text_printf(out, "<rect x=\"%.2f\" y=\"%d\" width=\"%.2f\" "
                            "height=\"%d\" fill=\"%s\"><title>%s: %.4g ms"
                            "</title></rect>\n",
                       LEFT + bar->begin * scale, y,
                       (bar->end - bar->begin) * scale, ROW - 2, bar->colour,
                       bar->title, 1e3 * (bar->end - bar->begin));
}

static status draw_resource(const struct steps *steps, double end, int rank,
                            int resource, int y, struct text *out)
{
    const struct timed_list *list = &steps->lists.lists[rank];

    TRY(text_printf(out, "<text x=\"4\" y=\"%d\">rank %d %s</text>\n",
                    y + ROW - 5, rank, clock_resource_names[resource]));
    for (int i = 0; i < list->count; i++) {
        const struct timed *t = &list->items[i];
        char title[96];

        if (t->resource != resource || t->end <= t->begin) continue;
        snprintf(title, sizeof title, "%s stage %d, micro-batch %d",
                 step_item_names[steps->items[t->kind]], t->stage,
                 t->microbatch);
        TRY(draw_bar(&(struct bar){t->begin, t->end,
                                   colours[steps->items[t->kind]], title},
                     end, y, out));
    }
    return OK;
}

/* Sent in idle time, and what ranks wait for. */
static status draw_copies(const struct state_copies *copies, double end,
                          int rank, int *y, struct text *out)
{
    bool any = false;

    for (int i = 0; i < copies->span_count; i++) {
        const struct copy_span *s = &copies->spans[i];

        if (rank < s->first || rank > s->last) continue;
        any = true;
        TRY(draw_bar(&(struct bar){
                         s->begin, s->end,
                         s->waited_for ? "#c02020" : "#5fb0a0",
                         s->waited_for ? "copy of the state, waited for"
                                       : "copy of the state, in idle time"},
                     end, *y, out));
    }
    if (!any) return OK;
    TRY(text_printf(out, "<text x=\"4\" y=\"%d\">rank %d copies</text>\n",
                    *y + ROW - 5, rank));
    *y += ROW;
    return OK;
}

static status draw_legend(struct text *out)
{
    for (int i = 0; i < STEP_ITEMS; i++)
        TRY(text_printf(out, "<rect x=\"%d\" y=\"34\" width=\"12\" "
                             "height=\"12\" fill=\"%s\"/><text x=\"%d\" "
                             "y=\"44\">%s</text>\n", LEFT + 88 * i,
                        colours[i], LEFT + 16 + 88 * i, step_item_names[i]));
    return OK;
}

static status draw_all(const struct steps *steps, const struct prediction *p,
                       const struct state_copies *copies, struct text *out)
{
    const int ranks = steps->lists.ranks < DRAWN_RANKS ? steps->lists.ranks
                                                       : DRAWN_RANKS;
    const double end = end_of(steps, copies);
    struct text rows = {0};
    int y = TOP;
    status result = OK;

    for (int r = 0; r < ranks; r++) {
        for (int resource = 0; resource < CLOCK_RESOURCES; resource++) {
            if (!resource_is_used(&steps->lists.lists[r], resource)) continue;
            TRY_GOTO(done, result,
                     draw_resource(steps, end, r, resource, y, &rows));
            y += ROW;
        }
        TRY_GOTO(done, result, draw_copies(copies, end, r, &y, &rows));
        y += GAP;
    }
    TRY_GOTO(done, result,
             text_printf(out, "<svg xmlns=\"http://www.w3.org/2000/svg\" "
                              "width=\"%d\" height=\"%d\" font-family=\""
                              "sans-serif\" font-size=\"11\">\n<rect "
                              "width=\"100%%\" height=\"100%%\" "
                              "fill=\"white\"/>\n<text x=\"4\" y=\"20\" "
                              "font-size=\"14\">predicted step %.4g s, MFU "
                              "%.1f%%, bubble rate %.3f, idle %.3f</text>\n",
                         WIDTH, y + 10, p->step_s, 100 * p->mfu,
                         p->bubble_rate, p->idle_share));
    TRY_GOTO(done, result, draw_legend(out));
    TRY_GOTO(done, result, text_append(out, rows.bytes, rows.length));
    TRY_GOTO(done, result, text_append_string(out, "</svg>\n"));
done:
    text_free(&rows);
    return result;
}

status draw_steps(const struct steps *steps, const struct prediction *p,
                  const struct state_copies *copies, const char *path)
{
    struct text out = {0};
    int64_t items = 0;
    status result;

    for (int r = 0; r < steps->lists.ranks; r++)
        items += steps->lists.lists[r].count;
    if (items > DRAWN_ITEMS)
        FAIL(ERR_CONFIG, "--draw: %lld instructions; at most %d can be seen",
             (long long)items, DRAWN_ITEMS);
    TRY_GOTO(done, result, draw_all(steps, p, copies, &out));
    TRY_GOTO(done, result, file_write_named(path, out.bytes, out.length));
done:
    text_free(&out);
    return result;
}
