/* SPDX-License-Identifier: Apache-2.0 */
/* test_flash.c - attention on tensor cores, under the emulator of CUDA: near
 * float64 within what bfloat16 and the order of sums allow, on cases that are
 * drawn (lengths, windows, chunks, documents, soft caps, linear biases, heads
 * that share keys); with the same bits in any order of threads and blocks, and
 * whatever other sequences and heads a call has. */
#include "kernels/cuda/flash.h"

#include "kernels/cuda/rows.h"
#include "tests/test.h"
#include "tests/unit/kernels/flash_cases.h"

enum { DRAWN = 24 };

static const struct flash_case cases[] = {
    {1, 1, 1, 1, 64, 0, 0, 0, 0, 0, 0, 0},
    {2, 2, 2, 1, 8, 0, 0, 0, 0, 0, 0, 0},
    {1, 127, 2, 2, 64, 0, 0, 0, 0, 0, 0, 0},
    {1, 128, 1, 1, 96, 0, 0, 0, 0, 0, 0, 0},
    {2, 129, 4, 2, 128, 0, 0, 0, 0, 0, 0, 0},
    {1, 257, 2, 1, 128, 70, 0, 0, 0, 0, 0, 0},
    {1, 200, 2, 2, 72, 0, 64, 0, 0, 0, 0, 0},
    {1, 193, 3, 1, 96, 0, 0, 50, 0, 0, 0, 0},
    {1, 150, 1, 1, 64, 0, 0, 0, 0, 5.0, 0, 0},
    {1, 161, 3, 3, 48, 0, 0, 40, 3, 0, 0, 0},
    {1, 300, 1, 1, 128, 1, 0, 0, 0, 0, 0, 0},
    {1, 310, 2, 1, 64, 130, 0, 0, 0, 0, 0, 0},
    {2, 140, 4, 1, 64, 0, 0, 0, 0, 0, 2, 0},
    {1, 70, 6, 2, 128, 30, 0, 0, 0, 0, 6, 0},
    {1, 129, 2, 1, 136, 0, 0, 0, 0, 0, 0, 0},
    {1, 97, 2, 2, 192, 0, 0, 30, 0, 0, 0, 0},
    {1, 200, 1, 1, 256, 70, 0, 0, 0, 0, 0, 0},
    {2, 65, 4, 2, 200, 0, 40, 0, 0, 6.0, 4, 0},
    {2, 133, 2, 2, 192, 0, 0, 0, 0, 0, 0, 128},
    {1, 141, 4, 2, 136, 50, 0, 0, 0, 0, 4, 40},
};

static void case_run(int index, const struct flash_case *c,
                     struct arena *arena)
{
    struct call have, want;

    call_build(&have, arena, c, DTYPE_BF16);
    call_build(&want, arena, c, DTYPE_F64);
    run_flash(arena, &have);
    run_float64(&want);
    compare(index, &have, &want);
}

TEST(cases_are_near_float64)
{
    each_case(cases, ROWS(cases), 0, case_run);
}

static int draw(uint64_t *state, int most)
{
    return (int)((room_number(state) + 1) / 2 * most);
}

static struct flash_case case_draw(uint64_t *seed)
{
    static const int groups[] = {1, 1, 2, 3};
    const int kv = 1 + draw(seed, 2);
    struct flash_case c = {
        .sequences = 1 + draw(seed, 2), .length = 1 + draw(seed, 290),
        .kv_heads = kv, .heads = kv * groups[draw(seed, 4)],
        .width = 8 * (1 + draw(seed, 16))};

    if (draw(seed, 3) == 0) c.width += 128;
    if (c.width > 128 && c.width <= 192 && draw(seed, 2) == 0)
        c.value = 8 * (1 + draw(seed, 16));

    switch (draw(seed, 4)) {
    case 0: c.window = 1 + draw(seed, 200); break;
    case 1: c.chunk = 1 + draw(seed, 200); break;
    default: break;
    }
    if (draw(seed, 3) == 0) c.document = 1 + draw(seed, 100);
    if (draw(seed, 4) == 0) c.softcap = 1 + draw(seed, 10);
    if (draw(seed, 4) == 0) c.alibi = c.heads;
    if (draw(seed, 3) == 0) c.leaves = c.heads;
    return c;
}

/* Fewer where everything is slow. FLASH_SEED: others. */
TEST(drawn_cases_are_near_float64)
{
    const char *text = getenv("FLASH_SEED");
    uint64_t seed = text ? strtoull(text, NULL, 10) : 175001;
    struct flash_case all[DRAWN];

    for (int i = 0; i < DRAWN; i++) all[i] = case_draw(&seed);
    each_case(all, SANITIZED ? DRAWN / 5 : DRAWN, 1000, case_run);
}

static void assert_rows(const struct tensor *have, int64_t first, int head,
                        const struct tensor *want)
{
    const int64_t bytes = dtype_bytes(want->dtype);
    const size_t row = (size_t)(want->shape[1] * want->stride[1] * bytes);

    for (int64_t i = 0; i < want->shape[0]; i++)
        if (memcmp((char *)have->data + ((first + i) * have->stride[0] +
                                         head * have->stride[1]) * bytes,
                   (char *)want->data + i * want->stride[0] * bytes, row) != 0)
            fail_msg("flash emulated: row %lld has other bits",
                     (long long)i);
}

/* A part of a call: one sequence, and key-value heads from `kv` on. */
static struct attention part_of(const struct attention *p, int64_t sequence,
                                int kv, int count)
{
    const int group = p->heads / p->kv_heads;
    struct attention part = *p;
    struct tensor *const operands[OPERANDS] = {
        &part.q, &part.k, &part.v, &part.dout,
        &part.out, &part.dq, &part.dk, &part.dv};

    part.sequences = 1;
    part.heads = count * group;
    part.kv_heads = count;
    for (int i = 0; i < OPERANDS; i++) {
        struct tensor *t = operands[i];
        const int head = is_of_keys(i) ? kv : kv * group;

        t->data = (uint16_t *)t->data + sequence * p->queries * t->stride[0] +
                  head * t->stride[1];
        t->shape[0] = p->queries;
        t->shape[1] = is_of_keys(i) ? part.kv_heads : part.heads;
    }
    return part;
}

/* `count` key-value heads of a sequence, whose statistics lie elsewhere. */
static void run_part(struct arena *arena, const struct attention *p,
                     int64_t sequence, int kv, int count)
{
    struct call part = {.p = part_of(p, sequence, kv, count)};

    part.p.lse = tensor_2d(
        room_take(arena, p->queries * part.p.heads, 4), DTYPE_F32,
        p->queries, part.p.heads);
    run_flash(arena, &part);
}

static void layouts_run(int index, const struct flash_case *c,
                        struct arena *arena)
{
    struct call whole, parts;

    (void)index;
    call_build(&whole, arena, c, DTYPE_BF16);
    run_flash(arena, &whole);
    for (int n = 0; n < 3; n++) {
        call_build(&parts, arena, c, DTYPE_BF16);
        if (n == 0) run_flash(arena, &parts);
        for (int part = 0; n > 0 && part < 2 * n; part++)
            run_part(arena, &parts.p, part / n, part % n, n == 2 ? 1 : 2);
        for (int t = 4; t < OPERANDS; t++)
            assert_rows(parts.operands[t], 0, 0, whole.operands[t]);
    }
}

/* Threads and blocks come in another order each time. Sequences of a
 * micro-batch and heads of tensor ranks may be in other calls. */
TEST(layouts_and_orders_do_not_show)
{
    static const struct flash_case all[] = {
        {2, 150, 4, 2, 64, 0, 0, 0, 0, 0, 0, 0},
        {2, 140, 4, 2, 128, 60, 0, 0, 0, 0, 0, 0},
        {2, 133, 2, 2, 96, 0, 0, 45, 0, 3.0, 0, 0},
        {2, 70, 4, 2, 256, 0, 0, 0, 0, 0, 0, 0},
        {2, 70, 4, 2, 192, 0, 0, 0, 0, 0, 0, 128}};

    each_case(all, ROWS(all), 0, layouts_run);
}

/* Ranks that cut sequences in four spans, each with all keys of its queries,
 * then with all queries of its keys. */
static void run_windows(struct arena *arena, const struct attention *whole)
{
    const int64_t rows = whole->sequences * whole->queries;
    const int64_t span = whole->queries / 4;
    float *room = aligned(arena, (int64_t)flash_bytes(
        rows, 0, flash_shares(whole->heads, whole->kv_heads, whole->leaves),
        whole->head_width));
    struct attention all = *whole;
    struct stream none = {0};

    for (int64_t first = 0; first < whole->queries; first += span) {
        struct attention p = block_of(&all, (struct span){first, span},
                                      (struct span){0, first + span});

        p.half = ATTENTION_OF_QUERIES;
        assert_true(cuda_flash_takes(&p));
        IS_OK(cuda_flash_forward(&none, &p));
    }
    all.delta = tensor_2d(room_take(arena, rows * all.heads, 4), DTYPE_F32,
                          rows, all.heads);
    IS_OK(cuda_attention_delta(&none, &all));
    all.out = (struct tensor){0};
    for (int64_t at = 0; at < 2 * whole->queries; at += span) {
        const bool of_keys = at >= whole->queries;
        const int64_t first = at % whole->queries;
        const struct span own = {first, span}, before = {0, first + span};
        const struct span after = {first, whole->queries - first};
        struct attention p = of_keys ? block_of(&all, after, own)
                                     : block_of(&all, own, before);

        p.half = of_keys ? ATTENTION_OF_KEYS : ATTENTION_OF_QUERIES;
        assert_true(cuda_flash_takes_back(&p));
        IS_OK(cuda_flash_backward(&none, &p, room));
    }
}

static void windows_run(int index, const struct flash_case *c,
                        struct arena *arena)
{
    struct call whole, parts;

    (void)index;
    call_build(&whole, arena, c, DTYPE_BF16);
    run_flash(arena, &whole);
    call_build(&parts, arena, c, DTYPE_BF16);
    run_windows(arena, &parts.p);
    for (int t = 4; t < OPERANDS; t++)
        assert_rows(parts.operands[t], 0, 0, whole.operands[t]);
    assert_memory_equal(parts.p.lse.data, whole.p.lse.data,
                        (size_t)tensor_count(&whole.p.lse) * 4);
}

/* Spans begin anywhere in a tile. */
TEST(ranks_that_cut_sequences_do_not_show)
{
    static const struct flash_case all[] = {
        {2, 4 * 37, 4, 2, 64, 0, 0, 0, 4, 0, 0, 0},
        {1, 4 * 50, 2, 2, 128, 60, 0, 0, 0, 0, 0, 0},
        {2, 4 * 33, 2, 1, 72, 0, 0, 45, 0, 0, 2, 0},
        {1, 4 * 21, 2, 1, 192, 0, 30, 0, 0, 3.0, 0, 0},
        {2, 4 * 19, 2, 2, 192, 0, 0, 0, 0, 0, 0, 128}};

    each_case(all, ROWS(all), 0, windows_run);
}

/* Gradients of a key-value head that two ranks have, each two of its query
 * heads, are float32, and their sum that of one rank that has both leaves. */
TEST(shares_of_ranks_are_those_of_one)
{
    const struct flash_case c = {1, 140, 4, 1, 64, 0, 0, 0, 0, 0, 2, 0};
    const int64_t numbers = (int64_t)c.length * c.width;
    struct room room;
    struct call whole;
    float *shares[2][2];

    if (SANITIZED_THREADS) skip();
    room_begin(&room, FEATURES_ALL);
    room_next(&room, 0);
    call_build(&whole, &room.arena, &c, DTYPE_BF16);
    run_flash(&room.arena, &whole);
    for (int rank = 0; rank < 2; rank++) {
        struct attention p = whole.p;
        struct tensor *const of[] = {&p.q, &p.dout, &p.out, &p.dq};
        struct tensor *const keys[] = {&p.dk, &p.dv};

        p.heads = 2, p.leaves = 1;
        for (int i = 0; i < ROWS(of); i++) {
            of[i]->data = (uint16_t *)of[i]->data + rank * 2 * c.width;
            of[i]->shape[1] = 2;
        }
        p.lse.data = (float *)p.lse.data + rank * 2;
        for (int i = 0; i < 2; i++) {
            shares[rank][i] = aligned(&room.arena, 4 * numbers);
            *keys[i] = tensor_3d(shares[rank][i], DTYPE_F32, c.length, 1,
                                 c.width);
        }
        run_flash(&room.arena, &(struct call){.p = p});
    }
    for (int i = 0; i < 2; i++)
        for (int64_t at = 0; at < numbers; at++) {
            const struct tensor *t = whole.operands[6 + i];
            const uint16_t have =
                ((uint16_t *)t->data)[at / c.width * t->stride[0] +
                                      at % c.width];

            assert_int_equal(have, bf16_from_f32(shares[0][i][at] +
                                                 shares[1][i][at]));
        }
    room_end(&room);
}

/* Calls that they do not have: other kernels do. */
TEST(others_are_not_taken)
{
    const struct flash_case c = {1, 20, 4, 2, 64, 0, 0, 0, 0, 0, 0, 0};
    const struct flash_case odd = {1, 20, 4, 2, 60, 0, 0, 0, 0, 0, 0, 0};
    struct room room;
    struct call call;

    room_begin(&room, FEATURES_ALL);
    room_next(&room, 0);
    call_build(&call, &room.arena, &odd, DTYPE_BF16);
    assert_false(cuda_flash_takes(&call.p));
    call_build(&call, &room.arena, &c, DTYPE_BF16);
    struct attention p = call.p;

    assert_true(cuda_flash_takes(&p) && cuda_flash_takes_back(&p));
    p.heads = 6, p.kv_heads = 3, p.leaves = 2;
    assert_true(cuda_flash_takes(&p) && !cuda_flash_takes_back(&p));
    p = call.p, p.drop.rate = 0.1;
    assert_false(cuda_flash_takes(&p));
    p = call.p, p.first_query = 4;
    assert_false(cuda_flash_takes(&p));
    p = call.p, p.q.dtype = DTYPE_F16;
    assert_false(cuda_flash_takes(&p));
    p = call.p, p.v.stride[0] += 1;
    assert_false(cuda_flash_takes(&p));
    p = call.p, p.q.data = (char *)p.q.data + 2;
    assert_false(cuda_flash_takes(&p));
    room_end(&room);
}

TEST_MAIN(cases_are_near_float64, drawn_cases_are_near_float64,
          layouts_and_orders_do_not_show,
          ranks_that_cut_sequences_do_not_show,
          shares_of_ranks_are_those_of_one, others_are_not_taken)
