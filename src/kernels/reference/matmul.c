/* SPDX-License-Identifier: Apache-2.0 */
/* matmul.c - the matrix product that defines the bits.
 *
 * Every element is computed by itself, exactly as struct sum_order says. A
 * strip of columns of one row is done at a time only because the compiler then
 * turns the inner loop into vectors; no element sees its neighbours. */
#include <stddef.h>
#include "kernels/element.h"
#include "kernels/flush.h"
#include "kernels/expert_index.h"
#include "kernels/narrow_product.h"
#include "kernels/reference/accumulator.h"
#include "kernels/reference/product.h"

enum { STRIP = ACCUMULATOR_COLUMNS };

/* A strip of one row of c. */
struct strip {
    const struct matmul *p;
    int64_t row, column;
    int width; /* columns, at most STRIP */
    /* chain[j] = the granule [first, first + length) of column j */
    void (*granule)(const struct strip *s, int64_t first, int64_t length,
                    real *chain);
    const struct gathered *rows; /* or NULL */
};

/* Chain of FMAs from +0. */
REAL_CLONES static void granule_chain(const struct strip *s, int64_t first,
                                      int64_t length, real *chain)
{
    const struct tensor *left = &s->p->a, *right = &s->p->b;

    for (int j = 0; j < STRIP; j++) chain[j] = 0;
    for (int64_t k = first; k < first + length; k++) {
        real a = ((const real *)left->data)[s->row * left->stride[0] +
                                            k * left->stride[1]];
        const real *b = (const real *)right->data + k * right->stride[0] +
                        s->column * right->stride[1];

        if (right->stride[1] == 1) {
            _Pragma("omp simd")
            for (int j = 0; j < s->width; j++)
                chain[j] = REAL_FMA(a, b[j], chain[j]);
        } else {
            for (int j = 0; j < s->width; j++)
                chain[j] = REAL_FMA(a, b[j * right->stride[1]], chain[j]);
        }
    }
}

/* sum[j] += the granules of one segment; the first is assigned if `assign`. */
static void segment_add(const struct strip *s, const struct sum_segment *seg,
                        bool assign, real *sum)
{
    real chain[STRIP];

    for (int64_t done = 0; done < seg->length; done += GRANULE) {
        int64_t length = seg->length - done;

        if (length > GRANULE) length = GRANULE;
        s->granule(s, seg->first + done, length, chain);
        for (int j = 0; j < s->width; j++)
            sum[j] = assign ? chain[j] : sum[j] + chain[j];
        assign = false;
    }
}

/* sums[0] = tree over sums[0 .. leaves - 1]: neighbours, then pairs of
 * neighbours and so on, which is halves from the top; (0 + 1) + 2 for three.
 * Nodes that are not there are missing. */
static void leaves_fold(real (*sums)[STRIP], bool *there, int leaves)
{
    for (int step = 1; step < leaves; step *= 2)
        for (int leaf = 0; leaf + step < leaves; leaf += 2 * step) {
            if (!there[leaf + step]) continue;
            for (int j = 0; j < STRIP; j++)
                sums[leaf][j] = there[leaf]
                                    ? sums[leaf][j] + sums[leaf + step][j]
                                    : sums[leaf + step][j];
            there[leaf] = true;
        }
}

/* Elements of a row of experts. */
struct line {
    const struct tensor *matrix;
    int64_t at;
    const real *scale; /* or NULL */
};

static struct line line_of(const struct gathered *of,
                           const struct expert_rows *rows, int64_t row)
{
    const int64_t g = of->groups->offsets[of->expert] + row;

    return (struct line){
        &rows->matrix,
        expert_row(of->groups, rows, g) * rows->matrix.stride[0],
        rows->scales ? (const real *)rows->scales + of->groups->entries[g]
                     : NULL};
}

/* Narrow products are rounded to their type. */
static real line_get(const struct line *line, int64_t column)
{
    const real x = get(line->matrix, line->at + column);

    if (line->scale == NULL) return x;
#if REAL_BITS == 32
    return element_scaled(x, *line->scale, line->matrix->dtype);
#else
    return x * *line->scale;
#endif
}

static real a_get(const struct strip *s, int64_t k)
{
    const struct tensor *a = &s->p->a;
    const struct gathered *rows = s->rows;
    struct line line;

    if (rows == NULL)
        return get(a, s->row * a->stride[0] + k * a->stride[1]);
    line = line_of(rows, rows->a, rows->contracted ? k : s->row);
    return line_get(&line, rows->contracted ? s->row : k);
}

/* Row k of b, columns of the strip. */
static void b_get(const struct strip *s, int64_t k, real *out)
{
    const struct tensor *b = &s->p->b;
    const int64_t at = k * b->stride[0] + s->column * b->stride[1];
    struct line line;

    if (s->rows == NULL || s->rows->b == NULL) {
        for (int j = 0; j < s->width; j++)
            out[j] = get(b, at + j * b->stride[1]);
        return;
    }
    line = line_of(s->rows, s->rows->b, k);
    for (int j = 0; j < s->width; j++)
        out[j] = line_get(&line, s->column + j);
}

/* Chain of FMAs from +0 over rows of experts. */
REAL_CLONES static void granule_gathered(const struct strip *s, int64_t first,
                                         int64_t length, real *chain)
{
    real b[STRIP] = {0};

    for (int j = 0; j < STRIP; j++) chain[j] = 0;
    for (int64_t k = first; k < first + length; k++) {
        const real a = a_get(s, k);

        b_get(s, k, b);
        _Pragma("omp simd")
        for (int j = 0; j < STRIP; j++) chain[j] = REAL_FMA(a, b[j], chain[j]);
    }
}

/* Segment i of the order as the strip has it; length 0: nothing. */
static struct sum_segment segment_of(const struct strip *s, int64_t i)
{
    const struct sum_segment segment = s->p->order->segments[i];

    return s->rows && s->rows->contracted
               ? expert_segment(s->rows->groups, s->rows->expert, &segment)
               : segment;
}

/* The sums before the first segment. */
static void strip_begin(const struct strip *s, real (*sums)[STRIP], bool *there)
{
    const struct matmul *p = s->p;
    const int64_t at = s->row * p->c.stride[0] + s->column;

    if (!p->continues) return;
    for (int j = 0; j < s->width; j++) sums[0][j] = get(&p->c, at + j);
    there[0] = true;
}

static void strip_finish(const struct strip *s, real (*sums)[STRIP],
                         bool *there)
{
    const struct matmul *p = s->p;
    const int64_t at = s->row * p->c.stride[0] + s->column;

    leaves_fold(sums, there, p->order->leaves);
    for (int j = 0; j < s->width; j++) {
        real result = sums[0][j];

        if (p->bias) result = result + get(p->bias, s->column + j);
        if (p->left)
            result = get(p->left, s->row * p->left->stride[0] + s->column + j) +
                     result;
        set(&p->c, at + j, result);
    }
}

static void strip_compute(const struct strip *s)
{
    real sums[LEAVES_MAX][STRIP] = {{0}};
    bool there[LEAVES_MAX] = {false};

    strip_begin(s, sums, there);
    for (int64_t i = 0; i < s->p->order->segment_count; i++) {
        const struct sum_segment segment = segment_of(s, i);

        if (segment.length == 0) continue;
        segment_add(s, &segment, !there[segment.leaf], sums[segment.leaf]);
        there[segment.leaf] = true;
    }
    strip_finish(s, sums, there);
}

/* All strips of all rows. */
struct all_strips {
    struct matmul p;
    void (*granule)(const struct strip *s, int64_t first, int64_t length,
                    real *chain);
    const struct gathered *rows;
};

static void matmul_body(void *argument, int index, int count)
{
    const struct all_strips *all = argument;
    int64_t n = all->p.c.shape[1], strips = (n + STRIP - 1) / STRIP;
    int64_t first, last;

    threads_split(all->p.c.shape[0] * strips, 1, index, count, &first, &last);
    for (int64_t i = first; i < last; i++) {
        struct strip s = {&all->p, i / strips, i % strips * STRIP, STRIP,
                          all->granule, all->rows};

        if (n - s.column < STRIP) s.width = (int)(n - s.column);
        strip_compute(&s);
    }
}

static void matmul_check(const struct matmul *p, enum dtype dtype)
{
    int64_t m = p->c.shape[0], n = p->c.shape[1], k = p->a.shape[1];

    CHECK(p->a.dtype == dtype && p->b.dtype == dtype);
    CHECK(p->c.dtype == REAL_DTYPE || (p->c.dtype == dtype && !p->continues));
    CHECK(p->c.stride[1] == 1);
    CHECK(!p->continues || !p->left || p->left->data != p->c.data);
    CHECK(p->a.shape[0] == m && p->b.shape[1] == n && p->b.shape[0] == k);
    CHECK(!p->bias || (p->bias->shape[0] == n && p->bias->dtype == dtype));
    CHECK(!p->left || (p->left->shape[0] == m && p->left->shape[1] == n &&
                       p->left->stride[1] == 1));
    CHECK(!p->left || p->left->dtype == REAL_DTYPE || p->left->dtype == dtype);
    CHECK(p->accumulator == NULL || dtype == DTYPE_BF16);
    sum_order_check(p->order, k, p->continues);
}

status NAME(matmul)(struct stream *stream, const struct matmul *p)
{
    struct all_strips all = {*p, granule_chain, NULL};

    matmul_check(p, REAL_DTYPE);
    threads_run(stream->threads, matmul_body, &all);
    return OK;
}

#if REAL_BITS == 32
/* ---- narrow operands ---- */

enum { CUT_ROWS = 16 }; /* that share the columns of b, once widened */

/* Strips of neighbouring rows. */
struct cut_rows {
    struct strip s[CUT_ROWS];
    float sums[CUT_ROWS][LEAVES_MAX][STRIP];
    bool there[CUT_ROWS][LEAVES_MAX];
    int count;
};

/* From `length` on operands are +0, to the end of a block. */
static void granule_widen(const struct strip *s, int64_t first, int64_t length,
                          struct widened *out)
{
    const int64_t blocks = (length + PRODUCT_BLOCK - 1) / PRODUCT_BLOCK;
    const int64_t rows = blocks * PRODUCT_BLOCK;

    memset(out->a, 0, (size_t)rows * sizeof *out->a);
    memset(out->b, 0, (size_t)rows * sizeof *out->b);
    for (int64_t k = 0; k < length; k++) {
        out->a[k] = a_get(s, first + k);
        b_get(s, first + k, out->b[k]);
    }
}

/* A segment in every row by an accumulator of few bits. */
static void segment_cut(struct cut_rows *x, const struct sum_segment *seg)
{
    const struct accumulator *of = x->s[0].p->accumulator;
    const int64_t whole = of->promote > 0 ? of->promote : seg->length;
    const int leaf = seg->leaf;
    struct widened w;

    for (int64_t first = 0; first < seg->length; first += whole) {
        const int64_t end =
            seg->length - first < whole ? seg->length : first + whole;
        double c[CUT_ROWS][STRIP] = {{0}};

        for (int64_t k = first; k < end; k += of->granule) {
            const int64_t count = end - k < of->granule ? end - k : of->granule;

            for (int64_t i = 0; i < count; i++) {
                b_get(&x->s[0], seg->first + k + i, w.b[i]);
                for (int j = x->s[0].width; j < STRIP; j++)
                    w.b[i][j] = w.b[i][0];
            }
            for (int r = 0; r < x->count; r++) {
                for (int64_t i = 0; i < count; i++)
                    w.a[i] = a_get(&x->s[r], seg->first + k + i);
                reference_accumulate(of->bits, &w, count, c[r]);
            }
        }
        for (int r = 0; r < x->count; r++) {
            for (int j = 0; j < STRIP; j++)
                x->sums[r][leaf][j] = x->there[r][leaf]
                                          ? x->sums[r][leaf][j] + (float)c[r][j]
                                          : (float)c[r][j];
            x->there[r][leaf] = true;
        }
    }
}

static void rows_cut(struct cut_rows *x)
{
    for (int r = 0; r < x->count; r++) {
        memset(x->there[r], 0, sizeof x->there[r]);
        memset(x->sums[r], 0,
               (size_t)x->s[r].p->order->leaves * sizeof *x->sums[r]);
        strip_begin(&x->s[r], x->sums[r], x->there[r]);
    }
    for (int64_t i = 0; i < x->s[0].p->order->segment_count; i++) {
        const struct sum_segment segment = segment_of(&x->s[0], i);

        if (segment.length > 0) segment_cut(x, &segment);
    }
    for (int r = 0; r < x->count; r++)
        strip_finish(&x->s[r], x->sums[r], x->there[r]);
}

static void cut_body(void *argument, int index, int count)
{
    const struct all_strips *all = argument;
    const int64_t m = all->p.c.shape[0], n = all->p.c.shape[1];
    const int64_t strips = (n + STRIP - 1) / STRIP;
    struct cut_rows x;
    int64_t first, last;

    threads_split((m + CUT_ROWS - 1) / CUT_ROWS * strips, 1, index, count,
                  &first, &last);
    for (int64_t i = first; i < last; i++) {
        const int64_t row = i / strips * CUT_ROWS, column = i % strips * STRIP;

        x.count = (int)(m - row < CUT_ROWS ? m - row : CUT_ROWS);
        for (int r = 0; r < x.count; r++)
            x.s[r] = (struct strip){
                &all->p, row + r, column,
                (int)(n - column < STRIP ? n - column : STRIP), NULL,
                all->rows};
        rows_cut(&x);
    }
}

/* c[j] = a * b[j] + c[j], flushed. */
REAL_CLONES static void chains_fma(float a, const float *b, float *c)
{
    _Pragma("omp simd")
    for (int j = 0; j < STRIP; j++) c[j] = flushed_fma(a, b[j], c[j]);
}

/* The odd element of a pair comes first; an odd end is filled with +0. */
static void granule_pairs(const struct strip *s, int64_t first, int64_t length,
                          float *chain)
{
    struct widened w;

    granule_widen(s, first, length, &w);
    for (int j = 0; j < STRIP; j++) chain[j] = 0;
    for (int64_t k = 0; k < length; k += 2) {
        chains_fma(w.a[k + 1], w.b[k + 1], chain);
        chains_fma(w.a[k], w.b[k], chain);
    }
}

/* Blocks of PRODUCT_BLOCK elements, the last one filled with +0: two chains
 * from +0, of the even and of the odd ones, added to each other and to the
 * granule. */
static void granule_tiles(const struct strip *s, int64_t first, int64_t length,
                          float *chain)
{
    struct widened w;

    granule_widen(s, first, length, &w);
    for (int j = 0; j < STRIP; j++) chain[j] = 0;
    for (int64_t block = 0; block < length; block += PRODUCT_BLOCK) {
        float even[STRIP] = {0}, odd[STRIP] = {0};

        for (int64_t k = block; k < block + PRODUCT_BLOCK; k += 2) {
            chains_fma(w.a[k], w.b[k], even);
            chains_fma(w.a[k + 1], w.b[k + 1], odd);
        }
        for (int j = 0; j < STRIP; j++)
            chain[j] = flushed_add(chain[j], flushed_add(even[j], odd[j]));
    }
}

static void granule_widened(const struct strip *s, int64_t first,
                            int64_t length, float *chain)
{
    struct widened w;

    granule_widen(s, first, length, &w);
    for (int j = 0; j < STRIP; j++) chain[j] = 0;
    for (int64_t k = 0; k < length; k++)
        for (int j = 0; j < STRIP; j++)
            chain[j] = __builtin_fmaf(w.a[k], w.b[k][j], chain[j]);
}

status reference_matmul_bf16_pairs(struct stream *stream,
                                   const struct matmul *p)
{
    struct all_strips all = {*p, granule_pairs, NULL};

    matmul_check(p, DTYPE_BF16);
    threads_run(stream->threads,
                p->accumulator != NULL ? cut_body : matmul_body, &all);
    return OK;
}

status reference_matmul_bf16_tiles(struct stream *stream,
                                   const struct matmul *p)
{
    struct all_strips all = {*p, granule_tiles, NULL};

    matmul_check(p, DTYPE_BF16);
    threads_run(stream->threads,
                p->accumulator != NULL ? cut_body : matmul_body, &all);
    return OK;
}

status reference_matmul_f16(struct stream *stream, const struct matmul *p)
{
    struct all_strips all = {*p, granule_widened, NULL};

    matmul_check(p, DTYPE_F16);
    threads_run(stream->threads, matmul_body, &all);
    return OK;
}
#endif

void NAME(matmul_gathered)(struct stream *stream, const struct matmul *p,
                           enum granule_kind kind, const struct gathered *rows)
{
    struct all_strips all = {*p, granule_gathered, rows};

#if REAL_BITS == 32
    if (kind == GRANULE_PAIRS) all.granule = granule_pairs;
    if (kind == GRANULE_TILES) all.granule = granule_tiles;
    if (kind == GRANULE_WIDENED) all.granule = granule_widened;
    if (p->accumulator != NULL) {
        threads_run(stream->threads, cut_body, &all);
        return;
    }
#endif
    CHECK(kind == GRANULE_CHAIN || REAL_BITS == 32);
    threads_run(stream->threads, matmul_body, &all);
}
