/* SPDX-License-Identifier: Apache-2.0 */
/* draw.c - a picture of the mesh.
 *
 * The fastest axis lies in a row, the next one under each other, the next one
 * side by side again: so a frame always holds neighbours. */
#include "mesh/draw.h"

#include <stdio.h>
#include <string.h>

enum {
    BOX_WIDTH = 128, BOX_HEIGHT = 66, GAP = 8, LABEL = 18, TOP = 44,
    LEFT = 16, LINE = 15, IN_A_ROW = 8, LEGEND = 28
};

/* One colour for each stage, to be told apart in grey, too. */
static const char *const stages[] = {
    "#cfe0f5", "#f8dcb8", "#cfe8d0", "#f2c9c9", "#ddd0ea", "#fbeeb0",
    "#c5e4e7", "#e3e3e3"};
enum { STAGES = sizeof stages / sizeof *stages };

static const char *const frames[AXIS_COUNT] = {
    [AXIS_PIPE] = "#444444",    [AXIS_DATA] = "#00798c",
    [AXIS_SHARD] = "#4f9a57",   [AXIS_CONTEXT] = "#8d6a9f",
    [AXIS_TENSOR] = "#d1495b",  [AXIS_EXPERT] = "#b5838d"};

/* Level k holds `size` cells of level k - 1 along an axis; level 0 is a box. */
struct level {
    enum axis axis;
    int size, columns, rows;
    int width, height; /* of a cell of this level */
};
struct levels { struct level at[MESH_AXES + 1]; int count; };

static struct levels levels_of(const struct mesh *mesh,
                               const struct mesh_order *order)
{
    struct levels levels = {.count = 1};

    levels.at[0] = (struct level){.size = 1, .width = BOX_WIDTH,
                                  .height = BOX_HEIGHT};
    for (int i = order->count - 1; i >= 0; i--) {
        const int size = mesh->size[order->axis[i]];
        const struct level *inner = &levels.at[levels.count - 1];
        struct level *level = &levels.at[levels.count];
        const int along = size < IN_A_ROW ? size : IN_A_ROW;
        const int across = (size + along - 1) / along;
        const bool beside = levels.count % 2 == 1;

        if (size == 1) continue;
        *level = (struct level){.axis = order->axis[i], .size = size,
                                .columns = beside ? along : across,
                                .rows = beside ? across : along};
        level->width = level->columns * (inner->width + GAP) + GAP;
        level->height = level->rows * (inner->height + GAP) + GAP + LABEL;
        levels.count++;
    }
    return levels;
}

/* Where the cell of `level` that holds `place` stands. */
static void cell_of(const struct levels *levels, int level,
                    const struct place *place, int *x, int *y)
{
    *x = LEFT;
    *y = TOP;
    for (int k = levels->count - 1; k > level; k--) {
        const struct level *outer = &levels->at[k];
        const struct level *inner = &levels->at[k - 1];
        const int index = place->at[outer->axis];

        *x += GAP + index % outer->columns * (inner->width + GAP);
        *y += LABEL + GAP + index / outer->columns * (inner->height + GAP);
    }
}

static status draw_frame(struct text *out, const struct levels *levels, int k,
                         const struct place *place)
{
    const struct level *level = &levels->at[k];
    char label[48] = "";
    int x, y;

    cell_of(levels, k, place, &x, &y);
    if (k + 1 < levels->count)
        snprintf(label, sizeof label, "%s %d",
                 axis_name(levels->at[k + 1].axis),
                 place->at[levels->at[k + 1].axis]);
    return text_printf(out, "<rect x=\"%d\" y=\"%d\" width=\"%d\" "
                            "height=\"%d\" rx=\"6\" fill=\"none\" "
                            "stroke=\"%s\" stroke-width=\"1.5\"/>\n"
                            "<text x=\"%d\" y=\"%d\" fill=\"#333\">%s"
                            "</text>\n", x, y, level->width, level->height,
                       frames[level->axis], x + GAP, y + LABEL - 2, label);
}

static status draw_rank(struct text *out, const struct levels *levels,
                        const struct place *place, int rank,
                        const struct mesh_note *note)
{
    char inner[48] = "";
    int x, y;

    cell_of(levels, 0, place, &x, &y);
    if (levels->count > 1)
        snprintf(inner, sizeof inner, "%s %d", axis_name(levels->at[1].axis),
                 place->at[levels->at[1].axis]);
    TRY(text_printf(out, "<rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" "
                         "rx=\"4\" fill=\"%s\" stroke=\"#777\"/>\n"
                         "<text x=\"%d\" y=\"%d\" font-weight=\"bold\">rank "
                         "%d</text>\n<text x=\"%d\" y=\"%d\" fill=\"#555\" "
                         "text-anchor=\"end\">%s</text>\n",
                    x, y, BOX_WIDTH, BOX_HEIGHT,
                    stages[place->at[AXIS_PIPE] % STAGES], x + 8, y + 18,
                    rank, x + BOX_WIDTH - 8, y + 18, inner));
    for (int i = 0; i < MESH_NOTES; i++)
        TRY(text_printf(out, "<text x=\"%d\" y=\"%d\" font-size=\"11\">%s"
                             "</text>\n", x + 8, y + 22 + LINE * (i + 1),
                        note->line[i]));
    return OK;
}

/* "tensor", "data x tensor": what differs inside a frame of level k. */
static void inside(const struct levels *levels, int k, char *out, size_t bytes)
{
    size_t used = 0;

    for (int i = k; i >= 1 && used < bytes; i--)
        used += (size_t)snprintf(out + used, bytes - used, "%s%s",
                                 i < k ? " x " : "",
                                 axis_name(levels->at[i].axis));
}

static status draw_legend(struct text *out, const struct levels *levels,
                          int pipe, int y)
{
    char words[MESH_TEXT_BYTES];
    int x = LEFT;

    for (int i = 0; i < pipe && pipe > 1 && i < STAGES; i++, x += 76)
        TRY(text_printf(out, "<rect x=\"%d\" y=\"%d\" width=\"14\" "
                             "height=\"14\" fill=\"%s\" stroke=\"#777\"/>\n"
                             "<text x=\"%d\" y=\"%d\">pipe %d</text>\n", x, y,
                        stages[i], x + 19, y + 11, i));
    if (pipe > 1) y += LEGEND - 6;
    for (int k = 1; k < levels->count; k++, y += LEGEND - 8) {
        inside(levels, k, words, sizeof words);
        TRY(text_printf(out, "<rect x=\"%d\" y=\"%d\" width=\"14\" "
                             "height=\"14\" rx=\"3\" fill=\"none\" "
                             "stroke=\"%s\" stroke-width=\"1.5\"/>\n"
                             "<text x=\"%d\" y=\"%d\">ranks that differ in %s"
                             "</text>\n", LEFT, y,
                        frames[levels->at[k].axis], LEFT + 19, y + 11,
                        words));
    }
    return OK;
}

static status draw_all(struct text *out, const struct levels *levels,
                       const struct mesh *mesh,
                       const struct mesh_order *order,
                       const struct mesh_note *notes)
{
    const int ranks = mesh_ranks(mesh);
    struct place place;
    int block = ranks;

    for (int k = levels->count - 1; k >= 1; k--) {
        for (int rank = 0; rank < ranks; rank += block) {
            mesh_place(mesh, order, rank, &place);
            TRY(draw_frame(out, levels, k, &place));
        }
        block /= levels->at[k].size;
    }
    for (int rank = 0; rank < ranks; rank++) {
        mesh_place(mesh, order, rank, &place);
        TRY(draw_rank(out, levels, &place, rank, &notes[rank]));
    }
    return OK;
}

status mesh_draw_svg(const struct mesh *mesh, const struct mesh_order *order,
                     const char *title, const struct mesh_note *notes,
                     struct text *out)
{
    const struct levels levels = levels_of(mesh, order);
    const struct level *whole = &levels.at[levels.count - 1];
    const int below = TOP + whole->height + 16;
    const int width = whole->width > 420 ? whole->width : 420;
    const int pipe = mesh->size[AXIS_PIPE];

    if (mesh_ranks(mesh) > MESH_DRAWN_MAX)
        FAIL(ERR_CONFIG, "a picture of %d ranks; at most %d are drawn",
             mesh_ranks(mesh), MESH_DRAWN_MAX);
    TRY(text_printf(out, "<svg xmlns=\"http://www.w3.org/2000/svg\" "
                         "viewBox=\"0 0 %d %d\" font-family=\"sans-serif\" "
                         "font-size=\"12\">\n<rect width=\"100%%\" "
                         "height=\"100%%\" fill=\"#fff\"/>\n"
                         "<text x=\"%d\" y=\"26\" font-size=\"15\">%s</text>\n",
                    width + 2 * LEFT,
                    below + LEGEND * (pipe > 1) +
                        (LEGEND - 8) * (levels.count - 1) + 8,
                    LEFT, title));
    TRY(draw_all(out, &levels, mesh, order, notes));
    TRY(draw_legend(out, &levels, pipe, below));
    return text_append_string(out, "</svg>\n");
}
