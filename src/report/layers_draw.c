/* SPDX-License-Identifier: Apache-2.0 */
/* layers_draw.c - RUN/layers.jsonl as heat maps: a row for each layer, a column
 * for each observed step, darker where the value is larger. */
#include "observe/layers.h"

#include <math.h>
#include <string.h>

#include "base/file.h"
#include "kernels/math.h"
#include "report/chart.h"

enum {
    WIDTH = 640, LEFT = 190, RIGHT = 8, TOP = 26, BELOW = 26,
    COLUMNS_MAX = 60, ROWS_MAX = 512, CELL_MAX = 14, CELL_MIN = 4
};

/* One picture: value(row, column) of a table. */
struct heat {
    const struct layers_table *table;
    const char *title;
    int rows;
    double (*judged)(const struct layers_table *, const struct layers_row *,
                     int row); /* instead of value; NULL: value */
    const char *(*name)(const struct layers_table *, int row, char out[32]);
    double (*value)(const struct layers_row *, int row);
};

static const char *activation_name(const struct layers_table *table, int row,
                                   char out[32])
{
    if (row == table->activations - 1) return "last norm";
    snprintf(out, 32, "block %d", row);
    return out;
}

static const char *parameter_name(const struct layers_table *table, int row,
                                  char out[32])
{
    (void)out;
    return table->names[row];
}

static double rms(const struct layers_row *row, int i)
{
    return row->rms[i];
}

static double most(const struct layers_row *row, int i)
{
    return row->most[i];
}

static double kurtosis(const struct layers_row *row, int i)
{
    return row->kurtosis[i];
}

static double logit(const struct layers_row *row, int i)
{
    return row->logit[i];
}

static double gradient(const struct layers_row *row, int i)
{
    return row->norms[i].gradient;
}

static double weight(const struct layers_row *row, int i)
{
    return row->norms[i].weight;
}

static double update_ratio(const struct layers_row *row, int i)
{
    return row->norms[i].update / row->norms[i].weight;
}

static double cut(const struct layers_row *row, int i)
{
    return row->norms[i].cut;
}

static double zeroed(const struct layers_row *row, int i)
{
    return row->norms[i].zeroed;
}

/* ---- experts ---- */

static const char *expert_name(const struct layers_table *table, int row,
                               char out[32])
{
    snprintf(out, 32, "block %d, expert %d", row / table->experts,
             row % table->experts);
    return out;
}

/* Tokens over the mean of the block; NaN: a dense block. */
static double expert_share(const struct layers_table *table,
                           const struct layers_row *row, int i)
{
    const int count = table->experts;
    const double *tokens = row->tokens + (int64_t)(i / count) * count;
    double total = 0;

    for (int e = 0; e < count; e++) total += tokens[e];
    return total > 0 ? tokens[i % count] * count / total : (double)NAN;
}

static double busiest(const struct layers_table *table,
                      const struct layers_row *row, int block)
{
    const double *tokens = row->tokens + (int64_t)block * table->experts;
    const struct block_routing b =
        routing_judge_block(tokens, table->experts);

    return b.total > 0 ? b.most * table->experts / b.total : (double)NAN;
}

static double entropy(const struct layers_table *table,
                      const struct layers_row *row, int block)
{
    const double *tokens = row->tokens + (int64_t)block * table->experts;
    const struct block_routing b =
        routing_judge_block(tokens, table->experts);

    return b.total > 0 ? b.entropy : (double)NAN;
}

static double value_of(const struct heat *heat, const struct layers_row *row,
                       int r)
{
    return heat->judged != NULL ? heat->judged(heat->table, row, r)
                                : heat->value(row, r);
}

/* Whether a recipe rounded operands. */
static bool has_recipe(const struct layers_table *table)
{
    for (int i = 0; i < table->parameters; i++)
        if (!isnan(table->rows[0].norms[i].cut)) return true;
    return false;
}

/* The observed steps that are shown, evenly: the first and the last are. */
static int64_t shown_row(const struct layers_table *table, int column,
                         int columns)
{
    return columns <= 1 ? table->count - 1
                        : column * (table->count - 1) / (columns - 1);
}

static bool is_shown(double value)
{
    return isfinite(value) && value > 0;
}

/* Logarithms of the smallest and the largest value. */
static bool find_range(const struct heat *heat, int columns, double range[2])
{
    range[0] = (double)INFINITY;
    range[1] = -(double)INFINITY;
    for (int c = 0; c < columns; c++) {
        const struct layers_row *row =
            &heat->table->rows[shown_row(heat->table, c, columns)];

        for (int r = 0; r < heat->rows; r++) {
            const double value = value_of(heat, row, r);

            if (!is_shown(value)) continue;
            if (math_log(value) < range[0]) range[0] = math_log(value);
            if (math_log(value) > range[1]) range[1] = math_log(value);
        }
    }
    return range[1] >= range[0];
}

static status draw_cell(struct text *out, const struct heat *heat, int r,
                        const struct layers_row *row, const double place[4],
                        const double range[2])
{
    const double value = value_of(heat, row, r);
    const double span = range[1] - range[0];
    char room[32];
    double shade = 1;

    if (is_shown(value) && span > 0)
        shade = (math_log(value) - range[0]) / span;
    TRY(text_printf(out, "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" "
                         "height=\"%.1f\" fill=\"%s\" fill-opacity=\"%.2f\">"
                         "<title>",
                    place[0], place[1], place[2], place[3],
                    is_shown(value) ? "var(--series-1)" : "var(--bad)",
                    is_shown(value) ? 0.06 + 0.94 * shade : 1));
    const char *name = heat->name(heat->table, r, room);

    TRY(html_escape(out, name, strlen(name)));
    return text_printf(out, ", step %lld: %.4g</title></rect>\n",
                       (long long)row->step, value);
}

static status draw_row_names(struct text *out, const struct heat *heat,
                             double cell)
{
    const int stride = (int)ceil(11 / cell);

    for (int r = 0; r < heat->rows; r += stride) {
        char room[32];
        const char *name = heat->name(heat->table, r, room);

        TRY(text_printf(out, "<text class=\"tick end\" x=\"%d\" y=\"%.1f\" "
                             "style=\"font-size:10px\">", LEFT - 6,
                        TOP + ((double)r + 0.5) * cell + 3.5));
        TRY(html_escape(out, name, strlen(name)));
        TRY(text_append_string(out, "</text>\n"));
    }
    return OK;
}

static status draw_heat(struct text *out, const struct heat *heat)
{
    const struct layers_table *table = heat->table;
    const int columns =
        table->count < COLUMNS_MAX ? (int)table->count : COLUMNS_MAX;
    const double wide = (double)(WIDTH - LEFT - RIGHT) / columns;
    double cell = 420.0 / heat->rows, range[2];
    int height;

    if (cell > CELL_MAX) cell = CELL_MAX;
    if (cell < CELL_MIN) cell = CELL_MIN;
    height = TOP + (int)(cell * heat->rows) + BELOW;
    TRY(text_printf(out, "<div class=\"card\"><svg viewBox=\"0 0 %d %d\" "
                         "role=\"img\">\n<text class=\"title\" x=\"6\" "
                         "y=\"16\">%s", WIDTH, height, heat->title));
    if (find_range(heat, columns, range))
        TRY(text_printf(out, "<tspan class=\"unit\"> from %.3g (pale) to %.3g"
                             "</tspan>", math_exp(range[0]),
                        math_exp(range[1])));
    TRY(text_append_string(out, "</text>\n"));
    TRY(draw_row_names(out, heat, cell));
    for (int c = 0; c < columns; c++) {
        const struct layers_row *row =
            &table->rows[shown_row(table, c, columns)];

        for (int r = 0; r < heat->rows; r++) {
            const double place[4] = {LEFT + c * wide, TOP + r * cell, wide,
                                     cell};

            TRY(draw_cell(out, heat, r, row, place, range));
        }
    }
    return text_printf(out, "<text class=\"tick\" x=\"%d\" y=\"%d\">step "
                            "%lld</text><text class=\"tick end\" x=\"%d\" "
                            "y=\"%d\">step %lld</text>\n</svg></div>\n",
                       LEFT, height - 8, (long long)table->rows[0].step,
                       WIDTH - RIGHT, height - 8,
                       (long long)table->rows[table->count - 1].step);
}

static status draw_all(struct text *out, const struct layers_table *table)
{
    const int params =
        table->parameters < ROWS_MAX ? table->parameters : ROWS_MAX;
    const int reads =
        table->activations < ROWS_MAX ? table->activations : ROWS_MAX;
    const bool recipe = has_recipe(table);
    const int blocks = table->experts > 0 ? reads - 1 : 0;
    const int64_t all = (int64_t)blocks * table->experts;
    const int experts = all < ROWS_MAX ? (int)all : ROWS_MAX;
    const struct heat heats[] = {
        {table, "Residual stream, root mean square", reads, NULL,
         activation_name, rms},
        {table, "Residual stream, largest size", reads, NULL, activation_name,
         most},
        {table, "Residual stream, kurtosis", reads, NULL, activation_name,
         kurtosis},
        {table, "Largest attention logit", reads - 1, NULL, activation_name,
         logit},
        {table, "Experts: tokens of the busiest over the mean", blocks,
         busiest, activation_name, NULL},
        {table, "Experts: entropy of the shares, 1: equal", blocks, entropy,
         activation_name, NULL},
        {table, "Experts: tokens over the mean of the block", experts,
         expert_share, expert_name, NULL},
        {table, "Norm of weights", params, NULL, parameter_name, weight},
        {table, "Norm of gradients", params, NULL, parameter_name, gradient},
        {table, "Norm of the update over norm of weights", params, NULL,
         parameter_name, update_ratio},
        {table, "Recipe: largest share of an operand that is cut off",
         recipe ? params : 0, NULL, parameter_name, cut},
        {table, "Recipe: largest share of an operand that becomes 0",
         recipe ? params : 0, NULL, parameter_name, zeroed}};

    TRY(text_append_string(out, "<h2>Layers, in observed steps</h2>\n"
                                "<div class=\"charts\">\n"));
    for (size_t i = 0; i < sizeof heats / sizeof *heats; i++)
        if (heats[i].rows > 0) TRY(draw_heat(out, &heats[i]));
    return text_append_string(out, "</div>\n");
}

status layers_html(struct text *out, const char *path)
{
    struct layers_table table;
    struct arena arena = {0};
    status result = OK;

    if (path == NULL || !file_exists(path)) return OK;
    arena_init(&arena, "layers", 0);
    TRY_GOTO(done, result, layers_read(&table, &arena, path));
    if (table.count > 0) TRY_GOTO(done, result, draw_all(out, &table));
done:
    arena_free(&arena);
    return result;
}
