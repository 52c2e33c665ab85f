/* SPDX-License-Identifier: Apache-2.0 */
/* attention.h - a tile of attention, for kernels of CUDA: `rows` queries (or
 * keys) of a head and the granules of the others, one after the other.
 *
 * A tile has 64, 32 or 16 rows: 4096 / rows is the class of the head's width,
 * and BLOCK_THREADS threads have PATCH x PATCH values each, whatever the class.
 * A thread has PATCH rows that follow each other; its columns are `side`
 * apart, so that threads that follow each other read what does. */
#ifndef LOCKSTEP_KERNELS_CUDA_ATTENTION_H
#define LOCKSTEP_KERNELS_CUDA_ATTENTION_H

#include "kernels/cuda/lanes.h"
#include "kernels/cuda/product.h"
#include "base/philox.h"
#include "kernels/alibi.h"
#include "kernels/elementary.h"

enum {
    TILE_MOST = 64,                     /* rows */
    STRIP = 8,                          /* of the width, loaded at a time */
    EACH_MOST = TILE_MOST / 8,          /* columns of scores of a thread */
    SUM_STRIP = 2048,                   /* values loaded at a time */
    NODES_WAITING = CUDA_ATTENTION_LEVELS
};

struct scores { float at[PATCH][EACH_MOST]; };

struct attention_shared {
    float weights[TILE_MOST][ATTENTION_GRANULE];
    union {
        struct {
            float rows[STRIP][TILE_MOST + ROW_PAD];
            float others[STRIP][ATTENTION_GRANULE + ROW_PAD];
        } dots;
        float values[SUM_STRIP];
        struct {
            float most[BLOCK_THREADS];
            int at[BLOCK_THREADS];
        } peak;
        float lanes[TILE_MOST][LANES];
        struct lanes_shared rows_of_delta;
    };
    float maximum[ATTENTION_GRANULE], denominator[ATTENTION_GRANULE];
};

/* Where a thread stands in a tile of `rows`. */
DEVICE int tile_side(int rows) { return 4 * BLOCK_THREADS / rows; }
DEVICE int tile_row(int rows) { return THREAD / tile_side(rows) * PATCH; }
DEVICE int tile_column(int rows) { return THREAD % tile_side(rows); }
/* Columns of scores of a thread. */
DEVICE int tile_each(int rows) { return rows / 8; }

/* Rows of one head; those from `first` to `end` are there. Row `first` lies at
 * element `at`. */
struct head_rows {
    const void *data;
    enum dtype dtype;
    bool tiles; /* products are those of bfloat16 in tiles */
    int64_t at, stride;
    int first, end;
};

DEVICE struct head_rows head_rows_of(const struct attention *p,
                                     const struct tensor *t, int64_t row,
                                     int head, int first, int end)
{
    const struct head_rows rows = {
        t->data, t->dtype, p->tiles,
        row * t->stride[0] + head * t->stride[1], t->stride[0], first, end};

    return rows;
}

DEVICE float head_get(const struct head_rows *x, int row, int e)
{
    return row < x->first || row >= x->end
               ? 0.0f
               : element_get(x->data, x->dtype,
                             x->at + (row - x->first) * x->stride + e);
}

/* Like head_get, as products take it. */
DEVICE float head_operand(const struct head_rows *x, int row, int e)
{
    const float value = head_get(x, row, e);

    return x->tiles ? flushed(value) : value;
}

/* Elements done to done + some of the width of rows and others. */
DEVICE void dots_load(struct attention_shared *s, int rows,
                      const struct head_rows *x, const struct head_rows *y,
                      int done, int some)
{
    for (int i = THREAD; i < rows * STRIP; i += BLOCK_THREADS)
        if (i % STRIP < some)
            s->dots.rows[i % STRIP][i / STRIP] =
                head_operand(x, i / STRIP, done + i % STRIP);
    for (int i = THREAD; i < ATTENTION_GRANULE * STRIP; i += BLOCK_THREADS)
        if (i % STRIP < some)
            s->dots.others[i % STRIP][i / STRIP] =
                head_operand(y, i / STRIP, done + i % STRIP);
    BARRIER;
}

DEVICE void dots_step(const struct attention_shared *s, int rows, int e,
                      enum granule_kind kind, struct scores *out)
{
    const int row = tile_row(rows), column = tile_column(rows);
    const int side = tile_side(rows), each = tile_each(rows);
    float a[PATCH];

    UNROLLED for (int i = 0; i < PATCH; i++) a[i] = s->dots.rows[e][row + i];
    UNROLLED for (int j = 0; j < each; j++) {
        const float b = s->dots.others[e][column + j * side];

        UNROLLED for (int i = 0; i < PATCH; i++)
            out->at[i][j] = kind_fma(kind, a[i], b, out->at[i][j]);
    }
}

#define EACH_SCORE(rows)                            \
    UNROLLED for (int i = 0; i < PATCH; i++)        \
        UNROLLED for (int j = 0; j < tile_each(rows); j++)

/* Half of a thread's columns of scores. */
struct half_scores { float at[PATCH][EACH_MOST / 2]; };

#define EACH_OF_HALF(rows)                          \
    UNROLLED for (int i = 0; i < PATCH; i++)        \
        UNROLLED for (int j = 0; j < tile_each(rows) / 2; j++)

/* Element e of the strip, for columns from `first` on. */
DEVICE void half_step(const struct attention_shared *s, int rows, int e,
                      int first, struct half_scores *out)
{
    const int row = tile_row(rows), side = tile_side(rows);

    EACH_OF_HALF(rows) out->at[i][j] = kind_fma(
        GRANULE_TILES, s->dots.rows[e][row + i],
        s->dots.others[e][first + j * side], out->at[i][j]);
}

/* As granule_tiles (product.h), over the width, for columns from `first` on. An
 * element that is not there would change no more than the sign of zero, and +
 * (+0) ends it. */
DEVICE void half_tiles(struct attention_shared *s, int rows,
                       const struct head_rows *const of[2], int width,
                       int first)
{
    struct half_scores even, odd, sum;

    EACH_OF_HALF(rows) sum.at[i][j] = even.at[i][j] = odd.at[i][j] = 0;
    LOOPED for (int done = 0; done < width; done += STRIP) {
        const int some = width - done < STRIP ? width - done : STRIP;

        dots_load(s, rows, of[0], of[1], done, some);
        LOOPED for (int e = 0; e < some; e += 2) {
            half_step(s, rows, e, first, &even);
            if (e + 1 < some) half_step(s, rows, e + 1, first, &odd);
        }
        BARRIER;
        if ((done + STRIP) % PRODUCT_BLOCK != 0 && done + STRIP < width)
            continue;
        EACH_OF_HALF(rows) {
            sum.at[i][j] = add_flushed(
                sum.at[i][j], add_flushed(even.at[i][j], odd.at[i][j]));
            even.at[i][j] = odd.at[i][j] = 0;
        }
    }
    EACH_OF_HALF(rows)
        s->weights[tile_row(rows) + i][first + j * tile_side(rows)] =
            sum.at[i][j] + 0.0f;
}

/* One half of the columns after the other: registers are few. A thread reads
 * what it wrote. */
DEVICE void dots_tiles(struct attention_shared *s, int rows,
                       const struct head_rows *x, const struct head_rows *y,
                       int width, struct scores *out)
{
    const struct head_rows *const of[2] = {x, y};
    const int row = tile_row(rows), column = tile_column(rows);
    const int side = tile_side(rows);

    LOOPED for (int half = 0; half < 2; half++)
        half_tiles(s, rows, of, width,
                   column + half * (tile_each(rows) / 2) * side);
    EACH_SCORE(rows) out->at[i][j] = s->weights[row + i][column + j * side];
}

/* out = rows times others, one chain over the width each, or in tiles. */
DEVICE void tile_dots(struct attention_shared *s, int rows,
                      const struct head_rows *x, const struct head_rows *y,
                      int width, struct scores *out)
{
    if (y->tiles) {
        dots_tiles(s, rows, x, y, width, out);
        return;
    }
    EACH_SCORE(rows) out->at[i][j] = 0;
    LOOPED for (int done = 0; done < width; done += STRIP) {
        const int some = width - done < STRIP ? width - done : STRIP;

        dots_load(s, rows, x, y, done, some);
        LOOPED for (int e = 0; e < some; e++)
            dots_step(s, rows, e, GRANULE_CHAIN, out);
        BARRIER;
    }
}

/* A weight, or the gradient of a score, as products take it: in tiles bfloat16,
 * flushed. */
DEVICE float pair_operand(const struct attention *p, float x)
{
    return p->tiles ? flushed(f32_of_bits(element_to_bf16(x) << 16)) : x;
}

/* The weights of the thread's pairs, for tile_sum. */
DEVICE void tile_weights(struct attention_shared *s, int rows,
                         const struct scores *w)
{
    UNROLLED for (int i = 0; i < PATCH; i++)
        UNROLLED for (int j = 0; j < tile_each(rows); j++)
            s->weights[tile_row(rows) + i]
                      [tile_column(rows) + j * tile_side(rows)] = w->at[i][j];
}

/* The others' values from row `first` on, once weights are written. */
DEVICE void values_load(struct attention_shared *s, const struct head_rows *y,
                        int width, int span, int first)
{
    BARRIER; /* what was there is read, and weights are written */
    LOOPED for (int i = THREAD; i < SUM_STRIP; i += BLOCK_THREADS)
        s->values[i] = i % span < width
                           ? head_operand(y, first + i / span, i % span)
                           : 0.0f;
    BARRIER;
}

/* Row first + k of the others. */
DEVICE void sum_step(const struct attention_shared *s, int rows,
                     const int at[2], enum granule_kind kind,
                     struct patch *sum)
{
    const int first = at[0], k = at[1], span = ATTENTION_TILE / rows;
    float w[PATCH], v[PATCH];

    UNROLLED for (int i = 0; i < PATCH; i++)
        w[i] = s->weights[tile_row(rows) + i][first + k];
    UNROLLED for (int j = 0; j < PATCH; j++)
        v[j] = s->values[k * span + tile_column(rows) + j * tile_side(rows)];
    EACH_OF_PATCH sum->at[i][j] = kind_fma(kind, w[i], v[j], sum->at[i][j]);
}

/* As granule_tiles: blocks are counted from the first row of the granule. */
DEVICE void sum_tiles(struct attention_shared *s, int rows,
                      const struct head_rows *y, int width, struct patch *sum)
{
    const int span = ATTENTION_TILE / rows, some = SUM_STRIP / span;
    struct patch even, odd;

    EACH_OF_PATCH even.at[i][j] = odd.at[i][j] = 0;
    LOOPED for (int first = 0; first < y->end; first += some) {
        values_load(s, y, width, span, first);
        LOOPED for (int k = 0; k < some; k += 2) {
            const int one[2] = {first, k}, two[2] = {first, k + 1};

            sum_step(s, rows, one, GRANULE_TILES, &even);
            sum_step(s, rows, two, GRANULE_TILES, &odd);
        }
        if ((first + some) % PRODUCT_BLOCK != 0 && first + some < y->end)
            continue;
        EACH_OF_PATCH {
            sum->at[i][j] = add_flushed(
                sum->at[i][j], add_flushed(even.at[i][j], odd.at[i][j]));
            even.at[i][j] = odd.at[i][j] = 0;
        }
    }
}

/* sum = the sum of the weights times the others' values, in a chain or tiles,
 * and + (+0). Rows that are not there have weight and value +0, which changes
 * no bit. */
DEVICE void tile_sum(struct attention_shared *s, int rows,
                     const struct head_rows *y, int width, struct patch *sum)
{
    const int span = ATTENTION_TILE / rows, some = SUM_STRIP / span;

    EACH_OF_PATCH sum->at[i][j] = 0;
    if (y->tiles) sum_tiles(s, rows, y, width, sum);
    LOOPED for (int first = 0; first < y->end && !y->tiles; first += some) {
        values_load(s, y, width, span, first);
        LOOPED for (int k = 0; k < some; k++) {
            const int at[2] = {first, k};

            sum_step(s, rows, at, GRANULE_CHAIN, sum);
        }
    }
    EACH_OF_PATCH sum->at[i][j] = sum->at[i][j] + 0.0f;
    BARRIER;
}

/* Stores the patch in rows of a head, as far as they are there. */
DEVICE void tile_store(const struct tensor *t, int64_t first, int64_t count,
                       int head, int rows, const struct patch *value)
{
    const int row = tile_row(rows), column = tile_column(rows);

    EACH_OF_PATCH {
        const int e = column + j * tile_side(rows);

        if (row + i < count && e < t->shape[2])
            element_set(t->data, t->dtype,
                        (first + row + i) * t->stride[0] +
                            head * t->stride[1] + e, value->at[i][j]);
    }
}

/* ---- pairs ---- */

/* A query and a key, by their positions in a sequence. */
struct attention_pair { int64_t sequence, query, key; };

DEVICE bool pair_is_seen(const struct attention *p, struct attention_pair at)
{
    if (at.key > at.query) return false;
    if (at.key < attention_lowest(p, at.query)) return false;
    if (!p->query_documents) return true;
    return p->query_documents[attention_query_row(p, at.sequence, at.query)] ==
           p->key_documents[attention_key_row(p, at.sequence, at.key)];
}

/* Linear biases add this to q . k. */
DEVICE float pair_bias(const struct attention_call *call, int head,
                       struct attention_pair at)
{
    return alibi_of(call->slopes[head], call->of.key_documents,
                    attention_key_row(&call->of, at.sequence, at.key), at.key);
}

/* The factor of dropout. */
DEVICE float pair_keep(const struct attention_call *call, int head,
                       struct attention_pair at)
{
    const struct attention_dropout *drop = &call->of.drop;
    uint32_t words[4];

    if (!call->drops) return 1;
    philox_block(drop->key, drop->sequence + (uint64_t)at.sequence,
                 (uint64_t)(drop->head + head) << DROPOUT_HEAD_SHIFT |
                     (uint64_t)at.query << DROPOUT_QUERY_SHIFT |
                     (uint64_t)(at.key / 4), words);
    return words[at.key % 4] >= call->least ? call->keep : 0.0f;
}

DEVICE float *number_of(const struct tensor *t, int64_t row, int head)
{
    return (float *)t->data + row * t->stride[0] + head;
}

/* Numbers of rows [first, first + count), count up to ATTENTION_GRANULE, of a
 * head: from[0] becomes row `first`. D is dout . out where it is not given, 16
 * threads a row. */
DEVICE void tile_numbers(struct attention_shared *s,
                         const struct attention *p, int64_t first, int count,
                         int head)
{
    BARRIER;
    for (int i = THREAD; i < count; i += BLOCK_THREADS) {
        s->maximum[i] = *number_of(&p->lse, first + i, head);
        if (p->delta.data)
            s->denominator[i] = *number_of(&p->delta, first + i, head);
    }
    LOOPED for (int i = 0; i < count && !p->delta.data; i += BLOCK_ROWS) {
        const int row = i + THREAD / LANES;
        const struct head_rows a =
            head_rows_of(p, &p->dout, first, head, 0, count);
        const struct head_rows b =
            head_rows_of(p, &p->out, first, head, 0, count);
        float sum = 0;

        for (int e = THREAD % LANES; e < p->head_width; e += LANES)
            sum = __builtin_fmaf(head_get(&a, row, e), head_get(&b, row, e),
                                 sum);
        sum = lanes_of_row(&s->rows_of_delta, sum);
        if (THREAD % LANES == 0 && row < count) s->denominator[row] = sum;
    }
    BARRIER;
}

#endif
