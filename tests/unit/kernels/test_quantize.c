/* SPDX-License-Identifier: Apache-2.0 */
/* test_quantize.c - fast rows equal the reference in every bit; scales cut
 * numbers off or do not, as their rules say; square blocks commute with
 * transposition; transforms keep products; stochastic rounding is unbiased. */
#include <math.h>
#include "kernels/kernels.h"
#include "tests/test.h"
#include "tests/unit/kernels/room.h"

enum { ROWS_MAX = 150, COLS_MAX = 300, ELEMENTS = ROWS_MAX * COLS_MAX,
       REGIONS = 16 };

static struct dropout_row places[ROWS_MAX];
static uint16_t x[ELEMENTS], want[ELEMENTS], have[ELEMENTS];
static float wide[ELEMENTS], peaks[REGIONS];

static float number(uint64_t *state)
{
    *state = *state * UINT64_C(6364136223846793005) +
             UINT64_C(1442695040888963407);
    return (float)(int32_t)(*state >> 32) * 0x1p-31f;
}

/* Sizes over many powers of two; now and then zeros and what is not finite. */
static void numbers_fill(bool wild)
{
    uint64_t state = 20261123;

    for (int i = 0; i < ELEMENTS; i++) {
        const float v = number(&state) * number(&state);
        const int kind = i % 601;

        wide[i] = ldexpf(v, i / 1000 % 40 - 20);
        if (!wild) continue;
        if (kind == 7) wide[i] = -0.0f;
        if (kind == 8 && i % 5 == 0) wide[i] = INFINITY;
        if (kind == 9 && i % 5 == 1) wide[i] = NAN;
        if (kind == 10) wide[i] = 1e-44f;
        if (kind == 11) wide[i] = -3e38f;
    }
    for (int i = 0; i < ELEMENTS; i++) {
        x[i] = bf16_from_f32(wide[i]);
        wide[i] = bf16_to_f32(x[i]) * 1.0078125f;
    }
    for (int i = 0; i < ROWS_MAX; i++)
        places[i] = (struct dropout_row){(uint64_t)(3 + i / 50),
                                         (uint64_t)(i % 50) << 40 | 9 << 20};
}

static struct quantize call_of(void *out, const void *in, enum dtype dtype)
{
    return (struct quantize){
        .out = tensor_2d(out, DTYPE_BF16, ROWS_MAX, COLS_MAX),
        .in = tensor_2d((void *)(uintptr_t)in, dtype, ROWS_MAX, COLS_MAX),
        .key = random_key_make(3, "recipe"), .places = places,
        .peaks = peaks, .known = 0.037f};
}

struct shape { int64_t rows, cols; bool turn; };
static const struct shape shapes[] = {
    {1, 32, false}, {32, 1, false}, {16, 16, false}, {128, 128, false},
    {1, 128, false}, {1, 16, false}, {16, 1, true}, {1, 0, false},
    {0, 0, false}, {16, 1, false}};

/* Three sequences and short blocks; two leaves of two pieces, whose numbers in
 * the whole are no multiples of anything. */
static const struct quantize_span row_spans[] = {
    {0, 50, 0, false}, {50, 50, 0, false}, {100, 50, 0, false}};
static const struct quantize_span col_spans[] = {
    {0, 72, 144, false}, {72, 33, 777, true}, {105, 195, 64, false}};

static void spans_set(struct quantize *q)
{
    q->rows = row_spans;
    q->cols = col_spans;
    q->row_spans = ROWS(row_spans);
    q->col_spans = ROWS(col_spans);
}

static bool same_numbers(void)
{
    for (int i = 0; i < ELEMENTS; i++) {
        const float a = bf16_to_f32(want[i]), b = bf16_to_f32(have[i]);

        if (isnan(a) && isnan(b)) continue;
        if (want[i] != have[i]) {
            print_error("row %d column %d: %a, not %a, of %a\n", i / COLS_MAX,
                        i % COLS_MAX, (double)b, (double)a,
                        (double)bf16_to_f32(x[i]));
            return false;
        }
    }
    return true;
}

static void compare(const struct kernels *table, struct stream *stream,
                    struct quantize call)
{
    struct stream plain = {0};

    struct quantize_tally tallies[2] = {{0}, {0}};
    float seen[2] = {0};

    memset(want, 1, sizeof want);
    memset(have, 2, sizeof have);
    call.out.data = want;
    call.tally = &tallies[0];
    call.seen = call.scale == SCALE_MEAN ? NULL : &seen[0];
    IS_OK(kernels_reference_f32.quantize(&plain, &call));
    call.out.data = have;
    call.tally = &tallies[1];
    call.seen = call.scale == SCALE_MEAN ? NULL : &seen[1];
    IS_OK(table->quantize(stream, &call));
    CHECK(memcmp(&tallies[0], &tallies[1], sizeof tallies[0]) == 0);
    CHECK(tallies[0].elements > ELEMENTS / 2);
    CHECK(seen[0] == seen[1] && (call.seen == NULL || seen[0] > 0));
    if (!same_numbers())
        print_error("%s: %s, rule %d, blocks of %lld x %lld, rounding %d\n",
                    table->backend, number_formats[call.format].name,
                    (int)call.scale, (long long)call.block_rows,
                    (long long)call.block_cols, (int)call.rounding);
    CHECK(same_numbers());
    memset(have, 3, sizeof have); /* what is not counted has another way */
    call.tally = NULL;
    call.seen = NULL;
    IS_OK(table->quantize(stream, &call));
    CHECK(same_numbers());
}

static void compare_all(const struct kernels *table, struct stream *stream,
                        struct quantize call, const struct shape *shape)
{
    const int step = strcmp(table->backend, "cuda emulated") == 0 ? 11 : 1;
    static int number;

    call.block_rows = shape->rows;
    call.block_cols = shape->cols;
    call.turn = shape->turn;
    for (int format = FORMAT_E4M3; format < FORMAT_E8M0; format++)
        for (int rule = 0; rule < SCALE_COUNT; rule++) {
            call.format = (enum number_format)format;
            call.scale = (enum scale_rule)rule;
            if (rule == SCALE_MEAN && shape->turn) continue;
            if (rule == SCALE_GAUSS && (shape->rows != 1 || shape->cols == 0))
                continue;
            if ((format + rule / 2 + (int)shape->rows) % 3 > 1) continue;
            if (number++ % step != 0) continue; /* an emulator is slow */
            call.rounding = (format + rule) % 2 ? ROUND_STOCHASTIC
                                                : ROUND_NEAREST;
            compare(table, stream, call);
        }
}

TEST(fast_rows_equal_the_reference)
{
    struct threads *threads = NULL;
    struct stream stream = {0};

    IS_OK(threads_build(&threads, 3));
    stream.threads = threads;
    numbers_fill(true);
    for (enum isa isa = ISA_PLAIN; isa < ISA_COUNT; isa++) {
        struct kernels table;

        if (!room_table(&table, isa)) continue;
        for (int i = 0; i < ROWS(shapes); i++) {
            struct quantize call = call_of(want, x, DTYPE_BF16);

            spans_set(&call);
            compare_all(&table, &stream, call, &shapes[i]);
            call.in = tensor_2d(wide, DTYPE_F32, ROWS_MAX, COLS_MAX);
            if (i % 3 == 0) compare_all(&table, &stream, call, &shapes[i]);
        }
    }
    threads_free(threads);
}

/* A call for one sequence, or one leaf, gives the bits that it has in a call
 * for all. */
TEST(regions_do_not_see_each_other)
{
    struct stream plain = {0};
    struct kernels table;

    IS_OK(kernels_get(&table, DTYPE_BF16, ISA_AUTO));
    numbers_fill(true);
    for (int rule = 0; rule < SCALE_COUNT; rule++) {
        struct quantize call = call_of(want, x, DTYPE_BF16);

        spans_set(&call);
        call.format = FORMAT_E2M1;
        call.scale = (enum scale_rule)rule;
        call.block_rows = 1;
        call.block_cols = 32;
        call.rounding = ROUND_STOCHASTIC;
        IS_OK(table.quantize(&plain, &call));
        call.out.data = have;
        call.row_spans = call.col_spans = 1;
        for (int i = 0; i < ROWS(row_spans); i++)
            for (int j = 0; j < ROWS(col_spans); j++) {
                call.rows = &row_spans[i];
                call.cols = &col_spans[j];
                IS_OK(table.quantize(&plain, &call));
            }
        CHECK(same_numbers());
    }
}

static double most_of(const uint16_t *block)
{
    double most = 0;

    for (int j = 0; j < 32; j++)
        most = fmax(most, fabs((double)bf16_to_f32(block[j])));
    return most;
}

/* Numbers of one row's block of 32 that 448 times its scale cuts off, in
 * float64 as docs/numerics.md defines scales of `up` and down. */
static int64_t cut_of(const uint16_t *block, bool up)
{
    const double most = most_of(block);
    int64_t cut = 0;
    double scale;

    if (most <= 0) return 0;
    scale = up ? exp2(ceil(log2(most / 448)))
               : exp2(floor(log2(most)) - floor(log2(448)));
    for (int j = 0; j < 32; j++)
        cut += fabs((double)bf16_to_f32(block[j])) > 448 * scale;
    return cut;
}

static int64_t cut_of_all(bool up)
{
    int64_t cut = 0;

    for (int i = 0; i < ROWS_MAX * 9; i++)
        cut += cut_of(&x[i / 9 * COLS_MAX + i % 9 * 32], up);
    return cut;
}

/* Blocks of 32 of E4M3 whose largest number is more than 1.75 times a power of
 * two: by the floor rule it becomes 448 times the scale, by up to 1.14 too
 * small; by the ceiling rule none is cut off. */
TEST(floor_cuts_off_and_ceiling_does_not)
{
    struct stream plain = {0};
    int cut[2] = {0}, above = 0;

    numbers_fill(false);
    for (int k = 0; k < 2; k++) {
        struct quantize call = call_of(k ? have : want, x, DTYPE_BF16);
        struct quantize_tally tally = {0};
        const struct quantize_span rows = {0, ROWS_MAX, 0, false},
                                   cols = {0, 288, 0, false};

        call.rows = &rows;
        call.cols = &cols;
        call.row_spans = call.col_spans = 1;
        call.format = FORMAT_E4M3;
        call.block_rows = 1;
        call.block_cols = 32;
        call.scale = k ? SCALE_CEIL : SCALE_FLOOR;
        call.tally = &tally;
        IS_OK(kernels_reference_f32.quantize(&plain, &call));
        EQUAL_INT(tally.cut, cut_of_all(k == 1));
        CHECK(k ? tally.cut == 0 : tally.cut > 100);
    }
    for (int i = 0; i < ROWS_MAX * 9; i++) {
        float most = 0, out[2] = {0};
        int exponent;

        for (int j = 0; j < 32; j++) {
            const int at = i / 9 * COLS_MAX + i % 9 * 32 + j;
            const float a = fabsf(bf16_to_f32(x[at]));

            if (a <= most) continue;
            most = a;
            out[0] = fabsf(bf16_to_f32(want[at]));
            out[1] = fabsf(bf16_to_f32(have[at]));
        }
        above += frexpf(most, &exponent) * 2 > 1.75f;
        /* Half a place of the largest number is no cut. */
        for (int k = 0; k < 2; k++) cut[k] += out[k] < most * (1 - 0x1p-4f);
        CHECK(out[0] >= most / 1.143f && out[0] <= most * 1.0667f);
    }
    CHECK(cut[1] == 0 && cut[0] > 0 && cut[0] <= above);
}

/* Q(W) transposed is Q(W transposed) with square blocks; with rows of a block
 * it is not. */
TEST(square_blocks_commute_with_transposition)
{
    enum { N = 144 };
    static const int64_t sides[][2] = {{16, 16}, {1, 16}};
    const struct quantize_span all = {0, N, 0, false};
    struct stream plain = {0};

    numbers_fill(false);
    for (int k = 0; k < 2; k++) {
        struct quantize call = call_of(want, x, DTYPE_BF16);
        static uint16_t turned[N * N];
        int apart = 0;

        for (int i = 0; i < N * N; i++)
            turned[i] = x[i % N * COLS_MAX + i / N];
        call.rows = call.cols = &all;
        call.row_spans = call.col_spans = 1;
        call.format = FORMAT_E2M1;
        call.scale = SCALE_TWO;
        call.block_rows = sides[k][0];
        call.block_cols = sides[k][1];
        call.in = tensor_2d(x, DTYPE_BF16, N, N);
        call.in.stride[0] = COLS_MAX;
        call.out = tensor_2d(want, DTYPE_BF16, N, N);
        IS_OK(kernels_reference_f32.quantize(&plain, &call));
        call.in = tensor_2d(turned, DTYPE_BF16, N, N);
        call.out = tensor_2d(have, DTYPE_BF16, N, N);
        IS_OK(kernels_reference_f32.quantize(&plain, &call));
        for (int i = 0; i < N * N; i++)
            apart += want[i] != have[i % N * N + i / N];
        CHECK(k == 0 ? apart == 0 : apart > N);
    }
}

/* Small integers are exact in E5M6 after the transform, so that AᵀB is exactly
 * what it was; and something was mixed. */
TEST(transforms_keep_products)
{
    const struct quantize_span rows = {0, 48, 0, false},
                               cols = {0, 40, 0, false};
    struct stream plain = {0};
    struct quantize call = call_of(have, x, DTYPE_BF16);
    int moved = 0;

    for (int i = 0; i < ELEMENTS; i++)
        x[i] = bf16_from_f32((float)((i * 7919 + i / 300 * 13) % 5 - 2));
    call.rows = &rows;
    call.cols = &cols;
    call.row_spans = call.col_spans = 1;
    call.format = FORMAT_E5M6;
    call.block_rows = QUANTIZE_TURN;
    call.block_cols = 1;
    call.turn = true;
    IS_OK(kernels_reference_f32.quantize(&plain, &call));
    for (int a = 0; a < 40; a++)
        for (int b = 0; b < 40; b++) {
            double before = 0, after = 0;

            for (int t = 0; t < 48; t++) {
                before += (double)bf16_to_f32(x[t * COLS_MAX + a]) *
                          (double)bf16_to_f32(x[t * COLS_MAX + b]);
                after += (double)bf16_to_f32(have[t * COLS_MAX + a]) *
                         (double)bf16_to_f32(have[t * COLS_MAX + b]);
            }
            CHECK(before == after);
            moved += have[a * COLS_MAX + b] != x[a * COLS_MAX + b];
        }
    CHECK(moved > 800);
}

/* Standard deviation of a mean of draws of E2M1 times a scale, for `wanted`. */
static double sigma_of(double wanted, double scale, int draws)
{
    static const double grid[] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
    const double y = fabs(wanted) / scale;
    int above = 1;

    while (above < 7 && grid[above] < y) above++;
    return scale * sqrt((y - grid[above - 1]) * (grid[above] - y) / draws);
}

/* The mean over many keys is the number itself, within 3 sigma.
 * Keys are fixed, so that 64 means of a correct rounding all lie within. */
TEST(stochastic_rounding_is_unbiased)
{
    enum { DRAWS = 10000, N = 64 };
    const struct quantize_span rows = {0, 1, 0, false},
                               cols = {0, N, 5, false};
    struct stream plain = {0};
    struct quantize call = call_of(have, x, DTYPE_BF16);
    double sum[N] = {0};
    struct kernels table;

    IS_OK(kernels_get(&table, DTYPE_BF16, ISA_AUTO));
    numbers_fill(false);
    call.rows = &rows;
    call.cols = &cols;
    call.row_spans = call.col_spans = 1;
    call.format = FORMAT_E2M1;
    call.scale = SCALE_CEIL;
    call.block_rows = 1;
    call.block_cols = 32;
    call.rounding = ROUND_STOCHASTIC;
    for (uint64_t n = 0; n < DRAWS; n++) {
        call.key = random_key_make(n, "recipe");
        IS_OK(table.quantize(&plain, &call));
        for (int i = 0; i < N; i++) sum[i] += (double)bf16_to_f32(have[i]);
    }
    for (int i = 0; i < N; i++) {
        const double mean = sum[i] / DRAWS;
        const double scale =
            exp2(ceil(log2(most_of(&x[i / 32 * 32]) / 6)));
        const double wanted = (double)bf16_to_f32(x[i]);

        CHECK(fabs(mean - wanted) <=
              3 * sigma_of(wanted, scale, DRAWS) + 1e-12 * scale);
    }
}

/* Scales of the deviation cut numbers off, as the mask of straight recipes
 * expects; of normal numbers whose deviation is just below a power of two they
 * lose twice as much as those of the largest magnitude (docs/precision.md). */
TEST(scales_of_the_deviation_cut_numbers_off)
{
    enum { N = ROWS_MAX * 256 };
    struct stream plain = {0};
    const struct quantize_span rows = {0, ROWS_MAX, 0, false},
                               cols = {0, 256, 0, false};
    static const enum scale_rule rules[] = {SCALE_CEIL, SCALE_FLOOR,
                                            SCALE_GAUSS};
    double lost[3] = {0};
    uint64_t state = 7;

    for (int i = 0; i < ELEMENTS; i++) {
        float sum = 0;

        for (int j = 0; j < 12; j++) sum += 0.5f * number(&state);
        x[i] = bf16_from_f32(sum);
    }
    for (int k = 0; k < 3; k++) {
        struct quantize call = call_of(have, x, DTYPE_BF16);
        struct quantize_tally tally = {0};

        call.rows = &rows;
        call.cols = &cols;
        call.row_spans = call.col_spans = 1;
        call.format = FORMAT_E2M1;
        call.block_rows = 1;
        call.block_cols = 32;
        call.scale = rules[k];
        call.tally = &tally;
        IS_OK(kernels_reference_f32.quantize(&plain, &call));
        CHECK(k < 2 || (tally.cut > N / 1000 && tally.cut < N / 5));
        for (int i = 0; i < ROWS_MAX; i++)
            for (int j = 0; j < 256; j++) {
                const int at = i * COLS_MAX + j;
                const double d = (double)bf16_to_f32(have[at]) -
                                 (double)bf16_to_f32(x[at]);

                lost[k] += d * d;
            }
    }
    CHECK(lost[2] > 1.5 * lost[0] && lost[2] < 2.5 * lost[0]);
}

/* "fit": nothing is cut off, and what is drawn has the mean 3/4 x. */
TEST(numbers_that_fit_are_three_quarters)
{
    enum { N = 64, DRAWS = 10000 };
    struct stream plain = {0};
    struct kernels table;
    const struct quantize_span rows = {0, 1, 0, false}, cols = {0, N, 0, false};
    struct quantize_tally tally = {0};
    struct quantize call = call_of(have, x, DTYPE_BF16);
    static double sum[N];

    IS_OK(kernels_get(&table, DTYPE_BF16, ISA_AUTO));
    numbers_fill(false);
    x[3] = bf16_from_f32(0x1.FEp-21f); /* just below a power of two */
    call.rows = &rows;
    call.cols = &cols;
    call.row_spans = call.col_spans = 1;
    call.format = FORMAT_E2M1;
    call.scale = SCALE_FIT;
    call.block_rows = 1;
    call.block_cols = 32;
    call.rounding = ROUND_STOCHASTIC;
    call.tally = &tally;
    for (uint64_t n = 0; n < DRAWS; n++) {
        call.key = random_key_make(n, "recipe");
        IS_OK(table.quantize(&plain, &call));
        for (int i = 0; i < N; i++) sum[i] += (double)bf16_to_f32(have[i]);
    }
    EQUAL_INT(tally.cut, 0);
    for (int i = 0; i < N; i++) {
        const double mean = sum[i] / DRAWS;
        const double scale =
            exp2(floor(log2(most_of(&x[i / 32 * 32]))) - 2);
        const double wanted = 0.75 * (double)bf16_to_f32(x[i]);

        CHECK(fabs(mean - wanted) <=
              3 * sigma_of(wanted, scale, DRAWS) + 1e-12 * scale);
    }
}

TEST_MAIN(scales_of_the_deviation_cut_numbers_off,
          numbers_that_fit_are_three_quarters, fast_rows_equal_the_reference,
          regions_do_not_see_each_other, floor_cuts_off_and_ceiling_does_not,
          square_blocks_commute_with_transposition, transforms_keep_products,
          stochastic_rounding_is_unbiased)
