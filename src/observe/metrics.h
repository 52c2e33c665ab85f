/* SPDX-License-Identifier: Apache-2.0 */
/* metrics.h - metrics.jsonl: one JSON object per line, made from metrics.def.
 *
 *     {"kind": "step", "step": 1, "tokens": 2048, ..., "loss": 7.61, ...}
 *     {"kind": "validation", "step": 50, ..., "val_loss": 5.02, ...}
 *
 * Lines ascend in step; a validation after step n stands behind the line of
 * step n. Each line is one write, so a killed run leaves at most one torn
 * line, which the next metrics_open removes. A run that resumes at step n drops
 * the lines beyond n, so restarts leave no trace. Validation of step n must
 * be written before the checkpoint of step n. */
#ifndef LOCKSTEP_OBSERVE_METRICS_H
#define LOCKSTEP_OBSERVE_METRICS_H

#include <stdbool.h>
#include <stdint.h>
#include "base/arena.h"
#include "base/lines.h"
#include "base/text.h"

enum metrics_kind { METRICS_STEP, METRICS_VALIDATION };

#define METRIC_TYPE_INT int64_t
#define METRIC_TYPE_REAL double

/* A metric that a configuration names, behind those of metrics.def: exact,
 * real. "val.code.loss", "task.facts.acc". */
struct metrics_extra {
    const char *name;
    double value; /* NaN: null */
};

struct metrics_row {
    enum metrics_kind kind;
    const struct metrics_extra *extras; /* borrowed, [extra_count] */
    int extra_count;
#define METRIC(type, rows, name, ...) METRIC_TYPE_##type name;
#include "observe/metrics.def"
#undef METRIC
};

/* A row without optional metrics. Where one was not made here, those that
 * should be left out are 0. */
struct metrics_row metrics_blank(enum metrics_kind kind);

struct metrics_writer { struct lines lines; };

/* Opens RUN/metrics.jsonl for appending. Lines beyond `step_kept` (-1: all) and
 * damaged ones go to metrics.jsonl.cut. */
status metrics_open(struct metrics_writer *writer, const char *path,
                    int64_t step_kept);
/* Appends one line with one write; where the disk fails it waits in memory. */
status metrics_append(struct metrics_writer *writer,
                      const struct metrics_row *row);
/* Writes the waiting lines. ERR_IO: the disk still fails. */
status metrics_finish(struct metrics_writer *writer);
void metrics_close(struct metrics_writer *writer);

/* One line, with its newline. `exact_only` leaves clock metrics out: two runs
 * that did the same have the same text. */
status metrics_format(struct text *out, const struct metrics_row *row,
                      bool exact_only);

struct metrics_table {
    struct metrics_row *rows; /* owned by the arena given to metrics_read */
    int64_t count;
};
/* All whole lines of the file. A metric that a line lacks is NaN or 0; numbers
 * of a validation that metrics.def does not know are extras. A torn
 * last line is left out; any other bad line is ERR_FORMAT with its number.
 * A missing file is an empty table. */
status metrics_read(struct metrics_table *table, struct arena *arena,
                    const char *path);

/* A row of metrics.def, for those who write metrics elsewhere. */
struct metric_about {
    const char *name, *unit, *meaning;
    bool clock;                    /* depends on the machine's speed */
    bool integer;
    bool in_steps, in_validations; /* lines that have it */
};
/* Numbers of metrics: METRIC_loss. */
enum metric_number {
#define METRIC(type, rows, name, ...) METRIC_##name,
#include "observe/metrics.def"
#undef METRIC
};
int metrics_count(void);
struct metric_about metrics_about(int index);
/* False: lines of this kind do not have it. */
bool metrics_value(const struct metrics_row *row, int index, double *value);

/* The table of metrics as Markdown (docs/generated/metrics.md). */
status metrics_describe(struct text *out);

#endif
