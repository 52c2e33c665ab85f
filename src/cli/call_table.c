/* SPDX-License-Identifier: Apache-2.0 */
/* call_table.c - prints the last calls of all ranks before an incident. */
#include "cli/call_table.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/json.h"
#include "control/call_record.h"

struct row {
    int64_t began, ended, rank, call, bytes, peer; /* peer -1: none */
    const char *kind, *group; /* borrowed */
    bool open, background;
};

struct table {
    struct arena arena;
    struct row *rows;
    int count, damaged;
};

static status name_path(char *path, const char *run, int64_t generation)
{
    char directory[PATH_BYTES], name[64];

    snprintf(name, sizeof name, CALLS_NAME, (uint64_t)generation);
    TRY(path_join(directory, sizeof directory, run, "control"));
    return path_join(path, PATH_BYTES, directory, name);
}

bool call_table_path(char *path, const char *run, int64_t generation)
{
    if (name_path(path, run, generation) == OK) return file_exists(path);
    status_clear();
    return false;
}

static status read_row(struct row *row, const struct json *line,
                       const char *path)
{
    const struct json *began = json_get(line, "began_us");

    row->open = json_get(line, "ended_us") == NULL ||
                json_get(line, "ended_us")->kind == JSON_NULL;
    if (began == NULL || began->kind == JSON_NULL)
        FAIL(ERR_FORMAT, "%s: a call that never began", path);
    TRY(json_get_integer(line, path, "began_us", &row->began));
    TRY(json_get_integer_or(line, path, "ended_us", 0, &row->ended));
    TRY(json_get_integer(line, path, "rank", &row->rank));
    TRY(json_get_integer(line, path, "call", &row->call));
    TRY(json_get_integer(line, path, "bytes", &row->bytes));
    TRY(json_get_integer_or(line, path, "peer", -1, &row->peer));
    TRY(json_get_bool_or(line, path, "background", false, &row->background));
    TRY(json_get_string(line, path, "kind", &row->kind));
    return json_get_string_or(line, path, "group", "", &row->group);
}

/* The first line says whose they are. */
static void read_line(struct table *t, const char *line, size_t length,
                      const char *path)
{
    const struct json *found;

    if (json_read(&found, &t->arena, line, length, path) == OK) {
        if (json_get(found, "ranks") != NULL) return;
        if (read_row(&t->rows[t->count], found, path) == OK) {
            t->count++;
            return;
        }
    }
    status_clear();
    t->damaged++;
}

static status read_lines(struct table *t, const struct text *text,
                         const char *path)
{
    int lines = 1;
    void *rows;

    for (size_t i = 0; i < text->length; i++) lines += text->bytes[i] == '\n';
    TRY(arena_take_array(&t->arena, (size_t)lines, sizeof *t->rows, &rows));
    t->rows = rows;
    for (size_t at = 0; at < text->length;) {
        const char *line = text->bytes + at;
        const char *end = memchr(line, '\n', text->length - at);
        const size_t length = end != NULL ? (size_t)(end - line)
                                          : text->length - at;

        if (length > 0) read_line(t, line, length, path);
        at += length + 1;
    }
    return OK;
}

static int by_begin(const void *one, const void *other)
{
    const struct row *a = one, *b = other;

    if (a->began != b->began) return a->began < b->began ? -1 : 1;
    if (a->rank != b->rank) return a->rank < b->rank ? -1 : 1;
    return a->call < b->call ? -1 : a->call > b->call;
}

static void print_row(const struct row *row)
{
    char ended[32] = "open", bytes[32] = "", peer[48] = "";
    const bool sends = strcmp(row->kind, "send") == 0;

    if (!row->open)
        snprintf(ended, sizeof ended, "%.3f", 1e-3 * (double)row->ended);
    if (row->bytes > 0) text_bytes(bytes, (uint64_t)row->bytes);
    if (row->peer >= 0)
        snprintf(peer, sizeof peer, " %s rank %lld", sends ? "to" : "from",
                 (long long)row->peer);
    printf("%14.3f %14s %5lld  %s%s on group %s (call %lld)%s%s%s\n",
           1e-3 * (double)row->began, ended, (long long)row->rank, row->kind,
           peer, row->group, (long long)row->call,
           row->background ? ", in the background" : "",
           bytes[0] != '\0' ? ", sent " : "", bytes);
}

static void print_table(struct table *t, const char *path)
{
    if (t->count > 0)
        qsort(t->rows, (size_t)t->count, sizeof *t->rows, by_begin);
    printf("%14s %14s %5s  call, of %d; milliseconds after the incident was "
           "seen\n", "began", "ended", "rank", t->count);
    for (int i = 0; i < t->count; i++) print_row(&t->rows[i]);
    if (t->damaged > 0)
        printf("%d lines of %s make no sense\n", t->damaged, path);
}

status call_table_print(const char *run, int64_t generation)
{
    struct table t = {.count = 0};
    struct text text = {0};
    char path[PATH_BYTES];
    status result;

    TRY(name_path(path, run, generation));
    if (!file_exists(path))
        FAIL(ERR_MISSING, "there is no %s: calls are kept of the newest %d "
             "incidents", path, CALLS_FILES);
    arena_init(&t.arena, "calls", 0);
    TRY_GOTO(done, result, file_read_own(path, CALLS_BYTES, &text));
    TRY_GOTO(done, result, read_lines(&t, &text, path));
    print_table(&t, path);
done:
    text_free(&text);
    arena_free(&t.arena);
    return result;
}
