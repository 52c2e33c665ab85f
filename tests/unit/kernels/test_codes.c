/* SPDX-License-Identifier: Apache-2.0 */
/* test_codes.c - codes times scales are what quantize writes, codes are those
 * of the formats, fast rows equal the reference in every byte, and parts of a
 * matrix, whose peaks or sums are joined, give the codes of the whole. Integers
 * of codes are those of quantize. What was rounded by rows rounds to itself. */
#include <math.h>
#include "kernels/element.h"
#include "kernels/kernels.h"
#include "tests/test.h"
#include "tests/unit/kernels/room.h"
#include "tests/unit/number_codes.h"

enum { R = 150, C = 300, ELEMENTS = R * C, BLOCKS = ELEMENTS,
       BYTES = 2 * ELEMENTS };

static uint16_t narrow[ELEMENTS], want[ELEMENTS], have[ELEMENTS];
static float wide[ELEMENTS], peaks[2][BLOCKS], regions[16];
static uint8_t codes[2][BYTES];
static float scales[2][BLOCKS];
static float most[2], seen; /* largest magnitudes: of codes, of quantize */

static const struct quantize_span row_spans[] = {
    {0, 50, 0, false}, {50, 50, 0, false}, {100, 50, 0, false}};
static const struct quantize_span col_spans[] = {
    {0, 71, 144, false}, {71, 34, 777, true}, {105, 195, 64, false}};
static const int64_t sides[][2] = {{1, 32}, {32, 1}, {16, 16}, {128, 128},
                                   {1, 128}, {1, 0}, {0, 0}, {3, 5}};
static const enum scale_rule rules[] = {SCALE_NONE, SCALE_FLOOR, SCALE_CEIL,
                                        SCALE_LATE, SCALE_TWO, SCALE_TWO_LATE,
                                        SCALE_EXACT};

/* wild: zeros and what is not finite, too. */
static void fill(bool wild)
{
    uint64_t state = 20261127;

    for (int i = 0; i < ELEMENTS; i++) {
        state = state * UINT64_C(6364136223846793005) +
                UINT64_C(1442695040888963407);
        const float v = (float)(int32_t)(state >> 32) * 0x1p-31f;

        wide[i] = ldexpf(v * v * v, i / 1000 % 40 - 20);
        if (i % 601 == 7) wide[i] = -0.0f;
        if (i % 601 == 10) wide[i] = 1e-44f;
        if (wild && i % 3001 == 8) wide[i] = INFINITY;
        if (wild && i % 3001 == 9) wide[i] = NAN;
        narrow[i] = bf16_from_f32(wide[i]);
        wide[i] = bf16_to_f32(narrow[i]) * 1.0078125f;
    }
}

static struct block_encode call_of(int format, int rule, int shape, int to)
{
    return (struct block_encode){
        .what = ENCODE_ALL, .in = tensor_2d(narrow, DTYPE_BF16, R, C),
        .coding = {.rows = row_spans, .cols = col_spans,
                   .row_spans = ROWS(row_spans), .col_spans = ROWS(col_spans),
                   .format = (enum number_format)format, .scale = rules[rule],
                   .block_rows = sides[shape][0], .block_cols = sides[shape][1],
                   .known = 0.037f},
        .peaks = peaks[to], .scales = scales[to], .codes = codes[to],
        .most = &most[to],
        .row_bytes = code_row_bytes((enum number_format)format, C)};
}

static void quantize_same(const struct block_encode *p)
{
    const struct block_coding *c = &p->coding;
    struct stream plain = {0};
    const struct quantize call = {
        .out = tensor_2d(want, DTYPE_BF16, R, C), .in = p->in,
        .rows = c->rows, .cols = c->cols, .row_spans = c->row_spans,
        .col_spans = c->col_spans, .format = c->format,
        .block_rows = c->block_rows, .block_cols = c->block_cols,
        .scale = c->scale, .known = c->known, .peaks = regions,
        .seen = &seen};

    seen = 0;
    IS_OK(kernels_reference_f32.quantize(&plain, &call));
}

/* NaN where a NaN is; where a format has none, anywhere in its block. */
static bool same_numbers(const struct block_encode *p)
{
    const bool loose =
        number_formats[p->coding.format].special == SPECIAL_NONE;

    for (int i = 0; i < ELEMENTS; i++) {
        const float a = bf16_to_f32(want[i]), b = bf16_to_f32(have[i]);

        if (want[i] == have[i] || (isnan(a) && isnan(b))) continue;
        if (loose && isnan(b)) continue;
        print_error("%s, rule %d, %lld x %lld: row %d column %d: %a, not %a\n",
                    number_formats[p->coding.format].name,
                    (int)p->coding.scale, (long long)p->coding.block_rows,
                    (long long)p->coding.block_cols, i / C, i % C, (double)b,
                    (double)a);
        return false;
    }
    return true;
}

static void decode_with(const struct kernels *table, struct stream *stream,
                        const struct block_encode *p, struct tensor out)
{
    float raised = 0;
    const struct block_decode call = {.out = out, .coding = p->coding,
                                      .scales = p->scales, .codes = p->codes,
                                      .row_bytes = p->row_bytes,
                                      .most = p->most, .seen = &raised};

    IS_OK(table->block_decode(stream, &call));
    CHECK(raised > 0 && memcmp(&raised, p->most, sizeof raised) == 0);
}

typedef void each_call(const struct kernels *table, struct stream *stream,
                       struct block_encode call);

/* An emulator is slow: it gets one of `step` calls. */
static void for_all(each_call *each, const struct kernels *table,
                    struct stream *stream, int step)
{
    for (int format = FORMAT_E4M3; format < FORMAT_E8M0; format++)
        for (int rule = 0; rule < ROWS(rules); rule++)
            for (int shape = 0; shape < ROWS(sides); shape++) {
                struct block_encode call = call_of(format, rule, shape, 0);

                if ((format + 2 * rule + shape) % step != 0) continue;
                each(table, stream, call);
                if ((format + rule + shape) % 4 != 0) continue;
                call.in = tensor_2d(wide, DTYPE_F32, R, C);
                each(table, stream, call);
            }
}

static void one_is_quantize(const struct kernels *table, struct stream *stream,
                            struct block_encode call)
{
    memset(have, 1, sizeof have);
    IS_OK(table->block_encode(stream, &call));
    decode_with(table, stream, &call, tensor_2d(have, DTYPE_BF16, R, C));
    quantize_same(&call);
    CHECK(same_numbers(&call));
    /* Formats without a NaN hide the numbers of a block that has one. */
    if (number_formats[call.coding.format].special != SPECIAL_NONE)
        CHECK(memcmp(&seen, call.most, sizeof seen) == 0);
}

TEST(codes_times_scales_are_what_quantize_writes)
{
    struct stream plain = {0};

    for (int wild = 0; wild < 2; wild++) {
        fill(wild != 0);
        for_all(one_is_quantize, &kernels_reference_f32, &plain, 1);
    }
}

static void one_is_fast(const struct kernels *table, struct stream *stream,
                        struct block_encode call)
{
    static float out[2][ELEMENTS];
    struct stream plain = {0};
    struct block_encode other = call;

    other.peaks = peaks[1];
    other.scales = scales[1];
    other.codes = codes[1];
    other.most = &most[1];
    memset(codes, 0, sizeof codes);
    memset(scales, 0, sizeof scales);
    memset(out, 0, sizeof out);
    IS_OK(kernels_reference_f32.block_encode(&plain, &call));
    IS_OK(table->block_encode(stream, &other));
    CHECK(memcmp(codes[0], codes[1], sizeof codes[0]) == 0);
    CHECK(memcmp(scales[0], scales[1], sizeof scales[0]) == 0);
    CHECK(memcmp(&most[0], &most[1], sizeof most[0]) == 0);
    decode_with(&kernels_reference_f32, &plain, &call,
                tensor_2d(out[0], DTYPE_F32, R, C));
    decode_with(table, stream, &other, tensor_2d(out[1], DTYPE_F32, R, C));
    CHECK(memcmp(out[0], out[1], sizeof out[0]) == 0);
    decode_with(&kernels_reference_f32, &plain, &call,
                tensor_2d(want, DTYPE_BF16, R, C));
    decode_with(table, stream, &other, tensor_2d(have, DTYPE_BF16, R, C));
    CHECK(same_numbers(&call));
}

TEST(fast_rows_equal_the_reference)
{
    struct threads *threads = NULL;
    struct stream stream = {0};

    IS_OK(threads_build(&threads, 3));
    stream.threads = threads;
    fill(true);
    for (enum isa isa = ISA_PLAIN; isa < ISA_COUNT; isa++) {
        struct kernels table;

        if (!room_table(&table, isa)) continue;
        for_all(one_is_fast, &table, &stream, isa == ISA_EMULATED ? 5 : 1);
    }
    threads_free(threads);
}

/* Number by number the codes are the same. */
TEST(codes_are_those_of_the_formats)
{
    const struct format_cast cast = {.saturate = true};
    struct stream plain = {0};

    fill(false);
    for (int format = FORMAT_E4M3; format < FORMAT_E8M0; format++) {
        const struct block_encode call = call_of(format, 2, 0, 0);
        const int bits = number_formats[format].bits;
        int apart = 0;

        IS_OK(kernels_reference_f32.block_encode(&plain, &call));
        for (int i = 0; i < R; i++) { /* the first block of each row */
            const int64_t blocks =
                code_blocks(col_spans, ROWS(col_spans), 32);
            const float scale =
                code_scale_get(scales[0], SCALE_CEIL, i * blocks);

            for (int j = 0; j < 32; j++)
                apart += code_get(codes[0] + i * call.row_bytes, bits, j) !=
                         format_encode((enum number_format)format,
                                       bf16_to_f32(narrow[i * C + j]) / scale,
                                       &cast);
        }
        EQUAL_INT(apart, 0);
    }
}

/* Three ranks, whose parts begin and end within rows and blocks. */
static void parts_are_the_whole(const struct kernels *table, int step)
{
    static const int64_t cuts[] = {0, 12346, 12346 + 17000, ELEMENTS};
    struct stream plain = {0};

    fill(false);
    for (int rule = 0; rule < ROWS(rules); rule += step)
        for (int shape = 0; shape < ROWS(sides); shape++) {
            const struct block_encode whole =
                call_of(FORMAT_E4M3, rule, shape, 0);
            struct block_encode part = call_of(FORMAT_E4M3, rule, shape, 1);

            IS_OK(table->block_encode(&plain, &whole));
            memset(peaks[1], 0, sizeof peaks[1]);
            memset(codes[1], 0, sizeof codes[1]);
            for (int k = 0; k < 6; k++) {
                part.what = k < 3 ? ENCODE_PEAKS : ENCODE_CODES;
                part.first = cuts[k % 3];
                part.last = cuts[k % 3 + 1];
                IS_OK(table->block_encode(&plain, &part));
            }
            CHECK(memcmp(codes[0], codes[1], ELEMENTS) == 0);
            CHECK(memcmp(peaks[0], peaks[1], (size_t)coding_blocks(
                                                 &whole.coding) *
                                                 sizeof(float)) == 0);
        }
}

TEST(parts_with_joined_peaks_are_the_whole)
{
    struct kernels table;

    IS_OK(kernels_get(&table, DTYPE_BF16, ISA_AUTO));
    parts_are_the_whole(&table, 1);
    if (room_table(&table, ISA_EMULATED)) parts_are_the_whole(&table, 4);
}

/* A row that was rounded by a scale of its own, and again, is the same
 * (nn/row_codes.c): in numbers, and where they are integers in codes. */
static void one_is_rounded_once(const struct block_encode *first)
{
    static int8_t integers[2][ELEMENTS];
    struct block_encode call = *first;
    struct stream plain = {0};
    struct quantize twice = {
        .out = tensor_2d(integers[0], DTYPE_U8, R, C), .in = call.in,
        .rows = row_spans, .cols = col_spans, .row_spans = ROWS(row_spans),
        .col_spans = ROWS(col_spans), .format = call.coding.format,
        .block_rows = 1, .scale = call.coding.scale, .peaks = regions,
        .scales = scales[0]};

    quantize_same(&call);
    memcpy(have, want, sizeof have);
    call.in = tensor_2d(have, DTYPE_BF16, R, C);
    quantize_same(&call);
    CHECK(same_numbers(&call));
    if (twice.format != FORMAT_INT8) return;
    IS_OK(kernels_reference_f32.quantize(&plain, &twice));
    twice.in = call.in;
    twice.out.data = integers[1];
    twice.scales = scales[1];
    IS_OK(kernels_reference_f32.quantize(&plain, &twice));
    CHECK(memcmp(integers[0], integers[1], sizeof integers[0]) == 0);
    CHECK(memcmp(scales[0], scales[1],
                 R * ROWS(col_spans) * sizeof(float)) == 0);
}

TEST(rows_that_were_rounded_round_to_themselves)
{
    fill(false);
    for (int format = FORMAT_E4M3; format < FORMAT_E8M0; format++)
        for (int rule = 0; rule < ROWS(rules); rule++) {
            const struct block_encode call = call_of(format, rule, 5, 0);

            if (rules[rule] <= SCALE_CEIL || rules[rule] == SCALE_EXACT)
                one_is_rounded_once(&call);
        }
}

/* ---- means ---- */

enum { REGIONS = ROWS(row_spans) * ROWS(col_spans) };
static int64_t sums[2][REGIONS * CODE_SUMS];

static struct block_encode mean_of(enum number_format format, enum dtype dtype,
                                   int to)
{
    struct block_encode call = call_of((int)format, 0, 6, to);

    if (dtype == DTYPE_F32) call.in = tensor_2d(wide, DTYPE_F32, R, C);
    call.coding.scale = SCALE_MEAN;
    call.peaks = NULL;
    call.sums = sums[to];
    call.most = NULL;
    return call;
}

/* The mean in float64, one element after the other: half a unit of float32
 * apart at most, and less than 1e-9 of that. */
static void means_are_means(const struct block_encode *p)
{
    for (int i = 0; i < REGIONS; i++) {
        const struct quantize_span *r = &row_spans[i / ROWS(col_spans)];
        const struct quantize_span *c = &col_spans[i % ROWS(col_spans)];
        double sum = 0;

        for (int64_t k = 0; k < r->count * c->count; k++) {
            const int64_t at = (r->first + k / c->count) * C + c->first +
                               k % c->count;
            const double v = (double)element_get(p->in.data, p->in.dtype, at);

            sum += isfinite(v) ? fabs(v) : 0;
        }
        sum /= (double)(r->count * c->count);
        const double half = sum * 0x1.000001p-24;

        CHECK(fabs((double)((const float *)p->scales)[i] - sum) <= half);
    }
}

/* As integers, with the scales of rows. */
static void integers_are_quantized(const struct kernels *table,
                                   struct stream *stream,
                                   const struct block_encode *p)
{
    static int8_t integers[2][ELEMENTS];
    static float rows[2][R * ROWS(col_spans)];
    struct stream plain = {0};
    const struct quantize call = {
        .out = tensor_2d(integers[0], DTYPE_U8, R, C), .in = p->in,
        .rows = row_spans, .cols = col_spans, .row_spans = ROWS(row_spans),
        .col_spans = ROWS(col_spans), .format = p->coding.format,
        .scale = SCALE_MEAN, .peaks = regions, .scales = rows[0]};
    const struct block_decode decode = {
        .out = tensor_2d(integers[1], DTYPE_U8, R, C), .out_scales = rows[1],
        .coding = p->coding, .scales = p->scales, .codes = p->codes,
        .row_bytes = p->row_bytes};

    memset(integers, 5, sizeof integers);
    IS_OK(kernels_reference_f32.quantize(&plain, &call));
    IS_OK(table->block_decode(stream, &decode));
    CHECK(memcmp(integers[0], integers[1], sizeof integers[0]) == 0);
    for (int i = 0; i < R * ROWS(col_spans); i++)
        CHECK(bits_of_f32(rows[0][i]) == bits_of_f32(rows[1][i]));
}

static void mean_is_quantize(const struct kernels *table,
                             struct stream *stream, enum number_format format,
                             enum dtype dtype, bool wild)
{
    const struct block_encode call = mean_of(format, dtype, 0);
    struct block_encode plain = mean_of(format, dtype, 1);
    struct stream none = {0};

    const struct block_decode decode = {
        .out = tensor_2d(have, DTYPE_BF16, R, C), .coding = call.coding,
        .scales = call.scales, .codes = call.codes,
        .row_bytes = call.row_bytes};

    memset(codes, 0, sizeof codes);
    IS_OK(table->block_encode(stream, &call));
    IS_OK(kernels_reference_f32.block_encode(&none, &plain));
    CHECK(memcmp(codes[0], codes[1], sizeof codes[0]) == 0);
    CHECK(memcmp(sums[0], sums[1], sizeof sums[0]) == 0);
    CHECK(memcmp(scales[0], scales[1], REGIONS * sizeof(float)) == 0);
    IS_OK(table->block_decode(stream, &decode));
    const struct quantize same = {
        .out = tensor_2d(want, DTYPE_BF16, R, C), .in = call.in,
        .rows = row_spans, .cols = col_spans, .row_spans = ROWS(row_spans),
        .col_spans = ROWS(col_spans), .format = format, .scale = SCALE_MEAN,
        .peaks = regions};

    IS_OK(table->quantize(stream, &same));
    CHECK(same_numbers(&call));
    /* Formats without a NaN hide the numbers of a block that has one. */
    if (wild && number_formats[format].special == SPECIAL_NONE) return;
    CHECK(memcmp(regions, scales[0], REGIONS * sizeof(float)) == 0);
    means_are_means(&call);
    if (format == FORMAT_INT8 || format == FORMAT_TERNARY)
        integers_are_quantized(table, stream, &call);
}

/* Parts that begin within bytes of a row, not within bytes of codes. */
static void mean_of_parts(const struct kernels *table)
{
    static const int64_t cuts[] = {0, 12344, 12344 + 17000, ELEMENTS};
    const struct block_encode whole = mean_of(FORMAT_TERNARY, DTYPE_BF16, 0);
    struct block_encode part = mean_of(FORMAT_TERNARY, DTYPE_BF16, 1);
    struct stream plain = {0};

    memset(sums, 0, sizeof sums);
    memset(codes, 0, sizeof codes);
    IS_OK(table->block_encode(&plain, &whole));
    for (int k = 0; k < 6; k++) {
        part.what = k < 3 ? ENCODE_PEAKS : ENCODE_CODES;
        part.first = cuts[k % 3];
        part.last = cuts[k % 3 + 1];
        IS_OK(table->block_encode(&plain, &part));
    }
    CHECK(memcmp(codes[0], codes[1], sizeof codes[0]) == 0);
    CHECK(memcmp(sums[0], sums[1], sizeof sums[0]) == 0);
}

TEST(means_are_those_of_parts_and_of_quantize)
{
    static const enum number_format formats[] = {FORMAT_TERNARY, FORMAT_INT8,
                                                 FORMAT_E4M3};
    struct threads *threads = NULL;
    struct stream stream = {0};

    IS_OK(threads_build(&threads, 3));
    stream.threads = threads;
    for (enum isa isa = ISA_PLAIN; isa < ISA_COUNT; isa++) {
        struct kernels table;

        if (!room_table(&table, isa)) continue;
        for (int i = 0; i < 4 * ROWS(formats); i++) {
            fill(i / 2 / ROWS(formats) > 0);
            mean_is_quantize(&table, &stream, formats[i / 2 % ROWS(formats)],
                             i % 2 ? DTYPE_F32 : DTYPE_BF16,
                             i / 2 / ROWS(formats) > 0);
        }
        fill(false);
        mean_of_parts(&table);
    }
    threads_free(threads);
}

TEST_MAIN(codes_times_scales_are_what_quantize_writes,
          means_are_those_of_parts_and_of_quantize,
          fast_rows_equal_the_reference, codes_are_those_of_the_formats,
          parts_with_joined_peaks_are_the_whole,
          rows_that_were_rounded_round_to_themselves)
