/* SPDX-License-Identifier: Apache-2.0 */
/* pareto.c - a point for each timed layout that is not refused: step time to
 * the right, free memory upwards, the size of the point its bytes between
 * nodes. Points that no other beats in the three are red. */
#include "cli/pareto.h"

#include <math.h>

#include "base/file.h"

enum { WIDTH = 860, HEIGHT = 520, LEFT = 70, BOTTOM = 460, RIGHT = 830,
       TOP = 50 };

struct frame { double fastest, slowest, most, network; };

static bool shown(const struct candidate *c)
{
    return c->timed && !c->refused && c->prediction.step_s < 1e299;
}

static double headroom(const struct candidate *c,
                       const struct search_request *r)
{
    return (r->max_memory - c->memory_bytes) / r->max_memory;
}

static struct frame measure(const struct search *s)
{
    struct frame f = {1e300, 0, 1, 1};

    for (int i = 0; i < s->count; i++) {
        const struct candidate *c = &s->found[i];

        if (!shown(c)) continue;
        if (c->prediction.step_s < f.fastest) f.fastest = c->prediction.step_s;
        if (c->prediction.step_s > f.slowest) f.slowest = c->prediction.step_s;
        if (c->prediction.sent_network > f.network)
            f.network = c->prediction.sent_network;
    }
    if (f.slowest > 3 * f.fastest) f.slowest = 3 * f.fastest;
    if (f.slowest <= f.fastest) f.slowest = 1.1 * f.fastest;
    return f;
}

static double at_x(const struct frame *f, double step)
{
    return LEFT + (step - f->fastest) / (f->slowest - f->fastest) *
                      (RIGHT - LEFT);
}

static double at_y(double room) { return BOTTOM - room * (BOTTOM - TOP); }

/* Whether `a` is at least as good in all, and better in one. */
static bool beats(const struct candidate *a, const struct candidate *b)
{
    const double less[] = {
        b->prediction.step_s - a->prediction.step_s,
        b->memory_bytes - a->memory_bytes,
        b->prediction.sent_network - a->prediction.sent_network};
    bool better = false;

    for (int i = 0; i < 3; i++) {
        if (less[i] < 0) return false;
        if (less[i] > 0) better = true;
    }
    return better;
}

static bool beaten(const struct search *s, const struct candidate *c)
{
    for (int i = 0; i < s->count; i++)
        if (shown(&s->found[i]) && beats(&s->found[i], c)) return true;
    return false;
}

static status draw_points(const struct search *s,
                          const struct search_request *r,
                          const struct frame *f, struct text *out)
{
    for (int i = 0; i < s->count; i++) {
        const struct candidate *c = &s->found[i];
        char text[160];

        if (!shown(c) || c->prediction.step_s > f->slowest) continue;
        TRY(text_printf(out, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"%.1f\" "
                             "fill=\"%s\" fill-opacity=\"0.7\" data-seconds=\""
                             "%.9g\" data-bytes=\"%.9g\" data-network=\"%.9g"
                             "\"><title>%s, %s: %.4g s</title></circle>\n",
                        at_x(f, c->prediction.step_s), at_y(headroom(c, r)),
                        3 + 9 * sqrt(c->prediction.sent_network / f->network),
                        beaten(s, c) ? "#4878a8" : "#c4643c",
                        c->prediction.step_s, c->memory_bytes,
                        c->prediction.sent_network,
                        layout_text(&c->layout, text, sizeof text),
                        c->layout.schedule, c->prediction.step_s));
    }
    return OK;
}

static status draw_axes(const struct frame *f, struct text *out)
{
    TRY(text_printf(out, "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\""
                         "%d\" height=\"%d\" font-family=\"sans-serif\" "
                         "font-size=\"12\">\n<rect width=\"100%%\" height=\""
                         "100%%\" fill=\"white\"/>\n<text x=\"%d\" y=\"24\" "
                         "font-size=\"14\">Layouts: time, free memory, bytes "
                         "between nodes (size); red: nothing is better in "
                         "all three</text>\n", WIDTH, HEIGHT, LEFT));
    TRY(text_printf(out, "<path d=\"M%d %d V%d H%d\" fill=\"none\" "
                         "stroke=\"#444\"/>\n", LEFT, TOP, BOTTOM, RIGHT));
    for (int i = 0; i <= 4; i++) {
        const double step = f->fastest + (f->slowest - f->fastest) * i / 4;

        TRY(text_printf(out, "<text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\""
                             ">%.4g s</text>\n<text x=\"%d\" y=\"%.1f\" "
                             "text-anchor=\"end\">%d%%</text>\n",
                        at_x(f, step), BOTTOM + 20, step, LEFT - 6,
                        at_y(i / 4.0) + 4, 25 * i));
    }
    return text_printf(out, "<text x=\"%d\" y=\"%d\" text-anchor=\"middle\">"
                            "seconds of a step</text>\n<text x=\"16\" y=\"%d\""
                            " transform=\"rotate(-90 16 %d)\" text-anchor=\""
                            "middle\">free memory</text>\n",
                       (LEFT + RIGHT) / 2, BOTTOM + 44, (TOP + BOTTOM) / 2,
                       (TOP + BOTTOM) / 2);
}

status pareto_draw(const struct search *search,
                   const struct search_request *request, const char *path)
{
    const struct frame f = measure(search);
    struct text out = {0};
    status result;

    TRY_GOTO(done, result, draw_axes(&f, &out));
    TRY_GOTO(done, result, draw_points(search, request, &f, &out));
    TRY_GOTO(done, result, text_append_string(&out, "</svg>\n"));
    TRY_GOTO(done, result, file_write_named(path, out.bytes, out.length));
done:
    text_free(&out);
    return result;
}
