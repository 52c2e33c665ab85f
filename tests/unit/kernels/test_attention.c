/* SPDX-License-Identifier: Apache-2.0 */
/* test_attention.c - the fast attention equals the reference in every bit, and
 * the reference in float64 equals plain softmax and finite differences. */
#include "kernels/alibi.h"
#include "tests/unit/kernels/attention_cases.h"

static void assert_same(const struct tensor *have, const struct tensor *want,
                        const char *name, size_t index, enum isa isa)
{
    int64_t rows = want->shape[0], heads = want->shape[1];
    int64_t width = want->dimensions == 3 ? want->shape[2] : 1;

    for (int64_t row = 0; row < rows; row++) {
        const float *x = (const float *)have->data + row * have->stride[0];
        const float *y = (const float *)want->data + row * want->stride[0];

        if (memcmp(x, y, (size_t)(heads * width) * sizeof *x))
            fail_msg("case %zu %s: %s differs in row %lld", index,
                     isa_name(isa), name, (long long)row);
    }
}

/* Products in chains, or in tiles: of numbers about 1, or such that products of
 * values, or of queries and keys, are about the least that is not denormal. */
enum form { CHAINS, TILES, TINY_VALUES, TINY_KEYS, FORMS };

/* Elements become bfloat16 numbers, times `factor`. */
static void round_all(const struct tensor *t, float factor)
{
    for (int64_t row = 0; row < t->shape[0]; row++)
        for (int64_t head = 0; head < t->shape[1]; head++)
            for (int64_t e = 0; e < t->shape[2]; e++) {
                float *x = (float *)t->data + row * t->stride[0] +
                           head * t->stride[1] + e;

                *x = bf16_to_f32(bf16_from_f32(*x * factor));
            }
}

static void call_build(struct attention *p, struct arena *arena,
                       const struct attention_case *c, enum form form)
{
    attention_build(p, arena, c, DTYPE_F32);
    p->tiles = form != CHAINS;
    if (!p->tiles) return;
    round_all(&p->q, form == TINY_KEYS ? 0x1p-62f : 1);
    round_all(&p->k, form == TINY_KEYS ? 0x1p-63f : 1);
    round_all(&p->v, form == TINY_VALUES ? 0x1p-121f : 1);
    round_all(&p->dout, form == TINY_VALUES ? 0x1p6f : 1);
    if (form == TINY_KEYS) p->scale *= 0x1p118;
}

/* Forward, and where the keys are the queries' own, backward. */
static void reference_run(struct attention *want,
                          const struct attention_case *c)
{
    struct stream plain = {0};

    kernels_reference_f32.attention_forward(&plain, want);
    if (c->first_query) return;
    want->key_stride = c->queries;
    kernels_reference_f32.attention_backward(&plain, want);
}

static void case_compare(size_t index, enum form form, enum isa isa,
                         struct threads *threads,
                         const struct attention *want, struct arena *arena)
{
    const struct attention_case *c = &cases[index];
    struct attention have;
    struct stream stream;
    struct kernels table;

    if (!room_table(&table, isa)) return;
    call_build(&have, arena, c, form);
    stream = room_stream(threads, &table);
    assert_int_equal(table.attention_forward(&stream, &have), OK);
    assert_same(&have.out, &want->out, "out", index, isa);
    assert_same(&have.lse, &want->lse, "lse", index, isa);
    if (have.peaks)
        assert_memory_equal(have.peaks, want->peaks, (size_t)c->heads * 4);
    if (c->first_query) return;
    have.key_stride = c->queries;
    assert_int_equal(table.attention_backward(&stream, &have), OK);
    assert_same(&have.dq, &want->dq, "dq", index, isa);
    assert_same(&have.dk, &want->dk, "dk", index, isa);
    assert_same(&have.dv, &want->dv, "dv", index, isa);
}

/* ---- windows of a sequence ---- */

/* Rows from a tensor's row `first` on. */
static struct tensor from_row(struct tensor t, int64_t first)
{
    t.data = (char *)t.data + first * t.stride[0] * dtype_bytes(t.dtype);
    t.shape[0] -= first;
    return t;
}

/* The call for queries [first, last) of every sequence. */
static struct attention of_queries(const struct attention *whole,
                                   int64_t first, int64_t last)
{
    struct attention p = *whole;

    p.q = from_row(p.q, first);
    p.out = from_row(p.out, first);
    p.dq = from_row(p.dq, first);
    p.dout = from_row(p.dout, first);
    p.lse = from_row(p.lse, first);
    p.delta = from_row(p.delta, first);
    if (p.query_documents) p.query_documents += first;
    p.query_stride = whole->queries;
    p.first_query = first;
    p.queries = last - first;
    p.half = ATTENTION_OF_QUERIES;
    return p;
}

/* The call for keys [first, last) of every sequence: queries from `first`. */
static struct attention of_keys(const struct attention *whole, int64_t first,
                                int64_t last)
{
    struct attention p = of_queries(whole, first, whole->queries);

    p.k = from_row(p.k, first);
    p.v = from_row(p.v, first);
    p.dk = from_row(p.dk, first);
    p.dv = from_row(p.dv, first);
    if (p.key_documents) p.key_documents += first;
    p.first_key = first;
    p.keys = last - first;
    p.half = ATTENTION_OF_KEYS;
    return p;
}

/* The whole attention, forward and backward, from windows of `step`. */
static void windows_run(const struct kernels *table, struct stream *stream,
                        const struct attention *whole, int64_t step)
{
    const int64_t length = whole->queries;

    for (int64_t at = 0; at < length; at += step) {
        const int64_t end = at + step < length ? at + step : length;
        const struct attention p = of_queries(whole, at, end);

        assert_int_equal(table->attention_forward(stream, &p), OK);
        assert_int_equal(table->attention_delta(stream, &p), OK);
    }
    for (int64_t at = 0; at < length; at += step) {
        const int64_t end = at + step < length ? at + step : length;
        const struct attention q = of_queries(whole, at, end);
        const struct attention k = of_keys(whole, at, end);

        assert_int_equal(table->attention_backward(stream, &q), OK);
        assert_int_equal(table->attention_backward(stream, &k), OK);
    }
}

static void windows_compare(size_t index, enum form form, enum isa isa,
                            struct threads *threads,
                            const struct attention *want, struct arena *arena)
{
    static const int64_t steps[] = {300, 128, 75, 33, 256};
    const struct attention_case *c = &cases[index];
    struct attention have;
    struct stream stream;
    struct kernels table = kernels_reference_f32;

    if (isa != ISA_AUTO && !room_table(&table, isa)) return;
    call_build(&have, arena, c, form);
    have.key_stride = c->queries;
    have.delta = tensor_2d(
        room_numbers(arena, have.lse.shape[0] * c->heads, DTYPE_F32, 6),
        DTYPE_F32, have.lse.shape[0], c->heads);
    stream = room_stream(threads, &table);
    windows_run(&table, &stream, &have, steps[(index + isa) % 5]);
    assert_same(&have.out, &want->out, "out of windows", index, isa);
    assert_same(&have.lse, &want->lse, "lse of windows", index, isa);
    assert_same(&have.dq, &want->dq, "dq of windows", index, isa);
    assert_same(&have.dk, &want->dk, "dk of windows", index, isa);
    assert_same(&have.dv, &want->dv, "dv of windows", index, isa);
}

/* Windows of what is big, and tiles without an instruction, take plain and
 * checked kernels longest, and no way through them that small cases do not. */
static bool is_long(const struct attention_case *c, enum form form,
                    enum isa isa)
{
    const int most = form == CHAINS ? 11000000 : 2000000;
    const int seen = c->window > 0 ? c->window + ATTENTION_GRANULE
                                   : c->queries / 2;

    return c->sequences * c->queries * seen * c->heads * c->width > most &&
           (isa == ISA_AUTO || isa == ISA_PLAIN || SANITIZED);
}

/* The emulator of kernels of CUDA is slow, most of all where addresses are
 * checked. */
static bool has_form(enum isa isa, enum form form, size_t index)
{
    if (isa != ISA_EMULATED) return true;
    if (form == CHAINS) return !SANITIZED || index % 4 == 0;
    return !SANITIZED && index % 3 == 0 &&
           !is_long(&cases[index], form, ISA_PLAIN);
}

/* The whole at once, and where the keys are the queries' own, in windows. */
static void case_check(size_t index, enum form form,
                       struct threads *const *threads, struct arena *arena)
{
    const struct attention_case *c = &cases[index];
    struct attention want;

    arena_reset(arena);
    call_build(&want, arena, c, form);
    reference_run(&want, c);
    for (enum isa isa = ISA_PLAIN; isa < ISA_COUNT; isa++)
        if (has_form(isa, form, index) &&
            (form == CHAINS || !is_long(c, form, isa)))
            case_compare(index, form, isa, threads[1 + (index + isa) % 4],
                         &want, arena);
    features_limit(0); /* AVX-512 as where there are no tiles */
    if (form != CHAINS)
        case_compare(index, form, ISA_AVX512, threads[2], &want, arena);
    features_limit(FEATURES_ALL);
    if (c->first_query) return;
    assert_true(c->fused || c->sequences == 1); /* no gaps between them */
    for (enum isa isa = ISA_AUTO; isa < ISA_COUNT; isa++) {
        if (is_long(c, form, isa) || !has_form(isa, form, index)) continue;
        windows_compare(index, form, isa, threads[2], &want, arena);
    }
}

static void test_fast_equals_reference(void **state)
{
    struct arena arena;
    struct threads *threads[5] = {0};

    (void)state;
    arena_init(&arena, "test", 0);
    for (int n = 1; n < 5; n++)
        assert_int_equal(threads_build(&threads[n], n), OK);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        case_check(i, CHAINS, threads, &arena);
        if (!SANITIZED || i % 2)
            case_check(i, TILES + i % 3, threads, &arena);
    }
    for (int n = 1; n < 5; n++) threads_free(threads[n]);
    arena_free(&arena);
}

/* ---- nodes of the tree ---- */

enum { NODES = 4 };

static struct attention_node node_take(struct arena *arena,
                                       const struct attention *p)
{
    const int64_t rows = p->queries, heads = p->heads, width = p->head_width;
    struct attention_node node = {
        tensor_3d(room_take(arena, rows * heads * width, 4), DTYPE_F32, rows,
                  heads, width),
        tensor_2d(room_take(arena, rows * heads, 4), DTYPE_F32, rows, heads),
        tensor_2d(room_take(arena, rows * heads, 4), DTYPE_F32, rows, heads)};

    return node;
}

static void add(const struct kernels *table, struct stream *stream,
                struct tensor to, struct tensor from)
{
    const int64_t n = tensor_count(&to);

    to = tensor_1d(to.data, to.dtype, n);
    assert_int_equal(table->add(stream, to, to,
                                tensor_1d(from.data, from.dtype, n)), OK);
}

/* out and lse of one sequence from nodes over its keys. */
static void nodes_forward(const struct kernels *table, struct stream *stream,
                          const struct attention *whole, struct arena *arena)
{
    const int64_t size = whole->keys / NODES;
    struct attention_node node[NODES];

    for (int i = 0; i < NODES; i++) {
        struct attention p = *whole;

        node[i] = node_take(arena, whole);
        p.k = from_row(p.k, i * size);
        p.v = from_row(p.v, i * size);
        p.key_documents += i * size;
        p.first_key = i * size;
        p.keys = size;
        p.out = node[i].values;
        p.lse = node[i].maximum;
        p.denominator = node[i].denominator;
        assert_int_equal(table->attention_forward(stream, &p), OK);
    }
    table->attention_merge(stream, &node[2], &node[3]);
    table->attention_merge(stream, &node[0], &node[1]);
    table->attention_merge(stream, &node[0], &node[2]);
    table->attention_finish(stream, whole->out, whole->lse, &node[0]);
}

/* dq from nodes over keys, dk and dv from nodes over queries. */
static void nodes_backward(const struct kernels *table, struct stream *stream,
                           const struct attention *whole, struct arena *arena)
{
    const int64_t size = whole->keys / NODES;
    struct tensor sums[NODES][3];

    for (int i = 0; i < NODES; i++) {
        struct attention k = *whole, q;

        for (int j = 0; j < 3; j++)
            sums[i][j] = node_take(arena, whole).values;
        k.half = ATTENTION_OF_QUERIES;
        k.k = from_row(k.k, i * size);
        k.v = from_row(k.v, i * size);
        k.key_documents += i * size;
        k.first_key = i * size;
        k.keys = size;
        k.dq = sums[i][0];
        assert_int_equal(table->attention_backward(stream, &k), OK);
        q = of_queries(whole, i * size, (i + 1) * size);
        q.half = ATTENTION_OF_KEYS;
        q.dk = sums[i][1];
        q.dv = sums[i][2];
        assert_int_equal(table->attention_backward(stream, &q), OK);
    }
    for (int j = 0; j < 3; j++) {
        add(table, stream, sums[2][j], sums[3][j]);
        add(table, stream, sums[0][j], sums[1][j]);
        add(table, stream, sums[0][j], sums[2][j]);
    }
    for (int64_t row = 0; row < whole->queries; row++) {
        const struct tensor *to[] = {&whole->dq, &whole->dk, &whole->dv};
        const size_t bytes = (size_t)(whole->heads * whole->head_width) * 4;

        for (int j = 0; j < 3; j++)
            memcpy((float *)to[j]->data + row * to[j]->stride[0],
                   (float *)sums[0][j].data + row * sums[0][j].stride[0],
                   bytes);
    }
}

static void nodes_compare(const struct attention_case *c, enum form form,
                          struct threads *threads, struct arena *arena)
{
    const int64_t rows = c->queries;
    struct attention want;

    call_build(&want, arena, c, form);
    reference_run(&want, c);
    for (enum isa isa = ISA_AUTO; isa < ISA_COUNT; isa++) {
        struct kernels table = kernels_reference_f32;
        struct stream stream;
        struct attention have;

        if (isa != ISA_AUTO && !room_table(&table, isa)) continue;
        if (is_long(c, form, isa) || !has_form(isa, form, 0)) continue;
        call_build(&have, arena, c, form);
        have.delta = tensor_2d(room_take(arena, rows * c->heads, 4), DTYPE_F32,
                               rows, c->heads);
        stream = room_stream(threads, &table);
        nodes_forward(&table, &stream, &have, arena);
        assert_int_equal(table.attention_delta(&stream, &have), OK);
        nodes_backward(&table, &stream, &have, arena);
        assert_same(&have.out, &want.out, "out of nodes", form, isa);
        assert_same(&have.lse, &want.lse, "lse of nodes", form, isa);
        assert_same(&have.dq, &want.dq, "dq of nodes", form, isa);
        assert_same(&have.dk, &want.dk, "dk of nodes", form, isa);
        assert_same(&have.dv, &want.dv, "dv of nodes", form, isa);
    }
}

static void test_nodes(void **state)
{
    static const struct attention_case
        narrow = {1, 1024, 0, 2, 2, 20, 1, 300, true, 200, 3, 0.2, 7},
        packed = {1, 1024, 0, 1, 1, 32, 1, 600, true, 250, 0, 0, 0};
    struct arena arena;
    struct threads *threads;

    (void)state;
    arena_init(&arena, "test", 0);
    assert_int_equal(threads_build(&threads, 2), OK);
    nodes_compare(&narrow, CHAINS, threads, &arena);
    if (!SANITIZED) nodes_compare(&packed, TILES, threads, &arena);
    threads_free(threads);
    arena_free(&arena);
}

static double *element(const struct tensor *t, int64_t row, int head, int e)
{
    return (double *)t->data + row * t->stride[0] + head * t->stride[1] + e;
}

/* The factor of dropout for a weight, from the definition. */
static double keep_of(const struct attention *p, int64_t sequence,
                      int64_t query, int64_t key, int head)
{
    const struct attention_dropout *drop = &p->drop;
    uint32_t words[4];

    random_block(drop->key, drop->sequence + (uint64_t)sequence,
                 (uint64_t)(drop->head + head) * (1ull << 46) +
                     (uint64_t)query * (1ull << 22) + (uint64_t)(key / 4),
                 words);
    return words[key % 4] >= (uint32_t)(drop->rate * 0x1p32)
               ? 1 / (1 - drop->rate) : 0;
}

/* x with 8 significant bits. */
static double rounded(double x)
{
    int exponent;
    const double part = frexp(x, &exponent);

    return ldexp(nearbyint(ldexp(part, 8)), exponent - 8);
}

/* The slope of head `head` of `heads`, from the definition. */
static double slope_of(int heads, int64_t head)
{
    const int whole = 1 << (int)floor(log2(heads));

    return rounded(head < whole
                       ? pow(2, -8.0 * (double)(head + 1) / whole)
                       : pow(2, -4.0 * (double)(2 * (head - whole) + 1) /
                                    whole));
}

/* The bias that is added to the product of a key and a head of queries. */
static double bias_of(const struct attention *p, int64_t at_key, int64_t key,
                      int head)
{
    const int64_t first = p->key_documents ? p->key_documents[at_key] : 0;

    if (p->alibi.heads == 0) return 0;
    return rounded(slope_of(p->alibi.heads, p->alibi.head + head) *
                   rounded((double)(key - first)));
}

/* out of one query and head by plain softmax. */
static void softmax(const struct attention *p, int64_t row, int head,
                    double *out, double *peak)
{
    int64_t query = p->first_query + row % p->queries;
    int64_t base = row / p->queries;
    int kv = head / (p->heads / p->kv_heads);
    double sum = 0;

    for (int e = 0; e < p->head_width; e++) out[e] = 0;
    for (int64_t key = 0; key <= query; key++) {
        int64_t at_key = base * p->key_stride + key;
        double score = 0;

        if (p->key_documents && p->key_documents[at_key] !=
                                    p->query_documents[row])
            continue;
        if (p->window > 0 && key <= query - p->window) continue;
        if (p->chunk > 0 && key / p->chunk != query / p->chunk) continue;
        for (int e = 0; e < p->head_width; e++)
            score += *element(&p->q, row, head, e) *
                     *element(&p->k, at_key, kv, e);
        score += bias_of(p, at_key, key, head);
        score *= p->scale;
        if (p->softcap > 0) score = p->softcap * tanh(score / p->softcap);
        if (score > *peak) *peak = score;
        score = exp(score);
        sum += score;
        score *= keep_of(p, base, query, key, head);
        for (int e = 0; e < p->head_width; e++)
            out[e] += score * *element(&p->v, at_key, kv, e);
    }
    for (int e = 0; e < p->head_width; e++) out[e] /= sum;
}

/* The largest score of each head, found by looking at all. */
static void peaks_check(const struct attention *p)
{
    double out[HEAD_WIDTH_MAX];

    for (int head = 0; head < p->heads; head++) {
        double peak = -(double)INFINITY;

        for (int64_t row = 0; row < p->sequences * p->queries; row++)
            softmax(p, row, head, out, &peak);
        assert_true(fabs(((double *)p->peaks)[head] - peak) < 1e-12);
    }
}

static void test_float64_is_softmax(void **state)
{
    struct arena arena;
    struct stream stream = {0};

    (void)state;
    if (SANITIZED_THREADS) skip(); /* has none */
    arena_init(&arena, "test", 0);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct attention p;
        double want[HEAD_WIDTH_MAX];

        attention_build(&p, &arena, &cases[i], DTYPE_F64);
        kernels_reference_f64.attention_forward(&stream, &p);
        for (int64_t row = 0; row < p.sequences * p.queries; row += 13) {
            int head = (int)(row % p.heads);
            double peak = -(double)INFINITY;

            softmax(&p, row, head, want, &peak);
            if (p.peaks) assert_true(((double *)p.peaks)[head] > peak - 1e-12);
            for (int e = 0; e < p.head_width; e++)
                assert_true(fabs(*element(&p.out, row, head, e) - want[e]) <
                            1e-13);
        }
        if (i % 3 == 0 && p.peaks) peaks_check(&p);
        arena_reset(&arena);
    }
    arena_free(&arena);
}

/* Sum of out * dout: what the backward pass differentiates. */
static double loss(struct attention *p)
{
    struct stream stream = {0};
    int64_t count = p->sequences * p->queries * p->heads * p->head_width;
    double sum = 0;

    kernels_reference_f64.attention_forward(&stream, p);
    for (int64_t i = 0; i < count; i++)
        sum += ((double *)p->out.data)[i] * ((double *)p->dout.data)[i];
    return sum;
}

/* Elements of q, k or v that are moved together, every other one down. */
enum { PROBES = 4 };

static double moved_loss(struct attention *p, double *const *values,
                         double step)
{
    double sum;

    for (int i = 0; i < PROBES; i++) *values[i] += i % 2 ? -step : step;
    sum = loss(p);
    for (int i = 0; i < PROBES; i++) *values[i] -= i % 2 ? -step : step;
    return sum;
}

static void gradient_check(struct attention *p, const struct tensor *x,
                           const struct tensor *dx, uint64_t *seed)
{
    const double step = 1e-5;
    double *values[PROBES], want = 0, have;

    for (int i = 0; i < PROBES; i++) {
        const double u = (i + (room_number(seed) + 1) / 2) / PROBES;
        const int64_t row = (int64_t)(u * (double)(p->sequences * p->queries));
        const int head = i % (int)x->shape[1], e = 3 * i % p->head_width;

        values[i] = element(x, row, head, e);
        want += *element(dx, row, head, e) * (i % 2 ? -1 : 1);
    }
    have = moved_loss(p, values, step) - moved_loss(p, values, -step);
    assert_true(fabs(have / (2 * step) - want) < 1e-7);
}

static void test_float64_gradients(void **state)
{
    static const size_t chosen[] = {1, 2, 7, 9, 19, 24, 25, 30, 31, 33, 34,
                                    37};
    struct arena arena;
    struct stream stream = {0};
    uint64_t seed = 9;

    (void)state;
    if (SANITIZED_THREADS) skip(); /* has none */
    arena_init(&arena, "test", 0);
    for (size_t i = 0; i < sizeof chosen / sizeof *chosen; i++) {
        struct attention p;

        attention_build(&p, &arena, &cases[chosen[i]], DTYPE_F64);
        loss(&p);
        kernels_reference_f64.attention_backward(&stream, &p);
        gradient_check(&p, &p.q, &p.dq, &seed);
        gradient_check(&p, &p.k, &p.dk, &seed);
        gradient_check(&p, &p.v, &p.dv, &seed);
        arena_reset(&arena);
    }
    arena_free(&arena);
}

/* Against numbers of PyTorch's build_alibi_tensor for the heads of released
 * models, and the definition for all others. */
static void test_slopes(void **state)
{
    static const struct { int heads, head; double slope; } known[] = {
        {8, 0, 0.5}, {8, 7, 0.00390625}, {32, 0, 0.83984375},
        {12, 7, 0.00390625}, {12, 8, 0.70703125}, {71, 70, 0.5703125},
        {1, 0, 0.00390625}};

    (void)state;
    if (SANITIZED_THREADS) skip(); /* has none */
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        const struct attention_alibi alibi = {known[i].heads, 0};

        assert_true(alibi_slope(&alibi, known[i].head) == known[i].slope);
    }
    for (int heads = 1; heads < 300; heads++)
        for (int head = 0; head < heads; head++) {
            const struct attention_alibi alibi = {heads, head};

            assert_true(alibi_slope(&alibi, 0) == slope_of(heads, head));
        }
    assert_true(alibi_bias(0.5f, 257) == 128 && alibi_bias(0.5f, 259) == 130);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fast_equals_reference),
        cmocka_unit_test(test_nodes),
        cmocka_unit_test(test_float64_is_softmax),
        cmocka_unit_test(test_float64_gradients),
        cmocka_unit_test(test_slopes),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
