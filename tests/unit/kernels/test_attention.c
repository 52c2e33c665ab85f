/* SPDX-License-Identifier: Apache-2.0 */
/* test_attention.c - the fast attention equals the reference in every bit, and
 * the reference in float64 equals plain softmax and finite differences. */
#include "kernels/alibi.h"
#include "tests/unit/kernels/room.h"

struct attention_case {
    int sequences, queries, first_query;
    int heads, kv_heads, width, leaves;
    int document; /* tokens of a document; 0: no documents */
    bool fused;   /* q, k and v in one row */
    int window;   /* keys that a query sees; 0: all */
    double cap;   /* of scores; 0: none */
    double drop;  /* of weights, with that probability */
    int alibi;    /* heads of a model, these its last; 0: no biases */
};

static const struct attention_case cases[] = {
    {1, 1, 0, 1, 1, 1, 1, 0, false, 0, 0, 0, 0},
    {2, 5, 0, 2, 2, 8, 1, 0, true, 0, 0, 0, 0},
    {1, 127, 0, 2, 1, 12, 1, 0, true, 0, 0, 0, 0},
    {1, 128, 0, 1, 1, 16, 1, 50, true, 0, 0, 0, 0},
    {2, 129, 0, 4, 2, 48, 2, 0, true, 0, 0, 0, 0},
    {1, 257, 0, 4, 1, 64, 4, 0, true, 0, 0, 0, 0},
    {1, 300, 0, 3, 1, 80, 3, 0, false, 0, 0, 0, 0},
    {1, 384, 0, 6, 3, 64, 2, 100, true, 0, 0, 0, 0},
    {1, 600, 0, 8, 1, 33, 8, 130, true, 0, 0, 0, 0},
    {1, 131, 0, 12, 3, 20, 4, 0, true, 0, 0, 0, 0},
    {1, 200, 0, 16, 1, 7, 16, 0, true, 0, 0, 0, 0},
    {1, 700, 0, 2, 2, 128, 2, 0, true, 0, 0, 0, 0},
    {1, 140, 0, 1, 1, 256, 1, 200, false, 0, 0, 0, 0},
    {1, 1030, 0, 1, 1, 24, 1, 333, true, 0, 0, 0, 0},
    {1, 1, 0, 2, 1, 64, 1, 0, false, 0, 0, 0, 0},
    {2, 1, 1, 2, 1, 64, 1, 0, false, 0, 0, 0, 0},
    {2, 1, 511, 4, 2, 64, 1, 0, false, 0, 0, 0, 0},
    {1, 3, 126, 2, 2, 96, 1, 0, false, 0, 0, 0, 0},
    {2, 300, 77, 2, 1, 40, 1, 90, false, 0, 0, 0, 0},
    {1, 300, 0, 2, 1, 16, 1, 0, true, 40, 0, 0, 0},
    {2, 513, 0, 4, 2, 24, 2, 0, true, 129, 0, 0, 0},
    {1, 700, 0, 2, 2, 64, 1, 90, true, 128, 0, 0, 0},
    {2, 300, 77, 2, 1, 40, 1, 0, false, 100, 0, 0, 0},
    {1, 270, 0, 3, 1, 20, 3, 0, true, 1, 0, 0, 0},
    {1, 260, 0, 4, 2, 32, 2, 0, true, 0, 0.7, 0, 0},
    {1, 400, 0, 2, 1, 48, 1, 130, true, 150, 5, 0, 0},
    {2, 1, 511, 4, 2, 64, 1, 0, false, 20, 5, 0, 0},
    {1, 1100, 0, 2, 1, 24, 1, 0, true, 70, 0, 0, 0},
    {1, 900, 0, 2, 2, 64, 2, 350, true, 260, 0, 0, 0},
    {1, 3, 1500, 4, 2, 32, 1, 0, false, 129, 0, 0, 0},
    {1, 300, 0, 4, 2, 32, 2, 0, true, 0, 0, 0.3, 0},
    {2, 391, 0, 2, 1, 24, 1, 130, true, 90, 5, 0.5, 0},
    {1, 3, 126, 2, 2, 96, 1, 0, false, 0, 0, 0.1, 0},
    {1, 300, 0, 3, 1, 16, 1, 0, true, 0, 0, 0, 3},
    {2, 391, 0, 6, 2, 24, 2, 130, true, 0, 0, 0, 12},
    {1, 600, 0, 8, 1, 33, 8, 130, true, 0, 0, 0, 14},
    {2, 1, 511, 4, 2, 64, 1, 0, false, 0, 0, 0, 5},
    {1, 260, 0, 4, 2, 32, 1, 75, false, 90, 5, 0.3, 71},
    {1, 1030, 0, 1, 1, 24, 1, 0, true, 0, 0, 0, 16},
    {1, 1, 77, 12, 12, 64, 1, 0, false, 0, 0, 0, 0},
    {2, 1, 128, 6, 2, 24, 1, 0, false, 0, 0, 0, 0},
    {1, 1, 1001, 3, 3, 48, 1, 0, false, 0, 0, 0, 0},
    {1, 1, 299, 2, 1, 256, 1, 0, false, 0, 0, 0, 0},
};

/* One tensor of [rows, heads, width] inside rows of `stride` elements. */
static struct tensor view(void *data, enum dtype dtype, int64_t rows,
                          const int *shape, int64_t stride)
{
    struct tensor t = tensor_3d(data, dtype, rows, shape[0], shape[1]);

    t.stride[0] = stride;
    return t;
}

static void *at(void *data, enum dtype dtype, int64_t elements)
{
    return (char *)data + elements * dtype_bytes(dtype);
}

static void peak_set(struct attention *p, int head, enum dtype dtype,
                     double value)
{
    const struct tensor peaks = tensor_1d(p->peaks, dtype, head + 1);

    tensor_set(&peaks, head, value);
}

/* Training asks for them, generation does not: a query alone without anything
 * else has a path of its own there. */
static bool has_peaks(const struct attention_case *c)
{
    return c->queries > 1 || c->window > 0 || c->cap > 0 || c->drop > 0 ||
           c->alibi > 0;
}

static void attention_build(struct attention *p, struct arena *arena,
                            const struct attention_case *c, enum dtype dtype)
{
    int64_t keys = c->first_query + c->queries, extra = c->fused ? 0 : 3;
    int64_t rows = c->sequences * c->queries;
    int64_t key_rows = c->sequences * (keys + extra);
    int query[2] = {c->heads, c->width}, key[2] = {c->kv_heads, c->width};
    int64_t q_width = c->heads * c->width, k_width = c->kv_heads * c->width;
    int64_t row = q_width + 2 * k_width + 5;
    int64_t most = rows > key_rows ? rows : key_rows;
    void *qkv = room_numbers(arena, most * row, dtype, 1);
    void *dqkv = room_numbers(arena, most * row, dtype, 2);

    memset(p, 0, sizeof *p);
    p->q = view(qkv, dtype, rows, query, row);
    p->k = view(at(qkv, dtype, q_width), dtype, key_rows, key, row);
    p->v = view(at(qkv, dtype, q_width + k_width), dtype, key_rows, key, row);
    p->dq = view(dqkv, dtype, rows, query, row);
    p->dk = view(at(dqkv, dtype, q_width), dtype, key_rows, key, row);
    p->dv = view(at(dqkv, dtype, q_width + k_width), dtype, key_rows, key,
                 row);
    p->out = view(room_numbers(arena, rows * q_width, dtype, 3), dtype, rows,
                  query, q_width);
    p->dout = view(room_numbers(arena, rows * q_width, dtype, 4), dtype, rows,
                   query, q_width);
    p->lse = tensor_2d(room_numbers(arena, rows * c->heads, dtype, 5), dtype,
                       rows, c->heads);
    p->sequences = c->sequences;
    p->queries = c->queries;
    p->keys = keys;
    p->key_stride = keys + extra;
    p->first_query = c->first_query;
    p->heads = c->heads;
    p->kv_heads = c->kv_heads;
    p->head_width = c->width;
    p->leaves = c->leaves;
    p->scale = 2.0 / sqrt((double)c->width);
    p->window = c->window;
    p->softcap = c->cap;
    p->drop = (struct attention_dropout){c->drop, {{11, 12}}, 70, 5};
    if (c->alibi > 0)
        p->alibi = (struct attention_alibi){c->alibi, c->alibi - c->heads};
    if (has_peaks(c))
        p->peaks = room_take(arena, c->heads, dtype_bytes(dtype));
    for (int h = 0; p->peaks && h < c->heads; h++)
        peak_set(p, h, dtype, -(double)INFINITY);
    if (c->document) {
        int32_t *of_keys = room_take(arena, key_rows, 4);
        int32_t *of_queries = room_take(arena, rows, 4);

        for (int64_t i = 0; i < key_rows; i++)
            of_keys[i] = (int32_t)((i % (keys + extra) + 7) / c->document *
                                   c->document - 7);
        for (int64_t i = 0; i < rows; i++)
            of_queries[i] = of_keys[c->first_query + i % c->queries];
        p->key_documents = of_keys;
        p->query_documents = of_queries;
    }
}

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

static void case_compare(size_t index, enum isa isa, struct threads *threads,
                         const struct attention *want, struct arena *arena)
{
    const struct attention_case *c = &cases[index];
    struct attention have;
    struct stream stream;
    struct kernels table;

    if (!room_table(&table, isa)) return;
    attention_build(&have, arena, c, DTYPE_F32);
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

static void windows_compare(size_t index, enum isa isa, int64_t step,
                            struct threads *threads,
                            const struct attention *want, struct arena *arena)
{
    const struct attention_case *c = &cases[index];
    struct attention have;
    struct stream stream;
    struct kernels table = kernels_reference_f32;

    if (isa != ISA_AUTO && !room_table(&table, isa)) return;
    attention_build(&have, arena, c, DTYPE_F32);
    have.key_stride = c->queries;
    have.delta = tensor_2d(
        room_numbers(arena, have.lse.shape[0] * c->heads, DTYPE_F32, 6),
        DTYPE_F32, have.lse.shape[0], c->heads);
    stream = room_stream(threads, &table);
    windows_run(&table, &stream, &have, step);
    assert_same(&have.out, &want->out, "out of windows", index, isa);
    assert_same(&have.lse, &want->lse, "lse of windows", index, isa);
    assert_same(&have.dq, &want->dq, "dq of windows", index, isa);
    assert_same(&have.dk, &want->dk, "dk of windows", index, isa);
    assert_same(&have.dv, &want->dv, "dv of windows", index, isa);
}

/* The whole at once, and where the keys are the queries' own, in windows. */
static void case_check(size_t index, struct threads *const *threads,
                       struct arena *arena)
{
    static const int64_t steps[] = {300, 128, 75, 33, 256};
    const struct attention_case *c = &cases[index];
    struct attention want;

    arena_reset(arena);
    attention_build(&want, arena, c, DTYPE_F32);
    reference_run(&want, c);
    for (enum isa isa = ISA_PLAIN; isa < ISA_COUNT; isa++)
        case_compare(index, isa, threads[1 + (index + isa) % 4], &want, arena);
    if (c->first_query) return;
    assert_true(c->fused || c->sequences == 1); /* no gaps between them */
    for (enum isa isa = ISA_AUTO; isa < ISA_COUNT; isa++)
        windows_compare(index, isa, steps[(index + isa) % 5], threads[2],
                        &want, arena);
}

static void test_fast_equals_reference(void **state)
{
    struct arena arena;
    struct threads *threads[5] = {0};

    (void)state;
    arena_init(&arena, "test", 0);
    for (int n = 1; n < 5; n++)
        assert_int_equal(threads_build(&threads[n], n), OK);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        case_check(i, threads, &arena);
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

static void test_nodes(void **state)
{
    static const struct attention_case c = {1, 1024, 0, 3, 3, 20, 1, 300,
                                            true, 200, 3, 0.2, 7};
    struct arena arena;
    struct threads *threads;
    struct attention want;

    (void)state;
    arena_init(&arena, "test", 0);
    assert_int_equal(threads_build(&threads, 2), OK);
    attention_build(&want, &arena, &c, DTYPE_F32);
    reference_run(&want, &c);
    for (enum isa isa = ISA_AUTO; isa < ISA_COUNT; isa++) {
        struct kernels table = kernels_reference_f32;
        struct stream stream;
        struct attention have;

        if (isa != ISA_AUTO && !room_table(&table, isa)) continue;
        attention_build(&have, &arena, &c, DTYPE_F32);
        have.delta = tensor_2d(room_take(&arena, 1024 * 3, 4), DTYPE_F32,
                               1024, 3);
        stream = room_stream(threads, &table);
        nodes_forward(&table, &stream, &have, &arena);
        assert_int_equal(table.attention_delta(&stream, &have), OK);
        nodes_backward(&table, &stream, &have, &arena);
        assert_same(&have.out, &want.out, "out of nodes", 0, isa);
        assert_same(&have.lse, &want.lse, "lse of nodes", 0, isa);
        assert_same(&have.dq, &want.dq, "dq of nodes", 0, isa);
        assert_same(&have.dk, &want.dk, "dk of nodes", 0, isa);
        assert_same(&have.dv, &want.dv, "dv of nodes", 0, isa);
    }
    threads_free(threads);
    arena_free(&arena);
}

static double *element(const struct tensor *t, int64_t row, int head, int e)
{
    return (double *)t->data + row * t->stride[0] + head * t->stride[1] + e;
}

/* What dropout multiplies a weight by, from the definition. */
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

/* What is added to the product of a key and a head of queries. */
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
        for (int probe = 0; probe < (SANITIZED ? 3 : 12); probe++) {
            const struct tensor *x = probe % 3 == 0   ? &p.q
                                     : probe % 3 == 1 ? &p.k
                                                      : &p.v;
            const struct tensor *dx = probe % 3 == 0   ? &p.dq
                                      : probe % 3 == 1 ? &p.dk
                                                       : &p.dv;
            double u = (room_number(&seed) + 1) / 2, step = 1e-5, up, down;
            int64_t row = (int64_t)(u * (double)(p.sequences * p.queries));
            int head = probe % (int)x->shape[1], e = probe % p.head_width;
            double *value = element(x, row, head, e), keep = *value;

            *value = keep + step;
            up = loss(&p);
            *value = keep - step;
            down = loss(&p);
            *value = keep;
            assert_true(fabs((up - down) / (2 * step) -
                             *element(dx, row, head, e)) < 1e-7);
        }
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
