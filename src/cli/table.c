/* SPDX-License-Identifier: Apache-2.0 */
/* table.c - every table that a command prints: aligned text for people, the
 * same cells as JSON for programs. */
#include "cli/table.h"

#include <string.h>

enum { CELL_BYTES = 48, GAP = 2 };

void table_begin(struct table *table, const struct table_column *columns,
                 int column_count)
{
    CHECK(column_count > 0 && column_count <= TABLE_COLUMNS_MAX);
    *table = (struct table){.columns = columns, .column_count = column_count};
    arena_init(&table->arena, "table", 0);
}

static void cell_add(struct table *table, struct table_cell cell,
                     const char *shown)
{
    char *copy = NULL;

    if (table->error != OK) return;
    if (table->cell_count == table->capacity) {
        const int64_t capacity = table->capacity ? 2 * table->capacity : 64;
        void *cells = table->cells;

        table->error = memory_grow(&cells, (size_t)capacity,
                                   sizeof *table->cells);
        if (table->error != OK) return;
        table->cells = cells;
        table->capacity = capacity;
    }
    table->error = arena_copy_text(&table->arena, shown, &copy);
    cell.shown = copy;
    if (table->error == OK) table->cells[table->cell_count++] = cell;
}

void table_text(struct table *table, const char *text)
{
    const bool missing = text == NULL;

    cell_add(table,
             (struct table_cell){.kind = missing ? CELL_NULL : CELL_TEXT},
             missing ? "-" : text);
}

void table_integer(struct table *table, int64_t value)
{
    char shown[32];

    cell_add(table,
             (struct table_cell){.kind = CELL_INTEGER, .integer = value},
             text_count(shown, value));
}

void table_bytes(struct table *table, int64_t bytes)
{
    char shown[32];

    cell_add(table,
             (struct table_cell){.kind = CELL_INTEGER, .integer = bytes},
             text_bytes(shown, (uint64_t)bytes));
}

void table_real(struct table *table, double value, int digits)
{
    char shown[CELL_BYTES];

    snprintf(shown, sizeof shown, "%.*g", digits, value);
    cell_add(table, (struct table_cell){.kind = CELL_REAL, .real = value},
             shown);
}

void table_amount(struct table *table, double value)
{
    if (value < 0x1p63) table_integer(table, (int64_t)value);
    else table_real(table, value, 6);
}

void table_bool(struct table *table, bool value)
{
    cell_add(table,
             (struct table_cell){.kind = CELL_BOOL, .integer = value},
             value ? "yes" : "no");
}

/* Code points, which is columns for what we print. */
static int columns_of(const char *text)
{
    int count = 0;

    for (; *text != '\0'; text++)
        count += ((unsigned char)*text & 0xC0) != 0x80;
    return count;
}

static void pad(FILE *out, int count)
{
    for (int i = 0; i < count; i++) fputc(' ', out);
}

static void row_print(const struct table *table, FILE *out, const int *widths,
                      const char *const *shown)
{
    for (int c = 0; c < table->column_count; c++) {
        const int space = widths[c] - columns_of(shown[c]);
        const bool last = c + 1 == table->column_count;

        if (table->columns[c].right) pad(out, space);
        fputs(shown[c], out);
        if (last) break;
        if (!table->columns[c].right) pad(out, space);
        pad(out, GAP);
    }
    fputc('\n', out);
}

status table_print(const struct table *table, FILE *out)
{
    const char *shown[TABLE_COLUMNS_MAX];
    int widths[TABLE_COLUMNS_MAX];
    const int count = table->column_count;

    if (table->error != OK)
        return status_pass(table->error, __FILE__, __LINE__);
    CHECK(table->cell_count % count == 0);
    for (int c = 0; c < count; c++) {
        shown[c] = table->columns[c].title;
        widths[c] = columns_of(shown[c]);
    }
    for (int64_t i = 0; i < table->cell_count; i++) {
        const int width = columns_of(table->cells[i].shown);

        if (width > widths[i % count]) widths[i % count] = width;
    }
    row_print(table, out, widths, shown);
    for (int64_t i = 0; i < table->cell_count; i += count) {
        for (int c = 0; c < count; c++) shown[c] = table->cells[i + c].shown;
        row_print(table, out, widths, shown);
    }
    return OK;
}

static void cell_json(const struct table_cell *cell, struct json_writer *writer)
{
    switch (cell->kind) {
    case CELL_TEXT: json_write_string(writer, cell->shown); break;
    case CELL_INTEGER: json_write_integer(writer, cell->integer); break;
    case CELL_REAL: json_write_real(writer, cell->real); break;
    case CELL_BOOL: json_write_bool(writer, cell->integer != 0); break;
    case CELL_NULL: json_write_null(writer); break;
    }
}

status table_json(const struct table *table, struct json_writer *writer)
{
    const int count = table->column_count;

    if (table->error != OK)
        return status_pass(table->error, __FILE__, __LINE__);
    CHECK(table->cell_count % count == 0);
    json_write_array(writer);
    for (int64_t i = 0; i < table->cell_count; i += count) {
        json_write_object(writer);
        for (int c = 0; c < count; c++) {
            json_write_key(writer, table->columns[c].key);
            cell_json(&table->cells[i + c], writer);
        }
        json_write_object_end(writer);
    }
    json_write_array_end(writer);
    return OK;
}

void table_free(struct table *table)
{
    arena_free(&table->arena);
    memory_free(table->cells);
    *table = (struct table){0};
}

status json_print(struct json_writer *writer, FILE *out)
{
    status result = json_write_end(writer);

    if (result == OK) {
        fwrite(writer->out.bytes, 1, writer->out.length, out);
        fputc('\n', out);
    } else {
        status_pass(result, __FILE__, __LINE__);
    }
    json_writer_free(writer);
    return result;
}
