/* SPDX-License-Identifier: Apache-2.0 */
/* cases_quantize.c - rounding an operand of 2,048 tokens as recipes do.
 *
 * Sizes: [rows, columns, way]; out at 0, in at 1. */
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
