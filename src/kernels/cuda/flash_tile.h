/* SPDX-License-Identifier: Apache-2.0 */
/* flash_tile.h - attention on tensor cores, for kernels of CUDA: a block has
 * FLASH_ROWS queries (or keys) of a head, each warp 16 of them, and goes over
 * the others in tiles, in the order of their positions. Nothing else decides
 * the order of a sum.
 *
 * `span` is the class of the head's width: rows in memory of the block are as
 * long and FLASH_PAD more, so that eight of them begin in different banks.
 * Arrays have room for the widest class, and no register beyond their own. Of
 * heads wider than FLASH_NARROW registers do not hold all that a warp needs, so
 * it has a part of their elements. `value` is the class of a value's width,
 * where all further elements of values are zeros.
 * Source: Dao 2023, arXiv:2307.08691, sections 3.1 and 3.3. */
#ifndef LOCKSTEP_KERNELS_CUDA_FLASH_TILE_H
#define LOCKSTEP_KERNELS_CUDA_FLASH_TILE_H

#include "kernels/cuda/warp.h"
#include "kernels/alibi.h"
#include "kernels/power.h"

enum {
    FLASH_STEP = 16,    /* rows of the others that a product takes at once */
    FLASH_PAD = 8,
    FLASH_SPAN_MOST = 256
};
#define FLASH_LOG2E 0x1.715476p+0f
#define FLASH_LN2 0x1.62e43p-1f

/* Memory of a block: so many rows. */
#define FLASH_SHARED(span)                                                 \
    struct flash_shared_##span {                                           \
        __attribute__((aligned(16)))                                       \
        uint16_t rows[FLASH_ROOM(span) * (span + FLASH_PAD)];              \
    }
FLASH_SHARED(64);
FLASH_SHARED(96);
FLASH_SHARED(128);
FLASH_SHARED(192);
FLASH_SHARED(256);

/* A warp's part of a block, which has so many rows: 16 from `row` on, and of
 * each the elements from `from` on. */
struct flash_part { int rows, row, from, columns; };

/* 16 rows of the warp, as products take them. */
struct flash_operand { uint32_t at[FLASH_SPAN_MOST / FLASH_STEP][4]; };
/* 16 rows of the warp, of a result. */
struct flash_sums { float at[FLASH_SPAN_MOST / 8][4]; };
/* 16 rows of the warp and FLASH_STEP of the others. */
struct flash_pairs { float at[2][4]; };

#define EACH_PAIR                            \
    UNROLLED for (int j = 0; j < 2; j++)     \
        UNROLLED for (int i = 0; i < 4; i++)

/* ---- rows of a head ---- */

/* Positions of a sequence whose queries, or keys, the call has, and the row of
 * the first. */
struct flash_window {
    int begin, end;
    int64_t row;
};

DEVICE struct flash_window window_of(const struct attention *p, bool of_keys,
                                     int64_t sequence)
{
    const int64_t begin = of_keys ? p->first_key : p->first_query;
    const int64_t count = of_keys ? p->keys : p->queries;
    const int64_t row = of_keys ? attention_key_row(p, sequence, begin)
                                : attention_query_row(p, sequence, begin);
    const struct flash_window window = {(int)begin, (int)(begin + count), row};

    return window;
}

/* Rows of one sequence, in memory of the GPU. */
struct flash_rows {
    const uint16_t *data; /* of position `begin` */
    int64_t stride;
    int begin, end, width;
};

DEVICE struct flash_rows flash_rows_of(const struct tensor *t,
                                       const struct flash_window *window,
                                       int head)
{
    const struct flash_rows rows = {
        (const uint16_t *)t->data + window->row * t->stride[0] +
            head * t->stride[1],
        t->stride[0], window->begin, window->end, (int)t->shape[2]};

    return rows;
}

/* Rows of `count` positions from `first` on come to memory of the block, later;
 * zeros where a row is not there. */
DEVICE void rows_copy(uint16_t *to, int span, int count,
                      const struct flash_rows *x, int first)
{
    UNROLLED for (int i = THREAD; i < count * (span / 8);
                  i += BLOCK_THREADS) {
        const int row = i / (span / 8), e = i % (span / 8) * 8;
        const int at = first + row;
        const bool there = at >= x->begin && at < x->end && e < x->width;

        COPY_LATE(to + row * (span + FLASH_PAD) + e,
                  x->data + (there ? (at - x->begin) * x->stride + e : 0),
                  there);
    }
}

/* The block's own rows, by way of memory that holds nothing else. */
DEVICE void operand_take(uint16_t *room, int span, const struct flash_rows *x,
                         int first, struct flash_part part,
                         struct flash_operand *out)
{
    const int most = FLASH_ROOM(span);
    const uint16_t *at =
        room + (part.row % most + LANE % 16) * (span + FLASH_PAD) + part.from +
        LANE / 16 * 8;

    BARRIER;
    UNROLLED for (int done = 0; done < part.rows; done += most) {
        rows_copy(room, span, most, x, first + done);
        COPIES_CLOSE;
        COPIES_WAIT(0);
        BARRIER;
        if (part.rows <= most || part.row / most == done / most)
            UNROLLED for (int k = 0; k < part.columns / 16; k++)
                MATRICES(at + 16 * k, false, out->at[k]);
        BARRIER;
    }
}

/* The warp's sums in rows of a head, two numbers at a time: bfloat16, or
 * float32 where other leaves' sums are added to them. */
DEVICE void sums_store(const struct tensor *t, struct flash_part part,
                       int64_t row, const int there[2], int head,
                       const struct flash_sums *sums)
{
    UNROLLED for (int half = 0; half < 2; half++)
        UNROLLED for (int n = 0; n < part.columns / 8; n++) {
            const int e = part.from + n * 8 + LANE % 4 * 2;
            const int64_t at = (row + LANE / 4 + 8 * half) * t->stride[0] +
                               head * t->stride[1] + e;
            const float *const two = &sums->at[n][2 * half];

            if (!there[half] || e >= t->shape[2]) continue;
            if (t->dtype == DTYPE_F32) {
                ((float *)t->data)[at] = two[0];
                ((float *)t->data)[at + 1] = two[1];
            } else {
                *(uint32_t *)((uint16_t *)t->data + at) =
                    bfloats(two[0], two[1]);
            }
        }
}

/* The elements from `from` on of those rows are zeros. */
DEVICE void rest_clear(const struct tensor *t, int from, int64_t row,
                       const int there[2], int head)
{
    UNROLLED for (int half = 0; half < 2; half++) {
        const int64_t at =
            (row + LANE / 4 + 8 * half) * t->stride[0] + head * t->stride[1];

        if (!there[half]) continue;
        LOOPED for (int e = from + LANE % 4; e < t->shape[2]; e += 4)
            element_set(t->data, t->dtype, at + e, 0.0f);
    }
}

/* ---- products ---- */

/* Rows of the warp times FLASH_STEP rows of the others, `columns` elements of
 * each. */
DEVICE void pairs_dots(const struct flash_operand *a, const uint16_t *others,
                       int span, int columns, struct flash_pairs *out)
{
    const uint16_t *at = others +
                         (LANE / 16 * 8 + LANE % 8) * (span + FLASH_PAD) +
                         LANE / 8 % 2 * 8;

    EACH_PAIR out->at[j][i] = 0;
    UNROLLED for (int k = 0; k < columns / 16; k++) {
        uint32_t b[4];

        MATRICES(at + 16 * k, false, b);
        MMA(out->at[0], a->at[k], b);
        MMA(out->at[1], a->at[k], b + 2);
    }
}

/* Weights of pairs, rounded to bfloat16, as products take them. */
DEVICE void pairs_weights(const struct flash_pairs *of, int count,
                          uint32_t weights[4])
{
    UNROLLED for (int i = 0; i < count; i++)
        weights[i] = bfloats(of->at[i / 2][i % 2 * 2],
                             of->at[i / 2][i % 2 * 2 + 1]);
}

/* sums += weights times rows of the others, `columns` elements of each. */
DEVICE void sums_add(struct flash_sums *sums, const uint32_t weights[4],
                     const uint16_t *others, int span, int columns)
{
    const uint16_t *at =
        others + LANE % 16 * (span + FLASH_PAD) + LANE / 16 * 8;

    UNROLLED for (int n = 0; n < columns / 16; n++) {
        uint32_t b[4];

        MATRICES(at + 16 * n, true, b);
        MMA(sums->at[2 * n], weights, b);
        MMA(sums->at[2 * n + 1], weights, b + 2);
    }
}

DEVICE void sums_clear(struct flash_sums *sums, int columns)
{
    UNROLLED for (int n = 0; n < columns / 8; n++)
        UNROLLED for (int i = 0; i < 4; i++) sums->at[n][i] = 0;
}

/* ---- pairs ---- */

/* The others from `from` on and before `past` are seen by a row, of its
 * document. */
struct flash_seen {
    int from, past;
    int32_t document;
};

/* A query at a position sees keys of the call; a key, queries. */
DEVICE struct flash_seen seen_of(const struct attention *p, bool of_keys,
                                 int at)
{
    const int64_t begin = of_keys ? p->first_query : p->first_key;
    const int64_t end = begin + (of_keys ? p->queries : p->keys);
    const int64_t from = of_keys ? at : attention_lowest(p, at);
    const int64_t past = of_keys ? attention_past(p, at) : at + 1;
    const struct flash_seen seen = {(int)(from > begin ? from : begin),
                                    (int)(past < end ? past : end), 0};

    return seen;
}

/* The 16 rows of a warp from `first` on. */
struct flash_warp {
    struct flash_seen row[2]; /* of the thread: LANE / 4 and 8 further */
    int there[2];
    int from, past;           /* any row sees */
    int all_from, all_past;   /* every row sees, of its document */
    const int32_t *documents; /* of the others from `begin` on; NULL: one */
    int begin;
};

DEVICE struct flash_warp warp_of(const struct attention *p, bool of_keys,
                                 int64_t sequence, int first)
{
    const struct flash_window own = window_of(p, of_keys, sequence);
    const struct flash_window others = window_of(p, !of_keys, sequence);
    const int32_t *const documents =
        of_keys ? p->key_documents : p->query_documents;
    const int end = first + 16 < own.end ? first + 16 : own.end;
    struct flash_warp w = {.documents = NULL, .begin = others.begin};

    if (documents)
        w.documents = (of_keys ? p->query_documents : p->key_documents) +
                      others.row;
    for (int i = 0; i < 2; i++) {
        const int at = first + LANE / 4 + 8 * i;

        w.there[i] = at >= own.begin && at < own.end;
        if (!w.there[i]) continue;
        w.row[i] = seen_of(p, of_keys, at);
        if (documents)
            w.row[i].document = documents[own.row + at - own.begin];
    }
    if (end <= first || end <= own.begin) return w;
    const bool all = first >= own.begin && end == first + 16;
    const struct flash_seen one =
        seen_of(p, of_keys, first > own.begin ? first : own.begin);
    const struct flash_seen last = seen_of(p, of_keys, end - 1);

    w.from = one.from;
    w.past = last.past;
    w.all_from = last.from;
    w.all_past = all && !w.documents ? one.past : 0;
    return w;
}

/* Whether a row of the warp sees one of `count` others. */
DEVICE bool warp_sees(const struct flash_warp *w, int first, int count)
{
    return first < w->past && first + count > w->from;
}

DEVICE bool warp_sees_all(const struct flash_warp *w, int first, int count)
{
    return first >= w->all_from && first + count <= w->all_past;
}

DEVICE bool is_seen(const struct flash_warp *w, int i, int other)
{
    return other >= w->row[i].from && other < w->row[i].past &&
           (!w->documents ||
            w->documents[other - w->begin] == w->row[i].document);
}

/* The score of a key at a position, times log2 e: weights are powers of 2.
 * *bend: what a soft cap's gradient is multiplied by. */
DEVICE float flash_score(const struct flash_call *call, int head,
                         int64_t sequence, int key, float dot, float *bend)
{
    const struct attention *p = &call->of.of;
    float score;

    *bend = 1;
    if (call->is_plain) return dot * call->scale;
    if (call->of.slopes)
        dot = dot + alibi_of(call->of.slopes[head], p->key_documents,
                             attention_key_row(p, sequence, key), key);
    score = dot * call->of.scale;
    if (p->softcap > 0) {
        const float t = tanh_f32(score * call->of.inverse_cap);

        *bend = __builtin_fmaf(-t, t, 1.0f);
        score = call->of.cap * t;
    }
    return score * FLASH_LOG2E;
}

/* First position of a block of `rows` rows: they stand where they would in a
 * whole sequence, whatever the window. */
DEVICE int block_first(const struct flash_window *own, int64_t block, int rows)
{
    return (own->begin / rows + (int)block) * rows;
}

/* Its first position that is there, and the one behind its last. */
DEVICE int block_begin(const struct flash_window *own, int first)
{
    return first > own->begin ? first : own->begin;
}

DEVICE int block_end(const struct flash_window *own, int first, int rows)
{
    return first + rows < own->end ? first + rows : own->end;
}

DEVICE float *flash_number(const struct tensor *t, int64_t row, int head)
{
    return (float *)t->data + row * t->stride[0] + head;
}

#endif
