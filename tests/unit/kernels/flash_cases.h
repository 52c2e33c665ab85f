/* SPDX-License-Identifier: Apache-2.0 */
/* flash_cases.h - calls of attention on tensor cores for tests, and how near
 * float64 their results are. */
#ifndef LOCKSTEP_TESTS_KERNELS_FLASH_CASES_H
#define LOCKSTEP_TESTS_KERNELS_FLASH_CASES_H

#include "device/attended.h"
#include "kernels/cuda/flash.h"
#include "tests/unit/kernels/room.h"

enum { OPERANDS = 8 };

struct flash_case {
    int sequences, length, heads, kv_heads, width;
    int window, chunk, document, alibi; /* 0: none */
    double softcap;
    int leaves;                           /* 0: one */
    int value;                            /* elements of values; 0: all */
};

/* q k v dout, then out dq dk dv; statistics. */
struct call {
    struct attention p;
    struct tensor *operands[OPERANDS];
};

static inline bool is_of_keys(int operand)
{
    return operand == 1 || operand == 2 || operand >= 6;
}

static inline void *aligned(struct arena *arena, int64_t bytes)
{
    const uintptr_t at = (uintptr_t)room_take(arena, bytes + 64, 1);

    return (void *)((at + 63) / 64 * 64);
}

/* bfloat16, or the same numbers in float64; rows are 8 further apart. */
static inline struct tensor operand(struct arena *arena, enum dtype dtype,
                                    const int64_t *shape, uint64_t seed)
{
    const int64_t row = shape[1] * shape[2] + 8, count = shape[0] * row;
    struct tensor all = tensor_1d(
        aligned(arena, count * dtype_bytes(dtype)), dtype, count);
    struct tensor t = tensor_3d(all.data, dtype, shape[0], shape[1], shape[2]);

    for (int64_t i = 0; i < count; i++)
        tensor_set(&all, i, (double)bf16_to_f32(bf16_from_f32(
                                (float)room_number(&seed))));
    t.stride[0] = row;
    return t;
}

static inline void rest_clear(struct tensor *t, int value)
{
    const int bytes = dtype_bytes(t->dtype);

    for (int64_t row = 0; row < t->shape[0]; row++)
        for (int64_t head = 0; head < t->shape[1]; head++)
            memset((char *)t->data + (row * t->stride[0] +
                                      head * t->stride[1] + value) * bytes,
                   0, (size_t)((t->shape[2] - value) * bytes));
}

static inline void call_build(struct call *call, struct arena *arena,
                              const struct flash_case *c, enum dtype dtype)
{
    const int64_t rows = (int64_t)c->sequences * c->length;
    const int64_t query[] = {rows, c->heads, c->width};
    const int64_t key[] = {rows, c->kv_heads, c->width};
    const enum dtype real = dtype == DTYPE_F64 ? DTYPE_F64 : DTYPE_F32;
    struct attention *p = &call->p;
    struct tensor *const operands[OPERANDS] = {
        &p->q, &p->k, &p->v, &p->dout, &p->out, &p->dq, &p->dk, &p->dv};

    *p = (struct attention){
        .sequences = c->sequences, .queries = c->length, .keys = c->length,
        .heads = c->heads, .kv_heads = c->kv_heads, .head_width = c->width,
        .leaves = c->leaves > 0 ? c->leaves : 1, .window = c->window,
        .chunk = c->chunk, .softcap = c->softcap, .alibi.heads = c->alibi,
        .value_width = c->value, .scale = 3.0 / sqrt((double)c->width)};
    for (int i = 0; i < OPERANDS; i++) {
        call->operands[i] = operands[i];
        *operands[i] = operand(arena, dtype, is_of_keys(i) ? key : query,
                               (uint64_t)i + 1);
        if (c->value > 0 && (i == 2 || i == 3))
            rest_clear(operands[i], c->value);
    }
    p->lse = tensor_2d(room_take(arena, rows * c->heads, dtype_bytes(real)),
                       real, rows, c->heads);
    if (c->document) {
        int32_t *documents = room_take(arena, rows, 4);

        for (int64_t i = 0; i < rows; i++)
            documents[i] = (int32_t)(i % c->length / c->document) *
                           c->document;
        p->key_documents = p->query_documents = documents;
    }
}

/* With peaks, whose numbers are float32. */
static inline void run_flash(struct arena *arena, struct call *call)
{
    struct stream none = {0};
    struct attention *p = &call->p;
    const size_t bytes = flash_bytes(
        p->sequences * p->queries, p->heads,
        flash_shares(p->heads, p->kv_heads, p->leaves), p->head_width);

    assert_true(cuda_flash_takes(p) && cuda_flash_takes_back(p));
    IS_OK(cuda_flash_forward(&none, p));
    IS_OK(cuda_flash_backward(&none, p, aligned(arena, (int64_t)bytes)));
}

static inline void run_float64(struct call *call)
{
    struct stream none = {0};

    IS_OK(kernels_reference_f64.attention_forward(&none, &call->p));
    IS_OK(kernels_reference_f64.attention_backward(&none, &call->p));
}

struct far { double most, sum, size; };

static inline struct far far_of(const struct tensor *have,
                                const struct tensor *want)
{
    const int64_t elements = want->shape[1] *
                             (want->dimensions == 3 ? want->shape[2] : 1);
    struct far far = {0, 0, 0};

    for (int64_t row = 0; row < want->shape[0]; row++) {
        const struct tensor x = tensor_1d(
            (char *)have->data + row * have->stride[0] *
                                     dtype_bytes(have->dtype),
            have->dtype, elements);
        const struct tensor y = tensor_1d(
            (double *)want->data + row * want->stride[0], DTYPE_F64, elements);

        for (int64_t i = 0; i < elements; i++) {
            const double b = tensor_get(&y, i), d = tensor_get(&x, i) - b;

            if (!(fabs(d) <= far.most)) far.most = fabs(d);
            far.sum += d * d;
            far.size += b * b;
        }
    }
    return far;
}

/* Weights and results are rounded to bfloat16, 2^-9 each: errors are 2^-8 of
 * the numbers, all in all, and one number's is not far above. dq and dk are
 * sums of differences of dout . v and dout . out, whose out is rounded: twice
 * that. */
static inline void compare(int index, const struct call *have,
                           const struct call *want)
{
    static const char *const names[OPERANDS + 1] = {
        "q", "k", "v", "dout", "out", "dq", "dk", "dv", "lse"};

    for (int i = 4; i <= OPERANDS; i++) {
        const bool is_lse = i == OPERANDS;
        const struct far far =
            is_lse ? far_of(&have->p.lse, &want->p.lse)
                   : far_of(have->operands[i], want->operands[i]);
        const bool differs = i == 5 || i == 6;
        const double whole = sqrt(far.sum / (far.size + 1e-3));

        if (!(whole <= (is_lse ? 1e-5 : differs ? 0x1p-7 : 0x1p-8)) ||
            !(far.most <= (is_lse ? 1e-5 : 0.06)))
            fail_msg("case %d, flash emulated: %s differs by %.3g of all, "
                     "%.3g at most", index, names[i], whole, far.most);
    }
}

static inline struct tensor rows_from(struct tensor t, int64_t first,
                                      int64_t count)
{
    if (t.data == NULL) return t;
    t.data = (char *)t.data + first * t.stride[0] * dtype_bytes(t.dtype);
    t.shape[0] = count;
    return t;
}

struct span { int64_t first, count; };

/* The call of those queries and those keys of each sequence. */
static inline struct attention block_of(const struct attention *whole,
                                        struct span queries, struct span keys)
{
    struct attention p = *whole;
    struct tensor *const of[] = {&p.q, &p.dout, &p.out, &p.dq, &p.lse,
                                 &p.delta, &p.denominator};
    struct tensor *const others[] = {&p.k, &p.v, &p.dk, &p.dv};

    for (int i = 0; i < ROWS(of); i++)
        *of[i] = rows_from(*of[i], queries.first,
                           of[i]->shape[0] - queries.first);
    for (int i = 0; i < ROWS(others); i++)
        *others[i] = rows_from(*others[i], keys.first,
                               others[i]->shape[0] - keys.first);
    if (p.key_documents) {
        p.query_documents += queries.first;
        p.key_documents += keys.first;
    }
    p.query_stride = p.key_stride = whole->queries;
    p.first_query = queries.first;
    p.queries = queries.count;
    p.first_key = keys.first;
    p.keys = keys.count;
    return p;
}

/* Checks each case, which is told by its number from `first` on. */
static inline void each_case(const struct flash_case *all, int count,
                             int first,
                             void check(int index, const struct flash_case *c,
                                        struct arena *arena))
{
    struct room room;

    if (SANITIZED_THREADS) skip();
    room_begin(&room, FEATURES_ALL);
    for (int i = 0; i < count; i++) {
        room_next(&room, (size_t)i);
        check(first + i, &all[i], &room.arena);
    }
    room_end(&room);
}

#endif
