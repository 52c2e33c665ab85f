/* SPDX-License-Identifier: Apache-2.0 */
/* attention_nodes.c - the steps around the two directions of attention: sums of
 * dout . out, the end of a node, and sums over query heads. Threads share out
 * rows. */
#include <math.h>
#include "kernels/cpu/cpu.h"
#include "kernels/lanes.h"

/* A row and head of a tensor. */
static struct elements at(const struct tensor *t, int64_t row, int64_t head)
{
    return (struct elements){
        element_at(t->data, t->dtype,
                   row * t->stride[0] + head * t->stride[1]), t->dtype};
}

/* The address of an element of a [rows, heads] tensor. */
static float *number_at(const struct tensor *t, int64_t row, int64_t head)
{
    return (float *)t->data + row * t->stride[0] + head;
}

/* ---- delta ---- */

ELEMENTARY void delta_set(enum dtype dtype, const struct attention *p,
                          int64_t row)
{
    for (int head = 0; head < p->heads; head++) {
        struct elements dout = at(&p->dout, row, head);
        struct elements out = at(&p->out, row, head);

        dout.dtype = out.dtype = dtype;
        *number_at(&p->delta, row, head) = lanes_dot(dout, out, p->head_width);
    }
}

static void delta_body(void *argument, int index, int count)
{
    const struct attention *p = argument;
    const int64_t apart = p->query_stride ? p->query_stride : p->queries;
    int64_t first, last;

    threads_split(p->sequences * p->queries, 1, index, count, &first, &last);
    for (int64_t i = first; i < last; i++)
        ELEMENT_CHOOSE(p->out.dtype, delta_set, p,
                       i / p->queries * apart + i % p->queries);
}

status CPU(attention_delta)(struct stream *stream, const struct attention *p)
{
    struct attention copy = *p;

    CHECK(dtype_real(p->out.dtype) == DTYPE_F32);
    CHECK(p->dout.dtype == p->out.dtype && p->delta.dtype == DTYPE_F32);
    cpu_run(stream, p->sequences * p->queries * p->heads * p->head_width,
            delta_body, &copy);
    return OK;
}

/* ---- the end of a node ---- */

struct finish {
    struct tensor out, lse;
    const struct attention_node *root;
};

ELEMENTARY void values_write(enum dtype dtype, void *out, const float *values,
                             int64_t width, float factor)
{
    SIMD for (int64_t e = 0; e < width; e++)
        element_set(out, dtype, e, values[e] * factor);
}

static void finish_one(const struct finish *f, int64_t row, int64_t head)
{
    const float denominator = *number_at(&f->root->denominator, row, head);
    const struct elements out = at(&f->out, row, head);
    const int64_t width = f->out.shape[2];
    float *lse = number_at(&f->lse, row, head);

    if (denominator == 0) { /* nothing seen, nothing set */
        memset(element_at(out.data, out.dtype, 0), 0,
               (size_t)width * (size_t)dtype_bytes(out.dtype));
        *lse = -(float)INFINITY;
        return;
    }
    ELEMENT_CHOOSE(out.dtype, values_write, element_at(out.data, out.dtype, 0),
                   at(&f->root->values, row, head).data, width,
                   1 / denominator);
    *lse = *number_at(&f->root->maximum, row, head) + log_f32(denominator);
}

static void finish_body(void *argument, int index, int count)
{
    const struct finish *f = argument;
    const int64_t heads = f->out.shape[1];
    int64_t first, last;

    threads_split(f->out.shape[0] * heads, 1, index, count, &first, &last);
    for (int64_t i = first; i < last; i++)
        finish_one(f, i / heads, i % heads);
}

status CPU(attention_finish)(struct stream *stream, struct tensor out,
                             struct tensor lse,
                             const struct attention_node *root)
{
    struct finish f = {out, lse, root};

    CHECK(dtype_real(out.dtype) == DTYPE_F32 && lse.dtype == DTYPE_F32);
    CHECK(root->values.dtype == DTYPE_F32);
    cpu_run(stream, tensor_count(&out), finish_body, &f);
    return OK;
}

/* ---- sums over query heads ---- */

struct heads {
    struct tensor out, in;
    int leaves;
};

ELEMENTARY void head_add(enum dtype dtype, float *sum, const void *x,
                         int64_t width, bool assign)
{
    SIMD for (int64_t e = 0; e < width; e++)
        sum[e] = assign ? element_get(x, dtype, e)
                        : sum[e] + element_get(x, dtype, e);
}

/* One key-value head of one token: heads of a leaf in order, then the tree over
 * leaves by their numbers; a leaf that others have passes the other side up. */
static void group_sum(const struct heads *h, int64_t row, int64_t kv)
{
    const int64_t width = h->in.shape[2], per_leaf = h->in.shape[1] / h->leaves;
    const int64_t group = h->in.shape[1] / h->out.shape[1];
    const struct elements out = at(&h->out, row, kv);
    float sums[LEAVES_MAX][HEAD_WIDTH_MAX];
    bool present[LEAVES_MAX] = {false};

    for (int64_t head = kv * group; head < (kv + 1) * group; head++) {
        const struct elements x = at(&h->in, row, head);
        const int64_t leaf = head / per_leaf;

        ELEMENT_CHOOSE(x.dtype, head_add, sums[leaf], x.data, width,
                       !present[leaf]);
        present[leaf] = true;
    }
    for (int apart = 1; apart < h->leaves; apart *= 2)
        for (int i = 0; i + apart < h->leaves; i += 2 * apart) {
            if (!present[i + apart]) continue;
            head_add(DTYPE_F32, sums[i], sums[i + apart], width, !present[i]);
            present[i] = true;
        }
    ELEMENT_CHOOSE(out.dtype, values_write, element_at(out.data, out.dtype, 0),
                   sums[0], width, 1.0f);
}

static void heads_body(void *argument, int index, int count)
{
    const struct heads *h = argument;
    int64_t first, last;

    threads_split(h->out.shape[0], 1, index, count, &first, &last);
    for (int64_t row = first; row < last; row++)
        for (int64_t kv = 0; kv < h->out.shape[1]; kv++)
            group_sum(h, row, kv);
}

status CPU(attention_heads)(struct stream *stream, struct tensor out,
                            struct tensor in, int leaves)
{
    struct heads h = {out, in, leaves};

    CHECK(dtype_real(out.dtype) == DTYPE_F32);
    CHECK(dtype_real(in.dtype) == DTYPE_F32);
    CHECK(in.shape[1] % out.shape[1] == 0 && in.shape[1] % leaves == 0);
    CHECK(leaves <= LEAVES_MAX && in.shape[2] <= HEAD_WIDTH_MAX);
    cpu_run(stream, tensor_count(&in), heads_body, &h);
    return OK;
}
