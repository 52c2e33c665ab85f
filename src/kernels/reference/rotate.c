/* SPDX-License-Identifier: Apache-2.0 */
/* rotate.c - the definition of a rotation of runs, and of the way back. Their
 * operands are bfloat16 or float32 in the tables of both types. */
#include "kernels/element.h"
#include "kernels/reference/real.h"
#include "kernels/rotate.h"

static float value_of(const struct tensor *t, int64_t row, int64_t col)
{
    return element_get(t->data, t->dtype, row * t->stride[0] + col);
}

/* Element (row, col) of a span of rows and one of columns. */
static float rotated_at(const struct rotate *p, struct quantize_span rows,
                        struct quantize_span cols, int64_t row, int64_t col)
{
    const struct quantize_span *run = p->columns ? &rows : &cols;
    const int64_t number = (p->columns ? row : col) - run->first;
    const int64_t at = number % ROTATE_RUN;
    float x[ROTATE_RUN];

    if (number - at + ROTATE_RUN > run->count)
        return value_of(&p->in, row, col);
    for (int i = 0; i < ROTATE_RUN; i++)
        x[i] = p->columns ? value_of(&p->in, row - at + i, col)
                          : value_of(&p->in, row, col - at + i);
    rotate_run(x, p->signs);
    return x[at];
}

static void rotate_region(const struct rotate *p, struct quantize_span rows,
                          struct quantize_span cols)
{
    for (int64_t i = rows.first; i < rows.first + rows.count; i++)
        for (int64_t j = cols.first; j < cols.first + cols.count; j++)
            element_set(p->out.data, DTYPE_F32, i * p->out.stride[0] + j,
                        rotated_at(p, rows, cols, i, j));
}

status NAME(rotate)(struct stream *stream, const struct rotate *p)
{
    (void)stream;
    CHECK(p->out.dtype == DTYPE_F32 && dtype_real(p->in.dtype) == DTYPE_F32);
    for (int64_t i = 0; i < p->row_spans; i++)
        for (int64_t j = 0; j < p->col_spans; j++)
            rotate_region(p, p->rows[i], p->cols[j]);
    return OK;
}

/* ---- the way back ---- */

/* The scale of a block of `count` numbers. */
static float scale_of(const struct unrotate *p, const float *h, int64_t count)
{
    const float largest = number_formats[p->format].largest;
    const struct grid_format e4m3 = grid_format(FORMAT_E4M3);
    double sums[LANES] = {0}, squares[LANES] = {0};
    uint32_t most = 0;

    for (int64_t j = 0; j < count; j++) {
        const double v = (double)f32_of_bits(signed_finite(h[j]));

        sums[j % LANES] += v;
        squares[j % LANES] += v * v;
        if (finite_bits(h[j]) > most) most = finite_bits(h[j]);
    }
    if (p->scale == SCALE_GAUSS)
        most = gauss_bits(sums, squares, count, largest);
    return block_scale(p->scale, most, largest, &e4m3, 0);
}

static void unrotate_block(const struct unrotate *p, int64_t row, int64_t col,
                           int64_t count)
{
    const float largest = number_formats[p->format].largest;
    const bool turns = p->turn && count == ROTATE_RUN;
    float h[ROTATE_RUN] = {0}, g[ROTATE_RUN] = {0};

    for (int64_t j = 0; j < count; j++) {
        h[j] = value_of(&p->x, row, col + j);
        g[j] = value_of(&p->gradient, row, col + j);
    }
    if (turns) rotate_run(h, 0);
    const float limit = largest * scale_of(p, h, count);

    for (int64_t j = 0; j < count && p->trust; j++)
        if (!(__builtin_fabsf(h[j]) < limit)) g[j] = 0;
    if (turns) rotate_run(g, 0);
    for (int64_t j = 0; j < count; j++) {
        const float y = g[j] * p->factor;

        element_set(p->out.data, p->out.dtype,
                    row * p->out.stride[0] + col + j,
                    p->left != NULL ? value_of(p->left, row, col + j) + y : y);
    }
}

status NAME(unrotate)(struct stream *stream, const struct unrotate *p)
{
    (void)stream;
    CHECK(dtype_real(p->out.dtype) == DTYPE_F32 && p->x.dtype == DTYPE_BF16);
    for (int64_t i = 0; i < p->out.shape[0]; i++)
        for (int64_t s = 0; s < p->col_spans; s++)
            for (int64_t j = 0; j < p->cols[s].count; j += ROTATE_RUN) {
                const int64_t left = p->cols[s].count - j;

                unrotate_block(p, i, p->cols[s].first + j,
                               left < ROTATE_RUN ? left : ROTATE_RUN);
            }
    return OK;
}
