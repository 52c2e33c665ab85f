/* SPDX-License-Identifier: Apache-2.0 */
/* metrics.c - metrics.jsonl: one JSON object per line, made from metrics.def.
 */
#include "observe/metrics.h"

#include <math.h>
#include <stddef.h>
#include <string.h>
#include "base/file.h"
#include "base/json.h"

enum metric_type { TYPE_INT, TYPE_REAL };
enum metric_rows {
    ROWS_EVERY, ROWS_STEP, ROWS_VALID, ROWS_OPTIONAL, ROWS_OPTIONAL_VALID
};
enum metric_clock { CLOCK_EXACT, CLOCK_CLOCK };

struct metric {
    enum metric_type type;
    enum metric_rows rows;
    enum metric_clock clock;
    const char *name, *unit, *meaning;
    size_t offset; /* bytes into struct metrics_row */
};

static const struct metric metrics[] = {
#define METRIC(type, rows, name, unit, clock, meaning)                       \
    {TYPE_##type, ROWS_##rows, CLOCK_##clock, #name, unit, meaning,          \
     offsetof(struct metrics_row, name)},
#include "observe/metrics.def"
#undef METRIC
};
enum { METRIC_COUNT = (int)(sizeof metrics / sizeof *metrics) };

/* A line is about 400 bytes; a run of ten million steps still opens. */
static const size_t metrics_bytes_max = (size_t)8 << 30;

static bool is_optional(const struct metric *metric)
{
    return metric->rows == ROWS_OPTIONAL ||
           metric->rows == ROWS_OPTIONAL_VALID;
}

static bool metric_applies(const struct metric *metric, enum metrics_kind kind)
{
    const bool step = metric->rows == ROWS_STEP ||
                      metric->rows == ROWS_OPTIONAL;

    return metric->rows == ROWS_EVERY || step == (kind == METRICS_STEP);
}

/* Whether an optional metric was set. */
static bool is_there(const struct metric *metric, const char *field)
{
    int64_t integer;
    double real;

    if (metric->type == TYPE_INT) {
        memcpy(&integer, field, sizeof integer);
        return integer != 0;
    }
    memcpy(&real, field, sizeof real);
    return !isnan(real);
}

struct metrics_row metrics_blank(enum metrics_kind kind)
{
    const double none = (double)NAN;
    struct metrics_row row = {.kind = kind};

    for (int i = 0; i < METRIC_COUNT; i++)
        if (is_optional(&metrics[i]) && metrics[i].type == TYPE_REAL)
            memcpy((char *)&row + metrics[i].offset, &none, sizeof none);
    return row;
}

static const char *kind_name(enum metrics_kind kind)
{
    return kind == METRICS_STEP ? "step" : "validation";
}

status metrics_format(struct text *out, const struct metrics_row *row,
                      bool exact_only)
{
    struct json_writer writer = {0};
    status result;

    json_write_begin(&writer, 0);
    json_write_object(&writer);
    json_write_key(&writer, "kind");
    json_write_string(&writer, kind_name(row->kind));
    for (int i = 0; i < METRIC_COUNT; i++) {
        const struct metric *metric = &metrics[i];
        const char *field = (const char *)row + metric->offset;
        double real;
        int64_t integer;

        if (!metric_applies(metric, row->kind)) continue;
        if (exact_only && metric->clock == CLOCK_CLOCK) continue;
        if (is_optional(metric) && !is_there(metric, field)) continue;
        json_write_key(&writer, metric->name);
        if (metric->type == TYPE_INT) {
            memcpy(&integer, field, sizeof integer);
            json_write_integer(&writer, integer);
        } else {
            memcpy(&real, field, sizeof real);
            json_write_real(&writer, real);
        }
    }
    for (int i = 0; i < row->extra_count; i++)
        json_write_key_real(&writer, row->extras[i].name,
                            row->extras[i].value);
    json_write_object_end(&writer);
    result = json_write_line(&writer, out);
    json_writer_free(&writer);
    return result;
}

status metrics_append(struct metrics_writer *writer,
                      const struct metrics_row *row)
{
    struct text line = {0};
    status result;

    TRY_GOTO(done, result, metrics_format(&line, row, false));
    result = lines_put(&writer->lines, line.bytes, line.length);
done:
    text_free(&line);
    return result;
}

/* One metric of a parsed line into its field. */
static status metric_read(const struct metric *metric,
                          const struct json *object, const char *source,
                          struct metrics_row *row)
{
    char *field = (char *)row + metric->offset;
    int64_t integer = 0;
    double real = (double)NAN;

    if (metric->type == TYPE_INT) {
        TRY(json_get_integer_or(object, source, metric->name, 0, &integer));
        memcpy(field, &integer, sizeof integer);
    } else {
        TRY(json_get_real_or(object, source, metric->name, real, &real));
        memcpy(field, &real, sizeof real);
    }
    return OK;
}

static bool is_known(const char *name)
{
    for (int i = 0; i < METRIC_COUNT; i++)
        if (strcmp(metrics[i].name, name) == 0) return true;
    return false;
}

static bool is_extra(const struct json *key, const struct json *value)
{
    return (value->kind == JSON_REAL || value->kind == JSON_INTEGER ||
            value->kind == JSON_NULL) && !is_known(key->string);
}

/* Reads the metrics that the configuration named; they are kept in the
 * arena. */
static status extras_read(struct metrics_row *row, struct arena *arena,
                          const struct json *object)
{
    struct metrics_extra *extras;
    void *memory;

    if (row->kind != METRICS_VALIDATION) return OK;
    TRY(arena_take_array(arena, (size_t)object->count, sizeof *extras,
                         &memory));
    extras = memory;
    for (int i = 0; i < object->count; i++) {
        const struct json *pair = &object->items[2 * i];
        struct metrics_extra *extra = &extras[row->extra_count];
        char *name;

        if (!is_extra(&pair[0], &pair[1])) continue;
        TRY(arena_copy_text(arena, pair[0].string, &name));
        extra->name = name;
        extra->value = pair[1].kind == JSON_NULL ? (double)NAN : pair[1].real;
        row->extra_count++;
    }
    row->extras = extras;
    return OK;
}

/* `kept`: for what outlives the line; NULL: nothing does. */
static status row_read(struct metrics_row *row, struct arena *scratch,
                       struct arena *kept,
                       const char *line, size_t length, const char *source)
{
    const struct json *object;
    const char *kind;

    TRY(json_read(&object, scratch, line, length, source));
    TRY(json_get_string(object, source, "kind", &kind));
    if (strcmp(kind, "step") == 0)
        row->kind = METRICS_STEP;
    else if (strcmp(kind, "validation") == 0)
        row->kind = METRICS_VALIDATION;
    else
        FAIL(ERR_FORMAT, "%s: kind is \"%s\", expected step or validation",
             source, kind);
    TRY(json_get_integer(object, source, "step", &row->step));
    for (int i = 0; i < METRIC_COUNT; i++)
        TRY(metric_read(&metrics[i], object, source, row));
    return kept == NULL ? OK : extras_read(row, kept, object);
}

/* A walk over the lines, up to a torn last one. */
struct scan {
    const char *path;
    struct metrics_table *table;
    struct arena *arena; /* of the table */
    int64_t capacity;
};

static status scan_lines(struct scan *scan, const char *bytes, size_t length)
{
    struct arena scratch = {0};
    status result = OK;
    int64_t number = 0;
    size_t at = 0;

    arena_init(&scratch, "metrics line", 0);
    while (at < length) {
        const char *end = memchr(bytes + at, '\n', length - at);
        struct metrics_row row = {0};
        char source[PATH_BYTES + 32];
        size_t line;

        if (end == NULL) break; /* torn by a kill */
        line = (size_t)(end - bytes) - at;
        snprintf(source, sizeof source, "%s: line %lld", scan->path,
                 (long long)++number);
        result = row_read(&row, &scratch, scan->arena, bytes + at, line,
                          source);
        arena_reset(&scratch);
        if (result != OK) {
            status_pass(result, __FILE__, __LINE__);
            break;
        }
        if (scan->table->count < scan->capacity)
            scan->table->rows[scan->table->count++] = row;
        at += line + 1;
    }
    arena_free(&scratch);
    return result;
}

static status step_of(struct arena *scratch, const char *line, size_t length,
                      const char *source, int64_t *step)
{
    struct metrics_row row = {0};

    TRY(row_read(&row, scratch, NULL, line, length, source));
    *step = row.step;
    return OK;
}

status metrics_open(struct metrics_writer *writer, const char *path,
                    int64_t step_kept)
{
    TRY(lines_cut(path, step_kept, step_of));
    return lines_open(&writer->lines, path, "metrics.append", 0);
}

status metrics_finish(struct metrics_writer *writer)
{
    return lines_finish(&writer->lines);
}

void metrics_close(struct metrics_writer *writer)
{
    lines_close(&writer->lines);
}

status metrics_read(struct metrics_table *table, struct arena *arena,
                    const char *path)
{
    struct scan scan = {.path = path, .table = table, .arena = arena};
    struct file_map map = {0};
    void *rows;
    status result;

    *table = (struct metrics_table){0};
    if (!file_exists(path)) return OK;
    TRY_GOTO(done, result, file_map_open(&map, path));
    if (map.length > metrics_bytes_max)
        FAIL_GOTO(done, result, ERR_FORMAT,
                  "%s: %zu bytes, a metrics file has at most %zu", path,
                  map.length, metrics_bytes_max);
    for (size_t i = 0; i < map.length; i++)
        scan.capacity += map.bytes[i] == '\n';
    TRY_GOTO(done, result,
             arena_take_array(arena, (size_t)scan.capacity,
                              sizeof *table->rows, &rows));
    table->rows = rows;
    TRY_GOTO(done, result,
             scan_lines(&scan, (const char *)map.bytes, map.length));
done:
    file_map_close(&map);
    return result;
}

int metrics_count(void)
{
    return METRIC_COUNT;
}

struct metric_about metrics_about(int index)
{
    const struct metric *metric = &metrics[index];

    return (struct metric_about){
        .name = metric->name, .unit = metric->unit,
        .meaning = metric->meaning, .clock = metric->clock == CLOCK_CLOCK,
        .integer = metric->type == TYPE_INT,
        .in_steps = metric_applies(metric, METRICS_STEP),
        .in_validations = metric_applies(metric, METRICS_VALIDATION)};
}

bool metrics_value(const struct metrics_row *row, int index, double *value)
{
    const struct metric *metric = &metrics[index];
    const char *field = (const char *)row + metric->offset;
    int64_t integer;

    if (!metric_applies(metric, row->kind)) return false;
    if (is_optional(metric) && !is_there(metric, field)) return false;
    if (metric->type == TYPE_INT) {
        memcpy(&integer, field, sizeof integer);
        *value = (double)integer;
    } else {
        memcpy(value, field, sizeof *value);
    }
    return true;
}

status metrics_describe(struct text *out)
{
    static const char *const rows[] = {"every", "step", "validation",
                                       "step, optional",
                                       "validation, optional"};

    TRY(text_append_string(
        out, "# Metrics\n\n"
             "Lines of `metrics.jsonl` in the run directory, one JSON object "
             "each. `kind` is `step` or\n`validation`. Metrics marked *clock* "
             "depend on the speed of the machine; all others are equal, "
             "byte for\nbyte, in two runs that did the same. *Optional* ones "
             "are in a line only where their feature is on.\n\n"
             "Printed by `lockstep docs metrics` from "
             "`src/observe/metrics.def`.\n\n"
             "| metric | type | lines | unit | | meaning |\n"
             "|---|---|---|---|---|---|\n"));
    for (int i = 0; i < METRIC_COUNT; i++)
        TRY(text_printf(out, "| `%s` | %s | %s | %s | %s | %s |\n",
                        metrics[i].name,
                        metrics[i].type == TYPE_INT ? "integer" : "real",
                        rows[metrics[i].rows], metrics[i].unit,
                        metrics[i].clock == CLOCK_CLOCK ? "clock" : "",
                        metrics[i].meaning));
    return text_append_string(
        out, "\nLines of validation also have, for each row of the "
             "configuration:\n\n"
             "| metric | of | meaning |\n|---|---|---|\n"
             "| `val.NAME.loss`, `.bits_per_byte`, `.targets` | "
             "`validate.sets` | as `val_loss`, `val_bits_per_byte` and "
             "`val_targets`, of that set |\n"
             "| `task.NAME.METRIC`, `.METRIC_stderr` | `validate.tasks` | "
             "`acc`, `acc_norm`, `acc_bytes`, `perplexity`, "
             "`word_perplexity`, `byte_perplexity` or `bits_per_byte`, by the "
             "kind of the task, and its standard error |\n");
}
