/* SPDX-License-Identifier: Apache-2.0 */
/* test_attention_narrow.c - attention of bfloat16 and float16 equals the
 * float32 reference on widened operands, rounded: both directions, nodes, and
 * what stands around them. */
#include "tests/test.h"
#include "tests/unit/kernels/room.h"

struct attention_case {
    int sequences, queries, heads, kv_heads, width, leaves, document;
    int before; /* keys before the first query: forward only */
};

static const struct attention_case cases[] = {
    {1, 1, 1, 1, 1, 1, 0, 0},     {2, 5, 2, 2, 8, 1, 0, 0},
    {1, 127, 2, 1, 12, 1, 0, 0},  {1, 128, 1, 1, 16, 1, 50, 0},
    {2, 129, 4, 2, 48, 2, 0, 0},  {1, 257, 4, 1, 64, 4, 0, 0},
    {1, 384, 6, 3, 64, 2, 90, 0}, {1, 300, 3, 3, 33, 3, 0, 0},
    {1, 140, 1, 1, 256, 1, 0, 0}, {1, 600, 2, 2, 128, 2, 130, 0},
    {1, 1, 12, 12, 64, 1, 0, 0},  {1, 1, 12, 12, 64, 1, 0, 77},
    {2, 1, 6, 3, 48, 1, 0, 127},  {1, 1, 4, 1, 32, 1, 0, 128},
    {2, 1, 3, 3, 96, 1, 0, 430},  {1, 1, 2, 1, 256, 1, 0, 1029},
    {1, 1, 5, 5, 16, 1, 0, 300},  {1, 1, 3, 1, 20, 1, 0, 200},
    {1, 1, 2, 2, 80, 1, 0, 640},  {1, 1, 7, 7, 112, 1, 0, 14},
};
enum { CASES = sizeof cases / sizeof *cases, OPERANDS = 8 };

/* q k v dout, then out dq dk dv: all in `narrow`, or in float32; results may be
 * float32 where the others are narrow. */
struct call {
    struct attention p;
    struct tensor *operands[OPERANDS];
};

static float rounded(enum dtype narrow, float x)
{
    return narrow == DTYPE_BF16 ? bf16_to_f32(bf16_from_f32(x))
                                : f16_to_f32(f16_from_f32(x));
}

/* [rows, heads, width] of numbers that `narrow` has, rows apart. */
static struct tensor operand(struct arena *arena, enum dtype dtype,
                             enum dtype narrow, const int64_t *shape,
                             uint64_t seed)
{
    const int64_t row = shape[1] * shape[2] + 3, count = shape[0] * row;
    struct tensor all = tensor_1d(room_take(arena, count, dtype_bytes(dtype)),
                                  dtype, count);
    struct tensor t = tensor_3d(all.data, dtype, shape[0], shape[1], shape[2]);

    for (int64_t i = 0; i < count; i++)
        tensor_set(&all, i,
                   (double)rounded(narrow, (float)room_number(&seed)));
    t.stride[0] = row;
    return t;
}

static void call_build(struct call *call, struct arena *arena,
                       const struct attention_case *c, enum dtype dtype,
                       enum dtype results)
{
    const enum dtype narrow = dtype == DTYPE_F32 ? results : dtype;
    const int64_t rows = c->sequences * c->queries;
    const int64_t query[] = {rows, c->heads, c->width};
    const int64_t keys = c->before + c->queries;
    const int64_t key[] = {c->sequences * keys, c->kv_heads, c->width};
    struct attention *p = &call->p;
    struct tensor *const operands[OPERANDS] = {
        &p->q, &p->k, &p->v, &p->dout, &p->out, &p->dq, &p->dk, &p->dv};

    if (dtype == DTYPE_F32) results = DTYPE_F32;
    *p = (struct attention){
        .sequences = c->sequences, .queries = c->queries, .keys = keys,
        .first_query = c->before,
        .heads = c->heads, .kv_heads = c->kv_heads, .head_width = c->width,
        .leaves = c->leaves, .scale = 2.0 / sqrt((double)c->width)};
    for (int i = 0; i < OPERANDS; i++) {
        const bool of_keys = i == 1 || i == 2 || i >= 6;

        call->operands[i] = operands[i];
        *operands[i] = operand(arena, i < 4 ? dtype : results, narrow,
                               of_keys ? key : query, (uint64_t)i + 1);
    }
    p->lse = tensor_2d(room_take(arena, rows * c->heads, 4), DTYPE_F32, rows,
                       c->heads);
    p->delta = tensor_2d(room_take(arena, rows * c->heads, 4), DTYPE_F32, rows,
                         c->heads);
    if (c->document) {
        int32_t *documents = room_take(arena, rows, 4);

        for (int64_t i = 0; i < rows; i++)
            documents[i] = (int32_t)(i % c->queries / c->document);
        p->key_documents = p->query_documents = documents;
    }
}

/* Element i of a tensor with rows apart. */
static struct tensor row_of(const struct tensor *t, int64_t row)
{
    const int64_t bytes = row * t->stride[0] * dtype_bytes(t->dtype);

    return tensor_1d((char *)t->data + bytes, t->dtype,
                     t->shape[1] * (t->dimensions == 3 ? t->shape[2] : 1));
}

static void assert_same(const struct tensor *have, const struct tensor *want,
                        const char *name, int index, const char *backend)
{
    for (int64_t row = 0; row < want->shape[0]; row++) {
        const struct tensor x = row_of(have, row), y = row_of(want, row);

        for (int64_t i = 0; i < x.shape[0]; i++) {
            const double a = tensor_get(&x, i), b = tensor_get(&y, i);

            if (memcmp(&a, &b, sizeof a) != 0)
                fail_msg("case %d, %s: %s row %lld is %.9g, expected %.9g",
                         index, backend, name, (long long)row, a, b);
        }
    }
}

/* Rounds where the call under test stores something narrow. */
static void tensor_round(const struct tensor *t, enum dtype results)
{
    for (int64_t row = 0; results != DTYPE_F32 && row < t->shape[0]; row++) {
        const struct tensor x = row_of(t, row);

        for (int64_t i = 0; i < x.shape[0]; i++)
            tensor_set(&x, i,
                       (double)rounded(results, (float)tensor_get(&x, i)));
    }
}

/* Plain code flushes slowly; the emulator does everything slowly. */
static bool is_slow(enum isa isa, const struct attention_case *c, bool tiles,
                    enum dtype results)
{
    if (isa == ISA_EMULATED)
        return c->queries > (results == DTYPE_F32 ? 128 : 300);
    return tiles && isa == ISA_PLAIN && c->queries > 150;
}

/* Forward, delta and backward in two halves, and what they should be. */
static void case_compare(int index, enum dtype dtype, enum dtype results,
                         bool tiles, struct threads *threads,
                         struct arena *arena)
{
    const bool forward_only = cases[index].before > 0;
    const struct kernels *plain = &kernels_reference_f32;
    struct stream none = {0};
    struct call want, have;

    arena_reset(arena);
    call_build(&want, arena, &cases[index], DTYPE_F32, dtype);
    want.p.tiles = tiles;
    IS_OK(plain->attention_forward(&none, &want.p));
    tensor_round(&want.p.out, results);
    if (!forward_only) {
        IS_OK(plain->attention_delta(&none, &want.p));
        IS_OK(plain->attention_backward(&none, &want.p));
    }
    for (int i = 5; i < OPERANDS; i++)
        tensor_round(want.operands[i], results);
    for (enum isa isa = ISA_PLAIN; isa < ISA_COUNT; isa++) {
        static const char *const names[] = {"q", "k", "v", "dout", "out", "dq",
                                            "dk", "dv"};
        struct kernels table;
        struct stream stream;

        if (is_slow(isa, &cases[index], tiles, results)) continue;
        if (kernels_get(&table, dtype, isa) != OK) {
            status_clear();
            continue;
        }
        call_build(&have, arena, &cases[index], dtype, results);
        have.p.tiles = tiles;
        stream = room_stream(threads, &table);
        IS_OK(table.attention_forward(&stream, &have.p));
        assert_same(&have.p.lse, &want.p.lse, "lse", index, table.backend);
        assert_same(&have.p.out, &want.p.out, "out", index, table.backend);
        if (forward_only) continue;
        if (results == dtype)
            IS_OK(table.attention_delta(&stream, &have.p));
        else
            have.p.delta = want.p.delta;
        assert_same(&have.p.delta, &want.p.delta, "delta", index,
                    table.backend);
        if (isa % 2 == 0 && results == dtype) have.p.delta.data = NULL;
        IS_OK(table.attention_backward(&stream, &have.p));
        for (int i = 0; i < OPERANDS; i++)
            assert_same(have.operands[i], want.operands[i], names[i], index,
                        table.backend);
    }
}

TEST(narrow_attention_is_rounded_float32)
{
    static const enum dtype narrow[] = {DTYPE_BF16, DTYPE_F16};
    struct threads *threads;
    struct arena arena;

    arena_init(&arena, "test", 0);
    IS_OK(threads_build(&threads, 2));
    for (int i = 0; i < CASES; i++)
        for (int t = 0; t < 3; t++) {
            const enum dtype dtype = narrow[t % 2]; /* the third: tiles */

            case_compare(i, dtype, dtype, t == 2, threads, &arena);
            if (t == 2) continue;
            case_compare(i, dtype, DTYPE_F32, false, threads, &arena);
        }
    threads_free(threads);
    arena_free(&arena);
}

/* ---- the end of a node, and sums over query heads ---- */

static void ends_compare(const struct kernels *table, struct stream *stream,
                         struct arena *arena)
{
    const struct kernels *plain = &kernels_reference_f32;
    const enum dtype narrow = table->dtype;
    const int64_t shape[] = {37, 12, 20}, grouped[] = {37, 3, 20};
    struct tensor numbers[4], out, want, few, few_want, in;
    struct attention_node root;
    uint64_t seed = 9;

    root.values = operand(arena, DTYPE_F32, narrow, shape, 5);
    for (int i = 0; i < 4; i++) { /* maximum, denominator, two of lse */
        numbers[i] = tensor_2d(room_take(arena, 37 * 12, 4), DTYPE_F32, 37, 12);
        for (int64_t j = 0; j < 37 * 12; j++)
            tensor_set(&numbers[i], j, j % 9 == 4 ? 0 : 2 + room_number(&seed));
    }
    root.maximum = numbers[0];
    root.denominator = numbers[1];
    out = operand(arena, narrow, narrow, shape, 6);
    want = operand(arena, DTYPE_F32, narrow, shape, 6);
    IS_OK(table->attention_finish(stream, out, numbers[2], &root));
    IS_OK(plain->attention_finish(stream, want, numbers[3], &root));
    tensor_round(&want, narrow);
    assert_same(&out, &want, "finish", 0, table->backend);
    assert_same(&numbers[2], &numbers[3], "lse", 0, table->backend);
    for (int leaves = 1; leaves <= 12; leaves++) {
        if (12 % leaves != 0) continue;
        in = operand(arena, leaves % 2 ? narrow : DTYPE_F32, narrow, shape, 7);
        few = operand(arena, narrow, narrow, grouped, 8);
        few_want = operand(arena, DTYPE_F32, narrow, grouped, 8);
        IS_OK(table->attention_heads(stream, few, in, leaves));
        in = operand(arena, DTYPE_F32, narrow, shape, 7);
        IS_OK(plain->attention_heads(stream, few_want, in, leaves));
        tensor_round(&few_want, narrow);
        assert_same(&few, &few_want, "heads", leaves, table->backend);
    }
}

TEST(ends_are_rounded_float32)
{
    struct threads *threads;
    struct arena arena;

    arena_init(&arena, "test", 0);
    IS_OK(threads_build(&threads, 3));
    for (enum isa isa = ISA_PLAIN; isa < ISA_COUNT; isa++)
        for (enum dtype dtype = DTYPE_BF16; dtype <= DTYPE_F16; dtype++) {
            struct kernels table;
            struct stream stream;

            arena_reset(&arena);
            if (kernels_get(&table, dtype, isa) != OK) {
                status_clear();
                continue;
            }
            stream = room_stream(threads, &table);
            ends_compare(&table, &stream, &arena);
        }
    threads_free(threads);
    arena_free(&arena);
}

TEST_MAIN(narrow_attention_is_rounded_float32, ends_are_rounded_float32)
