/* SPDX-License-Identifier: Apache-2.0 */
/* ettr_draw.c - a curve for each way to recover over ranks (each tick twice
 * the one before); circles are published figures. */
#include "cli/ettr_draw.h"

#include "base/file.h"
#include "kernels/math.h"

enum { WIDTH = 860, HEIGHT = 540, LEFT = 60, BOTTOM = 470, RIGHT = 560,
       TOP = 50 };
static const char *const colours[] = {"#c4643c", "#b08a1e", "#4878a8",
                                      "#1f7a4d"};
enum { COLOURS = (int)(sizeof colours / sizeof *colours) };

static double at_x(double ranks)
{
    const double least = math_log(ettr_sizes[0]);
    const double most = math_log(ettr_sizes[ettr_size_count - 1]);

    return LEFT + (math_log(ranks) - least) / (most - least) * (RIGHT - LEFT);
}

static double at_y(double ettr) { return BOTTOM - ettr * (BOTTOM - TOP); }

static status draw_axes(struct text *out)
{
    TRY(text_printf(out, "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\""
                         "%d\" height=\"%d\" font-family=\"sans-serif\" "
                         "font-size=\"12\">\n<rect width=\"100%%\" height=\""
                         "100%%\" fill=\"white\"/>\n<text x=\"%d\" y=\"24\" "
                         "font-size=\"14\">Share of time that a run trains, "
                         "with failures (ETTR)</text>\n<path d=\"M%d %d V%d "
                         "H%d\" fill=\"none\" stroke=\"#444\"/>\n", WIDTH,
                    HEIGHT, LEFT, LEFT, TOP, BOTTOM, RIGHT));
    for (int i = 0; i <= 5; i++)
        TRY(text_printf(out, "<path d=\"M%d %.1f H%d\" stroke=\"#ddd\"/>"
                             "<text x=\"%d\" y=\"%.1f\" text-anchor=\"end\">"
                             "%d%%</text>\n", LEFT, at_y(i / 5.0), RIGHT,
                        LEFT - 6, at_y(i / 5.0) + 4, 20 * i));
    for (int i = 0; i < ettr_size_count; i++)
        TRY(text_printf(out, "<text x=\"%.1f\" y=\"%d\" text-anchor=\"middle"
                             "\">%d</text>\n", at_x(ettr_sizes[i]),
                        BOTTOM + 20, ettr_sizes[i]));
    return text_printf(out, "<text x=\"%d\" y=\"%d\" text-anchor=\"middle\">"
                            "ranks, 8 on a node</text>\n", (LEFT + RIGHT) / 2,
                       BOTTOM + 44);
}

static status draw_ways(const struct ettr_picture *p, struct text *out)
{
    for (int w = 0; w < p->way_count; w++) {
        const char *colour = colours[w % COLOURS];
        struct reliability r;

        TRY(text_printf(out, "<path fill=\"none\" stroke=\"%s\" stroke-width="
                             "\"2\" d=\"", colour));
        for (int i = 0; i < ettr_size_count; i++) {
            ettr_predict(&r, &p->ways[w].failures, ettr_sizes[i],
                         p->per_node);
            TRY(text_printf(out, "%s%.1f %.1f", i == 0 ? "M" : " L",
                            at_x(ettr_sizes[i]), at_y(r.exact_ettr)));
        }
        TRY(text_printf(out, "\"/>\n<text x=\"%d\" y=\"%d\" fill=\"%s\">%s, "
                             "%.0f%%</text>\n", RIGHT + 14, TOP + 14 + 22 * w,
                        colour, p->ways[w].name, 100 * r.exact_ettr));
    }
    return OK;
}

static status draw_published(struct text *out)
{
    for (int i = 0; i < ettr_published_count; i++) {
        const struct ettr_published *p = &ettr_published[i];
        struct reliability r;

        ettr_predict(&r, &p->failures, p->ranks, ETTR_PER_NODE);
        TRY(text_printf(out, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"5\" fill=\""
                             "white\" stroke=\"#444\" stroke-width=\"1.5\"/>"
                             "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"end\">"
                             "%d</text>\n", at_x(p->ranks), at_y(p->ettr),
                        at_x(p->ranks) - 9, at_y(p->ettr) + 4, i + 1));
        TRY(text_printf(out, "<text x=\"%d\" y=\"%d\">%d %s:</text><text x=\""
                             "%d\" y=\"%d\">%s%.0f%% published, %.1f%% "
                             "predicted%s</text>\n", RIGHT + 14,
                        TOP + 150 + 44 * i, i + 1, p->system, RIGHT + 26,
                        TOP + 166 + 44 * i, p->at_least ? "more than " : "",
                        100 * p->ettr, 100 * r.exact_ettr,
                        p->fitted ? " (fitted)" : ""));
    }
    return OK;
}

status ettr_draw(const struct ettr_picture *picture, const char *path)
{
    struct text out = {0};
    status result;

    TRY_GOTO(done, result, draw_axes(&out));
    TRY_GOTO(done, result, draw_ways(picture, &out));
    if (picture->published) TRY_GOTO(done, result, draw_published(&out));
    TRY_GOTO(done, result, text_append_string(&out, "</svg>\n"));
    TRY_GOTO(done, result, file_write_named(path, out.bytes, out.length));
done:
    text_free(&out);
    return result;
}
