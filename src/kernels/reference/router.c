/* SPDX-License-Identifier: Apache-2.0 */
/* router.c - the rows of routers, and jitter. */
#include "kernels/reference/random_word.h"
#include "kernels/reference/real.h"
#include "kernels/view.h"

#define ROUTER_ROW(row) NAME(row)
#define ROUTER_SIMD /* plain loops */
#include "kernels/router_rows.h"

/* ---- jitter ---- */

status NAME(jitter)(struct stream *stream, const struct jitter *p)
{
    const struct view y = view_of(p->y, REAL_DTYPE);
    const struct view x = view_of(p->x, REAL_DTYPE);
    const real epsilon = (real)p->epsilon;

    (void)stream;
    CHECK(view_same_shape(y, x) && p->epsilon >= 0 && p->epsilon < 1);
    for (int64_t row = 0; row < y.rows; row++)
        for (int64_t i = 0; i < y.width; i++) {
            const uint32_t word = dropout_word(p->key, p->rows[row], i);
            const real u = (real)(word >> 8) * (real)0x1p-23 - 1;

            ((real *)y.data)[row * y.stride + i] =
                ((const real *)x.data)[row * x.stride + i] *
                REAL_FMA(epsilon, u, 1);
        }
    return OK;
}
