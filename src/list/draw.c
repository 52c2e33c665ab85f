/* SPDX-License-Identifier: Apache-2.0 */
/* draw.c - the picture of a list. */
#include "list/draw.h"

enum { LEFT = 80, TOP = 44, ROW = 26, BAR = 20, STEP = 14, BELOW = 30 };

/* Colours of F, B and W, of messages, of the rest. */
static const char *colour(const struct instruction *i)
{
    switch ((enum instruction_kind)i->kind) {
    case DO_FORWARD: return "#3b6ea5";
    case DO_BACKWARD: return "#4d9a5b";
    case DO_WEIGHT: return "#c9a227";
    case DO_GATHER: case DO_REGATHER: return "#8e6bb0";
    case DO_REDUCE: case DO_SUM: case DO_JOIN: case DO_HALVES:
        return "#b5533c";
    case DO_SEND: case DO_RECEIVE: case DO_SEND_BACK: case DO_RECEIVE_BACK:
    case DO_TIE:
        return "#5aa3b8";
    default: return "#999";
    }
}

/* The instruction that waits for `number`, or the one after it. */
static int end_of(const struct step_list *list, int number)
{
    if (!instruction_rows[list->items[number].kind].background)
        return number + 1;
    for (int i = number + 1; i < list->count; i++)
        for (int n = 0; n < list->items[i].needs; n++)
            if (list_needs(list, i)[n] == number) return i;
    return list->count;
}

static status draw_one(const struct step_list *list, int number, int row,
                       struct text *out)
{
    const struct instruction *i = &list->items[number];
    char text[INSTRUCTION_BYTES];

    return text_printf(
        out, "<rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" fill=\"%s\" "
             "stroke=\"#fff\" stroke-width=\"0.7\"%s><title>%d: %s</title>"
             "</rect>\n",
        LEFT + STEP * number, TOP + ROW * row,
        STEP * (end_of(list, number) - number), BAR, colour(i),
        instruction_rows[i->kind].background ? " fill-opacity=\"0.6\"" : "",
        number, instruction_text(text, i));
}

status list_draw(const struct step_list *list, const char *title,
                 struct text *out)
{
    int rows[RESOURCE_COUNT], count = 0;

    if (list->count > DRAW_MOST)
        FAIL(ERR_CONFIG, "a picture of %d instructions; at most %d are drawn: "
                         "set train.batch lower or train.micro_batch higher",
             list->count, DRAW_MOST);
    for (int resource = 0; resource < RESOURCE_COUNT; resource++) {
        bool used = false;

        for (int i = 0; i < list->count && !used; i++)
            used = list->items[i].resource == resource;
        rows[resource] = used ? count++ : -1;
    }
    TRY(text_printf(out, "<svg xmlns=\"http://www.w3.org/2000/svg\" "
                         "viewBox=\"0 0 %d %d\" font-family=\"sans-serif\" "
                         "font-size=\"11\">\n<rect width=\"100%%\" "
                         "height=\"100%%\" fill=\"#fff\"/>\n"
                         "<text x=\"%d\" y=\"24\" font-size=\"15\">%s</text>\n",
                    LEFT + STEP * list->count + 20,
                    TOP + ROW * count + BELOW, LEFT, title));
    for (int resource = 0; resource < RESOURCE_COUNT; resource++)
        if (rows[resource] >= 0)
            TRY(text_printf(out, "<text x=\"%d\" y=\"%d\" "
                                 "text-anchor=\"end\">%s</text>\n", LEFT - 8,
                            TOP + ROW * rows[resource] + 15,
                            resource_name((enum resource)resource)));
    for (int i = 0; i < list->count; i++)
        TRY(draw_one(list, i, rows[list->items[i].resource], out));
    return text_append_string(out, "</svg>\n");
}
