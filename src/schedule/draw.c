/* SPDX-License-Identifier: Apache-2.0 */
/* draw.c - pictures of a timeline: letters in a line a rank, and SVG. */
#include <stdio.h>
#include <string.h>

#include "base/arena.h"
#include "schedule/timeline.h"

/* F, B and W of the first chunk (or direction), and paler of the others.
 * Chosen to differ in lightness as well, for those who see no colours. */
static const struct { const char *name, *first, *other; } looks[] = {
    {"forward", "#3b6fb6", "#9dbfe8"},
    {"backward, input", "#d9822b", "#f4c38d"},
    {"backward, weight", "#4f9a57", "#b5dcb8"}};

static const char letters[] = "FBW";

/* 0 for the first stage that a rank meets in direction 0, 1 for others. */
static bool is_other(const struct schedule *s, const struct timeline_span *span)
{
    if (schedule_direction(s, span->action.microbatch)) return true;
    for (int stage = 0; stage < span->action.stage; stage++)
        if (s->places[0][stage] == span->rank) return true;
    return false;
}

enum { UNIT_COLUMNS = 6 }; /* "B123--" is wide enough */

/* Columns of a picture whose spans all begin and end on a column, at most
 * `columns`; or `columns` where times have no such common unit. */
static int aligned(const struct timeline *timeline, int64_t end, int columns)
{
    int64_t unit = end, each;

    for (int i = 0; i < timeline->count; i++) {
        int64_t a = timeline->spans[i].end_ns;

        while (a != 0) { /* Euclid */
            const int64_t rest = unit % a;

            unit = a;
            a = rest;
        }
    }
    if (unit == 0 || end / unit > columns) return columns;
    each = columns / (end / unit);
    return (int)((each < UNIT_COLUMNS ? each : UNIT_COLUMNS) * (end / unit));
}

/* "F12---": the letter, the micro-batch where there is room, dashes. */
static void draw_span(char *row, const struct schedule *s,
                      const struct timeline_span *span, double columns_per_ns)
{
    const int first = (int)((double)span->begin_ns * columns_per_ns + 0.5);
    const int end = (int)((double)span->end_ns * columns_per_ns + 0.5);
    char label[16];
    const int length = snprintf(label, sizeof label, "%d",
                                span->action.microbatch);
    const int letter = letters[span->action.kind];

    if (end <= first) return;
    memset(row + first, '-', (size_t)(end - first));
    row[first] = (char)(is_other(s, span) ? letter - 'A' + 'a' : letter);
    if (end - first > length)
        memcpy(row + first + 1, label, (size_t)length);
}

status timeline_draw_text(const struct timeline *timeline,
                          const struct schedule *schedule, int columns,
                          struct text *out)
{
    const int64_t end = timeline_end_ns(timeline);
    const int drawn = aligned(timeline, end, columns);
    const size_t width = (size_t)drawn + 1;
    void *memory = NULL;
    char *rows;
    status result;

    TRY_GOTO(done, result, memory_take((size_t)schedule->ranks, width,
                                       &memory));
    rows = memory;
    memset(rows, '.', (size_t)schedule->ranks * width);
    for (int i = 0; i < timeline->count && end > 0; i++)
        draw_span(rows + (size_t)timeline->spans[i].rank * width, schedule,
                  &timeline->spans[i], drawn / (double)end);
    for (int rank = 0; rank < schedule->ranks; rank++) {
        rows[(size_t)rank * width + width - 1] = '\0';
        TRY_GOTO(done, result,
                 text_printf(out, "rank %-4d|%s|\n", rank,
                             rows + (size_t)rank * width));
    }
    TRY_GOTO(done, result, text_append_string(out,
        "F forward, B backward for inputs, W for weights, with the number of "
        "the\nmicro-batch where it fits; small letters: another chunk or "
        "direction; . idle\n"));
done:
    memory_free(memory);
    return result;
}

enum {
    WIDTH = 1200, ROW = 26, BAR = 22, LEFT = 70, TOP = 88, TEXT_ROOM = 16,
    BELOW = 40, TICKS = 8
};

/* The text with <, > and & as markup wants them. */
static status svg_text(struct text *out, const char *words)
{
    for (; *words != '\0'; words++) {
        const char *safe = *words == '<' ? "&lt;" : *words == '>' ? "&gt;"
                           : *words == '&' ? "&amp;" : NULL;

        if (safe != NULL) TRY(text_append_string(out, safe));
        else TRY(text_append(out, words, 1));
    }
    return OK;
}

/* 1, 2 or 5 times a power of ten: about TICKS of them in `end`. */
static double tick_ns(int64_t end)
{
    static const double steps[] = {2, 2.5, 2};
    double tick = 1;

    for (int i = 0; tick * TICKS < (double)end; i++) tick *= steps[i % 3];
    return tick;
}

/* A rank that runs W right behind each B measures both as one B. */
static bool is_whole(const struct timeline *timeline)
{
    int64_t sums[ACTION_COMPUTE_COUNT] = {0};

    for (int i = 0; i < timeline->count; i++)
        sums[timeline->spans[i].action.kind] +=
            timeline->spans[i].end_ns - timeline->spans[i].begin_ns;
    return sums[ACTION_BACKWARD_WEIGHT] < sums[ACTION_BACKWARD_INPUT] / 50;
}

static status svg_legend(struct text *out, bool others, bool whole)
{
    int x = LEFT;

    for (int i = 0; i < ACTION_COMPUTE_COUNT - whole; i++) {
        TRY(text_printf(out, "<rect x=\"%d\" y=\"40\" width=\"14\" "
                             "height=\"14\" fill=\"%s\"/>\n", x,
                        looks[i].first));
        if (others)
            TRY(text_printf(out, "<rect x=\"%d\" y=\"40\" width=\"14\" "
                                 "height=\"14\" fill=\"%s\"/>\n", x + 16,
                            looks[i].other));
        TRY(text_printf(out, "<text x=\"%d\" y=\"51\">%s</text>\n",
                        x + (others ? 36 : 20),
                        whole && i > 0 ? "backward, B + W" : looks[i].name));
        x += others ? 190 : 170;
    }
    TRY(text_printf(out, "<text x=\"%d\" y=\"51\" fill=\"#555\">%snumbers: "
                         "micro-batches; grey: idle</text>\n", x,
                    others ? "paler: another chunk or direction; " : ""));
    return text_printf(out, "<text x=\"%d\" y=\"68\" fill=\"#555\">A gradient "
                            "is two pieces of work: B, of the stage's input, "
                            "which the stage before waits for, and W, of its "
                            "weights, which may wait%s. Ranks are those of "
                            "one pipeline.</text>\n", LEFT,
                       whole ? "; here both are one piece" : "");
}

/* Row `row` of the picture. */
static status svg_span(struct text *out, const struct schedule *s,
                       const struct timeline_span *span, int row, double scale)
{
    const double x = LEFT + (double)span->begin_ns * scale;
    const double width = (double)(span->end_ns - span->begin_ns) * scale;
    const bool other = is_other(s, span);
    const int y = TOP + row * ROW;
    const int kind = span->action.kind;
    const int digits = span->action.microbatch < 10 ? 1
                       : span->action.microbatch < 100 ? 2 : 4;

    TRY(text_printf(out, "<rect x=\"%.2f\" y=\"%d\" width=\"%.2f\" "
                         "height=\"%d\" fill=\"%s\" stroke=\"#fff\" "
                         "stroke-width=\"%s\"", x, y, width, BAR,
                    other ? looks[kind].other : looks[kind].first,
                    width > 3 ? "0.7" : "0"));
    if (span->instruction > 0)
        TRY(text_printf(out, "><title>instruction %d</title></rect>\n",
                        span->instruction));
    else
        TRY(text_append_string(out, "/>\n"));
    if (width < 7 * digits) return OK;
    return text_printf(out, "<text x=\"%.2f\" y=\"%d\" fill=\"%s\" "
                            "text-anchor=\"middle\">%d</text>\n",
                       x + width / 2, y + TEXT_ROOM, other ? "#222" : "#fff",
                       span->action.microbatch);
}

/* `each`: rows of a rank; the second is predicted. */
static status svg_axis(struct text *out, int ranks, int each, int64_t end,
                       double scale)
{
    const int y = TOP + ranks * each * ROW;

    for (int row = 0; row < ranks * each; row++)
        if (row % each == 0)
            TRY(text_printf(out, "<text x=\"%d\" y=\"%d\" "
                                 "text-anchor=\"end\">rank %d</text>\n",
                            LEFT - 8, TOP + row * ROW + TEXT_ROOM,
                            row / each));
        else
            TRY(text_printf(out, "<text x=\"%d\" y=\"%d\" fill=\"#555\" "
                                 "text-anchor=\"end\">predicted</text>\n",
                            LEFT - 8, TOP + row * ROW + TEXT_ROOM));
    for (int i = 0; end > 0 && i * tick_ns(end) <= (double)end; i++) {
        const double ns = i * tick_ns(end);

        TRY(text_printf(out, "<line x1=\"%.2f\" y1=\"%d\" x2=\"%.2f\" "
                             "y2=\"%d\" stroke=\"#999\"/>\n"
                             "<text x=\"%.2f\" y=\"%d\" "
                             "text-anchor=\"middle\">%.4g</text>\n",
                        LEFT + ns * scale, y, LEFT + ns * scale, y + 5,
                        LEFT + ns * scale, y + 20, ns * 1e-6));
    }
    return text_printf(out, "<text x=\"%d\" y=\"%d\">ms</text>\n",
                       LEFT + WIDTH + 24, y + 20);
}

status timeline_draw_svg(const struct timeline_drawing *drawing,
                         const struct schedule *schedule, struct text *out)
{
    const struct timeline *timeline = drawing->timeline;
    const struct timeline *predicted = drawing->predicted;
    const int each = predicted != NULL ? 2 : 1;
    const int64_t measured_end = timeline_end_ns(timeline);
    const int64_t other_end = each > 1 ? timeline_end_ns(predicted) : 0;
    const int64_t end = measured_end > other_end ? measured_end : other_end;
    const double scale = end > 0 ? WIDTH / (double)end : 0;
    const int height = TOP + schedule->ranks * each * ROW + BELOW;
    const bool others = schedule->stages > schedule->ranks ||
                        schedule->turned < schedule->microbatches;

    TRY(text_printf(out, "<svg xmlns=\"http://www.w3.org/2000/svg\" "
                         "viewBox=\"0 0 %d %d\" font-family=\"sans-serif\" "
                         "font-size=\"11\">\n"
                         "<rect width=\"100%%\" height=\"100%%\" "
                         "fill=\"#fff\"/>\n"
                         "<text x=\"%d\" y=\"24\" font-size=\"15\">",
                    WIDTH + LEFT + 60, height, LEFT));
    TRY(svg_text(out, drawing->title));
    TRY(text_append_string(out, "</text>\n"));
    TRY(svg_legend(out, others, is_whole(timeline)));
    TRY(text_printf(out, "<rect x=\"%d\" y=\"%d\" width=\"%d\" "
                         "height=\"%d\" fill=\"#eee\"/>\n", LEFT, TOP - 2,
                    WIDTH, schedule->ranks * each * ROW));
    for (int i = 0; i < timeline->count; i++)
        TRY(svg_span(out, schedule, &timeline->spans[i],
                     timeline->spans[i].rank * each, scale));
    for (int i = 0; each > 1 && i < predicted->count; i++)
        TRY(svg_span(out, schedule, &predicted->spans[i],
                     predicted->spans[i].rank * each + 1, scale));
    TRY(svg_axis(out, schedule->ranks, each, end, scale));
    return text_append_string(out, "</svg>\n");
}
