/* SPDX-License-Identifier: Apache-2.0 */
/* matmul_experts.c - products over all experts in one launch, whose work
 * threads divide as experts_line.h says. */
#include "kernels/cpu/matmul/experts_line.h"
#include "kernels/cpu/matmul/matmul_plan.h"
#include "kernels/cpu/scratch.h"
#include "kernels/expert_index.h"
#include "kernels/narrow_product.h"

/* A call; `product` or `gradient`. */
struct call {
    struct experts_line line;
    const struct experts_product *product;
    const struct experts_gradient *gradient;
    const struct matmul_format *format;
    enum dtype dtype;
    char *scratch;
    size_t thread_bytes;
};

static void *address(const struct tensor *t, int64_t element)
{
    return element_at(t->data, t->dtype, element);
}

/* The room of a thread: panels, staging, strips, slots; `taken` bytes of the
 * latter are something else's. */
static void room_give(const struct call *call, int index, size_t taken,
                      struct plan *plan)
{
    const size_t panels = MATMUL_A_FLOATS * sizeof(float);
    const size_t staging = STAGING_FLOATS * sizeof(float);
    const size_t rest = call->thread_bytes - panels - staging;
    char *at = call->scratch + (size_t)index * call->thread_bytes;

    CHECK(taken < rest / 4);
    plan->a_packed = (uint32_t *)(void *)at;
    plan->staging = at + panels;
    plan->b_packed = (uint32_t *)(void *)(at + panels + staging);
    plan->b_floats = (int64_t)(rest / 2 / sizeof(float)) / LINE * LINE;
    plan->slots = (float *)(void *)plan->b_packed + plan->b_floats;
    plan->slot_floats = (int64_t)((rest / 2 - taken) / sizeof(float)) / LINE *
                        LINE;
}

/* ---- products ---- */

/* Whether rows have to be copied before they are packed. */
static bool is_apart(const struct expert_rows *rows)
{
    return rows->gathered || rows->scales != NULL;
}

static void product_share(const struct call *call, const struct line_share *s,
                          int index)
{
    const struct experts_product *p = call->product;
    const int64_t first = call->line.groups->offsets[s->expert] + s->row;
    const int64_t column = s->strip * TILE_COLUMNS;
    const int64_t columns =
        smaller(s->strip_end * TILE_COLUMNS, call->line.columns) - column;
    const struct matmul_apart apart = {call->line.groups, &p->a, first, 0,
                                       false};
    const struct tensor *b = &p->b;
    struct tensor bias = {0};
    struct plan plan = {
        .format = call->format, .a_apart = is_apart(&p->a) ? &apart : NULL,
        .p = {.order = p->order, .a = p->a.matrix}};

    plan.p.c = tensor_cols(tensor_rows(p->c, first, s->row_end - s->row),
                           column, columns);
    plan.p.a.shape[0] = s->row_end - s->row;
    if (!plan.a_apart)
        plan.p.a = tensor_rows(p->a.matrix, first, s->row_end - s->row);
    plan.p.b = tensor_2d(address(b, s->expert * b->stride[0] +
                                        column * b->stride[2]),
                         call->dtype, b->shape[1], columns);
    plan.p.b.stride[0] = b->stride[1];
    plan.p.b.stride[1] = b->stride[2];
    if (p->bias.data) {
        bias = tensor_1d(address(&p->bias, s->expert * p->bias.stride[0] +
                                               column), call->dtype, columns);
        plan.p.bias = &bias;
    }
    plan.c_count = call->line.groups->offsets[call->line.groups->experts] *
                   call->line.columns;
    room_give(call, index, 0, &plan);
    CPU(matmul_plan_run)(&plan);
}

/* ---- gradients ---- */

/* The expert's rows as segments; returns how many. */
static int64_t segments_make(const struct call *call, int expert,
                             struct sum_segment *out)
{
    const struct sum_order *order = call->gradient->order;
    int64_t count = 0;

    for (int64_t i = 0; i < order->segment_count; i++) {
        out[count] = expert_segment(call->line.groups, expert,
                                    &order->segments[i]);
        if (out[count].length > 0) count++;
    }
    return count;
}

static void matrix_zero(struct tensor c)
{
    for (int64_t row = 0; row < c.shape[0]; row++)
        memset((float *)c.data + row * c.stride[0], 0,
               (size_t)c.shape[1] * sizeof(float));
}

/* Columns of the rows of an expert as an operand. */
static struct tensor operand_of(const struct expert_rows *rows, int64_t first,
                                int64_t column, int64_t columns)
{
    struct tensor out = rows->matrix;

    out.shape[1] = columns;
    out.data = address(&rows->matrix,
                       (is_apart(rows) ? 0 : first * out.stride[0]) + column);
    return out;
}

static void gradient_share(const struct call *call, const struct line_share *s,
                           int index)
{
    const struct experts_gradient *p = call->gradient;
    const int64_t first = call->line.groups->offsets[s->expert];
    const int64_t count = expert_count(call->line.groups, s->expert);
    const int64_t column = s->strip * TILE_COLUMNS;
    const int64_t columns =
        smaller(s->strip_end * TILE_COLUMNS, call->line.columns) - column;
    const struct expert_groups *groups = call->line.groups;
    const struct matmul_apart a = {groups, &p->a, first, s->row, true};
    const struct matmul_apart b = {groups, &p->b, first, column, true};
    struct sum_order order = {.leaves = p->order->leaves};
    struct plan plan = {
        .format = call->format, .a_apart = is_apart(&p->a) ? &a : NULL,
        .b_apart = is_apart(&p->b) ? &b : NULL,
        .p = {.order = &order, .continues = p->continues}};

    room_give(call, index,
              (size_t)p->order->segment_count * sizeof *order.segments, &plan);
    order.segments = (void *)(plan.slots + plan.slot_floats);
    order.segment_count = segments_make(call, s->expert,
                                        (void *)(plan.slots +
                                                 plan.slot_floats));
    plan.p.c = tensor_2d((float *)p->c.data + s->expert * p->c.stride[0] +
                             s->row * p->c.stride[1] + column,
                         DTYPE_F32, s->row_end - s->row, columns);
    plan.p.c.stride[0] = p->c.stride[1];
    if (order.segment_count == 0) {
        if (!p->continues && !p->adds) matrix_zero(plan.p.c);
        return;
    }
    plan.p.a = operand_of(&p->a, first, s->row, s->row_end - s->row);
    plan.p.b = operand_of(&p->b, first, column, columns);
    plan.p.a.shape[0] = plan.p.b.shape[0] = count;
    plan.p.a = tensor_transpose(plan.p.a);
    if (p->adds) plan.p.left = &plan.p.c;
    plan.c_count = call->line.rows * call->line.columns * groups->experts;
    CPU(matmul_plan_run)(&plan);
}

/* ---- threads ---- */

static void experts_body(void *argument, int index, int threads)
{
    const struct call *call = argument;
    struct line_cursor at = line_begin(&call->line, index, threads);
    struct line_share share;

    while (line_next(&call->line, &at, &share))
        if (call->product) product_share(call, &share, index);
        else gradient_share(call, &share, index);
}

static void call_run(struct stream *stream, struct call *call)
{
    const size_t threads = (size_t)threads_count(stream->threads);

    CHECK(stream->scratch_bytes >= matmul_scratch_bytes((int)threads));
    if (call->line.columns == 0) return;
    if (call->gradient && call->line.rows == 0) return;
    call->scratch = stream->scratch;
    call->thread_bytes = matmul_scratch_bytes((int)threads) / threads /
                         LINE * LINE;
    threads_run(stream->threads, experts_body, call);
}

static status product_run(struct stream *stream,
                          const struct experts_product *p, enum dtype dtype,
                          enum product product)
{
    const struct expert_groups *groups = p->groups;
    struct call call = {.line = {groups, 0, p->c.shape[1]}, .product = p,
                        .format = CPU(matmul_format_of)(dtype, product),
                        .dtype = dtype};

    expert_groups_check(groups);
    expert_rows_check(groups, &p->a, dtype);
    CHECK(p->b.dtype == dtype && p->b.shape[0] == groups->experts);
    CHECK(p->b.shape[1] == p->a.matrix.shape[1]);
    CHECK(p->b.shape[2] == p->c.shape[1] && p->c.stride[1] == 1);
    CHECK(p->b.stride[1] == 1 || p->b.stride[2] == 1);
    CHECK(p->c.dtype == DTYPE_F32 || p->c.dtype == dtype);
    CHECK(p->c.shape[0] >= groups->offsets[groups->experts]);
    CHECK(!p->bias.data || (p->bias.dtype == dtype &&
                            p->bias.shape[1] == p->c.shape[1]));
    sum_order_check(p->order, p->b.shape[1], false);
    call_run(stream, &call);
    return OK;
}

static status gradient_run(struct stream *stream,
                           const struct experts_gradient *p, enum dtype dtype,
                           enum product product)
{
    const struct expert_groups *groups = p->groups;
    struct call call = {.line = {groups, p->c.shape[1], p->c.shape[2]},
                        .format = CPU(matmul_format_of)(dtype, product),
                        .gradient = p, .dtype = dtype};

    expert_groups_check(groups);
    expert_rows_check(groups, &p->a, dtype);
    expert_rows_check(groups, &p->b, dtype);
    CHECK(p->c.dtype == DTYPE_F32 && p->c.stride[2] == 1);
    CHECK(p->c.shape[0] == groups->experts);
    CHECK(p->c.shape[1] == p->a.matrix.shape[1]);
    CHECK(p->c.shape[2] == p->b.matrix.shape[1]);
    CHECK(p->order->leaves >= 1 && p->order->leaves <= LEAVES_MAX);
    CHECK(!p->continues || (p->order->leaves == 1 && !p->adds));
    call_run(stream, &call);
    return OK;
}

#define ROWS(name, dtype, product)                                         \
    status CPU(experts_product##name)(struct stream *stream,               \
                                      const struct experts_product *p)     \
    {                                                                      \
        if (p->accumulator != NULL)                                        \
            return reference_experts_product_bf16_pairs(stream, p);        \
        return product_run(stream, p, dtype, product);                     \
    }                                                                      \
    status CPU(experts_gradient##name)(struct stream *stream,              \
                                       const struct experts_gradient *p)   \
    {                                                                      \
        if (p->accumulator != NULL)                                        \
            return reference_experts_gradient_bf16_pairs(stream, p);       \
        return gradient_run(stream, p, dtype, product);                    \
    }
#define NARROW_ROWS(name, dtype, product)                                  \
    KERNELS_TYPE(experts_product) CPU(experts_product##name);              \
    KERNELS_TYPE(experts_gradient) CPU(experts_gradient##name);            \
    ROWS(name, dtype, product)
ROWS(, DTYPE_F32, PRODUCT_PAIRS)
NARROW_ROWS(_bf16_pairs, DTYPE_BF16, PRODUCT_PAIRS)
NARROW_ROWS(_bf16_tiles, DTYPE_BF16, PRODUCT_TILES)
NARROW_ROWS(_f16, DTYPE_F16, PRODUCT_PAIRS)
