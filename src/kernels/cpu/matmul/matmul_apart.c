/* SPDX-License-Identifier: Apache-2.0 */
/* matmul_apart.c - operands whose rows lie apart: a piece of them, one slab
 * long, is copied into a dense matrix, times its scales, and packed from there
 * while the second cache has it. */
#include "kernels/cpu/matmul/matmul_plan.h"
#include "kernels/expert_index.h"

/* Rows that are asked for ahead: some short ones or the next but one. */
enum { ROWS_AHEAD = 8, LONG_AHEAD = 2, SHORT_BYTES = 4 * LINE,
       LONG_BYTES = 64 * LINE };

/* Columns [column, column + count) of a matrix. */
struct columns {
    int64_t column, count;
};

static const void *row_at(const struct matmul_apart *apart, int64_t row,
                          int64_t column)
{
    const struct tensor *matrix = &apart->rows->matrix;
    const int64_t at = expert_row(apart->groups, apart->rows,
                                  apart->first + row);

    return element_at(matrix->data, matrix->dtype,
                      at * matrix->stride[0] + apart->column + column);
}

ELEMENTARY void row_scale(enum dtype dtype, void *out, const void *from,
                          float scale, int64_t count)
{
    SIMD for (int64_t j = 0; j < count; j++)
        element_set(out, dtype, j, element_get(from, dtype, j) * scale);
}

/* out [rows, columns] = rows [first, last) from there, dense. */
static void stage(const struct matmul_apart *apart, const int64_t range[2],
                  struct columns columns, void *out)
{
    const enum dtype dtype = apart->rows->matrix.dtype;
    const int64_t bytes = columns.count * dtype_bytes(dtype);
    const float *scales = apart->rows->scales;
    char *to = out;

    for (int64_t row = range[0]; row < range[1]; row++, to += bytes) {
        const void *from = row_at(apart, row, columns.column);
        const int64_t next =
            row + (bytes <= SHORT_BYTES ? ROWS_AHEAD : LONG_AHEAD);

        if (next < range[1]) {
            const char *ahead = row_at(apart, next, columns.column);

            for (int64_t at = 0; at < bytes && at < LONG_BYTES; at += LINE)
                __builtin_prefetch(ahead + at);
        }
        if (scales) {
            const float scale =
                scales[apart->groups->entries[apart->first + row]];

            ELEMENT_CHOOSE(dtype, row_scale, to, from, scale, columns.count);
        } else {
            memcpy(to, from, (size_t)bytes);
        }
    }
}

/* The slab with its steps one after the other; returns their elements. */
static int64_t steps_join(struct matmul_slab *out,
                          const struct matmul_slab *slab)
{
    int64_t at = 0;

    out->count = slab->count;
    out->words = slab->words;
    for (int i = 0; i < slab->count; i++) {
        out->steps[i] = slab->steps[i];
        out->steps[i].first = at;
        at += slab->steps[i].length;
    }
    return at;
}

/* The rows of a slab, columns of them, dense. */
static void slab_stage(const struct matmul_apart *apart,
                       const struct matmul_slab *slab,
                       struct columns columns, void *out)
{
    const int bytes = dtype_bytes(apart->rows->matrix.dtype);
    char *to = out;

    for (int i = 0; i < slab->count; i++) {
        const struct matmul_step *step = &slab->steps[i];
        const int64_t range[2] = {step->first, step->first + step->length};

        stage(apart, range, columns, to);
        to += step->length * columns.count * bytes;
    }
}

/* Whether steps follow each other as they are. */
static bool steps_joined(const struct matmul_slab *slab)
{
    for (int i = 1; i < slab->count; i++)
        if (slab->steps[i].first !=
            slab->steps[i - 1].first + slab->steps[i - 1].length)
            return false;
    return true;
}

/* Rows of a: elements of a slab of each. */
static void rows_pack(const struct plan *plan, uint32_t *out,
                      struct matmul_part part, const struct matmul_slab *slab)
{
    const int rows = plan->format->rows;
    struct matmul_slab joined;
    const int64_t length = steps_join(&joined, slab);
    const struct columns columns = {slab->steps[0].first, length};

    CHECK(steps_joined(slab));
    for (int64_t done = 0; done < part.count; done += rows) {
        const int64_t end = smaller(done + rows, part.count);
        const int64_t range[2] = {part.row + done, part.row + end};
        const struct matmul_source source = {plan->staging, length, 1,
                                             (int)(end - done), NULL};

        stage(plan->a_apart, range, columns, plan->staging);
        plan->format->pack_rows(out, &source, &joined);
        out += (int64_t)rows * slab->words;
    }
}

void CPU(matmul_apart_panels)(const struct plan *plan, uint32_t *out,
                              struct matmul_part part,
                              const struct matmul_slab *slab)
{
    const int rows = plan->format->rows;
    struct matmul_slab joined;
    const int64_t length = steps_join(&joined, slab);
    const int64_t room = STAGING_FLOATS * 4 /
                         (length * dtype_bytes(plan->p.a.dtype));
    const int64_t each = room / rows * rows;

    if (!plan->a_apart->contracted) {
        rows_pack(plan, out, part, slab);
        return;
    }
    CHECK(each > 0);
    for (int64_t done = 0; done < part.count; done += each) {
        const int64_t count = smaller(each, part.count - done);
        const struct matmul_source source = {plan->staging, 1, count,
                                             (int)count, NULL};

        slab_stage(plan->a_apart, slab,
                   (struct columns){part.row + done, count}, plan->staging);
        plan->format->pack_rows(out, &source, &joined);
        out += each * slab->words;
    }
}

void CPU(matmul_apart_strip)(const struct plan *plan, uint32_t *out,
                             struct matmul_part part,
                             const struct matmul_slab *slab)
{
    const struct matmul_format *format = plan->format;
    const struct columns columns = {part.row, part.count};
    struct matmul_slab joined;
    const struct matmul_source source = {plan->staging, 1, part.count,
                                         (int)part.count, NULL};

    if (plan->p.b.dtype == DTYPE_F32 && part.count == TILE_COLUMNS) {
        slab_stage(plan->b_apart, slab, columns, out); /* as it is packed */
        return;
    }
    steps_join(&joined, slab);
    slab_stage(plan->b_apart, slab, columns, plan->staging);
    format->pack_columns(out, &source, &joined);
}
