/* SPDX-License-Identifier: Apache-2.0 */
/* attended.h - attention that a library of the GPU computes
 * (numerics.attention): what is said about a call.
 *
 * Causal attention of one sequence in bfloat16, sums in float32. Query head h
 * reads key-value head h / (heads / kv_heads). */
#ifndef LOCKSTEP_DEVICE_ATTENDED_H
#define LOCKSTEP_DEVICE_ATTENDED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { ATTENDED_PLANS = 64,    /* forms of a run: a sentence names it, too */
       ATTENDED_ALIGNED = 256, /* where the room begins */
       ATTENDED_WIDTH_MOST = 256, ATTENDED_WIDTH_STEP = 8 };

/* A plan is made for it. All that begins there begins at multiples of 16
 * bytes. */
struct attended_form {
    int64_t length;            /* of the sequence */
    int64_t window;            /* keys that a query sees; 0: all before */
    int32_t heads, kv_heads;
    int32_t width;             /* of a head */
    int32_t backward;          /* 1: dq, dk, dv; 0: out and statistics */
    int32_t documents;         /* 1: a query sees keys of its document alone */
    int32_t unused;            /* 0: forms are compared as bytes */
    /* Elements from row to row; heads lie beside each other. */
    int64_t q_row, k_row, out_row, statistics_row;
    int64_t dq_row, dk_row, dout_row; /* 0: forward */
};

struct gpu_attended {
    struct attended_form form;
    const void *q, *k, *v;
    void *out, *statistics;    /* statistics: float32 [length, heads], the
                                * logarithm of the sum of exponentials of a
                                * query; both are read backward */
    const void *dout;
    void *dq, *dk, *dv;
    const int32_t *of_document; /* [length]: the first position of its
                                 * document */
    float scale;
    uint32_t unused;           /* 0 */
};

static inline size_t attended_up(size_t bytes, size_t to)
{
    return (bytes + to - 1) / to * to;
}

/* One number for a row of a head, at the front of the room. */
static inline size_t attended_sums(const struct attended_form *f)
{
    if (f->backward == 0) return 0;
    return attended_up((size_t)f->heads * (size_t)f->length * sizeof(float),
                       ATTENDED_ALIGNED);
}

/* Bytes of room that a call of the form takes at most. Backward the library
 * adds dq in one order from scores of bfloat16 that lie in memory, and keys of
 * all query heads; it rounds lengths up. */
static inline size_t attended_room(const struct attended_form *f)
{
    enum { TILE = 128, BESIDE = 1 << 20 };
    const size_t rows = attended_up((size_t)f->length, TILE);
    const size_t heads = (size_t)f->heads, width = (size_t)f->width;
    const size_t keys = f->heads == f->kv_heads ? 0 : 2 * width;

    if (f->backward == 0) return BESIDE;
    return attended_sums(f) + heads * rows * (rows + keys) * 2 + BESIDE;
}

/* Leaves whose gradients of keys and values wait for those of others, where
 * several leaves have query heads of one key-value head; 0: none has. */
static inline int flash_shares(int heads, int kv_heads, int leaves)
{
    return heads / leaves % (heads / kv_heads) == 0 ? 0 : leaves;
}

/* Bytes of our own kernels on tensor cores, backward: a number of each row and
 * head, and gradients of shares. */
static inline size_t flash_bytes(int64_t rows, int heads, int shares,
                                 int width)
{
    return (size_t)rows * sizeof(float) *
           ((size_t)heads + 2 * (size_t)shares * (size_t)width);
}

/* Query heads of a call: of `heads` heads, in groups of `group` that read one
 * key-value head, as many as have scores of at most 256 MiB, and at least a
 * group; all of them, where they are part of one. The same in every layout
 * where `heads` is: those of a leaf. */
static inline int attended_heads(int64_t length, int heads, int group)
{
    const int64_t most = (256 << 20) / (2 * length * length);
    int calls = 1;

    if (heads <= group) return heads;
    while (heads / group % calls != 0 ||
           (heads / calls > most && heads / calls > group))
        calls++;
    return heads / calls;
}

#endif
