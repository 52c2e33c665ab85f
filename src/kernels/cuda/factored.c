/* SPDX-License-Identifier: Apache-2.0 */
/* factored.c - starts the kernels of factored.cu. */
#include "kernels/factored.h"

#include "kernels/cuda/launch.h"
#include "kernels/cuda/rows.h"

static float *dense(const struct tensor *x, int64_t count)
{
    CHECK(x->dtype == DTYPE_F32 && tensor_count(x) == count);
    return x->data;
}

static status step_matrix(struct stream *stream, const struct factored *p)
{
    const int64_t rows = p->x.shape[0], cols = p->x.shape[1];
    const int64_t row_blocks = blocks_of(rows * LANES);
    const struct factored_sums_call sums = {
        dense(&p->x, rows * cols), rows, cols, row_blocks, p->row_sums,
        p->col_sums};
    const struct factored_moments_call moments = {
        dense(&p->row, rows), dense(&p->col, cols), rows, cols, p->row_sums,
        p->col_sums, p->epsilon, p->fresh};
    const struct factored_matrix_call matrix = {
        sums.x, cols, rows * cols, p->row_sums, p->col_sums,
        p->epsilon * p->epsilon};

    LAUNCH(stream, factored_sums, row_blocks + blocks_of(cols), &sums);
    LAUNCH(stream, factored_moments, 1, &moments);
    LAUNCH(stream, factored_matrix, blocks_of(matrix.count), &matrix);
    return OK;
}

static status step_elements(struct stream *stream, const struct factored *p)
{
    const int64_t count = tensor_count(&p->x);
    const struct factored_elements_call call = {
        dense(&p->x, count), dense(&p->row, count), count,
        p->epsilon * p->epsilon, p->fresh};

    LAUNCH(stream, factored_elements, blocks_of(count), &call);
    return OK;
}

/* No number comes back to the host: the size of the weights waits in the place
 * of a sum of rows, which nobody reads any more. */
status cuda_factored(struct stream *stream, const struct factored *p)
{
    const int64_t count = tensor_count(&p->x);
    struct factored_rate_call root = {
        p->blocks, parts_of(count, SQUARES_BLOCK), count, p->row_sums, p->rate,
        false};
    const struct normalize_call scale = {dense(&p->x, count), count,
                                         p->blocks};

    if (p->col.data) TRY(step_matrix(stream, p));
    else TRY(step_elements(stream, p));
    TRY(cuda_sum_squares(stream, p->blocks, p->weights, 1));
    LAUNCH(stream, factored_rate, 1, &root);
    TRY(cuda_sum_squares(stream, p->blocks, p->x, 1));
    root.ends = true;
    LAUNCH(stream, factored_rate, 1, &root);
    LAUNCH(stream, normalize, blocks_of(count), &scale);
    return OK;
}
