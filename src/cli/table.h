/* SPDX-License-Identifier: Apache-2.0 */
/* table.h - every table that a command prints: aligned text for people, the
 * same cells as JSON for programs.
 *
 *     table_begin(&table, columns, 3);
 *     table_text(&table, "wqkv");  table_integer(&table, 3);  ...
 *     table_print(&table, stdout)  or  table_json(&table, &writer)
 *
 * Cells are given row by row in the order of the columns. Errors stay in the
 * table and come out of the function that prints. */
#ifndef LOCKSTEP_CLI_TABLE_H
#define LOCKSTEP_CLI_TABLE_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include "base/arena.h"
#include "base/json.h"

enum { TABLE_COLUMNS_MAX = 16 };

struct table_column {
    const char *title; /* over the column */
    const char *key;   /* in JSON, with the unit last: "bytes" */
    bool right;        /* numbers stand at the right edge */
};

enum table_kind { CELL_TEXT, CELL_INTEGER, CELL_REAL, CELL_BOOL, CELL_NULL };

struct table_cell {
    enum table_kind kind;
    int64_t integer;
    double real;
    const char *shown; /* owned by the arena: what people read */
};

struct table {
    const struct table_column *columns; /* borrowed */
    int column_count;
    struct arena arena;
    struct table_cell *cells; /* owned; rows one after the other */
    int64_t cell_count, capacity;
    status error;
};

void table_begin(struct table *table, const struct table_column *columns,
                 int column_count);
void table_text(struct table *table, const char *text); /* copied; NULL: - */
void table_integer(struct table *table, int64_t value);
/* Shown as "1.2 MiB"; JSON has the bytes. */
void table_bytes(struct table *table, int64_t bytes);
/* `digits` significant ones are shown; JSON has all. */
/* A whole number that may be more than 63 bits hold. */
void table_amount(struct table *table, double value);
void table_real(struct table *table, double value, int digits);
void table_bool(struct table *table, bool value); /* yes, no */

status table_print(const struct table *table, FILE *out);
/* An array of objects, as the next value of the writer. */
status table_json(const struct table *table, struct json_writer *writer);
void table_free(struct table *table);

/* Prints a finished writer's text and a newline, and frees the writer. */
status json_print(struct json_writer *writer, FILE *out);

#endif
