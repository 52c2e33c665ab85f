/* SPDX-License-Identifier: Apache-2.0 */
/* integers.c - the definition of a product of integers, element by element. It
 * is the same in the tables of all types. */
#include "kernels/element.h"
#include "kernels/reference/real.h"

static int32_t leaf_sum(const struct integer_product *p, int64_t i, int64_t j,
                        const struct sum_segment *leaf)
{
    const int8_t *a = (const int8_t *)p->a.data + i * p->a.stride[0];
    const int8_t *b = (const int8_t *)p->b.data + j * p->b.stride[0];
    int32_t sum = 0;

    for (int64_t k = leaf->first; k < leaf->first + leaf->length; k++)
        sum += a[k] * b[k];
    return sum;
}

static float element_make(const struct integer_product *p, int64_t i,
                          int64_t j)
{
    const int leaves = p->order->leaves;
    float sums[LEAVES_MAX], result;

    for (int leaf = 0; leaf < leaves; leaf++)
        sums[leaf] =
            (float)leaf_sum(p, i, j, &p->order->segments[leaf]) *
            (p->a_scales[i * leaves + leaf] * p->b_scales[j * leaves + leaf]);
    for (int step = 1; step < leaves; step *= 2)
        for (int leaf = 0; leaf + step < leaves; leaf += 2 * step)
            sums[leaf] = sums[leaf] + sums[leaf + step];
    result = sums[0];
    if (p->bias)
        result = result + element_get(p->bias->data, p->bias->dtype, j);
    if (p->left)
        result = element_get(p->left->data, p->left->dtype,
                             i * p->left->stride[0] + j) + result;
    return result;
}

static void rows_body(void *argument, int index, int count)
{
    const struct integer_product *p = argument;
    int64_t first, last;

    threads_split(p->c.shape[0], 1, index, count, &first, &last);
    for (int64_t i = first; i < last; i++)
        for (int64_t j = 0; j < p->c.shape[1]; j++)
            element_set(p->c.data, p->c.dtype, i * p->c.stride[0] + j,
                        element_make(p, i, j));
}

status NAME(integer_product)(struct stream *stream,
                             const struct integer_product *p)
{
    struct integer_product call = *p;

    integer_product_check(p);
    threads_run(stream->threads, rows_body, &call);
    return OK;
}
