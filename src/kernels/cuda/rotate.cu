/* SPDX-License-Identifier: Apache-2.0 */
/* rotate.cu - rotations of runs, and the way back: a thread has a run. */
#include "kernels/cuda/cells.h"
#include "kernels/element.h"

/* `count` elements of a tensor, `step` apart from `first` on. */
DEVICE void run_get(const struct tensor *t, int64_t first, int64_t step,
                    int count, float x[ROTATE_RUN])
{
    UNROLLED for (int i = 0; i < ROTATE_RUN; i++)
        x[i] = i < count ? element_get(t->data, t->dtype, first + i * step)
                         : 0.0f;
}

CUDA_KERNEL(rotate_runs)
{
    const struct rotate *r = &p->of;
    const struct cell b =
        cell_of(&p->cells, BLOCK * BLOCK_THREADS + THREAD);
    const int count = (int)(r->columns ? b.rows.count : b.cols.count);
    const int64_t step = r->columns ? r->out.stride[0] : 1;
    float *to = (float *)r->out.data + b.rows.first * r->out.stride[0] +
                b.cols.first;
    float x[ROTATE_RUN];

    if (count == 0) return;
    run_get(&r->in, b.rows.first * r->in.stride[0] + b.cols.first,
            r->columns ? r->in.stride[0] : 1, count, x);
    if (count == ROTATE_RUN) rotate_run(x, r->signs);
    UNROLLED for (int i = 0; i < ROTATE_RUN; i++)
        if (i < count) to[i * step] = x[i];
}

/* ---- the way back ---- */

/* The scale of a block of `count` numbers. */
DEVICE float run_scale(const struct unrotate_runs_call *p,
                       const float h[ROTATE_RUN], int count)
{
    double sums[LANES], squares[LANES];
    uint32_t most = 0;

    UNROLLED for (int j = 0; j < LANES; j++) sums[j] = squares[j] = 0;
    UNROLLED for (int j = 0; j < ROTATE_RUN; j++) {
        const double v = (double)f32_of_bits(signed_finite(h[j]));
        const uint32_t own = finite_bits(h[j]);

        if (j >= count) continue;
        sums[j % LANES] = sums[j % LANES] + v;
        squares[j % LANES] = squares[j % LANES] + v * v;
        most = own > most ? own : most;
    }
    if (p->of.scale == SCALE_GAUSS)
        most = gauss_bits(sums, squares, count, p->largest);
    return block_scale(p->of.scale, most, p->largest, &p->e4m3, 0);
}

CUDA_KERNEL(unrotate_runs)
{
    const struct unrotate *u = &p->of;
    const struct cell b =
        cell_of(&p->cells, BLOCK * BLOCK_THREADS + THREAD);
    const int64_t row = b.rows.first, col = b.cols.first;
    const int count = (int)b.cols.count;
    const bool turns = u->turn && count == ROTATE_RUN;
    float h[ROTATE_RUN], g[ROTATE_RUN];

    if (count == 0) return;
    run_get(&u->gradient, row * u->gradient.stride[0] + col, 1, count, g);
    if (u->trust) {
        run_get(&u->x, row * u->x.stride[0] + col, 1, count, h);
        if (turns) rotate_run(h, 0);
        const float limit = p->largest * run_scale(p, h, count);

        UNROLLED for (int j = 0; j < ROTATE_RUN; j++)
            if (!(__builtin_fabsf(h[j]) < limit)) g[j] = 0;
    }
    if (turns) rotate_run(g, 0);
    UNROLLED for (int j = 0; j < ROTATE_RUN; j++) {
        float y = g[j] * u->factor;

        if (j >= count) continue;
        if (p->left.data)
            y = element_get(p->left.data, p->left.dtype,
                            row * p->left.stride[0] + col + j) + y;
        element_set(u->out.data, u->out.dtype,
                    row * u->out.stride[0] + col + j, y);
    }
}
