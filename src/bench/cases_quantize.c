/* SPDX-License-Identifier: Apache-2.0 */
/* cases_quantize.c - rounding an operand of 2,048 tokens as recipes do, and
 * products of integers; matrices as codes.
 *
 * Sizes: [rows, columns, way]; out at 0, in at 1. Of products [m, n, k]: c at
 * 0, codes of x at 1, of W at 2, their scales at 3 and 4. */
#include "bench/cases.h"

#include <string.h>

#include "bench/draw.h"
#include "kernels/codes.h"

enum { ROWS_MAX = 2048, WAYS = 5 };

/* Ways, as cases.c names them. */
static const struct {
    enum number_format format;
    int64_t rows, cols;
    enum scale_rule scale;
    enum rounding rounding;
    bool turn;
} ways[WAYS] = {
    {FORMAT_E4M3, 1, 32, SCALE_CEIL, ROUND_NEAREST, false},
    {FORMAT_E4M3, 32, 1, SCALE_CEIL, ROUND_NEAREST, false},
    {FORMAT_E4M3, 0, 0, SCALE_CEIL, ROUND_NEAREST, false},
    {FORMAT_E2M1, 1, 16, SCALE_TWO, ROUND_NEAREST, false},
    {FORMAT_E2M1, 16, 1, SCALE_TWO, ROUND_STOCHASTIC, true}};

void case_quantize(struct operands *o, const int64_t *s)
{
    o->t[0] = case_operand_real(o, s[0], s[1]);
    o->t[0].dtype = DTYPE_BF16;
    o->all[0].dtype = DTYPE_BF16;
    o->rounds[0] = false;
    o->t[1] = o->narrow == DTYPE_F16 ? case_operand_real(o, s[0], s[1])
                                     : case_operand(o, s[0], s[1]);
    o->integers[0] = (int32_t)s[2];
    o->flops = 5.0 * (double)(s[0] * s[1]);
    o->bytes = (double)((dtype_bytes(o->t[1].dtype) + 2) * s[0] * s[1]);
}

status case_quantize_run(const struct kernels *k, struct stream *stream,
                         struct operands *o)
{
    const int64_t rows = o->t[0].shape[0];
    const struct quantize_span all = {0, rows, 0, false},
                               cols = {0, o->t[0].shape[1], 0, false};
    struct dropout_row places[ROWS_MAX];
    float peak;
    struct quantize call = {.out = o->t[0], .in = o->t[1], .rows = &all,
                            .cols = &cols, .row_spans = 1, .col_spans = 1,
                            .key = random_key_make(1, "bench"),
                            .places = places, .peaks = &peak};

    CHECK(rows <= ROWS_MAX && o->integers[0] < WAYS);
    for (int64_t i = 0; i < rows; i++)
        places[i] = (struct dropout_row){0, (uint64_t)i << 40};
    call.format = ways[o->integers[0]].format;
    call.block_rows = ways[o->integers[0]].rows;
    call.block_cols = ways[o->integers[0]].cols;
    call.scale = ways[o->integers[0]].scale;
    call.rounding = ways[o->integers[0]].rounding;
    call.turn = ways[o->integers[0]].turn;
    return k->quantize(stream, &call);
}

/* Codes [rows, cols] between -most and most. */
static struct tensor codes_of(struct operands *o, int64_t rows, int64_t cols,
                              int most)
{
    const struct tensor room = case_operand_real(o, 1, (rows * cols + 3) / 4);
    uint32_t state = 7;

    for (int64_t i = 0; i < rows * cols; i++)
        ((int8_t *)room.data)[i] =
            (int8_t)((int)(draw_bits(&state) % (uint32_t)(2 * most + 1)) -
                     most);
    return tensor_2d(room.data, DTYPE_U8, rows, cols);
}

/* Ways of codes, as cases.c names them. */
static const struct block_coding codings[] = {
    {.format = FORMAT_E4M3, .block_rows = 128, .block_cols = 128,
     .scale = SCALE_CEIL},
    {.format = FORMAT_E2M1, .block_rows = 16, .block_cols = 16,
     .scale = SCALE_TWO},
    {.format = FORMAT_E4M3, .block_rows = 32, .block_cols = 1,
     .scale = SCALE_CEIL}};

/* The way of the operands, with one span of rows and one of columns. */
static struct block_coding coding_of(const struct operands *o,
                                     struct quantize_span span[2])
{
    struct block_coding coding = codings[o->integers[0]];

    for (int i = 0; i < 2; i++)
        span[i] = (struct quantize_span){0, o->t[1].shape[i], 0, false};
    coding.rows = &span[0];
    coding.cols = &span[1];
    coding.row_spans = coding.col_spans = 1;
    return coding;
}

void case_codes(struct operands *o, const int64_t *s)
{
    struct quantize_span span[2];
    int64_t blocks;

    case_quantize(o, s);
    const struct block_coding coding = coding_of(o, span);

    blocks = coding_blocks(&coding);
    o->t[2] = codes_of(o, s[0], s[1], 127);
    o->t[3] = case_operand_real(o, 1, blocks);
    if (scale_is_power(coding.scale))
        memset(o->t[3].data, 127, (size_t)blocks);
    o->t[4] = case_operand_real(o, 1, blocks);
    o->bytes = (double)(dtype_bytes(o->t[1].dtype) * s[0] * s[1] +
                        s[0] * code_row_bytes(coding.format, s[1]) +
                        blocks * code_scale_bytes(coding.scale));
}

status case_encode_run(const struct kernels *k, struct stream *stream,
                       struct operands *o)
{
    struct quantize_span span[2];
    const struct block_coding coding = coding_of(o, span);
    const struct block_encode call = {
        .what = ENCODE_ALL, .in = o->t[1], .coding = coding,
        .peaks = o->t[4].data, .scales = o->t[3].data, .codes = o->t[2].data,
        .row_bytes = code_row_bytes(coding.format, o->t[1].shape[1])};

    return k->block_encode(stream, &call);
}

status case_decode_run(const struct kernels *k, struct stream *stream,
                       struct operands *o)
{
    struct quantize_span span[2];
    const struct block_coding coding = coding_of(o, span);
    const struct block_decode call = {
        .out = o->t[0], .coding = coding, .scales = o->t[3].data,
        .codes = o->t[2].data,
        .row_bytes = code_row_bytes(coding.format, o->t[1].shape[1])};

    return k->block_decode(stream, &call);
}

void case_integers(struct operands *o, const int64_t *s)
{
    o->t[0] = case_operand(o, s[0], s[1]);
    o->t[1] = codes_of(o, s[0], s[2], 127);
    o->t[2] = codes_of(o, s[1], s[2], 1);
    o->t[3] = case_operand_real(o, 1, s[0]);
    o->t[4] = case_operand_real(o, 1, s[1]);
    o->flops = 2.0 * (double)s[0] * (double)s[1] * (double)s[2];
    o->bytes = (double)(s[0] * s[2] + s[1] * s[2]) +
               (double)(dtype_bytes(o->dtype) * s[0] * s[1]);
}

status case_integers_run(const struct kernels *k, struct stream *stream,
                         struct operands *o)
{
    const struct sum_segment segment = {0, o->t[1].shape[1], 0};
    const struct sum_order order = {&segment, 1, 1};
    const struct integer_product call = {
        .c = o->t[0], .a = o->t[1], .b = o->t[2], .a_scales = o->t[3].data,
        .b_scales = o->t[4].data, .order = &order};

    return k->integer_product(stream, &call);
}

/* ---- sums of integers ---- */

void case_fixed(struct operands *o, const int64_t *s)
{
    o->t[0] = tensor_1d(case_operand_real(o, 2, s[0]).data, DTYPE_I64, s[0]);
    o->t[1] = tensor_1d(case_operand_real(o, 1, s[0]).data, DTYPE_F32, s[0]);
    o->flops = 2.0 * (double)s[0];
    o->bytes = (s[1] == 0 ? 20.0 : 12.0) * (double)s[0];
}

static status fixed_run(const struct kernels *k, struct stream *stream,
                        struct operands *o, bool reads)
{
    const struct fixed fixed = {.scale = 0x1p30, .spare = 3,
                                .first = false};

    return reads ? k->fixed_read(stream, o->t[1], o->t[0], fixed)
                 : k->fixed_add(stream, o->t[0], o->t[1], fixed);
}

status case_fixed_add_run(const struct kernels *k, struct stream *stream,
                          struct operands *o)
{
    return fixed_run(k, stream, o, false);
}

status case_fixed_read_run(const struct kernels *k, struct stream *stream,
                           struct operands *o)
{
    return fixed_run(k, stream, o, true);
}

/* ---- split masters ---- */

void case_masters(struct operands *o, const int64_t *s)
{
    o->t[0] = tensor_1d(case_operand_real(o, 1, s[0]).data, DTYPE_F32, s[0]);
    o->t[1] = tensor_1d(case_operand_real(o, 1, s[0] / 2).data, DTYPE_BF16,
                        s[0]);
    o->t[2] = tensor_1d(case_operand_real(o, 1, s[0] / 2).data, DTYPE_U8,
                        2 * s[0]);
    o->t[3] = tensor_1d(case_operand_real(o, 1, s[0] / 32).data, DTYPE_U8,
                        s[0] / 8);
    memset(o->t[3].data, 0, (size_t)s[0] / 8); /* as rare as they are */
    o->flops = (double)s[0];
    o->bytes = 8.125 * (double)s[0];
}

static struct masters masters_of(const struct operands *o)
{
    return (struct masters){.values = o->t[0], .weights = o->t[1],
                            .lower = o->t[2], .ties = o->t[3]};
}

status case_join_run(const struct kernels *k, struct stream *stream,
                     struct operands *o)
{
    const struct masters masters = masters_of(o);

    return k->masters_join(stream, &masters);
}

status case_split_run(const struct kernels *k, struct stream *stream,
                      struct operands *o)
{
    const struct masters masters = masters_of(o);

    return k->masters_split(stream, &masters);
}
