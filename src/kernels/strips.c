/* SPDX-License-Identifier: Apache-2.0 */
/* strips.c - weights that lie as products read them: rows, and which sums fit.
 */
#include "kernels/element.h"
#include "kernels/kernels.h"

bool strips_fit(const struct strips *strips, const struct sum_order *order)
{
    if (strips->rows == 0) return false;
    for (int64_t i = 0; i < order->segment_count; i++)
        if (order->segments[i].first % strips->grain != 0 ||
            order->segments[i].length % strips->grain != 0)
            return false;
    return true;
}

/* Where elements [e, e + 4 / size) of a row are. */
static int64_t word_of(const struct strips *strips,
                       const struct tensor *weight, int64_t row, int64_t e)
{
    const int64_t per_word = 4 / dtype_bytes(weight->dtype);
    const int64_t rows = strips->rows, cols = weight->shape[1];

    return row / rows * rows * (cols / per_word) + e / per_word * rows +
           row % rows;
}

void strips_row(const struct strips *strips, const struct tensor *weight,
                int64_t row, void *out)
{
    const enum dtype dtype = weight->dtype;
    const int64_t cols = weight->shape[1], per_word = 4 / dtype_bytes(dtype);
    const bool whole = row < weight->shape[0] / strips->rows * strips->rows;

    for (int64_t e = 0; e < cols; e++) {
        const int64_t at =
            whole ? word_of(strips, weight, row, e) * per_word + e % per_word
                  : row * cols + e;

        element_set(out, dtype, e, element_get(weight->data, dtype, at) + 0.0f);
    }
}
