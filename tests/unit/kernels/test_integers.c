/* SPDX-License-Identifier: Apache-2.0 */
/* test_integers.c - products of int8 and ternary codes: every table has the
 * bits of a definition without shared code, with and without instructions for
 * bytes, and of codes that quantize wrote. */
#include "kernels/element.h"
#include "tests/unit/kernels/room.h"

enum { LEAVES = 64, ROUNDS = 4 };

struct shape {
    int64_t m, n, k;
    int leaves;
    enum dtype c, left; /* DTYPE_COUNT: no left */
    bool bias, extreme; /* every product as large as it can be */
};
static const struct shape shapes[] = {
    {1, 1, 1, 1, DTYPE_F32, DTYPE_COUNT, false, false},
    {3, 5, 3, 1, DTYPE_BF16, DTYPE_COUNT, true, false},
    {14, 32, 256, 1, DTYPE_BF16, DTYPE_BF16, true, false},
    {15, 33, 257, 2, DTYPE_F32, DTYPE_BF16, false, false},
    {29, 65, 770, 3, DTYPE_BF16, DTYPE_F32, true, false},
    {7, 31, 1021, 4, DTYPE_F32, DTYPE_F32, false, false},
    {43, 40, 1302, 6, DTYPE_F16, DTYPE_F16, true, false},
    {13, 70, 1999, 7, DTYPE_BF16, DTYPE_COUNT, false, false},
    {17, 9, 640, 64, DTYPE_BF16, DTYPE_BF16, false, false},
    {16, 64, 8195, 1, DTYPE_F32, DTYPE_COUNT, false, true},
    {90, 100, 4099, 2, DTYPE_BF16, DTYPE_BF16, true, true},
};

/* Operands and results of one case. */
struct integers {
    struct integer_product p;
    struct sum_order order;
    struct sum_segment segments[LEAVES];
    struct tensor bias, left;
    void *want, *have;
    size_t bytes;
};

static struct tensor codes(struct arena *arena, int64_t rows, int64_t cols,
                           int most, bool extreme)
{
    const int64_t stride = cols + 5;
    int8_t *out = room_take(arena, rows * stride, 1);
    struct tensor t = tensor_2d(out, DTYPE_U8, rows, cols);
    uint64_t state = (uint64_t)(rows * 31 + cols);

    for (int64_t i = 0; i < rows * stride; i++) {
        const double x = room_number(&state);

        out[i] = (int8_t)floor((x + 1) / 2 * (2 * most + 1) - most);
        if (extreme) out[i] = (int8_t)(i / stride % 2 ? -most : most);
    }
    t.stride[0] = stride;
    return t;
}

static float *scales(struct arena *arena, int64_t count, uint64_t seed)
{
    float *out = room_take(arena, count, sizeof *out);

    for (int64_t i = 0; i < count; i++) {
        out[i] = (float)(room_number(&seed) + 1.5) * 0x1p-7f;
        if (i % 19 == 18) out[i] = 0;
        if (i % 47 == 46) out[i] = NAN;
    }
    return out;
}

static void build(struct integers *x, struct arena *arena,
                  const struct shape *s)
{
    memset(x, 0, sizeof *x);
    for (int i = 0; i < s->leaves; i++) {
        x->segments[i].first = s->k * i / s->leaves;
        x->segments[i].length =
            s->k * (i + 1) / s->leaves - x->segments[i].first;
        x->segments[i].leaf = i;
    }
    x->order = (struct sum_order){x->segments, s->leaves, s->leaves};
    x->bytes = (size_t)(s->m * (s->n + 3) * dtype_bytes(s->c));
    x->want = room_numbers(arena, s->m * (s->n + 3), s->c, 7);
    x->have = room_numbers(arena, s->m * (s->n + 3), s->c, 7);
    x->p = (struct integer_product){
        .c = tensor_2d(x->want, s->c, s->m, s->n),
        .a = codes(arena, s->m, s->k, 127, s->extreme),
        .b = codes(arena, s->n, s->k, 1, s->extreme),
        .a_scales = scales(arena, s->m * s->leaves, 1),
        .b_scales = scales(arena, s->n * s->leaves, 2), .order = &x->order};
    x->p.c.stride[0] = s->n + 3;
    if (s->bias) {
        x->bias = tensor_1d(room_numbers(arena, s->n, DTYPE_BF16, 3),
                            DTYPE_BF16, s->n);
        x->p.bias = &x->bias;
    }
    if (s->left == DTYPE_COUNT) return;
    x->left = tensor_2d(room_numbers(arena, s->m * s->n, s->left, 4), s->left,
                        s->m, s->n);
    x->p.left = &x->left;
}

/* ---- the definition once more ---- */

/* Nodes [first, first + count) of the tree over leaves. */
static float tree(const float *v, int first, int count)
{
    int half = 1;

    if (count == 1) return v[first];
    while (2 * half < count) half *= 2;
    return tree(v, first, half) + tree(v, first + half, count - half);
}

static float product_of(const struct integer_product *p, int64_t i, int64_t j)
{
    const int leaves = p->order->leaves;
    float v[LEAVES], out;

    for (int leaf = 0; leaf < leaves; leaf++) {
        const struct sum_segment s = p->order->segments[leaf];
        int64_t sum = 0;

        for (int64_t k = s.first; k < s.first + s.length; k++)
            sum += (int64_t)((int8_t *)p->a.data)[i * p->a.stride[0] + k] *
                   ((int8_t *)p->b.data)[j * p->b.stride[0] + k];
        const float scale =
            p->a_scales[i * leaves + leaf] * p->b_scales[j * leaves + leaf];

        v[leaf] = (float)sum * scale;
    }
    out = tree(v, 0, leaves);
    if (p->bias) out = out + element_get(p->bias->data, p->bias->dtype, j);
    if (p->left)
        out = element_get(p->left->data, p->left->dtype,
                          i * p->left->stride[0] + j) + out;
    return out;
}

static bool same(const struct integers *x, const struct tensor *c)
{
    const int64_t stride = c->stride[0];

    for (int64_t i = 0; i < c->shape[0]; i++)
        for (int64_t j = 0; j < stride; j++) {
            const int64_t at = i * stride + j;
            const float a = element_get(x->want, c->dtype, at);
            const float b = element_get(x->have, c->dtype, at);

            if (memcmp(&a, &b, sizeof a) == 0 || (a != a && b != b)) continue;
            print_error("row %lld column %lld: %a, not %a\n", (long long)i,
                        (long long)j, (double)b, (double)a);
            return false;
        }
    return true;
}

static void compare(struct room *room, const struct kernels *table)
{
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        struct stream *stream = room_next(room, i);
        const struct shape *s = &shapes[i];
        struct integers x;

        build(&x, &room->arena, s);
        for (int64_t r = 0; r < s->m; r++)
            for (int64_t c = 0; c < s->n; c++)
                element_set(x.want, s->c, r * (s->n + 3) + c,
                            product_of(&x.p, r, c));
        x.p.c.data = x.have;
        assert_int_equal(table->integer_product(stream, &x.p), OK);
        if (!same(&x, &x.p.c))
            fail_msg("%s: case %zu", table->backend, i);
    }
}

static void test_tables_have_the_definition(void **state)
{
    static const int features[] = {FEATURES_ALL, 0};
    int tables = 0;

    (void)state;
    for (int f = 0; f < 2; f++) {
        struct room room;

        room_begin(&room, features[f]);
        for (int isa = ISA_PLAIN; isa < ISA_COUNT; isa++) {
            struct kernels table;

            if (!room_table(&table, (enum isa)isa)) continue;
            compare(&room, &table);
            tables++;
        }
        compare(&room, &kernels_reference_f32);
        compare(&room, &kernels_reference_f64);
        room_end(&room);
    }
    assert_true(tables >= 2);
}

/* Rows that do not fit the scratch are made by the reference. */
static void test_scratch_may_be_small(void **state)
{
    struct room room;
    struct kernels table;
    struct integers x;

    (void)state;
    room_begin(&room, FEATURES_ALL);
    assert_true(room_table(&table, ISA_AUTO));
    struct stream stream = *room_next(&room, 0);

    build(&x, &room.arena, &shapes[6]);
    assert_int_equal(kernels_reference_f32.integer_product(&stream, &x.p), OK);
    x.p.c.data = x.have;
    stream.scratch_bytes = 4096;
    assert_int_equal(table.integer_product(&stream, &x.p), OK);
    assert_true(same(&x, &x.p.c));
    room_end(&room);
}

/* ---- codes ---- */

enum { ROWS_OF_X = 40, COLS_OF_X = 530, OF_X = ROWS_OF_X * COLS_OF_X };

struct written {
    uint16_t numbers[OF_X];
    int8_t codes[OF_X];
    float scales[ROWS_OF_X * 2], peaks[8];
    struct quantize_tally tally;
};

static void write(const struct kernels *table, struct stream *stream,
                  struct quantize call, struct written *out)
{
    call.peaks = out->peaks;
    call.out = tensor_2d(out->numbers, DTYPE_BF16, ROWS_OF_X, COLS_OF_X);
    assert_int_equal(table->quantize(stream, &call), OK);
    call.out = tensor_2d(out->codes, DTYPE_U8, ROWS_OF_X, COLS_OF_X);
    call.scales = out->scales;
    call.tally = &out->tally;
    assert_int_equal(table->quantize(stream, &call), OK);
}

/* A code times its scale is the number; what is not finite shows in the scale
 * of its row and span alone. */
static void check_codes(const struct written *of, const float *x)
{
    for (int i = 0; i < OF_X; i++) {
        const int row = i / COLS_OF_X, span = i % COLS_OF_X >= 300;
        const float scale = of->scales[2 * row + span];
        const float number = bf16_to_f32(of->numbers[i]);
        bool bad = false;

        for (int j = span ? 300 : 0; j < (span ? COLS_OF_X : 300); j++)
            bad = bad || !isfinite(x[row * COLS_OF_X + j]);
        if (bad != (bool)isnan(scale)) fail_msg("scale of row %d", row);
        if (!isfinite(x[i]) && of->codes[i] != 0) fail_msg("code %d", i);
        if (bad) continue;
        if (bf16_to_f32(bf16_from_f32((float)of->codes[i] * scale)) != number)
            fail_msg("element %d: %d times %a, not %a", i, of->codes[i],
                     (double)scale, (double)number);
    }
}

static void test_codes_are_the_numbers(void **state)
{
    static const struct quantize_span rows[] = {{0, 23, 0, false},
                                                {23, 17, 0, true}};
    static const struct quantize_span cols[] = {{0, 300, 0, false},
                                                {300, 230, 0, false}};
    static const struct { enum number_format format; int64_t rows; } kinds[] = {
        {FORMAT_INT8, 1}, {FORMAT_TERNARY, 0}, {FORMAT_INT8, 0}};
    static const enum scale_rule rules[] = {SCALE_EXACT, SCALE_MEAN,
                                            SCALE_CEIL, SCALE_FLOOR};
    static struct written want, have;
    struct room room;
    uint64_t seed = 5;

    (void)state;
    room_begin(&room, FEATURES_ALL);
    float *x = room_take(&room.arena, OF_X, sizeof *x);

    for (int i = 0; i < OF_X; i++) {
        x[i] = (float)ldexp(room_number(&seed), i % 13 - 6);
        if (i % 4001 == 77) x[i] = i % 2 ? INFINITY : NAN;
    }
    for (int isa = ISA_PLAIN; isa < ISA_COUNT; isa++) {
        struct kernels table;

        if (!room_table(&table, (enum isa)isa)) continue;
        for (int i = 0; i < 12; i++) {
            const struct quantize call = {
                .in = tensor_2d(x, DTYPE_F32, ROWS_OF_X, COLS_OF_X),
                .rows = rows, .cols = cols, .row_spans = 2, .col_spans = 2,
                .format = kinds[i % 3].format, .scale = rules[i / 3],
                .block_rows = kinds[i % 3].rows, .rounding = ROUND_NEAREST};

            memset(&want, 0, sizeof want);
            memset(&have, 0, sizeof have);
            write(&kernels_reference_f32, &room.streams[1], call, &want);
            write(&table, &room.streams[1 + i % 2], call, &have);
            memcpy(have.peaks, want.peaks, sizeof want.peaks); /* scratch */
            for (int s = 0; s < ROWS_OF_X * 2; s++) /* NaNs are alike */
                if (isnan(want.scales[s]) && isnan(have.scales[s]))
                    want.scales[s] = have.scales[s];
            assert_memory_equal(&want, &have, sizeof want);
            assert_true(want.tally.elements > OF_X / 4);
            check_codes(&have, x);
        }
    }
    room_end(&room);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tables_have_the_definition),
        cmocka_unit_test(test_scratch_may_be_small),
        cmocka_unit_test(test_codes_are_the_numbers),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
