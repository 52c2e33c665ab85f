/* SPDX-License-Identifier: Apache-2.0 */
/* norm.cu - RMSNorm and LayerNorm: LANES threads to a row. */
#include "kernels/cuda/lanes.h"

/* The columns of a row that belong to this thread. Threads of a row that is
 * not there have none, and meet the others at barriers. */
struct row_part {
    int64_t row, first, width;
    bool here;
};

DEVICE struct row_part row_part_of(const struct norm_call *p)
{
    struct row_part at;

    at.row = BLOCK * BLOCK_ROWS + THREAD / LANES;
    at.here = at.row < p->to.rows;
    at.first = THREAD % LANES;
    at.width = at.here ? p->to.width : 0;
    if (!at.here) at.row = 0;
    return at;
}

#define EACH_COLUMN for (int64_t i = at.first; i < at.width; i += LANES)

CUDA_KERNEL(rmsnorm_forward)
{
    const struct norm_call *const n = &p->norm;
    const struct row_part at = row_part_of(n);
    const float *x = view_at(n->x, at.row, 0);
    float *y = view_at(n->to, at.row, 0), sum = 0, r;
    SHARED(struct lanes_shared, s);

    EACH_COLUMN sum = __builtin_fmaf(x[i], x[i], sum);
    sum = lanes_of_row(s, sum);
    r = 1.0f / __builtin_sqrtf(sum / (float)n->to.width + n->epsilon);
    if (at.here && at.first == 0) n->stats[at.row] = r;
    EACH_COLUMN y[i] = x[i] * r * n->weight[i];
}

DEVICE void norm_store(const struct norm_call *n, float *out, float value)
{
    *out = n->adds ? *out + value : value;
}

CUDA_KERNEL(rmsnorm_backward)
{
    const struct norm_call *const n = &p->norm;
    const struct row_part at = row_part_of(n);
    const float *x = view_at(n->x, at.row, 0), *dy = view_at(n->dy, at.row, 0);
    const float *w = n->weight, r = n->stats[at.row];
    float *dx = view_at(n->to, at.row, 0), sum = 0, c;
    SHARED(struct lanes_shared, s);

    EACH_COLUMN sum = __builtin_fmaf(dy[i] * w[i], x[i], sum);
    sum = lanes_of_row(s, sum);
    c = sum * r * r * r / (float)n->to.width;
    EACH_COLUMN norm_store(n, &dx[i],
                           __builtin_fmaf(-c, x[i], dy[i] * w[i] * r));
}

CUDA_KERNEL(layernorm_forward)
{
    const struct norm_call *const n = &p->norm;
    const struct row_part at = row_part_of(n);
    const float *x = view_at(n->x, at.row, 0), width = (float)n->to.width;
    float *y = view_at(n->to, at.row, 0), sum = 0, squares = 0, mean, r;
    SHARED(struct lanes_shared, s);

    EACH_COLUMN sum = sum + x[i];
    mean = lanes_of_row(s, sum) / width;
    EACH_COLUMN squares = __builtin_fmaf(x[i] - mean, x[i] - mean, squares);
    squares = lanes_of_row(s, squares);
    r = 1.0f / __builtin_sqrtf(squares / width + n->epsilon);
    if (at.here && at.first == 0) {
        n->stats[2 * at.row] = mean;
        n->stats[2 * at.row + 1] = r;
    }
    EACH_COLUMN y[i] =
        __builtin_fmaf((x[i] - mean) * r, n->weight[i], n->bias[i]);
}

CUDA_KERNEL(layernorm_backward)
{
    const struct norm_call *const n = &p->norm;
    const struct row_part at = row_part_of(n);
    const float *x = view_at(n->x, at.row, 0), *dy = view_at(n->dy, at.row, 0);
    const float *w = n->weight, width = (float)n->to.width;
    const float mean = n->stats[2 * at.row], r = n->stats[2 * at.row + 1];
    float *dx = view_at(n->to, at.row, 0), sum = 0, products = 0, a, c;
    SHARED(struct lanes_shared, s);

    EACH_COLUMN {
        sum = __builtin_fmaf(dy[i], w[i], sum);
        products = __builtin_fmaf(dy[i] * w[i], x[i] - mean, products);
    }
    a = lanes_of_row(s, sum) / width;
    c = lanes_of_row(s, products) * r / width;
    EACH_COLUMN norm_store(
        n, &dx[i],
        __builtin_fmaf(-c, (x[i] - mean) * r,
                       __builtin_fmaf(dy[i], w[i], -a)) * r);
}
