/* SPDX-License-Identifier: Apache-2.0 */
/* test_metered.c - mirrors src/kernels/metered.c: a metered row does what its
 * row does, and says what that was. */
#include "base/meter.h"
#include "kernels/kernels.h"
#include "tests/test.h"

enum { M = 6, N = 5, K = 7, QUERIES = 5, KEYS = 9, HEADS = 2, WIDTH = 4 };

struct tables {
    struct kernels first, second, inner[2];
    struct stream stream;
    struct meter meter;
    char scratch[1 << 16];
};

static void open_tables(struct tables *t)
{
    *t = (struct tables){.first = kernels_reference_f32,
                         .second = kernels_reference_f32};
    t->stream.scratch = t->scratch;
    t->stream.scratch_bytes = sizeof t->scratch;
    kernels_meter(&t->first, &t->second, t->inner, &t->stream);
    IS_OK(meter_build(&t->meter, 0, 0));
    meter_step_begin(&t->meter);
}

/* The only row of the step. */
static const struct meter_row *close_tables(struct tables *t)
{
    static struct meter_row row;

    meter_step_end(&t->meter);
    EQUAL_INT(t->meter.tracks[0].row_count, 2);
    row = t->meter.tracks[0].rows[0];
    meter_free(&t->meter);
    return &row;
}

static void numbers(float *x, int64_t count)
{
    for (int64_t i = 0; i < count; i++) x[i] = (float)(i * 7 % 11) - 5;
}

TEST(every_row_is_metered_and_kept)
{
    static struct tables t;

    open_tables(&t);
#define IS_METERED(row)                                     \
    CHECK(t.first.row != kernels_reference_f32.row);        \
    CHECK(t.second.row != kernels_reference_f32.row);       \
    CHECK(t.first.row != t.second.row);                     \
    CHECK(t.inner[0].row == kernels_reference_f32.row);     \
    CHECK(t.inner[1].row == kernels_reference_f32.row);
    KERNELS_ROWS(IS_METERED)
    meter_step_end(&t.meter);
    meter_free(&t.meter);
}

/* Each form of a product, by its operands' strides. */
TEST(products_have_shape_form_and_work)
{
    static const char *const forms[] = {"y = x W'", "dx = dy W",
                                        "dW = dy' x"};
    const struct sum_segment segment = {0, K, 0};
    const struct sum_order order = {&segment, 1, 1};

    for (int form = 0; form < 3; form++) {
        static struct tables t;
        float a[M * K], b[K * N], c[M * N], expected[M * N], bias[N];
        const struct tensor added = tensor_1d(bias, DTYPE_F32, N);
        struct matmul call = {.c = tensor_2d(c, DTYPE_F32, M, N),
                              .a = tensor_2d(a, DTYPE_F32, M, K),
                              .b = tensor_2d(b, DTYPE_F32, K, N),
                              .order = &order, .bias = &added};

        numbers(a, M * K);
        numbers(b, K * N);
        numbers(bias, N);
        if (form == 0)
            call.b = tensor_transpose(tensor_2d(b, DTYPE_F32, N, K));
        if (form == 2)
            call.a = tensor_transpose(tensor_2d(a, DTYPE_F32, K, M));
        open_tables(&t);
        IS_OK(t.first.matmul(&t.stream, &call));
        const struct meter_row *row = close_tables(&t);

        call.c.data = expected;
        IS_OK(kernels_reference_f32.matmul(&t.stream, &call));
        EQUAL_BYTES(c, expected, sizeof c);
        EQUAL_TEXT(row->name, "matmul");
        EQUAL_TEXT(row->label, forms[form]);
        CHECK(row->turned[0] == (form == 2) && row->turned[1] == (form == 0));
        EQUAL_INT(row->kind, METER_MATMUL);
        CHECK(row->shape[0] == M && row->shape[1] == N && row->shape[2] == K);
        CHECK(row->flops == 2.0 * M * N * K);
        CHECK(row->bytes == 4.0 * (M * K + K * N + M * N + N));
    }
}

/* The closed form counts what a loop counts, for every window, and so do
 * chunks. */
TEST(attention_counts_the_pairs_that_it_looks_at)
{
    static float q[QUERIES * HEADS * WIDTH], k[KEYS * HEADS * WIDTH];
    static float out[QUERIES * HEADS * WIDTH], lse[QUERIES * HEADS];

    numbers(q, QUERIES * HEADS * WIDTH);
    numbers(k, KEYS * HEADS * WIDTH);
    for (int i = 0; i < 2 * (KEYS - QUERIES + 1); i++) {
        static struct tables t;
        const int first = i / 2, chunk = i % 2 ? 3 : 0;
        const int keys = first + QUERIES < KEYS ? first + QUERIES : KEYS;
        struct attention call = {
            .q = tensor_3d(q, DTYPE_F32, QUERIES, HEADS, WIDTH),
            .k = tensor_3d(k, DTYPE_F32, keys, HEADS, WIDTH),
            .v = tensor_3d(k, DTYPE_F32, keys, HEADS, WIDTH),
            .out = tensor_3d(out, DTYPE_F32, QUERIES, HEADS, WIDTH),
            .lse = tensor_2d(lse, DTYPE_F32, QUERIES, HEADS),
            .sequences = 1, .queries = QUERIES, .keys = keys,
            .first_query = first, .chunk = chunk, .heads = HEADS,
            .kv_heads = HEADS,
            .head_width = WIDTH, .leaves = 1, .scale = 0.5};
        double pairs = 0;

        for (int at = first; at < first + QUERIES; at++)
            for (int j = 0; j < keys; j++)
                pairs += j <= at && (chunk == 0 || j / chunk == at / chunk);
        open_tables(&t);
        IS_OK(t.first.attention_forward(&t.stream, &call));
        const struct meter_row *row = close_tables(&t);

        EQUAL_INT(row->kind, METER_ATTENTION);
        CHECK(row->flops == 4.0 * pairs * HEADS * WIDTH);
    }
}

TEST(other_rows_count_bytes)
{
    static struct tables t;
    float x[16], y[16];

    numbers(x, 16);
    open_tables(&t);
    IS_OK(t.second.scale(&t.stream, tensor_1d(y, DTYPE_F32, 16),
                         tensor_1d(x, DTYPE_F32, 16), 2));
    const struct meter_row *row = close_tables(&t);

    CHECK(y[3] == 2 * x[3]);
    EQUAL_INT(row->kind, METER_MEMORY);
    CHECK(row->bytes == 2.0 * sizeof x && row->flops == 16);
}

TEST_MAIN(every_row_is_metered_and_kept, products_have_shape_form_and_work,
          attention_counts_the_pairs_that_it_looks_at, other_rows_count_bytes)
