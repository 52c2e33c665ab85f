/* SPDX-License-Identifier: Apache-2.0 */
/* cases_experts.c - kernels of mixtures of experts: 4,096 tokens, two of eight
 * experts for each, even routing or the busiest with four times the mean.
 *
 * Sizes: [n, k of a product, form of routing]; c at 0. */
#include "bench/cases.h"

enum { TOKENS = 4096, EXPERTS = 8, CHOICES = 2, ROWS = TOKENS * CHOICES,
       BUSY = 4, EXP_FLOPS = 20 };
enum { ROUTE_EVEN, ROUTE_SKEWED, ROUTE_DROPS };

/* The routing of the case at hand: it follows from the case alone. */
static struct {
    int32_t chosen[ROWS], offsets[EXPERTS + 1], entries[ROWS], places[ROWS];
    struct expert_groups groups;
} routing;

static const struct router_form form = {ROUTER_SOFTMAX, true, 0, EXPERTS,
                                        CHOICES, 0, 0, ROUTER_GROUP_MAX, 0};

/* Skewed: expert 0 is chosen by every token, four times the mean. */
static void routing_make(int64_t route)
{
    struct router_tokens of = {routing.chosen, NULL, 0, TOKENS, CHOICES};
    const struct expert_lists lists = {routing.offsets, routing.entries,
                                       routing.places};
    int64_t used[EXPERTS] = {0};

    _Static_assert(BUSY * CHOICES == EXPERTS, "each token chooses expert 0");
    for (int t = 0; t < TOKENS; t++)
        for (int i = 0; i < CHOICES; i++)
            routing.chosen[t * CHOICES + i] =
                route == ROUTE_EVEN ? (3 * t + i) % EXPERTS
                : i == 0            ? 0
                                    : 1 + t % (EXPERTS - 1);
    if (route == ROUTE_DROPS)
        router_drop(&of, routing.chosen,
                    router_capacity(1.25, CHOICES, TOKENS, EXPERTS), used);
    expert_groups_make(&of, 0, EXPERTS, &lists);
    routing.groups = (struct expert_groups){.experts = EXPERTS,
                                            .choices = CHOICES,
                                            .offsets = routing.offsets,
                                            .entries = routing.entries};
}

static double size_of(const struct operands *o)
{
    return (double)dtype_bytes(o->dtype);
}

static void product_work(struct operands *o, int64_t n, int64_t k)
{
    o->work = CASE_EXPERTS;
    o->flops = 2.0 * ROWS * (double)n * (double)k;
    o->bytes =
        size_of(o) * (ROWS * (double)(n + k) + EXPERTS * (double)(n * k));
}

/* ---- products: c 0, x 1, weights 2, gates 3 ---- */

static void forward_prepare(struct operands *o, const int64_t *s)
{
    routing_make(s[2]);
    o->t[0] = case_operand(o, ROWS, s[0]);
    product_work(o, s[0], s[1]);
    o->t[1] = case_operand(o, TOKENS, s[1]);
    o->t[2] = case_operand(o, EXPERTS * s[0], s[1]);
    o->t[3] = case_operand_real(o, TOKENS, CHOICES);
}

/* One row of a product by itself, with its expert's groups alone. */
static status row_run(const struct kernels *k, struct stream *stream,
                      struct experts_product p, int64_t row)
{
    struct expert_groups one = *p.groups;
    int32_t offsets[2] = {(int32_t)row, (int32_t)row + 1};
    int e = 0;

    while (row >= p.groups->offsets[e + 1]) e++;
    one.experts = 1;
    one.offsets = offsets;
    p.groups = &one;
    p.b.data = (char *)p.b.data +
               e * p.b.stride[0] * dtype_bytes(p.b.dtype);
    p.b.shape[0] = 1;
    return k->experts_product(stream, &p);
}

static status product_all(const struct kernels *k, struct stream *stream,
                          struct operands *o, const struct experts_product *p)
{
    if (o->every == 0) return k->experts_product(stream, p);
    for (int64_t row = 0; row < ROWS; row++)
        if (product_row_is_made(o, row)) TRY(row_run(k, stream, *p, row));
    return OK;
}

static status forward_run(const struct kernels *k, struct stream *stream,
                          struct operands *o)
{
    const int64_t n = o->t[0].shape[1], depth = o->t[1].shape[1];
    const struct sum_segment segment = {0, depth, 0};
    const struct sum_order order = {&segment, 1, 1};
    struct experts_product p = {
        .groups = &routing.groups, .c = o->t[0], .a = {o->t[1], true, NULL},
        .b = tensor_3d(o->t[2].data, o->t[2].dtype, EXPERTS, depth, n),
        .order = &order};

    p.b.stride[0] = n * depth;
    p.b.stride[1] = 1;
    p.b.stride[2] = depth;
    return product_all(k, stream, o, &p);
}

/* The gradient of the second product's input: rows of dy times their gates. */
static status backward_run(const struct kernels *k, struct stream *stream,
                           struct operands *o)
{
    const int64_t n = o->t[0].shape[1], depth = o->t[1].shape[1];
    const struct sum_segment segment = {0, depth, 0};
    const struct sum_order order = {&segment, 1, 1};
    struct experts_product p = {
        .groups = &routing.groups, .c = o->t[0],
        .a = {o->t[1], true, o->t[3].data},
        .b = tensor_3d(o->t[2].data, o->t[2].dtype, EXPERTS, depth, n),
        .order = &order};

    return product_all(k, stream, o, &p);
}

/* ---- gradients of weights: c 0, dy 1, x 2, gates 3 ---- */

static void gradient_prepare(struct operands *o, const int64_t *s)
{
    routing_make(s[2]);
    o->t[0] = case_operand_real(o, EXPERTS * s[0], s[1]);
    product_work(o, s[0], s[1]);
    o->t[1] = case_operand(o, ROWS, s[0]);
    o->t[2] = case_operand(o, TOKENS, s[1]);
}

static status gradient_run(const struct kernels *k, struct stream *stream,
                           struct operands *o)
{
    enum { SEQUENCE = 1024 };
    const int64_t n = o->t[1].shape[1], depth = o->t[2].shape[1];
    struct sum_segment segments[TOKENS / SEQUENCE];
    const struct sum_order order = {segments, TOKENS / SEQUENCE,
                                    TOKENS / SEQUENCE};
    struct experts_gradient p = {
        .groups = &routing.groups, .order = &order,
        .c = tensor_3d(o->t[0].data, DTYPE_F32, EXPERTS, n, depth),
        .a = {o->t[1], false, NULL}, .b = {o->t[2], true, NULL}};

    for (int i = 0; i < TOKENS / SEQUENCE; i++)
        segments[i] = (struct sum_segment){i * SEQUENCE, SEQUENCE, i};
    if (o->every == 0) return k->experts_gradient(stream, &p);
    for (int64_t row = 0; row < EXPERTS * n; row++) {
        const int64_t e = row / n;
        struct expert_groups one = routing.groups;

        if (!product_row_is_made(o, row)) continue;
        one.experts = 1;
        one.offsets += e;
        p.groups = &one;
        p.a.matrix = tensor_cols(o->t[1], row % n, 1);
        p.c = tensor_3d((float *)o->t[0].data + row * depth, DTYPE_F32, 1, 1,
                        depth);
        TRY(k->experts_gradient(stream, &p));
    }
    return OK;
}

/* ---- rows back to tokens: y 0, rows 1, gates 2, dgates 3 ---- */

static void combine_prepare(struct operands *o, const int64_t *s)
{
    routing_make(s[2]);
    o->t[0] = case_operand(o, TOKENS, s[0]);
    o->t[1] = case_operand(o, ROWS, s[0]);
    o->t[2] = case_operand_real(o, TOKENS, CHOICES);
    o->t[3] = case_operand_real(o, TOKENS, CHOICES);
    o->flops = 2.0 * routing.offsets[EXPERTS] * (double)s[0];
    o->bytes = size_of(o) * (routing.offsets[EXPERTS] + TOKENS) *
               (double)s[0];
}

static status combine_run(const struct kernels *k, struct stream *stream,
                          struct operands *o)
{
    const struct experts_combine p = {
        .y = o->t[0], .rows = o->t[1], .places = routing.places,
        .numbers = routing.chosen, .gates = o->t[2].data, .choices = CHOICES,
        .leaf_experts = 2};

    return k->experts_combine(stream, &p);
}

static status gates_run(const struct kernels *k, struct stream *stream,
                        struct operands *o)
{
    const struct experts_gates p = {o->t[3], o->t[0], o->t[1], routing.places,
                                    CHOICES};

    return k->experts_gates(stream, &p);
}

/* ---- routers: logits 0, gates 1, dgates 2, dlogits 3 ---- */

static void router_prepare(struct operands *o, const int64_t *s)
{
    CHECK(router_form_check(&form) == OK && s[1] == EXPERTS);
    routing_make(ROUTE_EVEN);
    o->t[0] = case_operand_real(o, s[0], s[1]);
    o->t[1] = case_operand_real(o, s[0], CHOICES);
    o->t[2] = case_operand_real(o, s[0], CHOICES);
    o->t[3] = case_operand_real(o, s[0], s[1]);
    o->flops = (EXP_FLOPS + 4 + CHOICES) * (double)(s[0] * s[1]);
    o->bytes = sizeof(float) * (double)(s[0] * s[1]);
}

static status router_run(const struct kernels *k, struct stream *stream,
                         struct operands *o)
{
    const struct router p = {form, o->t[0], o->t[1], NULL, routing.chosen};

    return k->router_choose(stream, &p);
}

static status router_backward_run(const struct kernels *k,
                                  struct stream *stream, struct operands *o)
{
    const struct router_tokens tokens = {routing.chosen, NULL, 0, TOKENS,
                                         CHOICES};
    int64_t counts[EXPERTS] = {0};
    double weights[EXPERTS];
    const struct router_balance balance = {counts, EXPERTS, 2, 0.01, 0.01};
    struct router_losses p = {
        .form = form, .logits = o->t[0], .dgates = o->t[2], .weights = weights,
        .length = TOKENS, .z_loss = 1e-3, .chosen = routing.chosen,
        .dlogits = o->t[3]};

    router_count(&tokens, counts);
    router_balance(&balance, weights);
    return k->router_backward(stream, &p);
}

/* ---- the clamped form: out 0, gate and up 1 ---- */

static void clamped_prepare(struct operands *o, const int64_t *s)
{
    o->t[0] = case_operand(o, s[0], s[1]);
    o->t[1] = case_operand(o, s[0], 2 * s[1]);
    o->flops = (EXP_FLOPS + 5) * (double)(s[0] * s[1]);
    o->bytes = 3 * size_of(o) * (double)(s[0] * s[1]);
}

static status clamped_forward_run(const struct kernels *k,
                                  struct stream *stream, struct operands *o)
{
    const struct clamped_glu p = {.out = o->t[0], .gate_up = o->t[1],
                                  .alpha = 1.702, .limit = 0.7};

    return k->clamped_forward(stream, &p);
}

/* In place, on numbers that a call leaves as they are or makes smaller. */
static status clamped_backward_run(const struct kernels *k,
                                   struct stream *stream, struct operands *o)
{
    const struct clamped_glu p = {.dout = o->t[0], .gate_up = o->t[1],
                                  .dgate_up = o->t[1], .alpha = 1.702,
                                  .limit = 0.7};

    return k->clamped_backward(stream, &p);
}

const struct bench_case bench_expert_cases[] = {
    {"integer_product", "1024x2304x768", {1024, 2304, 768}, case_integers,
     case_integers_run},
    {"integer_product", "1024x768x3072", {1024, 768, 3072}, case_integers,
     case_integers_run},
    {"integer_product", "4096x768x3072", {4096, 768, 3072}, case_integers,
     case_integers_run},
    {"matmul", "NT 8192x2048x512", {8192, 2048, 512}, case_product_nt,
     case_product_run},
    {"experts_product", "NT 2048x512 even", {2048, 512, ROUTE_EVEN},
     forward_prepare, forward_run},
    {"experts_product", "NT 2048x512 4 x mean", {2048, 512, ROUTE_SKEWED},
     forward_prepare, forward_run},
    {"matmul", "NN 8192x1024x512", {8192, 1024, 512}, case_product_nn,
     case_product_run},
    {"experts_product", "NN 1024x512 even", {1024, 512, ROUTE_EVEN},
     forward_prepare, backward_run},
    {"experts_product", "NN 1024x512 4 x mean", {1024, 512, ROUTE_SKEWED},
     forward_prepare, backward_run},
    {"matmul", "TN 2048x512x8192", {2048, 512, 8192}, case_product_tn,
     case_product_run},
    {"experts_gradient", "TN 2048x512 even", {2048, 512, ROUTE_EVEN},
     gradient_prepare, gradient_run},
    {"experts_gradient", "TN 2048x512 4 x mean", {2048, 512, ROUTE_SKEWED},
     gradient_prepare, gradient_run},
    {"experts_combine", "8192 to 4096 x 512", {512, 0, ROUTE_EVEN},
     combine_prepare, combine_run},
    {"experts_combine", "capacity 1.25 x 512", {512, 0, ROUTE_DROPS},
     combine_prepare, combine_run},
    {"experts_gates", "8192 of 4096 x 512", {512, 0, ROUTE_EVEN},
     combine_prepare, gates_run},
    {"router_choose", "4096 x 8", {TOKENS, EXPERTS, 0}, router_prepare,
     router_run},
    {"router_backward", "4096 x 8", {TOKENS, EXPERTS, 0}, router_prepare,
     router_backward_run},
    {"clamped_forward", "2048 x 2048", {2048, 2048, 0}, clamped_prepare,
     clamped_forward_run},
    {"clamped_backward", "2048 x 2048", {2048, 2048, 0}, clamped_prepare,
     clamped_backward_run},
};
const int bench_expert_case_count =
    (int)(sizeof bench_expert_cases / sizeof *bench_expert_cases);
