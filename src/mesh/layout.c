/* SPDX-License-Identifier: Apache-2.0 */
/* layout.c - which elements of a parameter a rank holds.
 *
 * A rank's part is, piece after piece, the rows of the piece that are its own,
 * each cut to the columns that are its own. A range of that part is, in each
 * piece, at most the end of a row, whole rows, and the beginning of a row;
 * ends and beginnings occur once in all, hence LAYOUT_RUNS_MAX. */
#include "mesh/layout.h"

#include <inttypes.h>
#include <stddef.h>

static const char *const axis_names[AXIS_COUNT] = {
    [AXIS_NONE] = "none",       [AXIS_PIPE] = "pipe",
    [AXIS_DATA] = "data",       [AXIS_SHARD] = "shard",
    [AXIS_CONTEXT] = "context", [AXIS_TENSOR] = "tensor",
    [AXIS_EXPERT] = "expert",
};

static int axis_size(const struct mesh *mesh, enum axis axis)
{
    return axis == AXIS_NONE ? 1 : mesh->size[axis];
}

static int axis_at(const struct place *place, enum axis axis)
{
    return axis == AXIS_NONE ? 0 : place->at[axis];
}

/* A matrix without pieces is one piece. */
static int piece_count(const struct param_spec *spec)
{
    return spec->piece_count > 0 ? spec->piece_count : 1;
}

static int64_t piece_rows(const struct param_spec *spec, int piece)
{
    return spec->piece_count > 0 ? spec->pieces[piece].rows : spec->rows;
}

/* Does a cut in `count` divide the rows of every piece, or the columns? */
static bool divides(const struct param_spec *spec, bool rows, int64_t count)
{
    if (!rows) return spec->cols % count == 0;
    for (int i = 0; i < piece_count(spec); i++)
        if (piece_rows(spec, i) % count != 0) return false;
    return true;
}

/* The size closest to `count` that divides; of two, the smaller. */
static int64_t nearest_divisor(const struct param_spec *spec, bool rows,
                               int64_t count)
{
    int64_t away = 1; /* ends: 1 divides everything */

    while (!divides(spec, rows, count - away) &&
           !divides(spec, rows, count + away))
        away++;
    return divides(spec, rows, count - away) ? count - away : count + away;
}

static status check_divides(const struct param_spec *spec,
                            const struct mesh *mesh, bool rows)
{
    const enum axis axis = rows ? spec->split_rows : spec->split_cols;
    const int64_t count = axis_size(mesh, axis);
    int64_t elements = spec->cols;

    CHECK(count >= 1);
    if (divides(spec, rows, count)) return OK;
    for (int i = 0; rows && i < piece_count(spec); i++) {
        elements = piece_rows(spec, i);
        if (elements % count != 0) break; /* the first that is in the way */
    }
    FAIL(ERR_CONFIG,
         "%s: %" PRId64 " %s do not divide over %" PRId64
         " ranks of the %s axis; nearest that does: %" PRId64,
         spec->name, elements, rows ? "rows" : "columns", count,
         axis_names[axis], nearest_divisor(spec, rows, count));
}

status layout_local_size(const struct param_spec *spec,
                         const struct mesh *mesh, int64_t *elements)
{
    int64_t rows = 0, all;

    *elements = 0;
    CHECK(spec->piece_count >= 0 && spec->piece_count <= PARAM_PIECES_MAX);
    CHECK(spec->rows >= 1 && spec->cols >= 1);
    for (int i = 0; i < piece_count(spec); i++) rows += piece_rows(spec, i);
    CHECK(rows == spec->rows);
    CHECK(spec->split_rows == AXIS_NONE ||
          spec->split_rows != spec->split_cols);
    if (__builtin_mul_overflow(spec->rows, spec->cols, &all))
        FAIL(ERR_CONFIG,
             "%s: %" PRId64 " x %" PRId64 " elements are more than 64 bits "
             "can count", spec->name, spec->rows, spec->cols);
    TRY(check_divides(spec, mesh, true));
    TRY(check_divides(spec, mesh, false));
    *elements = all / axis_size(mesh, spec->split_rows) /
                axis_size(mesh, spec->split_cols);
    return OK;
}

/* One piece as this rank sees it. */
struct part {
    int64_t whole_first; /* element of the whole where the part begins */
    int64_t local_first; /* element of the rank's part where it begins */
    int64_t cols;        /* of the part */
    int64_t stride;      /* elements from row to row in the whole */
    int piece;
};

/* Writes the runs of elements [first, last) of one part, counted from the
 * part's own beginning; returns how many. */
static int part_runs(const struct part *part, int64_t first, int64_t last,
                     struct layout_run *runs)
{
    int count = 0;

    while (first < last) {
        const int64_t row = first / part->cols, col = first % part->cols;
        int64_t length = part->cols - col, repeats = 1;

        if (col == 0 && last - first >= part->cols)
            repeats = (last - first) / part->cols;
        else if (length > last - first)
            length = last - first;
        runs[count++] = (struct layout_run){
            .whole_first = part->whole_first + row * part->stride + col,
            .local_first = part->local_first + first,
            .length = length,
            .repeats = repeats,
            .whole_stride = part->stride,
            .piece = part->piece,
        };
        first += length * repeats;
    }
    return count;
}

int layout_runs(const struct param_spec *spec, const struct mesh *mesh,
                const struct place *place, int64_t first, int64_t last,
                struct layout_run runs[LAYOUT_RUNS_MAX])
{
    const int64_t row_ranks = axis_size(mesh, spec->split_rows);
    const int64_t cols = spec->cols / axis_size(mesh, spec->split_cols);
    int64_t piece_first = 0, local = 0; /* row of the whole; element */
    int count = 0;

    for (int i = 0; i < piece_count(spec); i++) {
        const int64_t rows = piece_rows(spec, i) / row_ranks;
        const int64_t row = piece_first + axis_at(place, spec->split_rows) *
                                              rows;
        struct part part = {
            .whole_first =
                row * spec->cols + axis_at(place, spec->split_cols) * cols,
            .local_first = local,
            .cols = cols,
            .stride = spec->cols,
            .piece = i,
        };
        const int64_t size = rows * cols;
        int64_t from = first - local, to = last - local;

        if (cols == spec->cols) { /* whole rows touch: they are one long row */
            part.cols = size;
            part.stride = size;
        }
        if (from < 0) from = 0;
        if (to > size) to = size;
        CHECK(count < LAYOUT_RUNS_MAX || from >= to);
        count += part_runs(&part, from, to, runs + count);
        piece_first += piece_rows(spec, i);
        local += size;
    }
    return count;
}
