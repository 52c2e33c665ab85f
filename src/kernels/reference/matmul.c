/* SPDX-License-Identifier: Apache-2.0 */
/* matmul.c - the matrix product that defines the bits.
 *
 * Every element is computed by itself, exactly as struct sum_order says. A
 * strip of columns of one row is done at a time only because the compiler then
 * turns the inner loop into vectors; no element sees its neighbours. */
#include <stddef.h>
#include "kernels/reference/real.h"

enum { STRIP = 32 }; /* columns */

/* One row of b's strip and how far its rows and columns are apart. */
struct strip {
    const real *a, *b; /* first element of the contracted dimension */
    int64_t a_stride, b_stride, b_column;
    int width; /* columns, at most STRIP */
};

/* chain[j] = chain of FMAs from +0 over elements [first, first + length) */
REAL_CLONES static void granule_chain(const struct strip *s, int64_t first,
                                      int64_t length, real *chain)
{
    for (int j = 0; j < STRIP; j++) chain[j] = 0;
    for (int64_t k = first; k < first + length; k++) {
        real a = s->a[k * s->a_stride];
        const real *b = s->b + k * s->b_stride;

        if (s->b_column == 1) {
            _Pragma("omp simd")
            for (int j = 0; j < s->width; j++)
                chain[j] = REAL_FMA(a, b[j], chain[j]);
        } else {
            for (int j = 0; j < s->width; j++)
                chain[j] = REAL_FMA(a, b[j * s->b_column], chain[j]);
        }
    }
}

/* sum[j] += the granules of one segment; the first is assigned if `assign`. */
static void segment_add(const struct strip *s, const struct sum_segment *seg,
                        bool assign, real *sum)
{
    real chain[STRIP];

    for (int64_t done = 0; done < seg->length; done += GRANULE) {
        int64_t length = seg->length - done;

        if (length > GRANULE) length = GRANULE;
        granule_chain(s, seg->first + done, length, chain);
        for (int j = 0; j < s->width; j++)
            sum[j] = assign ? chain[j] : sum[j] + chain[j];
        assign = false;
    }
}

/* sums[0] = tree over sums[0 .. leaves - 1]: neighbours, then pairs of
 * neighbours and so on, which is halves from the top; (0 + 1) + 2 for three. */
static void leaves_fold(real (*sums)[STRIP], int leaves)
{
    for (int step = 1; step < leaves; step *= 2)
        for (int leaf = 0; leaf + step < leaves; leaf += 2 * step)
            for (int j = 0; j < STRIP; j++)
                sums[leaf][j] = sums[leaf][j] + sums[leaf + step][j];
}

static void strip_compute(const struct matmul *p, int64_t row, int64_t column)
{
    const real *a = p->a.data, *b = p->b.data;
    const real *bias = p->bias ? p->bias->data : NULL;
    const real *left = p->left ? p->left->data : NULL;
    real *c = (real *)p->c.data + row * p->c.stride[0] + column;
    int64_t n = p->c.shape[1] - column;
    struct strip s = {a + row * p->a.stride[0], b + column * p->b.stride[1],
                      p->a.stride[1], p->b.stride[0], p->b.stride[1],
                      n < STRIP ? (int)n : STRIP};
    real sums[LEAVES_MAX][STRIP] = {{0}};
    int last = -1;

    if (p->continues) {
        for (int j = 0; j < s.width; j++) sums[0][j] = c[j];
        last = 0;
    }
    for (int64_t i = 0; i < p->order->segment_count; i++) {
        const struct sum_segment *segment = &p->order->segments[i];

        segment_add(&s, segment, segment->leaf != last, sums[segment->leaf]);
        last = segment->leaf;
    }
    leaves_fold(sums, p->order->leaves);
    for (int j = 0; j < s.width; j++) {
        real result = sums[0][j];

        if (bias) result = result + bias[column + j];
        if (left) result = left[row * p->left->stride[0] + column + j] + result;
        c[j] = result;
    }
}

static void matmul_body(void *argument, int index, int count)
{
    const struct matmul *p = argument;
    int64_t strips = (p->c.shape[1] + STRIP - 1) / STRIP, first, last;

    threads_split(p->c.shape[0] * strips, 1, index, count, &first, &last);
    for (int64_t i = first; i < last; i++)
        strip_compute(p, i / strips, i % strips * STRIP);
}

static void order_check(const struct sum_order *order, int64_t k,
                        bool continues)
{
    int leaves = order->leaves, leaf = 0;

    CHECK(leaves >= 1 && leaves <= LEAVES_MAX);
    CHECK(leaves == 3 || (leaves & (leaves - 1)) == 0);
    CHECK(order->segment_count >= 1 && order->segments[0].leaf == 0);
    CHECK(!continues || leaves == 1);
    for (int64_t i = 0; i < order->segment_count; i++) {
        const struct sum_segment *segment = &order->segments[i];

        CHECK(segment->length >= 1 && segment->first >= 0);
        CHECK(segment->first + segment->length <= k);
        CHECK(segment->leaf == leaf || segment->leaf == leaf + 1);
        leaf = segment->leaf;
    }
    CHECK(leaf == leaves - 1);
}

status NAME(matmul)(struct stream *stream, const struct matmul *p)
{
    int64_t m = p->c.shape[0], n = p->c.shape[1], k = p->a.shape[1];
    struct matmul copy = *p;

    CHECK(p->c.dtype == REAL_DTYPE && p->a.dtype == REAL_DTYPE);
    CHECK(p->b.dtype == REAL_DTYPE && p->c.stride[1] == 1);
    CHECK(p->a.shape[0] == m && p->b.shape[1] == n && p->b.shape[0] == k);
    CHECK(!p->bias || p->bias->shape[0] == n);
    CHECK(!p->left || (p->left->shape[0] == m && p->left->shape[1] == n &&
                       p->left->stride[1] == 1));
    order_check(p->order, k, p->continues);
    threads_run(stream->threads, matmul_body, &copy);
    return OK;
}
