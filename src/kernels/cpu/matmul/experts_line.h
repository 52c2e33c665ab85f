/* SPDX-License-Identifier: Apache-2.0 */
/* experts_line.h - how threads divide the products over all experts.
 *
 * The work is a line of strips of c: those of expert 0, of expert 1, ... (of
 * each block of rows, where few strips meet many threads). A strip costs as
 * many rows as its expert has, and a little; threads get equal runs of the
 * line, and what a thread has of an expert is a product of its own. So an
 * expert with most of the tokens is shared, and one without any costs nothing.
 */
#ifndef LOCKSTEP_KERNELS_CPU_MATMUL_EXPERTS_LINE_H
#define LOCKSTEP_KERNELS_CPU_MATMUL_EXPERTS_LINE_H

#include "base/threads.h"
#include "kernels/cpu/matmul/matmul_plan.h"
#include "kernels/expert_index.h"

enum {
    ROWS_MORE = 24,   /* rows that reading a strip of weights costs */
    ROWS_LEAST = 128, /* of a block */
    UNITS_EACH = 4    /* strips for each thread, before rows are cut, too */
};

struct experts_line {
    const struct expert_groups *groups;
    int64_t rows;    /* of c[e] of a gradient; 0: a product, c has those of the
                      * groups */
    int64_t columns; /* of c */
};

/* Strips [strip, strip_end) of a block of rows of one expert, for one
 * thread. */
struct line_share {
    int expert;
    int64_t row, row_end, strip, strip_end;
};

/* Where a thread is: its run [first, last) of the line, and the block that is
 * next, which begins at `at`. */
struct line_cursor {
    int threads, expert;
    int64_t first, last, block, at;
};

static inline int64_t line_strips(const struct experts_line *line)
{
    return ceil_div(line->columns, TILE_COLUMNS);
}

/* Rows of c that an expert has, and blocks of them. */
static inline int64_t line_rows(const struct experts_line *line, int expert)
{
    return line->rows > 0 ? line->rows : expert_count(line->groups, expert);
}

static inline int64_t line_blocks(const struct experts_line *line, int expert,
                                  int threads)
{
    const int64_t wanted = ceil_div((int64_t)UNITS_EACH * threads,
                                    line_strips(line));
    const int64_t most = ceil_div(line_rows(line, expert), ROWS_LEAST);

    return smaller(wanted, most);
}

/* The cost in rows of a strip of one of so many blocks of an expert. */
static inline int64_t line_cost(const struct experts_line *line, int expert,
                                int64_t blocks)
{
    const int64_t rows = expert_count(line->groups, expert);

    if (blocks == 0 || (rows == 0 && line->rows == 0)) return 0;
    return ceil_div(rows, blocks) + ROWS_MORE;
}

static inline struct line_cursor line_begin(const struct experts_line *line,
                                            int index, int threads)
{
    struct line_cursor out = {.threads = threads};
    int64_t total = 0;

    for (int e = 0; e < line->groups->experts; e++) {
        const int64_t blocks = line_blocks(line, e, threads);

        total += blocks * line_strips(line) * line_cost(line, e, blocks);
    }
    threads_split(total, 1, index, threads, &out.first, &out.last);
    return out;
}

/* The strip of a block at `from` of the line, counted from the block's
 * beginning: the first that begins there or later. */
static inline int64_t line_strip(const struct experts_line *line, int64_t from,
                                 int64_t cost)
{
    return from <= 0 ? 0 : smaller(ceil_div(from, cost), line_strips(line));
}

/* The next share of the thread; false: there is none. */
static inline bool line_next(const struct experts_line *line,
                             struct line_cursor *c, struct line_share *out)
{
    for (; c->expert < line->groups->experts; c->expert++, c->block = 0) {
        const int64_t blocks = line_blocks(line, c->expert, c->threads);
        const int64_t cost = line_cost(line, c->expert, blocks);

        while (cost > 0 && c->block < blocks) {
            *out = (struct line_share){
                .expert = c->expert,
                .strip = line_strip(line, c->first - c->at, cost),
                .strip_end = line_strip(line, c->last - c->at, cost)};
            threads_split(line_rows(line, c->expert), PANEL_ROWS_MAX,
                          (int)c->block++, (int)blocks, &out->row,
                          &out->row_end);
            c->at += line_strips(line) * cost;
            if (out->strip < out->strip_end && out->row < out->row_end)
                return true;
        }
    }
    return false;
}

#endif
