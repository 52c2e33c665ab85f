/* SPDX-License-Identifier: Apache-2.0 */
/* memory_draw.c - the planned memory of a rank over a micro-batch. Above, all
 * owners, stacked; below, the frame of one micro-batch: a box for each buffer,
 * as long as it lives and as high as it is large. */
#include "report/memory_draw.h"

#include <string.h>

#include "base/arena.h"
#include "base/file.h"
#include "report/chart.h"
#include "report/report_style.h"

enum {
    WIDTH = 960, LEFT = 66, RIGHT = 660, TITLE = 24, ABOVE = 250, GAP = 44,
    BELOW = 300, END = 34, LEGEND = RIGHT + 16, LINE = 17,
    HEIGHT = TITLE + ABOVE + GAP + BELOW + END,
    COLUMNS_MAX = 600, KINDS_MAX = 12, TICKS = 6
};

static const char *const colours[] = {
    "#4e79a7", "#f28e2b", "#59a14f", "#b07aa1", "#edc948", "#76b7b2",
    "#ff9da7", "#9c755f", "#86bcb6", "#d4a6c8", "#8cd17d", "#e15759"};
/* Memory that is always in use has the same colours, paler. */
static const double PALE = 0.32;

/* The kinds of memory in the frame; the last two are gradients and sums over
 * ranks. */
struct kinds {
    const char *names[KINDS_MAX];
    int count, gradients, sums;
};

struct drawing {
    const struct stage *stage;
    struct text *out;
    struct kinds kinds;
    int columns;
    double *alive;      /* [kinds][columns] bytes: of the fullest event */
    double most;        /* bytes: the top of the upper picture */
    char label[32];
};

/* ---- what is alive ---- */

static int kind_of(const struct drawing *d, const struct frame_buffer *buffer)
{
    const char *name = d->stage->program.slots[buffer->slot].name;
    const struct kinds *k = &d->kinds;

    if (buffer->sums) return k->sums;
    if (buffer->gradient) return k->gradients;
    for (int i = 0; i < k->gradients; i++)
        if (strcmp(k->names[i], name) == 0) return i;
    return k->gradients - 1; /* "others" */
}

static void find_kinds(struct drawing *d)
{
    const struct frame_plan *plan = &d->stage->frame;
    struct kinds *k = &d->kinds;

    for (int i = 0; i < plan->buffer_count; i++) {
        const struct frame_buffer *buffer = &plan->buffers[i];
        const char *name = d->stage->program.slots[buffer->slot].name;
        int at = 0;

        if (buffer->gradient || buffer->sums) continue;
        while (at < k->count && strcmp(k->names[at], name) != 0) at++;
        if (at < k->count) continue;
        if (k->count < KINDS_MAX - 3) k->names[k->count++] = name;
        else if (k->count == KINDS_MAX - 3) k->names[k->count++] = "others";
    }
    k->gradients = k->count;
    k->names[k->count++] = "gradients of activations";
    k->sums = k->count;
    k->names[k->count++] = "sums over ranks";
}

static int column_of(const struct drawing *d, int event)
{
    return (int)((int64_t)event * d->columns / d->stage->frame.event_count);
}

/* Adds buffers event by event; a column shows the fullest of its events. */
static status find_alive(struct drawing *d)
{
    const struct frame_plan *plan = &d->stage->frame;
    double now[KINDS_MAX], fullest = -1;
    void *memory;
    int before = -1;

    TRY(memory_take((size_t)d->kinds.count * (size_t)d->columns,
                    sizeof(double), &memory));
    d->alive = memory;
    memset(memory, 0,
           (size_t)d->kinds.count * (size_t)d->columns * sizeof(double));
    for (int event = 0; event < plan->event_count; event++) {
        const int column = column_of(d, event);
        double total = 0;

        memset(now, 0, sizeof now);
        for (int i = 0; i < plan->buffer_count; i++) {
            const struct frame_buffer *b = &plan->buffers[i];

            if (b->first <= event && event <= b->last)
                now[kind_of(d, b)] += (double)b->bytes;
        }
        for (int k = 0; k < d->kinds.count; k++) total += now[k];
        if (column != before) fullest = -1;
        before = column;
        if (total <= fullest) continue;
        fullest = total;
        for (int k = 0; k < d->kinds.count; k++)
            d->alive[k * d->columns + column] = now[k];
    }
    return OK;
}

/* ---- places ---- */

static double x_of(const struct drawing *d, double column)
{
    return LEFT + (RIGHT - LEFT) * column / d->columns;
}

static double y_above(const struct drawing *d, double bytes)
{
    return TITLE + ABOVE - ABOVE * bytes / d->most;
}

static int64_t frame_and_room(const struct drawing *d)
{
    return d->stage->frame.bytes + d->stage->frame.pass_bytes;
}

static double y_below(const struct drawing *d, double bytes)
{
    const double all = (double)frame_and_room(d);

    return HEIGHT - END - BELOW * bytes / (all > 0 ? all : 1);
}

/* In a unit that suits the most. */
static status draw_ticks(struct drawing *d, double most,
                         double (*y_of)(const struct drawing *, double))
{
    static const struct { double bytes; const char *name; } units[] = {
        {1073741824.0, "GiB"}, {1048576.0, "MiB"}, {1024.0, "KiB"}, {1, "B"}};
    double ticks[TICKS];
    int unit = 0, count;

    while (unit < 3 && most < units[unit].bytes) unit++;
    count = chart_ticks(0, most / units[unit].bytes, ticks, TICKS);
    for (int i = 0; i < count; i++) {
        const double y = y_of(d, ticks[i] * units[unit].bytes);

        TRY(text_printf(d->out, "<line class=\"grid\" x1=\"%d\" x2=\"%d\" "
                                "y1=\"%.1f\" y2=\"%.1f\"/><text class=\"tick "
                                "end\" x=\"%d\" y=\"%.1f\">%g %s</text>\n",
                        LEFT, RIGHT, y, y, LEFT - 5, y + 4, ticks[i],
                        units[unit].name));
    }
    return OK;
}

/* ---- above: everything ---- */

/* With the room of a pass, which may be among the first stage's rows. */
static double bytes_of(const struct stage *stage)
{
    return (double)(stage->bytes - stage->memory[MEMORY_PASS].bytes) +
           (double)stage->frame.pass_bytes;
}

static status legend(struct drawing *d, int row, int colour, double opacity,
                     const char *name, double bytes)
{
    const int y = TITLE + 8 + row * LINE;

    return text_printf(d->out, "<rect x=\"%d\" y=\"%d\" width=\"11\" "
                               "height=\"11\" fill=\"%s\" "
                               "fill-opacity=\"%.2f\"/><text x=\"%d\" "
                               "y=\"%d\" style=\"font-size:11px\">%s, %s"
                               "</text>\n",
                       LEGEND, y, colours[colour % KINDS_MAX], opacity,
                       LEGEND + 16, y + 10,
                       text_bytes(d->label, (uint64_t)bytes), name);
}

/* Two lines under the legend. */
static status legend_note(struct drawing *d, int row)
{
    const int y = TITLE + 18 + (row + 1) * LINE;

    return text_printf(d->out, "<text x=\"%d\" y=\"%d\" "
                               "style=\"font-size:11px\">pale: there all the "
                               "time</text><text x=\"%d\" y=\"%d\" "
                               "style=\"font-size:11px\">full colour: at most, "
                               "while it is alive</text>\n",
                       LEGEND, y, LEGEND, y + LINE);
}

/* A band of equal height all along. */
static status draw_band(struct drawing *d, double from, double bytes,
                        const char *name, int row)
{
    TRY(text_printf(d->out, "<rect x=\"%d\" y=\"%.2f\" width=\"%d\" "
                            "height=\"%.2f\" fill=\"%s\" "
                            "fill-opacity=\"%.2f\"><title>%s: %.0f bytes"
                            "</title></rect>\n",
                    LEFT, y_above(d, from + bytes), RIGHT - LEFT,
                    y_above(d, from) - y_above(d, from + bytes),
                    colours[row % KINDS_MAX], PALE, name, bytes));
    return legend(d, row, row, PALE, name, bytes);
}

/* Owners that have the same all the time, from below; *top: what they take. */
static status draw_bands(struct drawing *d, double *top, int *row)
{
    const struct stage *stage = d->stage;
    const int frames = stage->request.size.frames > 1
                       ? stage->request.size.frames : 1;

    for (int i = 0; i < MEMORY_OWNERS; i++) {
        const double bytes = (double)stage->memory[i].bytes;

        if (i == MEMORY_FRAME || i == MEMORY_PASS || bytes <= 0) continue;
        TRY(draw_band(d, *top, bytes, stage->memory[i].name, (*row)++));
        *top += bytes;
    }
    if (frames < 2) return OK;
    const double others = (double)(frames - 1) * (double)stage->frame.bytes;

    TRY(draw_band(d, *top, others, "other micro-batches in flight", (*row)++));
    *top += others;
    return OK;
}

/* One kind over all columns, on what lies under it: steps, closed. */
static status draw_kind(struct drawing *d, int kind, double *under)
{
    const double *alive = d->alive + kind * d->columns;
    double most = 0;

    for (int c = 0; c < d->columns; c++)
        if (alive[c] > most) most = alive[c];
    if (most <= 0) return OK;
    TRY(text_printf(d->out, "<path fill=\"%s\" d=\"M", colours[kind]));
    for (int c = 0; c < d->columns; c++)
        TRY(text_printf(d->out, "%.1f %.2fH%.1f%s", x_of(d, c),
                        y_above(d, under[c] + alive[c]), x_of(d, c + 1),
                        c + 1 < d->columns ? "L" : ""));
    for (int c = d->columns - 1; c >= 0; c--)
        TRY(text_printf(d->out, "L%.1f %.2fH%.1f", x_of(d, c + 1),
                        y_above(d, under[c]), x_of(d, c)));
    for (int c = 0; c < d->columns; c++) under[c] += alive[c];
    return text_printf(d->out, "Z\"><title>%s: at most %.0f bytes</title>"
                               "</path>\n", d->kinds.names[kind], most);
}

static double most_of(const struct drawing *d, int kind)
{
    double most = 0;

    for (int c = 0; c < d->columns; c++)
        if (d->alive[kind * d->columns + c] > most)
            most = d->alive[kind * d->columns + c];
    return most;
}

static status draw_above(struct drawing *d)
{
    const double planned = bytes_of(d->stage);
    double top = 0, *under;
    void *memory;
    int row = 0;
    status result = OK;

    TRY(draw_ticks(d, planned, y_above));
    TRY(draw_bands(d, &top, &row));
    TRY(memory_take((size_t)d->columns, sizeof(double), &memory));
    under = memory;
    for (int c = 0; c < d->columns; c++) under[c] = top;
    for (int k = 0; k < d->kinds.count && result == OK; k++)
        result = draw_kind(d, k, under);
    memory_free(memory);
    TRY(result);
    for (int k = 0; k < d->kinds.count; k++)
        if (most_of(d, k) > 0)
            TRY(legend(d, row++, k, 1, d->kinds.names[k], most_of(d, k)));
    TRY(legend_note(d, row));
    return text_printf(d->out, "<line class=\"level\" x1=\"%d\" x2=\"%d\" "
                               "y1=\"%.1f\" y2=\"%.1f\"/><text class=\"tick "
                               "end\" x=\"%d\" y=\"%.1f\">planned: %s"
                               "</text>\n",
                       LEFT, RIGHT, y_above(d, planned), y_above(d, planned),
                       RIGHT - 4, y_above(d, planned) - 4,
                       text_bytes(d->label, (uint64_t)planned));
}

/* ---- below: the frame ---- */

static status draw_box(struct drawing *d, const struct frame_buffer *b)
{
    const struct slot_info *info = &d->stage->program.slots[b->slot];
    const double events = d->stage->frame.event_count;
    const double x = LEFT + (RIGHT - LEFT) * b->first / events;
    const double last = b->last < events ? b->last + 1 : events;
    const double end = LEFT + (RIGHT - LEFT) * last / events;
    const double from = (double)(b->offset +
                                 (b->shared ? d->stage->frame.bytes : 0));
    char block[32] = "outside the blocks";

    if (b->first > b->last || b->bytes <= 0) return OK;
    if (info->block >= 0) snprintf(block, sizeof block, "block %d",
                                   info->block);
    return text_printf(
        d->out, "<rect x=\"%.2f\" y=\"%.2f\" width=\"%.2f\" height=\"%.2f\" "
                "fill=\"%s\" stroke=\"var(--card)\" stroke-width=\"0.4\">"
                "<title>%s%s%s, %s, %s: %lld bytes at %lld, events %d to %d"
                "</title></rect>\n",
        x, y_below(d, from + (double)b->bytes), end - x,
        y_below(d, from) - y_below(d, from + (double)b->bytes),
        colours[kind_of(d, b)], b->sums ? "sums of the " : "",
        b->gradient ? "gradient of " : "", info->name, dtype_name(b->dtype),
        block,
        (long long)b->bytes, (long long)b->offset, b->first, b->last);
}

/* Where F ends and B does, through both pictures. */
static status draw_passes(struct drawing *d)
{
    const struct frame_plan *plan = &d->stage->frame;
    const struct { const char *name; int first, last; } passes[] = {
        {"forward", 0, plan->forward_end},
        {plan->mode == BACKWARD_FUSED ? "backward, of inputs and weights"
                                      : "backward, of inputs",
         plan->forward_end, plan->backward_end},
        {"of weights", plan->backward_end, plan->event_count}};

    for (int i = 0; i < 3; i++) {
        const double events = plan->event_count;
        const double x = LEFT + (RIGHT - LEFT) * passes[i].first / events;
        const double end = LEFT + (RIGHT - LEFT) * passes[i].last / events;

        if (passes[i].first == passes[i].last) continue;
        TRY(text_printf(d->out, "<line class=\"level\" x1=\"%.1f\" "
                                "x2=\"%.1f\" y1=\"%d\" y2=\"%d\"/>"
                                "<text class=\"tick mid\" x=\"%.1f\" "
                                "y=\"%d\">%s</text>\n", x, x, TITLE,
                        HEIGHT - END, (x + end) / 2, HEIGHT - END + 16,
                        passes[i].name));
    }
    return OK;
}

static status draw_below(struct drawing *d)
{
    const struct frame_plan *plan = &d->stage->frame;

    TRY(text_printf(d->out, "<text class=\"title\" x=\"6\" y=\"%d\">The frame "
                            "of one micro-batch%s, %s: where each buffer lies, "
                            "and how long</text>\n", TITLE + ABOVE + 30,
                    plan->pass_bytes > 0 ? ", above it the room of a pass"
                                         : "",
                    text_bytes(d->label, (uint64_t)frame_and_room(d))));
    TRY(draw_ticks(d, (double)frame_and_room(d), y_below));
    for (int i = 0; i < plan->buffer_count; i++)
        TRY(draw_box(d, &plan->buffers[i]));
    return draw_passes(d);
}

/* ---- both ---- */

static status draw_stage(struct drawing *d)
{
    TRY(text_printf(d->out, "<text class=\"title\" x=\"6\" y=\"16\">Memory "
                            "over the %d events of a micro-batch%s</text>\n",
                    d->stage->frame.event_count, d->label));
    find_kinds(d);
    TRY(find_alive(d));
    TRY(draw_above(d));
    return draw_below(d);
}

static status draw_inside(const struct pipeline *pipeline, int chunk,
                          struct text *out)
{
    const struct stage *stage = &pipeline->stages[chunk];
    struct drawing d = {.stage = stage, .out = out};
    status result;

    if (pipeline->schedule.stages > 1)
        snprintf(d.label, sizeof d.label, ", stage %d",
                 pipeline->chunks[chunk].number);

    d.columns = stage->frame.event_count < COLUMNS_MAX
                    ? stage->frame.event_count : COLUMNS_MAX;
    d.most = bytes_of(stage) * 1.06;
    if (d.columns == 0 || stage->bytes == 0) return OK;
    result = draw_stage(&d);
    memory_free(d.alive);
    return result;
}

status memory_svg(const struct pipeline *pipeline, struct text *out)
{
    for (int i = 0; i < pipeline->count; i++) {
        TRY(text_printf(out, "<svg viewBox=\"0 0 %d %d\" role=\"img\">\n",
                        WIDTH, HEIGHT));
        TRY(draw_inside(pipeline, i, out));
        TRY(text_append_string(out, "</svg>\n"));
    }
    return OK;
}

static status draw_file(const struct pipeline *pipeline, struct text *out)
{
    TRY(text_printf(out, "<svg xmlns=\"http://www.w3.org/2000/svg\" "
                         "viewBox=\"0 0 %d %d\">\n<style>%s</style>\n"
                         "<rect class=\"paper\" fill=\"#fff\" width=\"100%%\" "
                         "height=\"100%%\"/>\n", WIDTH,
                    HEIGHT * pipeline->count, report_style));
    for (int i = 0; i < pipeline->count; i++) {
        TRY(text_printf(out, "<g transform=\"translate(0 %d)\">\n",
                        i * HEIGHT));
        TRY(draw_inside(pipeline, i, out));
        TRY(text_append_string(out, "</g>\n"));
    }
    return text_append_string(out, "</svg>\n");
}

status memory_draw(const struct pipeline *pipeline, const char *path)
{
    struct text out = {0};
    status result;

    TRY_GOTO(done, result, draw_file(pipeline, &out));
    TRY_GOTO(done, result, file_write_named(path, out.bytes, out.length));
done:
    text_free(&out);
    return result;
}
