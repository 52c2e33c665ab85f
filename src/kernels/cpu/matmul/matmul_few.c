/* SPDX-License-Identifier: Apache-2.0 */
/* matmul_few.c - granules of very few rows, with b as it lies in memory.
 *
 * Reading b is all there is to do then: squares of WIDTH words are loaded,
 * transposed in registers and used at once, so that lanes are columns and every
 * chain is in its order. The contracted dimension of b is contiguous; or b is a
 * strip of words already. */
#include "kernels/cpu/matmul/matmul.h"

#if defined(__AVX2__)
#include <immintrin.h>
#endif

#if defined(__AVX512F__)
#define EXTENDED __attribute__((target("avx512bf16")))

EXTENDED INLINE vector pairs_fma(float a, vector b, vector sum)
{
    return (vector)_mm512_dpbf16_ps((__m512)sum, (__m512bh)_mm512_set1_ps(a),
                                    (__m512bh)b);
}
#else
#define EXTENDED

INLINE vector pairs_fma(float a, vector b, vector sum)
{
    (void)a, (void)b;
    return sum;
}
#endif

/* How a word of b is added: as float32, as a pair by VDPBF16PS, or as a pair by
 * two FMAs, the odd element first. */
enum adding { ADD_F32, ADD_PAIRS, ADD_WIDENED };

/* sum[i] += word w of the rows of a times a row of the transposed square; an
 * even element is `apart` floats behind the odd one. */
EXTENDED INLINE void word_add(const int rows, const enum adding how,
                              const int apart, const float *a, vector b,
                              vector *sum)
{
    const vector even = vector_even(b);
    const vector odd = vector_odd(b);

    UNROLL for (int i = 0; i < rows; i++) {
        if (how == ADD_F32)
            sum[i] = vector_fma_lanes(a[i], b, sum[i]);
        if (how == ADD_PAIRS) sum[i] = pairs_fma(a[i], b, sum[i]);
        if (how == ADD_WIDENED) {
            sum[i] = vector_fma_lanes(a[i], odd, sum[i]);
            sum[i] = vector_fma_lanes(a[apart + i], even, sum[i]);
        }
    }
}

/* Words [w, w + WIDTH) of WIDTH columns. */
EXTENDED INLINE void square_add(const int rows, const enum adding how,
                                const struct matmul_few *f, int column, int w,
                                vector *sum)
{
    const int per_word = how == ADD_WIDENED ? 2 : 1; /* words of a */
    const float *a = (const float *)f->a + w * per_word * TILE_ROWS;
    const char *from = f->b + column * f->stride + 4 * w;
    const char *next = f->next + column * f->stride + 4 * w;
    vector square[WIDTH];

    UNROLL for (int j = 0; j < WIDTH; j++) {
        square[j] = vector_load_words(from + j * f->stride);
        __builtin_prefetch(next + j * f->stride, 0, 2);
    }
    vector_transpose(square);
    UNROLL for (int j = 0; j < WIDTH; j++)
        word_add(rows, how, TILE_ROWS, a + j * per_word * TILE_ROWS, square[j],
                 sum);
}

/* Adds the rest of a granule, word by word. */
EXTENDED INLINE void words_add(const int rows, const enum adding how,
                               const struct matmul_few *f, int column, int w,
                               vector *sum)
{
    const int per_word = how == ADD_WIDENED ? 2 : 1;
    const int size = how == ADD_F32 ? 4 : 2;

    for (; w * 4 < f->length * size; w++) {
        const float *a = (const float *)f->a + w * per_word * TILE_ROWS;
        int bytes = f->length * size - 4 * w;
        uint32_t column_words[WIDTH] = {0};

        for (int j = 0; j < WIDTH; j++)
            memcpy(&column_words[j], f->b + (column + j) * f->stride + 4 * w,
                   bytes < 4 ? 2 : 4);
        word_add(rows, how, TILE_ROWS, a, vector_load_words(column_words),
                 sum);
    }
}

/* All words of a strip, one row of them after the other. */
EXTENDED INLINE void strip_add(const int rows, const enum adding how,
                               const struct matmul_few *f,
                               vector (*sum)[FEW_GROUP])
{
    const int per_word = how == ADD_WIDENED ? 2 : 1;
    const float *a = (const float *)f->a;
    const char *from = f->b;

    for (int w = 0; w < f->length / 2; w++) {
        matmul_ahead(from);
        UNROLL for (int v = 0; v < TILE_VECTORS; v++)
            word_add(rows, how, TILE_ROWS, a,
                     vector_load_words(from + v * WIDTH * 4), sum[v]);
        a += per_word * TILE_ROWS;
        from += TILE_COLUMNS * 4;
    }
}

/* Columns side by side: while one of them waits for its chain, the other's
 * square is turned. */
EXTENDED INLINE void few(const int rows, const enum adding how,
                         const struct matmul_few *f)
{
    const int whole = f->length * (how == ADD_F32 ? 4 : 2) / 4;
    vector sum[TILE_VECTORS][FEW_GROUP];
    int w = 0;

    UNROLL for (int v = 0; v < TILE_VECTORS; v++)
        UNROLL for (int i = 0; i < rows; i++) sum[v][i] = vector_fill(0);
    if (f->stride == 0) {
        strip_add(rows, how, f, sum);
    } else {
        for (; w + WIDTH <= whole; w += WIDTH)
            UNROLL for (int v = 0; v < TILE_VECTORS; v++)
                square_add(rows, how, f, v * WIDTH, w, sum[v]);
        UNROLL for (int v = 0; v < TILE_VECTORS; v++)
            words_add(rows, how, f, v * WIDTH, w, sum[v]);
    }
    UNROLL for (int i = 0; i < rows; i++)
        UNROLL for (int v = 0; v < TILE_VECTORS; v++)
            vector_store(f->to + i * TILE_COLUMNS + v * WIDTH, sum[v][i]);
}

#define FEW_OF(name, n, how)                                             \
    __attribute__((noinline)) EXTENDED static void name##_##n(           \
        const struct matmul_few *f)                                      \
    {                                                                    \
        few(n, how, f);                                                  \
    }
#define FEW(name, how)                                                   \
    FEW_OF(name, 1, how) FEW_OF(name, 2, how) FEW_OF(name, 3, how)       \
    FEW_OF(name, 4, how)                                                 \
    static void few_##name(const struct matmul_few *f)                   \
    {                                                                    \
        if (f->rows == 1) name##_1(f);                                   \
        else if (f->rows == 2) name##_2(f);                              \
        else if (f->rows == 3) name##_3(f);                              \
        else name##_4(f);                                                \
    }

/* Words [first, first + count) of strips side by side; what lies at `ahead` is
 * asked for meanwhile. */
struct stretch {
    const char *from, *ahead;
    int first, count;
};
EXTENDED INLINE void line_words(const int strips, const int vectors,
                                const enum adding how,
                                const struct matmul_line *l, struct stretch at,
                                vector (*sum)[TILE_VECTORS])
{
    enum { ROW = TILE_COLUMNS * 4 };
    const int per_word = how == ADD_WIDENED ? 2 : 1; /* words of a */
    const float *a = (const float *)l->a + at.first * per_word;

    for (int w = 0; w < at.count; w++) {
        UNROLL for (int s = 0; s < strips; s++) {
            const char *from = at.from + s * l->apart;

            UNROLL for (int line = 0; line < ROW; line += LINE)
                __builtin_prefetch(at.ahead + s * l->apart + line, 0, 2);
            UNROLL for (int v = 0; v < vectors; v++)
                word_add(1, how, 1, a, vector_load_words(from + v * WIDTH * 4),
                         &sum[s][v]);
        }
        a += per_word;
        at.from += ROW;
        at.ahead += ROW;
    }
}

/* A granule of one row, adjacent elements of a, and strips side by side or some
 * vectors of one. */
EXTENDED INLINE void line(const int strips, const int vectors,
                          const enum adding how, const struct matmul_line *l)
{
    enum { ROW = TILE_COLUMNS * 4, AHEAD = 1024 / ROW /* words */ };
    const int count = how == ADD_F32 ? l->length : l->length / 2;
    const int own = count > AHEAD ? count - AHEAD : 0;
    const struct stretch begin = {l->b, l->b + AHEAD * ROW, 0, own};
    const struct stretch end = {l->b + own * ROW, l->next, own, count - own};
    vector sum[LINE_STRIPS][TILE_VECTORS];

    UNROLL for (int s = 0; s < strips; s++)
        UNROLL for (int v = 0; v < vectors; v++) sum[s][v] = vector_fill(0);
    line_words(strips, vectors, how, l, begin, sum);
    line_words(strips, vectors, how, l, end, sum);
    UNROLL for (int s = 0; s < strips; s++)
        UNROLL for (int v = 0; v < vectors; v++)
            vector_store(l->to + (s * vectors + v) * WIDTH, sum[s][v]);
}

#define LINE_OF(name, strips, vectors, how)                              \
    __attribute__((noinline)) EXTENDED static void                       \
        line_##name##_##strips##_##vectors(const struct matmul_line *l)  \
    {                                                                    \
        line(strips, vectors, how, l);                                   \
    }
#if !defined(__AVX2__) /* TILE_VECTORS is 3 */
#define LINE(name, how)                                                  \
    LINE_OF(name, 1, 1, how) LINE_OF(name, 1, 2, how)                    \
    LINE_OF(name, 1, 3, how) LINE_OF(name, 2, 3, how)                    \
    void CPU(matmul_line_##name)(const struct matmul_line *l)            \
    {                                                                    \
        if (l->strips == 2) line_##name##_2_3(l);                        \
        else if (l->vectors == 3) line_##name##_1_3(l);                  \
        else if (l->vectors == 2) line_##name##_1_2(l);                  \
        else line_##name##_1_1(l);                                       \
    }
#else
#define LINE(name, how)                                                  \
    LINE_OF(name, 1, 1, how) LINE_OF(name, 1, 2, how)                    \
    LINE_OF(name, 2, 2, how) LINE_OF(name, 4, 2, how)                    \
    void CPU(matmul_line_##name)(const struct matmul_line *l)            \
    {                                                                    \
        if (l->strips == 4) line_##name##_4_2(l);                        \
        else if (l->strips == 2) line_##name##_2_2(l);                   \
        else if (l->vectors == 2) line_##name##_1_2(l);                  \
        else line_##name##_1_1(l);                                       \
    }
#endif

FEW(f32, ADD_F32)
LINE(f32, ADD_F32)

void CPU(matmul_few_f32)(const struct matmul_few *f)
{
    few_f32(f);
}

#if defined(__AVX2__) /* where chains can flush */
FEW(widened, ADD_WIDENED)
LINE(widened, ADD_WIDENED)

void CPU(matmul_few_widened)(const struct matmul_few *f)
{
    few_widened(f);
}
#endif

#if defined(__AVX512F__)
FEW(pairs, ADD_PAIRS)
LINE(pairs, ADD_PAIRS)

void CPU(matmul_few_pairs)(const struct matmul_few *f)
{
    few_pairs(f);
}
#endif
