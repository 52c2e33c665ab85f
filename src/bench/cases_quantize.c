/* SPDX-License-Identifier: Apache-2.0 */
/* cases_quantize.c - rounding an operand of 2,048 tokens as recipes do, and
 * products of integers.
 *
 * Sizes: [rows, columns, way]; out at 0, in at 1. Of products [m, n, k]: c at
 * 0, codes of x at 1, of W at 2, their scales at 3 and 4. */
#include "bench/cases.h"

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

    for (int64_t i = 0; i < rows * cols; i++) {
        state = state * 1664525u + 1013904223u;
        ((int8_t *)room.data)[i] =
            (int8_t)((int)((state >> 8) % (uint32_t)(2 * most + 1)) - most);
    }
    return tensor_2d(room.data, DTYPE_U8, rows, cols);
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
