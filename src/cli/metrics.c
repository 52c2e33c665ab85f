/* SPDX-License-Identifier: Apache-2.0 */
/* metrics.c - the metrics of a run as a table, CSV or JSON. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/json.h"
#include "checkpoint/run_dir.h"
#include "cli/run.h"
#include "cli/table.h"
#include "observe/metrics.h"

/* A column: a row of metrics.def, or what a configuration named. */
struct column {
    const char *name;
    int metric; /* -1: an extra */
};

struct listing {
    struct arena arena;
    struct metrics_table table;
    struct column *columns; /* owned, [room] */
    int count, room;
};

/* ---- cells ---- */

/* False: the line has no such metric, or it is NaN. */
static bool cell(const struct metrics_row *row, const struct column *column,
                 double *value)
{
    if (column->metric >= 0)
        return metrics_value(row, column->metric, value) && !isnan(*value);
    for (int i = 0; i < row->extra_count; i++)
        if (strcmp(row->extras[i].name, column->name) == 0) {
            *value = row->extras[i].value;
            return !isnan(*value);
        }
    return false;
}

static bool is_integer(const struct column *column)
{
    return column->metric >= 0 && metrics_about(column->metric).integer;
}

/* ---- columns ---- */

static bool occurs(const struct listing *l, const struct column *column)
{
    double value;

    for (int64_t i = 0; i < l->table.count; i++)
        if (cell(&l->table.rows[i], column, &value)) return true;
    return false;
}

static bool has_column(const struct listing *l, const char *name)
{
    for (int i = 0; i < l->count; i++)
        if (strcmp(l->columns[i].name, name) == 0) return true;
    return false;
}

static status add_column(struct listing *l, struct column column)
{
    if (l->count == l->room) {
        const int room = 2 * l->room + 32;
        void *columns = l->columns;

        TRY(memory_grow(&columns, (size_t)room, sizeof *l->columns));
        l->columns = columns;
        l->room = room;
    }
    l->columns[l->count++] = column;
    return OK;
}

/* Finds the columns that occur: those of metrics.def, then extras, each name
 * once, in the order in which they come. */
static status find_columns(struct listing *l)
{
    for (int i = 0; i < metrics_count(); i++) {
        const struct column column = {metrics_about(i).name, i};

        if (occurs(l, &column)) TRY(add_column(l, column));
    }
    for (int64_t i = 0; i < l->table.count; i++)
        for (int j = 0; j < l->table.rows[i].extra_count; j++) {
            const char *name = l->table.rows[i].extras[j].name;

            if (!has_column(l, name))
                TRY(add_column(l, (struct column){name, -1}));
        }
    return OK;
}

static const char *kind_of(const struct metrics_row *row)
{
    return row->kind == METRICS_STEP ? "step" : "validation";
}

/* ---- CSV ---- */

/* Source: RFC 4180. Quotes where a name needs them. */
static void print_name(const char *name)
{
    if (strpbrk(name, ",\"\r\n") == NULL) {
        fputs(name, stdout);
        return;
    }
    putchar('"');
    for (; *name != '\0'; name++) {
        if (*name == '"') putchar('"');
        putchar(*name);
    }
    putchar('"');
}

/* The shortest of 15 to 17 digits that reads back to the same number. */
static void print_real(double value)
{
    char digits[40];

    for (int precision = 15; precision <= 17; precision++) {
        snprintf(digits, sizeof digits, "%.*g", precision, value);
        if (strtod(digits, NULL) == value) break;
    }
    fputs(digits, stdout);
}

static status print_csv(const struct listing *l)
{
    fputs("kind", stdout);
    for (int i = 0; i < l->count; i++) {
        putchar(',');
        print_name(l->columns[i].name);
    }
    putchar('\n');
    for (int64_t i = 0; i < l->table.count; i++) {
        fputs(kind_of(&l->table.rows[i]), stdout);
        for (int j = 0; j < l->count; j++) {
            double value;

            putchar(',');
            if (!cell(&l->table.rows[i], &l->columns[j], &value)) continue;
            if (is_integer(&l->columns[j])) printf("%.0f", value);
            else print_real(value);
        }
        putchar('\n');
    }
    return OK;
}

/* ---- JSON ---- */

static status print_json(const struct listing *l)
{
    struct json_writer w = {0};

    json_write_begin(&w, 1);
    json_write_array(&w);
    for (int64_t i = 0; i < l->table.count; i++) {
        json_write_object(&w);
        json_write_key(&w, "kind");
        json_write_string(&w, kind_of(&l->table.rows[i]));
        for (int j = 0; j < l->count; j++) {
            double value;

            if (!cell(&l->table.rows[i], &l->columns[j], &value)) continue;
            if (is_integer(&l->columns[j]))
                json_write_key_integer(&w, l->columns[j].name,
                                       (int64_t)value);
            else
                json_write_key_real(&w, l->columns[j].name, value);
        }
        json_write_object_end(&w);
    }
    json_write_array_end(&w);
    return json_print(&w, stdout);
}

/* ---- the table for people ---- */

static void add_cell(struct table *table, const struct metrics_row *row,
                     const char *name)
{
    struct column column = {name, -1};
    double value;

    for (int i = 0; i < metrics_count(); i++)
        if (strcmp(metrics_about(i).name, name) == 0) column.metric = i;
    if (!cell(row, &column, &value)) table_text(table, NULL);
    else if (is_integer(&column)) table_integer(table, (int64_t)value);
    else table_real(table, value, 5);
}

/* Has any step tokens of experts? */
static bool has_experts(const struct listing *l)
{
    for (int64_t i = 0; i < l->table.count; i++)
        if (l->table.rows[i].expert_busiest > 0) return true;
    return false;
}

static status print_table(const struct listing *l, int64_t lines)
{
    static const struct table_column columns[] = {
        {"line", "kind", false},        {"step", "step", true},
        {"tokens", "tokens", true},     {"loss", "loss", true},
        {"gradient", "grad_norm", true}, {"rate", "lr", true},
        {"validation", "val_loss", true}, {"bits/byte", "val_bits_per_byte",
                                           true},
        {"ms", "step_ms", true},        {"tokens/s", "tokens_per_s", true},
        {"busiest expert", "expert_busiest", true}};
    const int all = (int)(sizeof columns / sizeof *columns);
    const int shown = has_experts(l) ? all : all - 1;
    const int64_t count = l->table.count;
    struct table table = {0};
    status result;

    if (lines > count) lines = count;
    table_begin(&table, columns, shown);
    for (int64_t i = 0; i < lines; i++) {
        const struct metrics_row *row =
            &l->table.rows[lines > 1 ? i * (count - 1) / (lines - 1)
                                     : count - 1];

        table_text(&table, kind_of(row));
        for (int j = 1; j < shown; j++)
            add_cell(&table, row, columns[j].key);
    }
    result = table_print(&table, stdout);
    table_free(&table);
    return result;
}

status command_metrics(struct arguments *arguments)
{
    struct listing l = {.count = 0};
    struct run_dir run = {0};
    int64_t lines = 20;
    status result;

    TRY(arguments_integer(arguments, "lines", 1, 1000000, &lines));
    TRY(arguments_not_both(arguments, "csv", "json"));
    if (arguments_has(arguments, "lines") &&
        (arguments_has(arguments, "json") || arguments_has(arguments, "csv")))
        FAIL(ERR_USAGE, "--lines is of the table; --csv and --json have all "
                        "lines");
    TRY(run_dir_read(&run, arguments->operands[0]));
    arena_init(&l.arena, "metrics", 0);
    TRY_GOTO(done, result, metrics_read(&l.table, &l.arena, run.metrics));
    TRY_GOTO(done, result, find_columns(&l));
    if (arguments_has(arguments, "json"))
        TRY_GOTO(done, result, print_json(&l));
    else if (arguments_has(arguments, "csv"))
        TRY_GOTO(done, result, print_csv(&l));
    else
        TRY_GOTO(done, result, print_table(&l, lines));
done:
    memory_free(l.columns);
    arena_free(&l.arena);
    run_dir_close(&run);
    return result;
}
