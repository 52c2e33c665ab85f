/* SPDX-License-Identifier: Apache-2.0 */
/* cases.c - kernels with their operands at the shapes of training.
 *
 * Operations count additions, multiplications, divisions and roots of the
 * definition, an FMA as two; exponentials count as EXP_FLOPS. */
#include "bench/cases.h"

#include <string.h>

#include "bench/draw.h"

enum { EXP_FLOPS = 20 };

static int64_t given(int64_t size, int64_t usual)
{
    return size > 0 ? size : usual;
}

/* Bytes of an element that may be narrow. */
static double size_of(const struct operands *o)
{
    return (double)dtype_bytes(o->dtype);
}

static void integers_fill(struct operands *o, int64_t bound)
{
    uint32_t state = 5;

    for (int i = 0; i < CASE_INTEGERS; i++)
        o->integers[i] = (int32_t)((int64_t)draw_bits(&state) * bound >> 24);
}

/* ---- products: [m, n, k], c at 0, a at 1, b at 2 ---- */

static void product_work(struct operands *o, const int64_t *s)
{
    o->work = CASE_PRODUCT;
    o->t[0] = case_operand(o, s[0], s[1]);
    o->flops = 2.0 * (double)s[0] * (double)s[1] * (double)s[2];
    o->bytes = size_of(o) * ((double)s[0] * (double)s[1] + (double)s[0] *
                      (double)s[2] + (double)s[1] * (double)s[2]);
}

void case_product_nn(struct operands *o, const int64_t *s)
{
    product_work(o, s);
    o->t[1] = case_operand(o, s[0], s[2]);
    o->t[2] = case_operand(o, s[2], s[1]);
}

void case_product_nt(struct operands *o, const int64_t *s)
{
    product_work(o, s);
    o->t[1] = case_operand(o, s[0], s[2]);
    o->t[2] = tensor_transpose(case_operand(o, s[1], s[2]));
}

void case_product_tn(struct operands *o, const int64_t *s)
{
    product_work(o, s);
    o->t[1] = tensor_transpose(case_operand(o, s[2], s[0]));
    o->t[2] = case_operand(o, s[2], s[1]);
}

void case_product_w(struct operands *o, const int64_t *s)
{
    case_product_tn(o, s);
    o->t[0] = case_operand_real(o, s[0], s[1]);
    o->segment = s[3];
}

status case_product_w_run(const struct kernels *k, struct stream *stream,
                          struct operands *o)
{
    struct sum_segment segments[CASE_SEGMENTS];
    const int64_t tokens = o->t[1].shape[1];
    const int64_t count =
        o->segment > 0 && tokens % o->segment == 0 &&
                tokens / o->segment <= CASE_SEGMENTS
            ? tokens / o->segment : 1;
    const struct sum_order order = {segments, count, (int)count};
    const struct matmul p = {.c = o->t[0], .a = o->t[1], .b = o->t[2],
                             .order = &order, .accumulator = o->accumulator};

    for (int64_t i = 0; i < count; i++)
        segments[i] = (struct sum_segment){i * (tokens / count),
                                           tokens / count, (int)i};
    return k->matmul(stream, &p);
}

status case_product_run(const struct kernels *k, struct stream *stream,
                          struct operands *o)
{
    struct sum_segment segment = {0, o->t[1].shape[1], 0};
    struct sum_order order = {&segment, 1, 1};
    struct matmul p = {.c = o->t[0], .a = o->t[1], .b = o->t[2],
                       .order = &order, .accumulator = o->accumulator};

    if (o->every == 0) return k->matmul(stream, &p);
    for (int64_t row = 0; row < o->t[0].shape[0]; row++) {
        if (!product_row_is_made(o, row)) continue;
        p.c = tensor_rows(o->t[0], row, 1);
        p.a = tensor_rows(o->t[1], row, 1);
        TRY(k->matmul(stream, &p));
    }
    return OK;
}

/* ---- attention: [sequences, length, window, heads, head width], q k v out
 * dq dk dv dout ---- */

/* Pairs of a query and a key that it sees, of one sequence and head. */
static double pairs_of(int64_t length, int64_t window)
{
    const int64_t wide = window > 0 && window < length ? window : length;

    return (double)wide * (double)(wide + 1) / 2 +
           (double)(length - wide) * (double)wide;
}

static void attention_prepare(struct operands *o, const int64_t *s)
{
    const int64_t heads = given(s[3], 12), width = given(s[4], 64);
    const double pairs = (double)s[0] * (double)heads * pairs_of(s[1], s[2]);

    o->work = CASE_ATTENTION;
    for (int i = 0; i < 8; i++) {
        struct tensor t = case_operand(o, s[0] * s[1], heads * width);

        o->t[i] = tensor_3d(t.data, t.dtype, s[0] * s[1], heads, width);
    }
    o->t[8] = case_operand_real(o, s[0] * s[1], heads); /* lse */
    for (int i = 0; i < 3; i++) o->integers[i] = (int32_t)s[i];
    o->flops = pairs * (4.0 * (double)width + EXP_FLOPS);
    o->lane_flops = pairs * EXP_FLOPS;
    o->bytes = 4 * size_of(o) * (double)tensor_count(&o->t[0]);
}

static struct attention attention_of(const struct kernels *k,
                                     struct operands *o)
{
    const int heads = (int)o->t[0].shape[1], width = (int)o->t[0].shape[2];

    return (struct attention){
        .q = o->t[0], .k = o->t[1], .v = o->t[2], .out = o->t[3],
        .dq = o->t[4], .dk = o->t[5], .dv = o->t[6], .dout = o->t[7],
        .sequences = o->integers[0], .queries = o->integers[1],
        .keys = o->integers[1], .heads = heads, .kv_heads = heads,
        .head_width = width, .leaves = 4, .scale = 0.125,
        .window = o->integers[2], .tiles = k->product == PRODUCT_TILES,
        .lse = o->t[8]};
}

static status attention_forward_run(const struct kernels *k,
                                    struct stream *stream, struct operands *o)
{
    struct attention a = attention_of(k, o);

    return k->attention_forward(stream, &a);
}

/* The forward results that it needs come from the prepared numbers: wrong for
 * training, as good for time and bits (all exponentials stay finite). */
static void attention_backward_prepare(struct operands *o, const int64_t *s)
{
    float *lse;

    attention_prepare(o, s);
    lse = o->t[8].data;
    for (int64_t i = 0; i < tensor_count(&o->t[8]); i++) lse[i] = 5;
    o->flops = 2.5 * (o->flops - o->lane_flops) + o->lane_flops;
    o->bytes *= 2;
}

static status attention_backward_run(const struct kernels *k,
                                     struct stream *stream, struct operands *o)
{
    struct attention a = attention_of(k, o);

    return k->attention_backward(stream, &a);
}

/* ---- rows: [tokens, width] ---- */

static void rows_prepare(struct operands *o, const int64_t *s)
{
    for (int i = 0; i < 3; i++) o->t[i] = case_operand(o, s[0], s[1]);
    o->t[3] = case_vector(case_operand(o, 1, s[1]));
    o->t[4] = case_vector(case_operand(o, 1, s[1]));
    o->t[5] = case_vector(case_operand_real(o, 1, 2 * s[0]));
    o->t[6] = case_operand_real(o, 1, s[1]);
    o->t[7] = case_operand_real(o, 1, s[1]);
    o->flops = 4.0 * (double)(s[0] * s[1]);
    o->bytes = 2 * size_of(o) * (double)(s[0] * s[1]);
}

static void rows_backward_prepare(struct operands *o, const int64_t *s)
{
    rows_prepare(o, s);
    o->flops *= 3;
    o->bytes *= 1.5; /* two inputs, one output */
}

static struct token_order one_leaf(int64_t tokens)
{
    return (struct token_order){.length = tokens, .sequences_per_leaf = 1,
                                .leaves = 1, .parts = 1};
}

static struct tensor first_half(struct tensor vector)
{
    vector.shape[0] /= 2;
    return vector;
}

static status add_run(const struct kernels *k, struct stream *stream,
                      struct operands *o)
{
    return k->add(stream, o->t[0], o->t[1], o->t[2]);
}

static status add_norm_run(const struct kernels *k, struct stream *stream,
                           struct operands *o)
{
    const struct add_norm call = {
        .x = o->t[0], .left = o->t[1], .y = o->t[1], /* one is read */
        .norm = {.y = o->t[2], .stats = first_half(o->t[5]),
                 .weight = o->t[3], .epsilon = 1e-5}};

    return k->add_norm(stream, &call);
}

static status rmsnorm_forward_run(const struct kernels *k,
                                  struct stream *stream, struct operands *o)
{
    return k->rmsnorm_forward(stream, o->t[0], first_half(o->t[5]), o->t[1],
                              o->t[3], 1e-5);
}

static status rmsnorm_backward_run(const struct kernels *k,
                                   struct stream *stream, struct operands *o)
{
    struct token_order order = one_leaf(o->t[0].shape[0]);

    return k->rmsnorm_backward(stream, o->t[0], false, o->t[6], o->t[2],
                               o->t[1], first_half(o->t[5]), o->t[3], &order);
}

static status layernorm_forward_run(const struct kernels *k,
                                    struct stream *stream, struct operands *o)
{
    return k->layernorm_forward(stream, o->t[0], o->t[5], o->t[1], o->t[3],
                                o->t[4], 1e-5);
}

static status layernorm_backward_run(const struct kernels *k,
                                     struct stream *stream, struct operands *o)
{
    struct token_order order = one_leaf(o->t[0].shape[0]);

    return k->layernorm_backward(stream, o->t[0], false, o->t[6], o->t[7],
                                 o->t[2], o->t[1], o->t[5], o->t[3], &order);
}

static status sum_rows_run(const struct kernels *k, struct stream *stream,
                           struct operands *o)
{
    struct token_order order = one_leaf(o->t[0].shape[0]);

    return k->sum_rows(stream, o->t[6], o->t[1], &order);
}

static status sum_squares_run(const struct kernels *k, struct stream *stream,
                              struct operands *o)
{
    /* A step takes means; those of this factor stay as they are for long. */
    return k->sum_squares(stream, &o->doubles[0], o->t[1],
                          o->segment > 0 ? 1 - 0x1p-24 : 1);
}

/* Reads once, writes next to nothing. */
static void sums_prepare(struct operands *o, const int64_t *s)
{
    rows_prepare(o, s);
    o->flops /= 2;
    o->bytes /= 2;
}

/* Gradients of parameters, which are never narrow; s[2]: of their means, which
 * take their place. */
static void squares_prepare(struct operands *o, const int64_t *s)
{
    o->segment = s[2];
    o->t[1] = case_operand_real(o, s[0], s[1]);
    o->flops = (s[2] > 0 ? 3.0 : 2.0) * (double)(s[0] * s[1]);
    o->bytes = (s[2] > 0 ? 8.0 : 4.0) * (double)(s[0] * s[1]);
}

static void exponential_prepare(struct operands *o, const int64_t *s)
{
    rows_prepare(o, s);
    o->flops = (EXP_FLOPS + 6.0) * (double)(s[0] * s[1]);
}

static void exponential_backward_prepare(struct operands *o, const int64_t *s)
{
    exponential_prepare(o, s);
    o->bytes *= 1.5;
}

static status gelu_forward_run(const struct kernels *k, struct stream *stream,
                               struct operands *o)
{
    return k->activation_forward(stream, o->t[0], o->t[1],
                                 ACTIVATION_GELU_TANH);
}

static status gelu_backward_run(const struct kernels *k, struct stream *stream,
                                struct operands *o)
{
    return k->activation_backward(stream, o->t[0], o->t[2], o->t[1],
                                  ACTIVATION_GELU_TANH);
}

/* out at 0, gate and up at 1, their gradients at 2. */
static void swiglu_prepare(struct operands *o, const int64_t *s)
{
    o->t[0] = case_operand(o, s[0], s[1]);
    o->t[1] = case_operand(o, s[0], 2 * s[1]);
    o->t[2] = case_operand(o, s[0], 2 * s[1]);
    o->flops = (EXP_FLOPS + 4.0) * (double)(s[0] * s[1]);
    o->bytes = 3 * size_of(o) * (double)(s[0] * s[1]);
}

static void swiglu_backward_prepare(struct operands *o, const int64_t *s)
{
    swiglu_prepare(o, s);
    o->bytes = 5 * size_of(o) * (double)(s[0] * s[1]);
}

static status swiglu_forward_run(const struct kernels *k,
                                 struct stream *stream, struct operands *o)
{
    return k->swiglu_forward(stream, o->t[0], o->t[1]);
}

static status swiglu_backward_run(const struct kernels *k,
                                  struct stream *stream, struct operands *o)
{
    return k->swiglu_backward(stream, o->t[2], o->t[0], o->t[1]);
}

static status geglu_forward_run(const struct kernels *k,
                                struct stream *stream, struct operands *o)
{
    return k->geglu_forward(stream, o->t[0], o->t[1]);
}

static status geglu_backward_run(const struct kernels *k,
                                 struct stream *stream, struct operands *o)
{
    return k->geglu_backward(stream, o->t[2], o->t[0], o->t[1]);
}

static void softcap_prepare(struct operands *o, const int64_t *s)
{
    o->t[0] = case_operand(o, s[0], s[1]);
    o->t[1] = case_operand(o, s[0], s[1]);
    o->flops = (EXP_FLOPS + 4.0) * (double)(s[0] * s[1]);
    o->bytes = 2 * size_of(o) * (double)(s[0] * s[1]);
}

static status softcap_forward_run(const struct kernels *k,
                                  struct stream *stream, struct operands *o)
{
    return k->softcap_forward(stream, o->t[0], o->t[1], 30);
}

static status softcap_backward_run(const struct kernels *k,
                                   struct stream *stream, struct operands *o)
{
    return k->softcap_backward(stream, o->t[0], o->t[1], 30);
}

/* y at 0, x at 1, what it is added to at 2. Random words count no FLOPs. */
static status dropout_run(const struct kernels *k, struct stream *stream,
                          struct operands *o)
{
    struct dropout_row rows[2048] = {{0, 0}};
    struct dropout d = {.y = o->t[0], .x = o->t[1], .left = o->t[2],
                        .key = random_key_make(1, "bench"), .rows = rows,
                        .rate = 0.1};

    for (int i = 0; i < 2048; i++) rows[i].high = (uint64_t)i << 40;
    return k->dropout(stream, &d);
}

/* [tokens, heads, width], of rows of a fourth size: x at 0, table at 1. */
static void rope_prepare(struct operands *o, const int64_t *s)
{
    const int64_t heads = given(s[1], 12), width = given(s[2], 64);
    const int64_t row = given(s[3], heads * width);
    struct tensor x = case_operand(o, s[0], row);

    o->t[0] = tensor_3d(x.data, x.dtype, s[0], heads, width);
    o->t[0].stride[0] = row;
    o->t[1] = tensor_3d(case_operand_real(o, s[0], width).data, DTYPE_F32,
                        s[0], width / 2, 2);
    integers_fill(o, s[0]);
    o->flops = 3.0 * (double)tensor_count(&o->t[0]);
    o->bytes = 2 * size_of(o) * (double)tensor_count(&o->t[0]);
}

static status rope_run(const struct kernels *k, struct stream *stream,
                       struct operands *o)
{
    return k->rope(stream, o->t[0], o->integers, o->t[1],
                   (int)o->t[0].shape[2], false);
}

/* ---- the vocabulary: [tokens, width, rows] ---- */

static void lookup_prepare(struct operands *o, const int64_t *s)
{
    o->t[0] = case_operand(o, s[0], s[1]);
    o->t[1] = case_operand(o, s[2], s[1]);
    integers_fill(o, s[2]);
    o->flops = (double)(s[0] * s[1]);
    o->bytes = 2 * size_of(o) * (double)(s[0] * s[1]);
}

/* The whole table is written. */
static void scatter_prepare(struct operands *o, const int64_t *s)
{
    o->t[0] = case_operand(o, s[0], s[1]);
    o->t[1] = case_operand_real(o, s[2], s[1]);
    integers_fill(o, s[2]);
    o->flops = (double)(s[0] * s[1]);
    o->bytes = size_of(o) * (double)(s[0] * s[1]) +
               4.0 * (double)(s[2] * s[1]);
}

static status gather_run(const struct kernels *k, struct stream *stream,
                         struct operands *o)
{
    return k->gather_rows(stream, o->t[0], false, o->t[1], o->integers);
}

static status scatter_run(const struct kernels *k, struct stream *stream,
                          struct operands *o)
{
    struct token_order order = one_leaf(o->t[0].shape[0]);

    return k->scatter_rows(stream, o->t[1], o->t[0], o->integers, &order);
}

/* Converts the gradient of a narrow table, in the first halves of rows, to
 * float32 in place; a float32 gradient is rounded as a narrow table's would
 * be. */
static void loss_settle(struct operands *o)
{
    const int64_t columns = o->t[0].shape[1];

    for (int64_t row = 0; row < o->t[0].shape[0]; row++) {
        float *x = (float *)o->t[0].data + row * columns;
        const struct tensor half = tensor_1d(x, o->dtype, columns);

        for (int64_t i = columns - 1; i >= 0; i--)
            x[i] = case_rounded(o->narrow, (float)tensor_get(&half, i));
    }
}

static void loss_prepare(struct operands *o, const int64_t *s)
{
    o->t[0] = case_operand_real(o, s[0], s[1]);
    integers_fill(o, s[1]);
    o->flops = (EXP_FLOPS + 4.0) * (double)(s[0] * s[1]);
    o->bytes = (4 + size_of(o)) * (double)(s[0] * s[1]);
    o->settle = loss_settle;
}

static status loss_run(const struct kernels *k, struct stream *stream,
                       struct operands *o)
{
    struct cross_entropy c = {.logits = o->t[0], .targets = o->integers,
                              .losses = o->doubles, .leaves = 4,
                              .gradient = true};

    return k->cross_entropy(stream, &c);
}

const struct bench_case bench_cases[] = {
    {"matmul", "NT 1024x2304x768", {1024, 2304, 768}, case_product_nt,
     case_product_run},
    {"matmul", "NT 1024x768x3072", {1024, 768, 3072}, case_product_nt,
     case_product_run},
    {"matmul", "NN 1024x768x3072", {1024, 768, 3072}, case_product_nn,
     case_product_run},
    {"matmul", "TN 3072x768x1024", {3072, 768, 1024}, case_product_tn,
     case_product_run},
    {"matmul", "NT 4096x2304x768", {4096, 2304, 768}, case_product_nt,
     case_product_run},
    {"matmul", "NT 4096x768x3072", {4096, 768, 3072}, case_product_nt,
     case_product_run},
    {"matmul", "NN 4096x768x3072", {4096, 768, 3072}, case_product_nn,
     case_product_run},
    {"matmul", "TN 3072x768x4096", {3072, 768, 4096}, case_product_tn,
     case_product_run},
    {"matmul", "NT 1x3072x768", {1, 3072, 768}, case_product_nt,
     case_product_run},
    {"attention_forward", "2 x 512 x 12 x 64", {2, 512, 0},
     attention_prepare, attention_forward_run},
    {"attention_backward", "2 x 512 x 12 x 64", {2, 512, 0},
     attention_backward_prepare, attention_backward_run},
    {"attention_forward", "1024 x 12 x 64", {1, 1024, 0},
     attention_prepare, attention_forward_run},
    {"attention_backward", "1024 x 12 x 64", {1, 1024, 0},
     attention_backward_prepare, attention_backward_run},
    {"attention_forward", "2048, window 256", {1, 2048, 256},
     attention_prepare, attention_forward_run},
    {"attention_backward", "2048, window 256", {1, 2048, 256},
     attention_backward_prepare, attention_backward_run},
    {"add", "4096 x 768", {4096, 768, 0}, rows_backward_prepare, add_run},
    {"rmsnorm_forward", "4096 x 768", {4096, 768, 0}, rows_prepare,
     rmsnorm_forward_run},
    {"add_norm", "4096 x 768", {4096, 768, 0}, rows_backward_prepare,
     add_norm_run},
    {"rmsnorm_backward", "4096 x 768", {4096, 768, 0}, rows_backward_prepare,
     rmsnorm_backward_run},
    {"layernorm_forward", "4096 x 768", {4096, 768, 0}, rows_prepare,
     layernorm_forward_run},
    {"layernorm_backward", "4096 x 768", {4096, 768, 0}, rows_backward_prepare,
     layernorm_backward_run},
    {"sum_rows", "4096 x 768", {4096, 768, 0}, sums_prepare, sum_rows_run},
    {"sum_squares", "4096 x 768", {4096, 768, 0}, squares_prepare,
     sum_squares_run},
    {"gelu_forward", "2048 x 3072", {2048, 3072, 0}, exponential_prepare,
     gelu_forward_run},
    {"gelu_backward", "2048 x 3072", {2048, 3072, 0},
     exponential_backward_prepare, gelu_backward_run},
    {"swiglu_forward", "2048 x 2048", {2048, 2048, 0}, swiglu_prepare,
     swiglu_forward_run},
    {"swiglu_backward", "2048 x 2048", {2048, 2048, 0},
     swiglu_backward_prepare, swiglu_backward_run},
    {"geglu_forward", "2048 x 2048", {2048, 2048, 0}, swiglu_prepare,
     geglu_forward_run},
    {"geglu_backward", "2048 x 2048", {2048, 2048, 0},
     swiglu_backward_prepare, geglu_backward_run},
    {"softcap_forward", "2048 x 2048", {2048, 2048, 0}, softcap_prepare,
     softcap_forward_run},
    {"softcap_backward", "2048 x 2048", {2048, 2048, 0}, softcap_prepare,
     softcap_backward_run},
    {"dropout", "2048 x 768", {2048, 768, 0}, rows_backward_prepare,
     dropout_run},
#define QUANTIZED(shape, way) \
    {"quantize", shape, {2048, 768, way}, case_quantize, case_quantize_run}
    QUANTIZED("mxfp8, features", 0), QUANTIZED("mxfp8, tokens", 1),
    QUANTIZED("fp8-tensor", 2), QUANTIZED("nvfp4, features", 3),
    QUANTIZED("nvfp4, dy of dW", 4),
#define CODED(shape, way) \
    {"block_encode", shape, {2048, 768, way}, case_codes, case_encode_run}, \
    {"block_decode", shape, {2048, 768, way}, case_codes, case_decode_run}
    CODED("fp8-tiles, weight", 0), CODED("nvfp4, weight", 1),
    CODED("mxfp8, x of dW", 2),
    {"rope", "4096 x 12 x 64", {4096, 0, 0}, rope_prepare, rope_run},
    {"gather_rows", "4096 of 32000 x 768", {4096, 768, 32000}, lookup_prepare,
     gather_run},
    {"scatter_rows", "4096 to 32000 x 768", {4096, 768, 32000},
     scatter_prepare, scatter_run},
    {"cross_entropy", "256 x 50257", {256, 50257, 0}, loss_prepare, loss_run},
    {"adamw", "8388608", {8388608, 0, 0}, case_adamw, case_adamw_run},
    {"update_elements", "adamw, 8 bits", {8388608, 0, 0}, case_update,
     case_adamw8_run},
    {"update_elements", "lion", {8388608, 1, 0}, case_update, case_lion_run},
    {"update_elements", "schedule_free", {8388608, 3, 0}, case_update,
     case_free_run},
    {"update_elements", "adamw, apart", {6000640, 0, 0}, case_apart,
     case_apart_run},
    {"descend", "8388608", {8388608, 0, 0}, case_descend, case_descend_run},
    {"fixed_add", "8388608", {8388608, 0, 0}, case_fixed, case_fixed_add_run},
    {"fixed_read", "8388608", {8388608, 1, 0}, case_fixed, case_fixed_read_run},
    {"masters_join", "8388608", {8388608, 0, 0}, case_masters, case_join_run},
    {"masters_split", "8388608", {8388608, 0, 0}, case_masters, case_split_run},
};
const int bench_case_count = (int)(sizeof bench_cases / sizeof *bench_cases);
