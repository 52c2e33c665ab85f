/* SPDX-License-Identifier: Apache-2.0 */
/* glu_codes.c - the inputs of SwiGLU and GeGLU that wait for B as codes.
 *
 *   buffer    codes [rows, bytes of a row] | scales [rows, blocks of a row]
 *   room      spans of rows | spans of columns | largest magnitudes of blocks
 */
#include "nn/glu_codes.h"

#include "nn/quantized_operands.h"

static const struct precision_role *role_of(const struct program *p)
{
    return &p->precision.recipe.glu;
}

bool glu_codes_apply(const struct program *p)
{
    const struct precision_use *use = &p->precision;

    return use->on && use->recipe.glu.format != FORMAT_BF16 &&
           p->block >= use->first && p->block < use->end &&
           p->mode == PROGRAM_TRAIN;
}

void glu_codes_name(struct program *p, int step)
{
    struct step *glu = &p->steps[step];

    for (int i = 0; i < step && glu->named < 0; i++)
        if (p->steps[i].output == glu->input)
            glu->named = p->steps[i].param[0];
    CHECK(glu->named >= 0);
    p->slots[glu->output].again = p->slots[glu->output].dropped = true;
    p->slots[glu->output].coded = true;
}

/* ---- rows anywhere ---- */

static int64_t row_bytes(const struct program *p, const struct param *matrix)
{
    return code_row_bytes(role_of(p)->format, matrix->rows);
}

/* Blocks of one row. */
static int64_t row_blocks(const struct program *p, const struct param *matrix)
{
    struct quantize_span cols[QUANTIZED_SPANS_MAX];
    const int64_t count = quantized_features(p, matrix, true, cols);

    return code_blocks(cols, count, role_of(p)->along);
}

/* Bytes of all codes: scales may be float32. */
static int64_t code_bytes(const struct program *p, const struct param *matrix,
                          int64_t rows)
{
    return (rows * row_bytes(p, matrix) + 3) / 4 * 4;
}

static int64_t scale_bytes(const struct program *p, const struct param *matrix,
                           int64_t rows)
{
    return rows * row_blocks(p, matrix) * code_scale_bytes(role_of(p)->scale);
}

int64_t glu_rows_bytes(const struct program *p, const struct param *matrix,
                       int64_t rows)
{
    return code_bytes(p, matrix, rows) + scale_bytes(p, matrix, rows);
}

struct room { size_t cols, peaks, bytes; };

static struct room room_of(const struct program *p, const struct param *matrix,
                           int64_t rows)
{
    struct room room = {.cols = arena_aligned(sizeof(struct quantize_span))};

    room.peaks = room.cols + arena_aligned((size_t)quantized_spans(p) *
                                           sizeof(struct quantize_span));
    room.bytes = room.peaks +
                 arena_aligned((size_t)(rows * row_blocks(p, matrix)) *
                               sizeof(float));
    return room;
}

size_t glu_rows_room(const struct program *p, const struct param *matrix,
                     int64_t rows)
{
    return room_of(p, matrix, rows).bytes;
}

/* How so many rows are rounded; the host makes the spans. */
static struct block_coding coding_of(const struct run *run,
                                     const struct glu_rows *at, int64_t rows)
{
    const struct program *p = run->program;
    const struct precision_role *role = role_of(p);
    char *lists = run_list(run, at->room);
    struct quantize_span *all = (void *)lists;
    struct quantize_span *cols =
        (void *)(lists + room_of(p, at->matrix, at->all).cols);

    *all = (struct quantize_span){0, rows, 0, false};
    return (struct block_coding){
        .rows = all, .cols = cols, .row_spans = 1,
        .col_spans = quantized_features(p, at->matrix, true, cols),
        .format = role->format, .block_rows = role->across,
        .block_cols = role->along, .scale = role->scale};
}

static uint8_t *codes_of(const struct program *p, const struct glu_rows *at)
{
    return (uint8_t *)at->codes + at->first * row_bytes(p, at->matrix);
}

static void *scales_of(const struct program *p, const struct glu_rows *at)
{
    return (char *)at->codes + code_bytes(p, at->matrix, at->all) +
           scale_bytes(p, at->matrix, at->first);
}

status glu_rows_encode(struct run *run, const struct glu_rows *at,
                       struct tensor x)
{
    const struct program *p = run->program;
    const struct room room = room_of(p, at->matrix, at->all);
    const struct block_encode encode = {
        .what = ENCODE_ALL, .in = x,
        .coding = coding_of(run, at, x.shape[0]),
        .peaks = (float *)(void *)((char *)at->room + room.peaks),
        .scales = scales_of(p, at), .codes = codes_of(p, at),
        .row_bytes = row_bytes(p, at->matrix)};

    if (x.shape[0] == 0) return OK;
    return run->kernels->block_encode(run->stream, &encode);
}

status glu_rows_decode(struct run *run, const struct glu_rows *at,
                       struct tensor to)
{
    const struct program *p = run->program;
    const struct block_decode decode = {
        .out = to, .coding = coding_of(run, at, to.shape[0]),
        .scales = scales_of(p, at), .codes = codes_of(p, at),
        .row_bytes = row_bytes(p, at->matrix)};

    if (to.shape[0] == 0) return OK;
    return run->kernels->block_decode(run->stream, &decode);
}

/* ---- of a step ---- */

static const struct param *matrix_of(const struct program *p,
                                     const struct step *step)
{
    return &p->params.items[step->named];
}

/* A token has as many rows as choices of experts. */
static int64_t rows_of(const struct program *p, const struct step *step)
{
    return program_slot_rows(p, step->input) * p->slots[step->input].width /
           matrix_of(p, step)->rows;
}

int64_t glu_codes_bytes(const struct program *p, const struct step *step)
{
    return glu_rows_bytes(p, matrix_of(p, step), rows_of(p, step));
}

size_t glu_codes_scratch(const struct step *step, const struct program *p)
{
    const struct param *matrix = matrix_of(p, step);
    const int64_t rows = rows_of(p, step);

    return glu_rows_room(p, matrix, rows) +
           (size_t)(rows * matrix->rows * dtype_bytes(DTYPE_BF16));
}

static struct glu_rows rows_at(const struct run *run, const struct step *step,
                               int64_t first)
{
    const struct program *p = run->program;

    return (struct glu_rows){matrix_of(p, step), run_codes(run, step),
                             rows_of(p, step), first, run->scratch};
}

/* The first row that F works on. */
static int64_t first_row(const struct run *run)
{
    const struct program *p = run->program;

    return overlap_first(run) * (p->size.length / p->size.context_chunks);
}

status glu_codes_make(struct run *run, const struct step *step,
                      struct tensor x)
{
    if (!quantized_is_saved(run, step)) return OK;
    const struct glu_rows at = rows_at(run, step, first_row(run));

    return glu_rows_encode(run, &at, x);
}

status glu_codes_read(struct run *run, const struct step *step,
                      struct tensor *x)
{
    const struct program *p = run->program;
    const struct glu_rows at = rows_at(run, step, 0);

    *x = tensor_2d((char *)run->scratch +
                       glu_rows_room(p, at.matrix, at.all),
                   DTYPE_BF16, at.all, at.matrix->rows);
    return glu_rows_decode(run, &at, *x);
}
