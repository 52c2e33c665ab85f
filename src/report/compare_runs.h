/* SPDX-License-Identifier: Apache-2.0 */
/* compare_runs.h - whether two runs did the same: their lines of metrics and
 * their configurations. (Their tensors: checkpoint/compare.h.)
 *
 * Lines are compared as far as they do not depend on the clock, number by
 * number and bit by bit. An option that differs is told, but makes no
 * difference by itself: another layout may well train the same. */
#ifndef LOCKSTEP_REPORT_COMPARE_RUNS_H
#define LOCKSTEP_REPORT_COMPARE_RUNS_H

#include "base/json.h"
#include "observe/metrics.h"

struct option_difference { const char *name, *a, *b; };

struct runs_compared {
    bool has_metrics;        /* both have a metrics.jsonl */
    struct metrics_table a, b;
    int64_t differing;       /* lines that both have, and that differ */
    int64_t first;           /* number of the first line that differs, or that
                              * one of them lacks, from 1; 0: none */
    int64_t step;            /* of it */
    char metric[128];        /* that differs there; "": the line is missing */
    double value_a, value_b; /* NaN: not there */
    double loss_difference;  /* largest of |a - b| of training losses */
    bool has_options;        /* both have a config.yaml that can be read */
    struct option_difference *options; /* in the order of the table */
    int option_count;
};

/* Two directories of runs. Everything lives in the arena. */
status runs_compare(struct runs_compared *out, struct arena *arena,
                    const char *run_a, const char *run_b);
static inline bool runs_differ(const struct runs_compared *runs)
{
    return runs->first != 0;
}
/* One line about metrics and one about options, for people. */
status runs_describe(const struct runs_compared *runs, struct text *out);
/* The same as members of the object that is open. */
void runs_json(const struct runs_compared *runs, struct json_writer *out);

/* Loss curves of both, and how far they are apart: an SVG file, or, where the
 * name ends in .html, a page. ERR_USAGE: it ends in something else. */
status runs_draw(const struct runs_compared *runs, const char *name_a,
                 const char *name_b, const char *path);

#endif
