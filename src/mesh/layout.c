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

#include "mesh/group.h"

const char *const axis_names[AXIS_COUNT] = {
    [AXIS_NONE] = "none",       [AXIS_PIPE] = "pipe",
    [AXIS_DATA] = "data",       [AXIS_SHARD] = "shard",
    [AXIS_CONTEXT] = "context", [AXIS_TENSOR] = "tensor",
    [AXIS_EXPERT] = "expert",
};

const char *axis_name(enum axis axis)
{
    return axis_names[axis];
}

const enum axis batch_axes[BATCH_AXES] = {AXIS_DATA, AXIS_SHARD, AXIS_EXPERT};

axis_set param_cut(const struct param_spec *spec)
{
    const axis_set spread = spec->spread > 0 ? 1u << AXIS_EXPERT : 0;

    return (1u << spec->split_rows | 1u << spec->split_cols | spread |
            spec->folded) & ~(1u << AXIS_NONE);
}

axis_set param_copied(const struct param_spec *spec)
{
    return ((1u << AXIS_COUNT) - 1) & ~(1u << AXIS_NONE) & ~param_cut(spec);
}

int layout_ranks_of(const struct param_spec *spec, const struct mesh *mesh,
                    enum axis axis)
{
    if (axis == AXIS_TENSOR && spec->within > 0) return spec->within;
    return axis == AXIS_NONE ? 1 : mesh->size[axis];
}

int layout_rank_of(const struct param_spec *spec, const struct mesh *mesh,
                   const struct place *place, enum axis axis)
{
    if (axis == AXIS_TENSOR && spec->within > 0)
        return mesh_expert_rank(mesh, place) % spec->within;
    return axis == AXIS_NONE ? 0 : place->at[axis];
}

bool layout_first_neighbour(const struct param_spec *spec,
                            const struct mesh *mesh, const struct place *place)
{
    const bool cut = spec->split_rows == AXIS_TENSOR ||
                     spec->split_cols == AXIS_TENSOR;

    return spec->within <= 1 || cut ||
           layout_rank_of(spec, mesh, place, AXIS_TENSOR) == 0;
}

/* A matrix without pieces is one piece. */
static int piece_count(const struct param_spec *spec)
{
    return spec->piece_count > 0 ? spec->piece_count : 1;
}

/* A vector is cut along its only dimension: a matrix of one column here. */
static int64_t all_rows(const struct param_spec *spec)
{
    return spec->vector ? spec->cols : spec->rows;
}

static int64_t all_cols(const struct param_spec *spec)
{
    return spec->vector ? 1 : spec->cols;
}

static enum axis rows_axis(const struct param_spec *spec)
{
    if (spec->vector && spec->split_rows == AXIS_NONE) return spec->split_cols;
    return spec->split_rows;
}

static enum axis cols_axis(const struct param_spec *spec)
{
    return spec->vector ? AXIS_NONE : spec->split_cols;
}

static int64_t piece_rows(const struct param_spec *spec, int piece)
{
    return spec->piece_count > 0 ? spec->pieces[piece].rows : all_rows(spec);
}

/* Does a cut in `count` divide the rows of every piece, or the columns? */
static bool divides(const struct param_spec *spec, bool rows, int64_t count)
{
    if (!rows) return all_cols(spec) % count == 0;
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

static bool by_leaves(const struct param_spec *spec, enum axis axis)
{
    return (axis == AXIS_TENSOR || axis == AXIS_EXPERT) && spec->leaves > 0;
}

static status check_divides(const struct param_spec *spec,
                            const struct mesh *mesh, bool rows)
{
    const enum axis axis = rows ? rows_axis(spec) : cols_axis(spec);
    const int64_t count = layout_ranks_of(spec, mesh, axis);
    int64_t elements = all_cols(spec);

    CHECK(count >= 1);
    if (by_leaves(spec, axis)) {
        if (spec->leaves % count == 0) return OK;
        FAIL(ERR_CONFIG, "%s: %" PRId64 " ranks of the %s axis do not divide "
             "%s%d %s", spec->name, count, axis_name(axis),
             axis == AXIS_TENSOR ? "the grid's " : "", spec->leaves,
             axis == AXIS_TENSOR ? "leaves" : "experts");
    }
    if (divides(spec, rows, count)) return OK;
    for (int i = 0; rows && i < piece_count(spec); i++) {
        elements = piece_rows(spec, i);
        if (elements % count != 0) break; /* the first that is in the way */
    }
    FAIL(ERR_CONFIG,
         "%s: %" PRId64 " %s do not divide over %" PRId64
         " ranks of the %s axis; nearest that does: %" PRId64,
         spec->name, elements, rows ? "rows" : "columns", count,
         axis_name(axis), nearest_divisor(spec, rows, count));
}

status layout_check(const struct param_spec *spec, const struct mesh *mesh)
{
    int64_t rows = 0, all;

    CHECK(spec->piece_count >= 0 && spec->piece_count <= PARAM_PIECES_MAX);
    CHECK(spec->rows >= 1 && spec->cols >= 1);
    for (int i = 0; i < piece_count(spec); i++) rows += piece_rows(spec, i);
    CHECK(rows == all_rows(spec));
    CHECK(spec->split_rows == AXIS_NONE ||
          spec->split_rows != spec->split_cols);
    if (__builtin_mul_overflow(spec->rows, spec->cols, &all))
        FAIL(ERR_CONFIG,
             "%s: %" PRId64 " x %" PRId64 " elements are more than 64 bits "
             "can count", spec->name, spec->rows, spec->cols);
    TRY(check_divides(spec, mesh, true));
    return check_divides(spec, mesh, false);
}

/* ---- what a rank holds ---- */

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* Leaves [first, last) of `leaves` blocks of n elements. */
static struct layout_span leaf_range(int64_t n, int64_t leaves, int64_t first,
                                     int64_t last)
{
    const int64_t block = (n + leaves - 1) / leaves;
    const int64_t from = least(block * first, n);

    return (struct layout_span){from, least(block * last, n) - from};
}

struct layout_span layout_leaf(const struct param_spec *spec, int leaves,
                               int leaf, int piece)
{
    const int64_t n = cols_axis(spec) == AXIS_NONE ? piece_rows(spec, piece)
                                                   : all_cols(spec);

    return leaf_range(n, leaves, leaf, leaf + 1);
}

/* The range of n elements that `axis` cuts for this rank. */
static struct layout_span axis_range(const struct param_spec *spec,
                                     const struct mesh *mesh,
                                     const struct place *place,
                                     enum axis axis, int64_t n)
{
    const int64_t size = layout_ranks_of(spec, mesh, axis);
    const int64_t at = layout_rank_of(spec, mesh, place, axis);
    const int64_t leaves = by_leaves(spec, axis) ? spec->leaves : size;

    return leaf_range(n, leaves, leaves * at / size,
                      leaves * (at + 1) / size);
}

/* Rows, widened to whole heads. */
static struct layout_span rows_held(const struct param_spec *spec,
                                    const struct mesh *mesh,
                                    const struct place *place, int piece)
{
    const int64_t n = piece_rows(spec, piece);
    struct layout_span span =
        axis_range(spec, mesh, place, rows_axis(spec), n);
    const int64_t head = spec->piece_count > 0 ? spec->pieces[piece].head : 0;

    if (head > 1 && span.count > 0) {
        const int64_t last = span.first + span.count;

        span.first = span.first / head * head;
        span.count = least((last + head - 1) / head * head, n) - span.first;
    }
    return span;
}

static struct layout_span cols_held(const struct param_spec *spec,
                                    const struct mesh *mesh,
                                    const struct place *place)
{
    return axis_range(spec, mesh, place, cols_axis(spec), all_cols(spec));
}

struct layout_span layout_held(const struct param_spec *spec,
                               const struct mesh *mesh,
                               const struct place *place, int piece)
{
    return cols_axis(spec) == AXIS_NONE ? rows_held(spec, mesh, place, piece)
                                        : cols_held(spec, mesh, place);
}

int64_t layout_own_first(const struct param_spec *spec,
                         const struct mesh *mesh, const struct place *place,
                         int piece)
{
    struct place lower = *place;

    if (spec->split_rows != AXIS_TENSOR) return 0;
    if (spec->within > 0) return layout_held(spec, mesh, place, piece).first;
    if (lower.at[AXIS_TENSOR] == 0) return 0;
    lower.at[AXIS_TENSOR]--;
    const struct layout_span held = layout_held(spec, mesh, &lower, piece);

    return held.first + held.count;
}

void layout_local_shape(const struct param_spec *spec, const struct mesh *mesh,
                        const struct place *place, int64_t *rows,
                        int64_t *cols)
{
    *rows = 0;
    *cols = cols_held(spec, mesh, place).count;
    for (int i = 0; i < piece_count(spec); i++)
        *rows += rows_held(spec, mesh, place, i).count;
    if (!spec->vector) return;
    *cols = *rows;
    *rows = 1;
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
    const struct layout_span cols = cols_held(spec, mesh, place);
    const int64_t width = all_cols(spec);
    int64_t piece_first = 0, local = 0; /* row of the whole; element */
    int count = 0;

    for (int i = 0; i < piece_count(spec); i++) {
        const struct layout_span rows = rows_held(spec, mesh, place, i);
        struct part part = {
            .whole_first = (piece_first + rows.first) * width + cols.first,
            .local_first = local,
            .cols = cols.count,
            .stride = width,
            .piece = i,
        };
        const int64_t size = rows.count * cols.count;
        int64_t from = first - local, to = last - local;

        if (cols.count == width) { /* whole rows touch: one long row */
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
