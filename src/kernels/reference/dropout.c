/* SPDX-License-Identifier: Apache-2.0 */
/* dropout.c - elements set to zero by random numbers that know only where they
 * stand. */
#include "kernels/reference/random_word.h"
#include "kernels/reference/real.h"
#include "kernels/view.h"

status NAME(dropout)(struct stream *stream, const struct dropout *p)
{
    const struct view y = view_of(p->y, REAL_DTYPE);
    const struct view x = view_of(p->x, REAL_DTYPE);
    const bool adds = p->left.data != NULL;
    const struct view left = adds ? view_of(p->left, REAL_DTYPE) : x;
    const uint32_t least = dropout_least(p->rate);
    const real factor = (real)(1 / (1 - p->rate));

    (void)stream;
    CHECK(view_same_shape(y, x) && view_same_shape(y, left));
    CHECK(p->rate >= 0 && p->rate < 1);
    for (int64_t row = 0; row < y.rows; row++)
        for (int64_t i = 0; i < y.width; i++) {
            const real value = ((real *)x.data)[row * x.stride + i] * factor;
            const uint32_t word = dropout_word(p->key, p->rows[row], i);
            const real kept = word >= least ? value : 0;

            ((real *)y.data)[row * y.stride + i] =
                adds ? ((real *)left.data)[row * left.stride + i] + kept
                     : kept;
        }
    return OK;
}
