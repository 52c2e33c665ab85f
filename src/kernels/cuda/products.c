/* SPDX-License-Identifier: Apache-2.0 */
/* products.c - products that a library of the GPU makes (numerics.gpu=fast).
 *
 * The library makes units: runs of a segment of the sum, PRODUCT_UNIT long
 * where tokens are summed, which a step may cut there, PRODUCT_LONGEST where
 * features are. Units of a leaf are added to each other by the library, in
 * order; leaves, bias and residual by our own kernels, in the order of struct
 * matmul. A leaf with a form that the library does not make has our own kernels
 * for all of it. So each rank that has a leaf makes the same bits. */
#include "kernels/cuda/products.h"

#include "device/gpu.h"
#include "device/products.h"
#include "kernels/cuda/rows.h"

struct fast {
    struct stream *stream;
    const struct matmul *all;
    exact_product *exact;
    enum granule_kind kind;
    struct matmul part;       /* some rows of it */
};

static enum gpu_number number_of(enum granule_kind kind)
{
    return kind == GRANULE_CHAIN     ? GPU_FLOAT32
           : kind == GRANULE_WIDENED ? GPU_FLOAT16 : GPU_BFLOAT16;
}

static bool is_on_16(const struct tensor *t)
{
    const int64_t bytes = dtype_bytes(t->dtype);
    const int64_t stride = t->stride[0] == 1 ? t->stride[1] : t->stride[0];

    return (uintptr_t)t->data % 16 == 0 && stride * bytes % 16 == 0;
}

/* The form of a unit of k elements. */
static struct gpu_form form_of(const struct fast *f, int64_t k)
{
    const struct matmul *p = f->all;
    const bool a_turned = p->a.stride[0] == 1 && p->a.stride[1] != 1;
    const bool b_turned = p->b.stride[1] != 1;

    return (struct gpu_form){
        .number = number_of(f->kind), .a_turned = a_turned,
        .b_turned = b_turned,
        .aligned = gpu_product_aligned(f->stream->gpu) && is_on_16(&p->a) &&
                   is_on_16(&p->b),
        .k = k};
}

static int64_t unit_of(const struct matmul *p)
{
    return p->a.stride[0] == 1 ? PRODUCT_UNIT : PRODUCT_LONGEST;
}

static int64_t shorter(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* Whether the library makes all units of segments. */
static status is_made(const struct fast *f, const struct sum_segment *segments,
                      int64_t count, bool *made)
{
    const int64_t unit = unit_of(f->all);

    *made = true;
    for (int64_t i = 0; i < count && *made; i++) {
        const int64_t length = segments[i].length;
        const struct gpu_form whole = form_of(f, unit);
        const struct gpu_form rest = form_of(f, length % unit);

        if (length >= unit)
            TRY(gpu_product_made(f->stream->gpu, &whole, made));
        if (*made && length % unit > 0)
            TRY(gpu_product_made(f->stream->gpu, &rest, made));
    }
    return OK;
}

static void *element_of(const struct tensor *t, int64_t row, int64_t column)
{
    return (char *)t->data + (row * t->stride[0] + column * t->stride[1]) *
                                 dtype_bytes(t->dtype);
}

/* Where a matrix has one row there is no stride, but the library wants one. */
static int64_t row_stride(const struct tensor *t, bool turned)
{
    const int64_t stride = t->stride[turned ? 1 : 0];
    const int64_t least = t->shape[turned ? 0 : 1];

    return stride > least ? stride : least;
}

static status unit_run(const struct fast *f, const struct tensor *sum,
                       int64_t first, int64_t k, bool adds)
{
    const struct matmul *p = &f->part;
    const struct gpu_form form = form_of(f, k);

    return gpu_product(f->stream->gpu, &(struct gpu_product){
        .form = form, .a = element_of(&p->a, 0, first),
        .b = element_of(&p->b, first, 0), .c = sum->data,
        .m = sum->shape[0], .n = sum->shape[1],
        .a_stride = row_stride(&p->a, form.a_turned),
        .b_stride = row_stride(&p->b, form.b_turned),
        .c_stride = sum->stride[0], .adds = adds});
}

/* By our own kernels: the sum of one leaf, some segments at a time. */
static status leaf_exact(const struct fast *f, const struct tensor *sum,
                         const struct sum_segment *segments, int64_t count,
                         bool adds)
{
    struct sum_segment some[64];
    struct sum_order order = {some, 0, 1};
    struct matmul own = f->part;

    own.c = *sum;
    own.order = &order;
    own.bias = own.left = NULL;
    for (int64_t i = 0; i < count; i++) {
        some[order.segment_count] = segments[i];
        some[order.segment_count++].leaf = 0;
        if (order.segment_count < 64 && i + 1 < count) continue;
        own.continues = adds || i >= 64;
        TRY(f->exact(f->stream, &own, f->kind));
        order.segment_count = 0;
    }
    return OK;
}

/* sum = the leaf's segments; or sum + them, one by one. */
static status leaf_run(const struct fast *f, const struct tensor *sum,
                       const struct sum_segment *segments, int64_t count,
                       bool adds)
{
    const int64_t unit = unit_of(f->all);
    bool made;

    TRY(is_made(f, segments, count, &made));
    if (!made) return leaf_exact(f, sum, segments, count, adds);
    for (int64_t i = 0; i < count; i++)
        for (int64_t at = 0; at < segments[i].length; at += unit) {
            const int64_t k = shorter(unit, segments[i].length - at);

            TRY(unit_run(f, sum, segments[i].first + at, k, adds));
            adds = true;
        }
    return OK;
}

/* ---- leaves ---- */

/* Sum number `index` of those that wait, of the rows of a part. */
static struct tensor waiting(const struct fast *f, int index)
{
    const struct matmul *p = &f->part;
    const int64_t n = p->c.shape[1], stride = (n + 3) / 4 * 4;
    float *room = gpu_product_room(f->stream->gpu).data;
    struct tensor sum = tensor_2d(
        room + (int64_t)index * p->c.shape[0] * stride, DTYPE_F32,
        p->c.shape[0], n);

    sum.stride[0] = stride;
    return sum;
}

static int64_t leaf_end(const struct sum_order *order, int64_t first)
{
    int64_t end = first;

    while (end < order->segment_count &&
           order->segments[end].leaf == order->segments[first].leaf)
        end++;
    return end;
}

/* The last two sums that wait become one. */
static status merge(const struct fast *f, int *depth)
{
    const struct tensor left = waiting(f, *depth - 2);
    const struct tensor right = waiting(f, *depth - 1);

    (*depth)--;
    return cuda_add(f->stream, left, left, right);
}

/* The tree over leaves, as a counter; its root is sum 0 of those that wait. */
static status tree_run(const struct fast *f)
{
    const struct sum_order *order = f->part.order;
    int64_t first = 0;
    int depth = 0;

    for (int leaf = 0; leaf < order->leaves; leaf++) {
        const int64_t end = leaf_end(order, first);
        const struct tensor sum = waiting(f, depth++);

        TRY(leaf_run(f, &sum, order->segments + first, end - first, false));
        for (int n = leaf + 1; n % 2 == 0; n /= 2) TRY(merge(f, &depth));
        first = end;
    }
    while (depth > 1) TRY(merge(f, &depth));
    return OK;
}

/* A row that is added to every row. */
static struct tensor every_row(const struct tensor *bias, int64_t rows)
{
    struct tensor all = tensor_2d(bias->data, bias->dtype, rows,
                                  bias->shape[0]);

    all.stride[0] = 0;
    return all;
}

/* Like finish, and the norm of c, in one kernel. */
static status finish_norm(const struct fast *f, const struct tensor *sum)
{
    const struct matmul *p = &f->part;
    struct add_norm_call call = {.norm = {.x = view_real(p->c)},
                                 .y = view_of(*sum, DTYPE_F32)};

    if (p->left != NULL) call.left = view_of(*p->left, p->c.dtype);
    if (p->bias != NULL) {
        CHECK(p->bias->dtype == p->c.dtype);
        call.bias = p->bias->data;
    }
    return cuda_sum_norm(f->stream, &call, p->norm);
}

/* c = left + (sum + bias), rounded once. */
static status finish(const struct fast *f, const struct tensor *sum)
{
    const struct matmul *p = &f->part;

    if (p->norm != NULL) return finish_norm(f, sum);
    if (p->bias != NULL) {
        const struct tensor bias = every_row(p->bias, sum->shape[0]);

        if (p->left != NULL)
            return cuda_sum(f->stream, p->c, *p->left, *sum, bias);
        return cuda_add(f->stream, p->c, *sum, bias);
    }
    if (p->left != NULL)
        return cuda_add(f->stream, p->c, *p->left, *sum);
    if (sum->data == p->c.data) return OK;
    return cuda_scale(f->stream, p->c, *sum, 1.0);
}

bool cuda_products_take(struct stream *stream, enum granule_kind kind)
{
    return stream->gpu != NULL &&
           gpu_makes_products(stream->gpu, number_of(kind));
}

/* Whether the sum can be made where the result is to be. */
static bool is_direct(const struct matmul *p)
{
    return p->c.dtype == DTYPE_F32 && p->order->leaves == 1 &&
           is_on_16(&p->c) && p->c.stride[1] == 1 &&
           (p->left == NULL || p->left->data != p->c.data);
}

static status part_run(const struct fast *f)
{
    const struct matmul *p = &f->part;
    const struct sum_order *order = p->order;
    const struct tensor sum = is_direct(p) ? p->c : waiting(f, 0);

    if (order->leaves > 1) {
        TRY(tree_run(f));
    } else {
        if (p->continues && sum.data != p->c.data)
            TRY(cuda_scale(f->stream, sum, p->c, 1.0));
        TRY(leaf_run(f, &sum, order->segments, order->segment_count,
                     p->continues));
    }
    return finish(f, &sum);
}

/* Rows that have room for the sums that wait. */
static int64_t rows_at_once(const struct fast *f)
{
    enum { ROWS = 8 }; /* so that each part begins at a multiple of 16 bytes */
    const struct matmul *p = f->all;
    const int64_t row = (p->c.shape[1] + 3) / 4 * 4 * (int64_t)sizeof(float);
    const int64_t fit = (int64_t)gpu_product_room(f->stream->gpu).bytes / row /
                        products_sums(p->order->leaves) / ROWS * ROWS;

    if (is_direct(p)) return p->c.shape[0];
    CHECK(fit > 0);
    return shorter(fit, p->c.shape[0]);
}

static struct tensor some_rows(struct tensor t, int64_t first, int64_t count)
{
    t.data = element_of(&t, first, 0);
    t.shape[0] = count;
    return t;
}

status cuda_products_run(struct stream *stream, const struct matmul *p,
                         enum granule_kind kind, exact_product *exact)
{
    struct fast f = {.stream = stream, .all = p, .exact = exact,
                     .kind = kind};
    const int64_t m = p->c.shape[0];
    const int64_t most = p->c.shape[1] > 0 ? rows_at_once(&f) : m;
    bool made;

    if (m == 0 || p->c.shape[1] == 0) return OK;
    /* All are chosen now: what is tried lies where sums wait. */
    for (int64_t i = 0; i < p->order->segment_count; i++)
        TRY(is_made(&f, &p->order->segments[i], 1, &made));
    for (int64_t first = 0; first < m; first += most) {
        const int64_t count = shorter(most, m - first);
        struct norm_after norm;
        struct tensor left;

        f.part = *p;
        f.part.a = some_rows(p->a, first, count);
        f.part.c = some_rows(p->c, first, count);
        if (p->left != NULL) {
            left = some_rows(*p->left, first, count);
            f.part.left = &left;
        }
        if (p->norm != NULL) {
            norm = *p->norm;
            norm.y = some_rows(norm.y, first, count);
            norm.stats = some_rows(norm.stats, first, count);
            f.part.norm = &norm;
        }
        TRY(part_run(&f));
    }
    return OK;
}
