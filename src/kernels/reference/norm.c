/* SPDX-License-Identifier: Apache-2.0 */
/* norm.c - RMSNorm and LayerNorm.
 *
 * RMSNorm: Zhang and Sennrich, arXiv 1910.07467, equation 4.
 * LayerNorm: Ba, Kiros and Hinton, arXiv 1607.06450, equation 4. */
#include "kernels/reference/token_sums.h"
#include "kernels/view.h"

/* The inputs of both passes over rows and of the sums over tokens. */
struct norm {
    struct view dy, x;
    const real *weight;
    const real *stats; /* rms: [tokens]; layer: [tokens, 2] mean, rstd */
};

static real *row_of(struct view view, int64_t row)
{
    return (real *)view.data + row * view.stride;
}

static const real *vector_of(struct tensor tensor, int64_t count)
{
    CHECK(tensor.dtype == REAL_DTYPE && tensor_count(&tensor) == count);
    return tensor.data;
}

status NAME(rmsnorm_forward)(struct stream *stream, struct tensor y,
                             struct tensor rrms, struct tensor x,
                             struct tensor weight, double epsilon)
{
    struct view to = view_of(y, REAL_DTYPE), from = view_of(x, REAL_DTYPE);
    const real *w = vector_of(weight, from.width);
    real *kept = rrms.data;

    (void)stream;
    CHECK(view_same_shape(to, from));
    CHECK(rrms.dtype == REAL_DTYPE && tensor_count(&rrms) == from.rows);
    for (int64_t token = 0; token < from.rows; token++) {
        const real *in = row_of(from, token);
        real lanes[LANES] = {0}, r;

        for (int64_t i = 0; i < from.width; i++)
            lanes[i % LANES] = REAL_FMA(in[i], in[i], lanes[i % LANES]);
        r = 1 / REAL_SQRT(real_lanes_fold(lanes) / (real)from.width +
                          (real)epsilon);
        kept[token] = r;
        for (int64_t i = 0; i < from.width; i++)
            row_of(to, token)[i] = in[i] * r * w[i];
    }
    return OK;
}

static real rms_term(const void *context, int64_t token, int64_t column,
                     real chain)
{
    const struct norm *n = context;
    real x = row_of(n->x, token)[column];

    return REAL_FMA(row_of(n->dy, token)[column], x * n->stats[token], chain);
}

status NAME(rmsnorm_backward)(struct stream *stream, struct tensor dx,
                              bool adds, struct tensor sums, struct tensor dy,
                              struct tensor x, struct tensor rrms,
                              struct tensor weight,
                              const struct token_order *order)
{
    struct norm n = {view_of(dy, REAL_DTYPE), view_of(x, REAL_DTYPE),
                     weight.data, rrms.data};
    struct view to = view_of(dx, REAL_DTYPE);

    (void)stream;
    CHECK(view_same_shape(to, n.x) && view_same_shape(to, n.dy));
    CHECK(rrms.dtype == REAL_DTYPE && tensor_count(&rrms) == n.x.rows);
    CHECK(vector_of(weight, n.x.width) && sums.shape[1] == n.x.width);
    /* Before dx, which may be dy. */
    NAME(token_sums)(sums, order, rms_term, &n);
    for (int64_t token = 0; token < to.rows; token++) {
        const real *d = row_of(n.dy, token), *in = row_of(n.x, token);
        real lanes[LANES] = {0}, r = n.stats[token], s, c;
        real *out = row_of(to, token);

        for (int64_t i = 0; i < to.width; i++)
            lanes[i % LANES] = REAL_FMA(d[i] * n.weight[i], in[i],
                                        lanes[i % LANES]);
        s = real_lanes_fold(lanes);
        c = s * r * r * r / (real)to.width;
        for (int64_t i = 0; i < to.width; i++) {
            real value = REAL_FMA(-c, in[i], d[i] * n.weight[i] * r);

            out[i] = adds ? out[i] + value : value;
        }
    }
    return OK;
}

/* Mean first, then the sum of squares of what is left: two passes. */
status NAME(layernorm_forward)(struct stream *stream, struct tensor y,
                               struct tensor stats, struct tensor x,
                               struct tensor weight, struct tensor bias,
                               double epsilon)
{
    struct view to = view_of(y, REAL_DTYPE), from = view_of(x, REAL_DTYPE);
    const real *w = vector_of(weight, from.width);
    const real *b = vector_of(bias, from.width);
    real *kept = stats.data, width = (real)from.width;

    (void)stream;
    CHECK(view_same_shape(to, from));
    CHECK(stats.dtype == REAL_DTYPE && tensor_count(&stats) == 2 * from.rows);
    for (int64_t token = 0; token < from.rows; token++) {
        const real *in = row_of(from, token);
        real lanes[LANES] = {0}, squares[LANES] = {0}, mean, r;

        for (int64_t i = 0; i < from.width; i++)
            lanes[i % LANES] = lanes[i % LANES] + in[i];
        mean = real_lanes_fold(lanes) / width;
        for (int64_t i = 0; i < from.width; i++)
            squares[i % LANES] = REAL_FMA(in[i] - mean, in[i] - mean,
                                          squares[i % LANES]);
        r = 1 / REAL_SQRT(real_lanes_fold(squares) / width + (real)epsilon);
        kept[2 * token] = mean;
        kept[2 * token + 1] = r;
        for (int64_t i = 0; i < from.width; i++)
            row_of(to, token)[i] = REAL_FMA((in[i] - mean) * r, w[i], b[i]);
    }
    return OK;
}

/* By the two rows. */
status NAME(add_norm)(struct stream *stream, const struct add_norm *p)
{
    const struct norm_after *norm = &p->norm;

    TRY(NAME(add)(stream, p->x, p->left, p->y));
    if (norm->layer)
        return NAME(layernorm_forward)(stream, norm->y, norm->stats, p->x,
                                       norm->weight, norm->bias,
                                       norm->epsilon);
    return NAME(rmsnorm_forward)(stream, norm->y, norm->stats, p->x,
                                 norm->weight, norm->epsilon);
}

static real layer_weight_term(const void *context, int64_t token,
                              int64_t column, real chain)
{
    const struct norm *n = context;
    real x = row_of(n->x, token)[column];
    real mean = n->stats[2 * token], r = n->stats[2 * token + 1];

    return REAL_FMA(row_of(n->dy, token)[column], (x - mean) * r, chain);
}

static real layer_bias_term(const void *context, int64_t token, int64_t column,
                            real chain)
{
    const struct norm *n = context;

    return chain + row_of(n->dy, token)[column];
}

static void layer_row_backward(const struct norm *n, int64_t token, real *out,
                               bool adds)
{
    const real *d = row_of(n->dy, token), *in = row_of(n->x, token);
    const real *w = n->weight;
    real mean = n->stats[2 * token], r = n->stats[2 * token + 1];
    real lanes[LANES] = {0}, products[LANES] = {0}, width = (real)n->x.width;
    real a, c;

    for (int64_t i = 0; i < n->x.width; i++) {
        int lane = (int)(i % LANES);

        lanes[lane] = REAL_FMA(d[i], w[i], lanes[lane]);
        products[lane] = REAL_FMA(d[i] * w[i], in[i] - mean, products[lane]);
    }
    a = real_lanes_fold(lanes) / width;
    c = real_lanes_fold(products) * r / width;
    for (int64_t i = 0; i < n->x.width; i++) {
        real xhat = (in[i] - mean) * r;
        real value = REAL_FMA(-c, xhat, REAL_FMA(d[i], w[i], -a)) * r;

        out[i] = adds ? out[i] + value : value;
    }
}

status NAME(layernorm_backward)(struct stream *stream, struct tensor dx,
                                bool adds, struct tensor sums_weight,
                                struct tensor sums_bias, struct tensor dy,
                                struct tensor x, struct tensor stats,
                                struct tensor weight,
                                const struct token_order *order)
{
    struct norm n = {view_of(dy, REAL_DTYPE), view_of(x, REAL_DTYPE),
                     weight.data, stats.data};
    struct view to = view_of(dx, REAL_DTYPE);

    (void)stream;
    CHECK(view_same_shape(to, n.x) && view_same_shape(to, n.dy));
    CHECK(stats.dtype == REAL_DTYPE && tensor_count(&stats) == 2 * n.x.rows);
    CHECK(vector_of(weight, n.x.width) && sums_weight.shape[1] == n.x.width);
    CHECK(sums_bias.shape[1] == n.x.width);
    /* Before dx, which may be dy. */
    NAME(token_sums)(sums_weight, order, layer_weight_term, &n);
    NAME(token_sums)(sums_bias, order, layer_bias_term, &n);
    for (int64_t token = 0; token < to.rows; token++)
        layer_row_backward(&n, token, row_of(to, token), adds);
    return OK;
}
