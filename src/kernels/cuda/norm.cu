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

/* Weights and biases are of the type of x. */
DEVICE float vector_get(const struct norm_call *n, const void *vector,
                        int64_t i)
{
    return element_get(vector, n->x.dtype, i);
}

/* Each thread reads and writes columns of its own alone. */
DEVICE void rmsnorm_row(const struct norm_call *n, const struct row_part at,
                        struct lanes_shared *s)
{
    float sum = 0, r;

    EACH_COLUMN {
        const float x = value_get(n->x, at.row, i);

        sum = __builtin_fmaf(x, x, sum);
    }
    sum = lanes_of_row(s, sum);
    r = 1.0f / __builtin_sqrtf(sum / (float)n->to.width + n->epsilon);
    if (at.here && at.first == 0) n->stats[at.row] = r;
    EACH_COLUMN value_set(n->to, at.row, i,
                          value_get(n->x, at.row, i) * r *
                              vector_get(n, n->weight, i));
}

CUDA_KERNEL(rmsnorm_forward)
{
    SHARED(struct lanes_shared, s);

    rmsnorm_row(&p->norm, row_part_of(&p->norm), s);
}

DEVICE void norm_store(const struct norm_call *n, int64_t row, int64_t column,
                       float value)
{
    value_set(n->to, row, column,
              n->adds ? value_get(n->to, row, column) + value : value);
}

CUDA_KERNEL(rmsnorm_backward)
{
    const struct norm_call *const n = &p->norm;
    const struct row_part at = row_part_of(n);
    const float r = n->stats[at.row];
    float sum = 0, c;
    SHARED(struct lanes_shared, s);

    EACH_COLUMN {
        const float x = value_get(n->x, at.row, i);
        const float dy = value_get(n->dy, at.row, i);

        sum = __builtin_fmaf(dy * vector_get(n, n->weight, i), x, sum);
    }
    sum = lanes_of_row(s, sum);
    c = sum * r * r * r / (float)n->to.width;
    EACH_COLUMN {
        const float x = value_get(n->x, at.row, i);
        const float dy = value_get(n->dy, at.row, i);

        norm_store(n, at.row, i,
                   __builtin_fmaf(-c, x,
                                  dy * vector_get(n, n->weight, i) * r));
    }
}

DEVICE void layernorm_row(const struct norm_call *n, const struct row_part at,
                          struct lanes_shared *s)
{
    const float width = (float)n->to.width;
    float sum = 0, squares = 0, mean, r;

    EACH_COLUMN sum = sum + value_get(n->x, at.row, i);
    mean = lanes_of_row(s, sum) / width;
    EACH_COLUMN {
        const float x = value_get(n->x, at.row, i) - mean;

        squares = __builtin_fmaf(x, x, squares);
    }
    squares = lanes_of_row(s, squares);
    r = 1.0f / __builtin_sqrtf(squares / width + n->epsilon);
    if (at.here && at.first == 0) {
        n->stats[2 * at.row] = mean;
        n->stats[2 * at.row + 1] = r;
    }
    EACH_COLUMN value_set(
        n->to, at.row, i,
        __builtin_fmaf((value_get(n->x, at.row, i) - mean) * r,
                       vector_get(n, n->weight, i),
                       vector_get(n, n->bias, i)));
}

CUDA_KERNEL(layernorm_forward)
{
    SHARED(struct lanes_shared, s);

    layernorm_row(&p->norm, row_part_of(&p->norm), s);
}

CUDA_KERNEL(add_norm)
{
    const struct norm_call *const n = &p->norm;
    const struct row_part at = row_part_of(n);
    SHARED(struct lanes_shared, s);

    EACH_COLUMN {
        float x = value_get(p->y, at.row, i);

        if (p->bias) x = x + vector_get(n, p->bias, i);
        if (p->left.data) x = value_get(p->left, at.row, i) + x;
        value_set(n->x, at.row, i, x);
    }
    if (p->layer) layernorm_row(n, at, s);
    else rmsnorm_row(n, at, s);
}

CUDA_KERNEL(layernorm_backward)
{
    const struct norm_call *const n = &p->norm;
    const struct row_part at = row_part_of(n);
    const float width = (float)n->to.width;
    const float mean = n->stats[2 * at.row], r = n->stats[2 * at.row + 1];
    float sum = 0, products = 0, a, c;
    SHARED(struct lanes_shared, s);

    EACH_COLUMN {
        const float x = value_get(n->x, at.row, i);
        const float dy = value_get(n->dy, at.row, i);
        const float w = vector_get(n, n->weight, i);

        sum = __builtin_fmaf(dy, w, sum);
        products = __builtin_fmaf(dy * w, x - mean, products);
    }
    a = lanes_of_row(s, sum) / width;
    c = lanes_of_row(s, products) * r / width;
    EACH_COLUMN {
        const float x = value_get(n->x, at.row, i);
        const float dy = value_get(n->dy, at.row, i);
        const float w = vector_get(n, n->weight, i);

        norm_store(n, at.row, i,
                   __builtin_fmaf(-c, (x - mean) * r,
                                  __builtin_fmaf(dy, w, -a)) * r);
    }
}
