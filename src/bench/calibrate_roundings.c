/* SPDX-License-Identifier: Apache-2.0 */
/* calibrate_roundings.c - times the kernels that round operands of recipes, at
 * several sizes.
 *
 * Sizes of a job: [rows, width, number of the call]. out or codes at 0, in at
 * 1, x of unrotate at 2, peaks at 3, scales of codes at 4. */
#include <math.h>
#include <string.h>

#include "bench/calibrate_parts.h"

enum { ROWS = 2, WIDTHS = 2, ROWS_MOST = 2048 };
static const int64_t rows_of[ROWS] = {512, 2048};
static const int64_t widths_of[WIDTHS] = {128, 512};

/* The calls of the calibration at hand: a job says its number. */
static const struct rounded *calls;

static struct tensor operand(struct operands *o, const int64_t *s, bool real)
{
    return real ? case_operand_real(o, s[0], s[1])
                : case_operand(o, s[0], s[1]);
}

static bool is_coded(const struct rounded *call)
{
    return call->kernel == ROUNDED_ENCODE || call->kernel == ROUNDED_DECODE;
}

static int64_t sides(int64_t size, int64_t block)
{
    return block > 0 ? (size + block - 1) / block : 1;
}

static int64_t blocks_of(const struct rounded *call, const int64_t *s)
{
    return sides(s[0], call->block_rows) * sides(s[1], call->block_cols);
}

static void prepare(struct operands *o, const int64_t *s)
{
    const struct rounded *call = &calls[s[2]];
    const bool quantizes = call->kernel == ROUNDED_QUANTIZE;

    o->integers[0] = (int32_t)s[2];
    o->t[0] = operand(o, s, call->kernel == ROUNDED_ROTATE ||
                                (call->real && !quantizes));
    o->t[1] = operand(o, s, call->real);
    o->t[2] = case_operand(o, s[0], s[1]);
    o->t[3] = case_operand_real(o, 1, is_coded(call) ? blocks_of(call, s) : 16);
    o->t[4] = case_operand_real(o, 1, is_coded(call) ? blocks_of(call, s)
                                                     : s[0]);
}

static status run_quantize(const struct kernels *k, struct stream *stream,
                           struct operands *o, const struct rounded *of)
{
    const int64_t rows = o->t[1].shape[0];
    const struct quantize_span all = {0, rows, 0, false},
                               cols = {0, o->t[1].shape[1], 0, false};
    struct dropout_row places[ROWS_MOST];
    const struct quantize call = {
        .out = of->codes ? tensor_2d(o->t[0].data, DTYPE_U8, rows, cols.count)
                         : o->t[0],
        .in = o->t[1], .rows = &all, .cols = &cols, .row_spans = 1,
        .col_spans = 1, .format = of->format, .block_rows = of->block_rows,
        .block_cols = of->block_cols, .scale = of->scale,
        .rounding = of->rounding, .turn = of->turn,
        .key = random_key_make(1, "calibrate"), .places = places,
        .peaks = o->t[3].data, .known = 1,
        .scales = of->codes ? o->t[4].data : NULL};

    CHECK(rows <= ROWS_MOST);
    for (int64_t i = 0; i < rows; i++)
        places[i] = (struct dropout_row){0, (uint64_t)i << 40};
    return k->quantize(stream, &call);
}

/* Numbers at 1, their codes at 0. */
static status run_coded(const struct kernels *k, struct stream *stream,
                        struct operands *o, const struct rounded *of)
{
    const struct quantize_span all = {0, o->t[1].shape[0], 0, false},
                               cols = {0, o->t[1].shape[1], 0, false};
    const struct block_coding coding = {
        .rows = &all, .cols = &cols, .row_spans = 1, .col_spans = 1,
        .format = of->format, .block_rows = of->block_rows,
        .block_cols = of->block_cols, .scale = of->scale};
    const int64_t bytes = code_row_bytes(of->format, cols.count);

    if (of->kernel == ROUNDED_DECODE)
        return k->block_decode(stream, &(struct block_decode){
            .out = o->t[1], .coding = coding, .scales = o->t[4].data,
            .codes = o->t[0].data, .row_bytes = bytes});
    return k->block_encode(stream, &(struct block_encode){
        .what = ENCODE_ALL, .in = o->t[1], .coding = coding,
        .peaks = o->t[3].data, .scales = o->t[4].data,
        .codes = o->t[0].data, .row_bytes = bytes});
}

static status run(const struct kernels *k, struct stream *stream,
                  struct operands *o)
{
    const struct rounded *of = &calls[o->integers[0]];
    const struct quantize_span rows = {0, o->t[1].shape[0], 0, false},
                               cols = {0, o->t[1].shape[1], 0, false};
    const struct rotate turn = {.out = o->t[0], .in = o->t[1], .rows = &rows,
                                .cols = &cols, .row_spans = 1, .col_spans = 1,
                                .columns = of->columns, .signs = 0x5A9Cu};
    const struct unrotate back = {
        .out = o->t[1], .gradient = o->t[1], .x = o->t[2], .cols = &cols,
        .col_spans = 1, .turn = of->turn, .trust = of->trust,
        .format = of->format, .scale = of->scale, .factor = 1};

    switch (of->kernel) {
    case ROUNDED_ROTATE: return k->rotate(stream, &turn);
    case ROUNDED_UNROTATE: return k->unrotate(stream, &back);
    case ROUNDED_ENCODE:
    case ROUNDED_DECODE: return run_coded(k, stream, o, of);
    default: return run_quantize(k, stream, o, of);
    }
}

/* One size of every call. */
static void add_rows(struct calibration *c, int size, int threads)
{
    struct machine *m = c->machine;

    for (int i = 0; i < c->request->rounding_count; i++) {
        struct measured_rounding *row = &m->roundings[m->rounding_count++];

        *row = (struct measured_rounding){
            .rows = rows_of[size % ROWS], .width = widths_of[size / ROWS],
            .threads = threads, .seconds = INFINITY};
        rounded_text(&calls[i], row->how);
        row->code = rounded_code(row->how);
    }
}

static status measure_one(struct calibration *c, int number)
{
    struct measured_rounding *row = &c->machine->roundings[number];
    const struct bench_case job = {
        "rounding", "",
        {row->rows, row->width, number % c->request->rounding_count}, prepare,
        run};
    double sigma = 0;

    return calibrate_job(c, &job, row->threads, &row->seconds, &sigma);
}

status calibrate_roundings(struct calibration *c, struct sweep *sweep)
{
    const struct calibrate_request *r = c->request;
    const int ways = r->ranks > 1 ? 2 : 1, each = ways * ROWS * WIDTHS;
    struct machine *m = c->machine;
    void *memory = NULL;

    if (r->rounding_count == 0) return OK;
    calls = r->roundings;
    TRY(arena_take_array(&m->arena, (size_t)(each * r->rounding_count),
                         sizeof *m->roundings, &memory));
    m->roundings = memory;
    for (int size = 0; size < ROWS * WIDTHS; size++) {
        for (int way = 0; way < ways; way++)
            add_rows(c, size, way > 0 ? r->ranks : 1);
        if (size == 0) sweep->least = m->rounding_count;
    }
    sweep->rows = &m->rounding_count;
    sweep->measure = measure_one;
    calibrate_type(c, 16);
    TRY(calibrate_sweep(c, sweep));
    calibrate_type(c, 32);
    for (int i = 0; i < m->rounding_count; i++)
        m->roundings[i].seconds = pace_row(c, i);
    return OK;
}
