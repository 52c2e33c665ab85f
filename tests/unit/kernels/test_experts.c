/* SPDX-License-Identifier: Apache-2.0 */
/* test_experts.c - products over all experts equal products of one expert,
 * element by element and in every bit; fast ones equal the reference; rows
 * return to their tokens as the definition says. */
#include "tests/unit/kernels/room.h"

enum { SEGMENTS_MOST = 64, POOL_MOST = 3 };

/* The ways in which tokens choose. */
enum skew { EVEN, ALL_TO_ONE, ONE_HAS_MOST, NONE_TO_ODD, RANDOM };

struct experts_case {
    int tokens, experts, choices, width, n;
    enum skew skew;
    int leaves, segments;  /* of a leaf */
};

static const struct experts_case cases[] = {
    {1, 1, 1, 1, 1, EVEN, 1, 1},
    {7, 3, 2, 5, 33, RANDOM, 1, 2},
    {40, 8, 2, 64, 96, EVEN, 2, 2},
    {64, 4, 1, 70, 40, ALL_TO_ONE, 4, 1},
    {90, 16, 4, 130, 64, ONE_HAS_MOST, 3, 2},
    {200, 4, 2, 300, 65, NONE_TO_ODD, 4, 3},
    {700, 3, 1, 48, 64, RANDOM, 2, 1},
    {1100, 2, 1, 33, 67, ONE_HAS_MOST, 1, 3},
    {48, 64, 8, 32, 32, RANDOM, 8, 2},
    {21, 8, 3, 1100, 31, RANDOM, 5, 1},
    {300, 6, 2, 288, 100, ONE_HAS_MOST, 4, 2},
};
enum { CASES = sizeof cases / sizeof *cases };

struct an_experts {
    struct experts_case c;
    enum dtype dtype, real;
    int32_t *chosen;
    struct expert_lists lists;
    struct expert_groups groups;
    struct tensor x, weight, bias, gates; /* gates: real */
    struct sum_order tokens, widths;
    struct sum_segment token_segments[SEGMENTS_MOST], width_segments[2];
    int64_t rows;
};

static int expert_at(const struct experts_case *c, int token, int choice,
                     uint64_t *seed)
{
    const int random =
        (int)(fabs(room_number(seed)) * 0.999 * (double)c->experts);

    switch (c->skew) {
    case EVEN: return (token + choice) % c->experts;
    case ALL_TO_ONE: return c->experts - 1;
    case ONE_HAS_MOST:
        return choice == 0 && token % 5 < 3 ? 1 % c->experts : random;
    case NONE_TO_ODD: return random / 2 * 2;
    case RANDOM: break;
    }
    return random;
}

/* Distinct experts: the next free one where two are equal. */
static void choices_make(struct an_experts *x, uint64_t seed)
{
    const struct experts_case *c = &x->c;

    for (int t = 0; t < c->tokens; t++)
        for (int i = 0; i < c->choices; i++) {
            int32_t *own = x->chosen + t * c->choices;
            int e = expert_at(c, t, i, &seed), free = 0;

            while (free < i) {
                for (free = 0; free < i && own[free] != e; free++) {}
                if (free < i) e = (e + (c->skew == NONE_TO_ODD ? 2 : 1)) %
                                  c->experts;
            }
            own[i] = e;
        }
}

static void orders_make(struct an_experts *x)
{
    const struct experts_case *c = &x->c;
    const int count = c->leaves * c->segments;

    assert_true(count <= SEGMENTS_MOST);
    for (int i = 0; i < count; i++) {
        const int64_t first = c->tokens * i / count;

        x->token_segments[i] = (struct sum_segment){
            first, c->tokens * (i + 1) / count - first, i / c->segments};
    }
    x->tokens = (struct sum_order){x->token_segments, count, c->leaves};
    x->width_segments[0] = (struct sum_segment){0, (c->width + 1) / 2, 0};
    x->width_segments[1] =
        (struct sum_segment){(c->width + 1) / 2, c->width / 2, 1};
    x->widths = (struct sum_order){x->width_segments, c->width > 1 ? 2 : 1,
                                   c->width > 1 ? 2 : 1};
}

static void experts_build(struct an_experts *x, struct arena *arena,
                          const struct experts_case *c, enum dtype dtype)
{
    const int64_t entries = (int64_t)c->tokens * c->choices;
    struct router_tokens of = {.tokens = c->tokens, .choices = c->choices};

    *x = (struct an_experts){.c = *c, .dtype = dtype,
                             .real = dtype_real(dtype)};
    x->chosen = room_take(arena, entries, 4);
    x->lists.offsets = room_take(arena, c->experts + 1, 4);
    x->lists.entries = room_take(arena, entries, 4);
    x->lists.places = room_take(arena, entries, 4);
    choices_make(x, (uint64_t)(c->tokens + c->n));
    for (int64_t i = 5; i < entries; i += 11) /* dropped */
        x->chosen[i] = -1 - x->chosen[i];
    of.chosen = x->chosen;
    expert_groups_make(&of, 0, c->experts, &x->lists);
    x->groups = (struct expert_groups){
        c->experts, c->choices, x->lists.offsets, x->lists.entries, NULL};
    x->rows = x->lists.offsets[c->experts];
    x->x = tensor_2d(room_numbers(arena, entries * (c->width + 3), dtype, 1),
                     dtype, entries, c->width);
    x->x.stride[0] = c->width + 3;
    x->weight = tensor_3d(room_numbers(arena, (int64_t)c->experts * c->width *
                                                  (c->n + 1), dtype, 2),
                          dtype, c->experts, c->n, c->width);
    x->bias = tensor_2d(room_numbers(arena, (int64_t)c->experts * c->n, dtype,
                                     3), dtype, c->experts, c->n);
    x->gates = tensor_2d(room_numbers(arena, entries, x->real, 4), x->real,
                         c->tokens, c->choices);
    orders_make(x);
}

/* b of y = x W', or, turned, of dx = dy W with W [width, n]. */
static struct tensor weight_of(const struct an_experts *x, bool turned)
{
    struct tensor w = x->weight;

    w.shape[1] = x->c.width;
    w.shape[2] = x->c.n;
    w.stride[1] = turned ? x->c.n : 1;
    w.stride[2] = turned ? 1 : x->c.width;
    return w;
}

static struct experts_product product_of(const struct an_experts *x, int form,
                                         struct tensor c)
{
    struct experts_product p = {
        .groups = &x->groups, .c = c, .b = weight_of(x, form % 2 == 1),
        .a = {x->x, form % 3 != 2, form >= 3 ? x->gates.data : NULL},
        .order = &x->widths};

    if (form % 2 == 0) p.bias = x->bias;
    return p;
}

static const struct kernels *reference_of(enum dtype dtype)
{
    return dtype == DTYPE_F64 ? &kernels_reference_f64
                              : &kernels_reference_f32;
}

/* Products of one row each, of the row's own copy. */
static void test_products_are_those_of_rows(void **state)
{
    struct arena arena;
    struct stream stream = {0};

    (void)state;
    arena_init(&arena, "test", 0);
    for (int i = 0; i < CASES * 6; i++) {
        const enum dtype dtype = i % 2 ? DTYPE_F64 : DTYPE_F32;
        const struct kernels *table = reference_of(dtype);
        struct an_experts x;
        struct experts_product p;
        struct tensor c, row, one;

        arena_reset(&arena);
        experts_build(&x, &arena, &cases[i / 6], dtype);
        c = tensor_2d(room_numbers(&arena, x.rows * x.c.n + 1, dtype, 5),
                      dtype, x.rows, x.c.n);
        row = tensor_2d(room_take(&arena, x.c.width, 8), dtype, 1, x.c.width);
        one = tensor_2d(room_take(&arena, x.c.n, 8), dtype, 1, x.c.n);
        p = product_of(&x, i % 6, c);
        assert_int_equal(table->experts_product(&stream, &p), OK);
        for (int64_t g = 0, e = 0; g < x.rows; g++) {
            const int32_t entry = x.groups.entries[g];
            struct tensor from = x.x, bias = x.bias;
            struct matmul dense = {.c = one, .a = row, .order = p.order};

            while (g >= x.groups.offsets[e + 1]) e++;
            from.data = (char *)from.data +
                        (p.a.gathered ? entry / x.c.choices : g) *
                            from.stride[0] * dtype_bytes(dtype);
            for (int64_t j = 0; j < x.c.width; j++)
                tensor_set(&row, j, tensor_get(&from, j));
            if (p.a.scales)
                table->scale(&stream, row, row, tensor_get(&x.gates, entry));
            dense.b = tensor_2d((char *)p.b.data +
                                    e * p.b.stride[0] * dtype_bytes(dtype),
                                dtype, x.c.width, x.c.n);
            dense.b.stride[0] = p.b.stride[1];
            dense.b.stride[1] = p.b.stride[2];
            bias = tensor_1d((char *)bias.data +
                                 e * x.c.n * dtype_bytes(dtype), dtype, x.c.n);
            if (p.bias.data) dense.bias = &bias;
            table->matmul(&stream, &dense);
            assert_memory_equal(one.data,
                                (char *)c.data + g * x.c.n * dtype_bytes(dtype),
                                (size_t)x.c.n * (size_t)dtype_bytes(dtype));
        }
    }
    arena_free(&arena);
}

/* ---- gradients ---- */

/* The tree from its definition: of leaves [first, first + count), of which
 * some are missing. */
static bool tree(const double *leaf, const bool *there, int first, int count,
                 double *out)
{
    double left = 0, right = 0;
    int half = 1;
    bool has_left, has_right;

    if (count == 1) {
        *out = leaf[first];
        return there[first];
    }
    while (2 * half < count) half *= 2;
    has_left = tree(leaf, there, first, half, &left);
    has_right = tree(leaf, there, first + half, count - half, &right);
    *out = has_left && has_right ? left + right : has_left ? left : right;
    return has_left || has_right;
}

/* Element of a gradient (column j2 < 0: of a bias) as the page defines it. */
static double gradient_element(const struct an_experts *x, int e, int64_t i,
                               int64_t j)
{
    double leaf[64] = {0}, out = 0;
    bool there[64] = {false};

    for (int s = 0; s < x->c.leaves * x->c.segments; s++) {
        const struct sum_segment *segment = &x->token_segments[s];
        int count = 0;
        double chain = 0;

        for (int64_t t = segment->first;
             t <= segment->first + segment->length; t++) {
            const bool end = t == segment->first + segment->length;

            for (int c = 0; c < x->c.choices && !end; c++) {
                const int64_t entry = t * x->c.choices + c;
                double a, b;

                if (x->chosen[entry] != e) continue;
                a = ((double *)x->x.data)[x->lists.places[entry] *
                                              x->x.stride[0] + i];
                b = ((double *)x->gates.data)[entry];
                if (j >= 0)
                    b = ((double *)x->x.data)[t * x->x.stride[0] + j] * b;
                chain = j < 0 ? chain + a : fma(a, b, chain);
                count++;
            }
            if (count == 0 || (count % GRANULE != 0 && !end)) continue;
            leaf[segment->leaf] =
                there[segment->leaf] ? leaf[segment->leaf] + chain : chain;
            there[segment->leaf] = true;
            chain = 0;
            count = 0;
        }
    }
    tree(leaf, there, 0, x->c.leaves, &out);
    return out;
}

static void test_gradient_is_its_definition(void **state)
{
    struct arena arena;
    struct stream stream = {0};

    (void)state;
    arena_init(&arena, "test", 0);
    for (int i = 0; i < CASES; i++) {
        struct an_experts x;
        struct experts_gradient p;
        struct experts_sums sums;
        int64_t n, k;

        arena_reset(&arena);
        experts_build(&x, &arena, &cases[i], DTYPE_F64);
        n = x.c.width < 9 ? x.c.width : 9; /* columns of a */
        k = x.c.width;
        p = (struct experts_gradient){
            .groups = &x.groups, .order = &x.tokens,
            .a = {tensor_cols(x.x, 0, n), false, NULL},
            .b = {x.x, true, x.gates.data},
            .c = tensor_3d(room_numbers(&arena, x.c.experts * n * k, DTYPE_F64,
                                        6), DTYPE_F64, x.c.experts, n, k)};
        sums = (struct experts_sums){
            .groups = &x.groups, .order = &x.tokens, .a = p.a,
            .c = tensor_2d(room_take(&arena, x.c.experts * n, 8), DTYPE_F64,
                           x.c.experts, n)};
        kernels_reference_f64.experts_gradient(&stream, &p);
        kernels_reference_f64.experts_sums(&stream, &sums);
        for (int64_t at = 0; at < x.c.experts * n; at++) {
            const int e = (int)(at / n);
            const double of_bias = gradient_element(&x, e, at % n, -1);

            assert_memory_equal((double *)sums.c.data + at, &of_bias, 8);
            for (int64_t j = 0; j < k; j += 7) {
                const double want = gradient_element(&x, e, at % n, j);

                assert_memory_equal((double *)p.c.data + at * k + j, &want, 8);
            }
        }
    }
    arena_free(&arena);
}

/* ---- fast tables ---- */

struct flavour {
    enum dtype dtype;
    enum product product;
};

static const struct flavour flavours[] = {
    {DTYPE_F32, PRODUCT_PAIRS}, {DTYPE_BF16, PRODUCT_PAIRS},
    {DTYPE_BF16, PRODUCT_TILES}, {DTYPE_F16, PRODUCT_PAIRS}};
enum { FLAVOURS = sizeof flavours / sizeof *flavours };

static struct kernels definition_of(const struct flavour *f)
{
    struct kernels table = kernels_reference_f32;

    table.dtype = f->dtype;
    table.product = f->product;
    kernels_reference_products(&table, f->dtype, f->product);
    return table;
}

/* Every call of one case into fresh results. */
struct results {
    struct tensor product[6], gradient[3], sums[3], y[4], gates, glu[2];
};

static struct tensor fresh(struct arena *arena, enum dtype dtype, int64_t rows,
                           int64_t cols)
{
    return tensor_2d(room_numbers(arena, rows * cols + 1, dtype, 77), dtype,
                     rows, cols);
}

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static void results_take(struct results *r, struct arena *arena,
                         const struct an_experts *x)
{
    const int64_t n = x->c.n, width = x->c.width, rows = x->rows;

    for (int i = 0; i < 6; i++)
        r->product[i] = fresh(arena, i % 2 ? DTYPE_F32 : x->dtype, rows, n);
    for (int i = 0; i < 3; i++) {
        r->gradient[i] = fresh(arena, DTYPE_F32,
                               x->c.experts * least(width, 33),
                               least(width, 70));
        r->sums[i] = fresh(arena, DTYPE_F32, x->c.experts, least(width, 33));
    }
    for (int i = 0; i < 4; i++)
        r->y[i] = fresh(arena, i % 2 ? DTYPE_F32 : x->dtype, x->c.tokens,
                        width);
    r->gates = fresh(arena, DTYPE_F32, x->c.tokens, x->c.choices);
    r->glu[0] = fresh(arena, x->dtype, x->c.tokens, width / 2);
    r->glu[1] = fresh(arena, x->dtype, x->c.tokens, width / 2 * 2);
}

static void gradients_run(const struct kernels *table, struct stream *stream,
                          const struct an_experts *x, struct results *r)
{
    const int64_t n = least(x->c.width, 33), k = least(x->c.width, 70);

    for (int i = 0; i < 3; i++) {
        const struct sum_order first = {x->token_segments, x->c.segments, 1};
        struct experts_gradient p = {
            .groups = &x->groups,
            .a = {tensor_cols(x->x, 0, n), i == 1, x->gates.data},
            .b = {tensor_cols(x->x, x->c.width - k, k), i != 1, NULL},
            .order = i == 2 ? &first : &x->tokens, .adds = i == 1,
            .continues = i == 2,
            .c = tensor_3d(r->gradient[i].data, DTYPE_F32, x->c.experts, n,
                           k)};
        struct experts_sums sums = {
            .groups = &x->groups, .a = p.a, .order = p.order, .adds = p.adds,
            .continues = p.continues, .c = r->sums[i]};

        assert_int_equal(table->experts_gradient(stream, &p), OK);
        assert_int_equal(table->experts_sums(stream, &sums), OK);
    }
}

static void all_run(const struct kernels *table, struct stream *stream,
                    const struct an_experts *x, struct results *r)
{
    const struct tensor rows = tensor_rows(x->x, 0, x->rows);
    struct experts_gates gates = {r->gates, tensor_rows(x->x, 0, x->c.tokens),
                                  rows, x->lists.places, x->c.choices};

    for (int i = 0; i < 6; i++) {
        const struct experts_product p = product_of(x, i, r->product[i]);

        assert_int_equal(table->experts_product(stream, &p), OK);
    }
    gradients_run(table, stream, x, r);
    for (int i = 0; i < 4; i++) {
        const struct experts_combine p = {
            .y = r->y[i], .rows = rows, .places = x->lists.places,
            .numbers = x->chosen, .choices = x->c.choices,
            .gates = i < 2 ? x->gates.data : NULL,
            .leaf_experts = i % 2 ? 1 : (x->c.experts + 3) / 4,
            .left = i == 1 || i == 2 ? &r->y[i] : NULL};

        assert_int_equal(table->experts_combine(stream, &p), OK);
    }
    assert_int_equal(table->experts_gates(stream, &gates), OK);
}

static void glu_run(const struct kernels *table, struct stream *stream,
                    const struct an_experts *x, struct results *r)
{
    const int64_t half = x->c.width / 2;
    const struct tensor gate_up =
        tensor_cols(tensor_rows(x->x, 0, x->c.tokens), 0, 2 * half);
    const struct clamped_glu forward = {
        .out = r->glu[0], .gate_up = gate_up, .alpha = 1.702, .limit = 0.6};
    const struct clamped_glu backward = {
        .dout = tensor_cols(gate_up, half, half), .gate_up = gate_up,
        .dgate_up = r->glu[1], .alpha = 1.702, .limit = 0.6};

    if (half == 0) return;
    assert_int_equal(table->clamped_forward(stream, &forward), OK);
    assert_int_equal(table->clamped_backward(stream, &backward), OK);
}

static void same(const struct tensor *have, const struct tensor *want,
                 const char *what, int i)
{
    const size_t bytes = (size_t)(tensor_count(want) *
                                  dtype_bytes(want->dtype));

    if (memcmp(have->data, want->data, bytes) != 0)
        fail_msg("%s %d differs", what, i);
}

static void results_compare(const struct results *have,
                            const struct results *want)
{
    for (int i = 0; i < 6; i++)
        same(&have->product[i], &want->product[i], "product", i);
    for (int i = 0; i < 3; i++) {
        same(&have->gradient[i], &want->gradient[i], "gradient", i);
        same(&have->sums[i], &want->sums[i], "sums", i);
    }
    for (int i = 0; i < 4; i++) same(&have->y[i], &want->y[i], "y", i);
    same(&have->gates, &want->gates, "gates", 0);
}

static void test_fast_equals_reference(void **state)
{
    struct arena arena;
    struct threads *threads[POOL_MOST + 1] = {0};

    (void)state;
    arena_init(&arena, "test", 0);
    for (int n = 1; n <= POOL_MOST; n++)
        assert_int_equal(threads_build(&threads[n], n), OK);
    for (int i = 0; i < CASES * FLAVOURS; i++) {
        const struct flavour *f = &flavours[i % FLAVOURS];
        const struct kernels definition = definition_of(f);
        struct an_experts x;
        struct results want, have;
        struct stream plain = {0};

        if (SANITIZED && i % 5 != 0) continue;
        arena_reset(&arena);
        experts_build(&x, &arena, &cases[i / FLAVOURS], f->dtype);
        results_take(&want, &arena, &x);
        all_run(&definition, &plain, &x, &want);
        for (enum isa isa = ISA_PLAIN; isa < ISA_COUNT; isa++) {
            struct kernels table;
            struct stream stream;
            const int n = 1 + (i + (int)isa) % POOL_MOST;

            if (kernels_get_product(&table, f->dtype, isa, f->product) != OK) {
                status_clear();
                continue;
            }
            stream = room_stream(threads[n], &table);
            results_take(&have, &arena, &x);
            all_run(&table, &stream, &x, &have);
            glu_run(&table, &stream, &x, &have);
            results_compare(&have, &want);
            if (f->dtype != DTYPE_F32) continue;
            glu_run(&definition, &plain, &x, &want);
            same(&have.glu[0], &want.glu[0], "clamped", 0);
            same(&have.glu[1], &want.glu[1], "clamped", 1);
        }
    }
    for (int n = 1; n <= POOL_MOST; n++) threads_free(threads[n]);
    arena_free(&arena);
}

/* ---- rows back to tokens ---- */

static double combined(const struct an_experts *x, int leaf_experts, int64_t t,
                       int64_t j)
{
    double leaf[64] = {0}, out = 0;
    bool there[64] = {false};

    for (int i = 0; i < x->c.experts * x->c.choices; i++) {
        const int e = i / x->c.choices, of = e / leaf_experts;
        const int64_t entry = t * x->c.choices + i % x->c.choices;

        if (x->chosen[entry] != e) continue;
        leaf[of] = fma(((double *)x->gates.data)[entry],
                       ((double *)x->x.data)[x->lists.places[entry] *
                                                 x->x.stride[0] + j],
                       leaf[of]);
        there[of] = true;
    }
    tree(leaf, there, 0, 8, &out);
    return out + 0;
}

static void test_combine_is_its_definition(void **state)
{
    struct arena arena;
    struct stream stream = {0};

    (void)state;
    arena_init(&arena, "test", 0);
    for (int i = 0; i < CASES; i++) {
        struct an_experts x;
        struct experts_combine p;
        const int leaf_experts = (cases[i].experts + 4) / 5;

        arena_reset(&arena);
        experts_build(&x, &arena, &cases[i], DTYPE_F64);
        p = (struct experts_combine){
            .y = fresh(&arena, DTYPE_F64, x.c.tokens, x.c.width),
            .rows = x.x, .places = x.lists.places, .numbers = x.chosen,
            .gates = x.gates.data, .choices = x.c.choices,
            .leaf_experts = leaf_experts};
        kernels_reference_f64.experts_combine(&stream, &p);
        for (int64_t t = 0; t < x.c.tokens; t++)
            for (int64_t j = 0; j < x.c.width; j += 3) {
                const double want = combined(&x, leaf_experts, t, j);

                assert_memory_equal((double *)p.y.data + t * x.c.width + j,
                                    &want, 8);
            }
    }
    arena_free(&arena);
}

/* A weight gradient whose gathered operand would not fit in the scratch. */
static void gradient_check(const struct kernels *table, struct stream *stream,
                           struct arena *arena, const struct an_experts *x)
{
    enum { N = 4 };
    float *data = room_take(arena, 2 * x->c.experts * N * x->c.width, 4);
    struct experts_gradient p = {
        .groups = &x->groups, .order = &x->tokens,
        .a = {tensor_cols(x->x, 0, N), true, x->gates.data},
        .b = {x->x, true, NULL},
        .c = tensor_3d(data, DTYPE_F32, x->c.experts, N, x->c.width)};

    assert_int_equal(table->experts_gradient(stream, &p), OK);
    p.c.data = data + tensor_count(&p.c);
    kernels_reference_f32.experts_gradient(stream, &p);
    assert_memory_equal(data, p.c.data, (size_t)tensor_count(&p.c) * 4);
}

/* Copies of rows for all choices would be larger than all scratch that there
 * is, and kernels take no other memory: so none are made. */
static void test_no_copy_of_all_rows(void **state)
{
    static const struct experts_case c = {4096, 4, 2, 1024, 32, RANDOM, 1, 1};
    static const int forms[] = {0, 1, 3}; /* y; dx without gates, with them */
    struct arena arena;
    struct an_experts x;
    struct kernels table;
    struct stream stream, plain = {0};

    (void)state;
    arena_init(&arena, "test", 0);
    assert_true(room_table(&table, ISA_AUTO));
    stream = room_stream(NULL, &table);
    experts_build(&x, &arena, &c, DTYPE_F32);
    assert_true(stream.scratch_bytes < (size_t)(4 * x.rows * c.width));
    for (int i = 0; i < 3; i++) {
        const struct tensor y = fresh(&arena, DTYPE_F32, x.rows, c.n);
        struct experts_product p = product_of(&x, forms[i], y);

        assert_int_equal(table.experts_product(&stream, &p), OK);
        p.c = fresh(&arena, DTYPE_F32, x.rows, c.n);
        kernels_reference_f32.experts_product(&plain, &p);
        same(&y, &p.c, "gathered", forms[i]);
    }
    gradient_check(&table, &stream, &arena, &x);
    arena_free(&arena);
}

static void test_groups(void **state)
{
    struct arena arena;

    (void)state;
    arena_init(&arena, "test", 0);
    for (int i = 0; i < CASES; i++) {
        struct an_experts x;
        int64_t kept = 0;

        arena_reset(&arena);
        experts_build(&x, &arena, &cases[i], DTYPE_F32);
        for (int64_t entry = 0; entry < (int64_t)x.c.tokens * x.c.choices;
             entry++) {
            const int32_t place = x.lists.places[entry];

            if (x.chosen[entry] < 0) {
                assert_int_equal(place, -1);
                continue;
            }
            kept++;
            assert_int_equal(x.lists.entries[place], entry);
            assert_true(place >= x.lists.offsets[x.chosen[entry]]);
            assert_true(place < x.lists.offsets[x.chosen[entry] + 1]);
        }
        assert_int_equal(kept, x.rows);
        for (int e = 0; e < x.c.experts; e++)
            for (int g = x.lists.offsets[e] + 1; g < x.lists.offsets[e + 1];
                 g++)
                assert_true(x.lists.entries[g - 1] < x.lists.entries[g]);
    }
    arena_free(&arena);
}

/* The clamped form against finite differences in float64. */
static void test_clamped_gradient(void **state)
{
    enum { N = 200 };
    double gate_up[2 * N], out[N], dout[N], back[2 * N];
    uint64_t seed = 6;
    struct stream stream = {0};
    const struct clamped_glu call = {
        tensor_2d(out, DTYPE_F64, 1, N),
        tensor_2d(gate_up, DTYPE_F64, 1, 2 * N),
        tensor_2d(dout, DTYPE_F64, 1, N), tensor_2d(back, DTYPE_F64, 1, 2 * N),
        1.702, 7};

    (void)state;
    for (int i = 0; i < 2 * N; i++) gate_up[i] = 10 * room_number(&seed);
    for (int i = 0; i < N; i++) dout[i] = room_number(&seed);
    kernels_reference_f64.clamped_backward(&stream, &call);
    for (int i = 0; i < 2 * N; i++) {
        const double x = gate_up[i], h = 1e-5;
        double difference = 0;

        gate_up[i] = x + h;
        kernels_reference_f64.clamped_forward(&stream, &call);
        difference = out[i % N];
        gate_up[i] = x - h;
        kernels_reference_f64.clamped_forward(&stream, &call);
        difference = (difference - out[i % N]) / (2 * h) * dout[i % N];
        gate_up[i] = x;
        assert_true(fabs(difference - back[i]) < 1e-7 * (1 + fabs(back[i])));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_products_are_those_of_rows),
        cmocka_unit_test(test_gradient_is_its_definition),
        cmocka_unit_test(test_combine_is_its_definition),
        cmocka_unit_test(test_groups),
        cmocka_unit_test(test_clamped_gradient),
        cmocka_unit_test(test_no_copy_of_all_rows),
        cmocka_unit_test(test_fast_equals_reference),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
