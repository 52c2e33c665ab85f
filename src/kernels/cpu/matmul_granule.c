/* SPDX-License-Identifier: Apache-2.0 */
/* matmul_granule.c - the inner loop of the product: a granule is TILE_ROWS x
 * TILE_COLUMNS chains in registers.
 *
 * There is one copy of the code for every row count, so that a short panel
 * costs no more than its rows; and one for each way to add a word: an FMA, or
 * VDPBF16PS, which adds a pair of bfloat16, the odd one first. */
#include <pthread.h>
#include <time.h>
#include "kernels/cpu/matmul.h"
#include "kernels/cpu/scratch.h"

#if defined(__AVX512F__)
#include <immintrin.h>

/* What is compiled with it runs on every AVX-512 processor as long as it calls
 * no instruction of it. */
#define EXTENDED __attribute__((target("avx512bf16")))

EXTENDED INLINE vector pairs_fma(vector a, vector b, vector sum)
{
    return (vector)_mm512_dpbf16_ps((__m512)sum, (__m512bh)a, (__m512bh)b);
}

/* gcc 12 does not see one broadcast in vector_fill where there is no
 * arithmetic on the result. */
INLINE vector words_fill(float x)
{
    return (vector)_mm512_set1_ps(x);
}
#else
#define EXTENDED

/* Never called: no format of other instruction sets has pairs. */
INLINE vector pairs_fma(vector a, vector b, vector sum)
{
    (void)b, (void)sum;
    return a;
}

INLINE vector words_fill(float x)
{
    return vector_fill(x);
}
#endif

/* Reading b is all there is to do then, and it may come from memory. */
enum { ROWS_AHEAD = 2 };

/* to = chains over the words, or to += them. */
EXTENDED INLINE void granule(const int rows, const bool pairs,
                             const struct matmul_granule *g)
{
    vector sum[TILE_ROWS][TILE_VECTORS];
    const float *restrict a = (const float *)g->a;
    const float *restrict b = (const float *)g->b;
    float *restrict to = g->to;

    UNROLL for (int i = 0; i < rows; i++) {
        UNROLL for (int v = 0; v < TILE_VECTORS; v++)
            sum[i][v] = vector_fill(0);
        __builtin_prefetch(to + i * g->stride, 1);
        __builtin_prefetch(to + i * g->stride + TILE_COLUMNS - 1, 1);
    }
    for (int w = 0; w < g->words; w++) {
        vector row[TILE_VECTORS];

        if (rows <= ROWS_AHEAD) matmul_ahead(b);

        UNROLL for (int v = 0; v < TILE_VECTORS; v++)
            row[v] = vector_load(b + v * WIDTH);
        UNROLL for (int i = 0; i < rows; i++) {
            vector x = words_fill(a[i]);

            UNROLL for (int v = 0; v < TILE_VECTORS; v++)
                sum[i][v] = pairs ? pairs_fma(x, row[v], sum[i][v])
                                  : vector_fma(x, row[v], sum[i][v]);
        }
        a += TILE_ROWS;
        b += TILE_COLUMNS;
    }
    UNROLL for (int i = 0; i < rows; i++) {
        UNROLL for (int v = 0; v < TILE_VECTORS; v++) {
            float *at = to + i * g->stride + v * WIDTH;

            vector_store(at, g->assign ? sum[i][v]
                                       : vector_load(at) + sum[i][v]);
        }
    }
}

typedef void granule_of_rows(const struct matmul_granule *g);

#define ROWS_OF(name, n, pairs)                                              \
    __attribute__((noinline)) EXTENDED static void name##_##n(               \
        const struct matmul_granule *g)                                      \
    {                                                                        \
        granule(n, pairs, g);                                                \
    }
#define NAME_OF(name, n, pairs) name##_##n,
#if defined(__AVX512F__)
#define EACH_ROW_COUNT(X, name, pairs)                                       \
    X(name, 1, pairs) X(name, 2, pairs) X(name, 3, pairs) X(name, 4, pairs)  \
    X(name, 5, pairs) X(name, 6, pairs) X(name, 7, pairs) X(name, 8, pairs)  \
    X(name, 9, pairs) X(name, 10, pairs) X(name, 11, pairs)                  \
    X(name, 12, pairs) X(name, 13, pairs) X(name, 14, pairs)
#else
#define EACH_ROW_COUNT(X, name, pairs)                                       \
    X(name, 1, pairs) X(name, 2, pairs) X(name, 3, pairs) X(name, 4, pairs)  \
    X(name, 5, pairs) X(name, 6, pairs)
#endif

EACH_ROW_COUNT(ROWS_OF, chains, false)

static granule_of_rows *const chains[TILE_ROWS + 1] = {
    NULL, EACH_ROW_COUNT(NAME_OF, chains, false)};

void CPU(matmul_chains)(const struct matmul_granule *g)
{
    chains[g->rows](g);
}

#if defined(__AVX512F__)
EACH_ROW_COUNT(ROWS_OF, pairs, true)

static granule_of_rows *const pairs[TILE_ROWS + 1] = {
    NULL, EACH_ROW_COUNT(NAME_OF, pairs, true)};

static void granule_pairs(const struct matmul_granule *g)
{
    pairs[g->rows](g);
}

static double granule_seconds(granule_of_rows *of, struct matmul_granule *g)
{
    double best = 1;

    for (int i = 0; i < 8; i++) {
        struct timespec before, after;
        double took;

        clock_gettime(CLOCK_MONOTONIC, &before);
        of(g);
        clock_gettime(CLOCK_MONOTONIC, &after);
        took = (double)(after.tv_sec - before.tv_sec) +
               1e-9 * (double)(after.tv_nsec - before.tv_nsec);
        if (took < best) best = took;
    }
    return best;
}

static bool pairs_pay;

/* The sums are thrown away, so what the words hold does not matter. */
static void pairs_time(void)
{
    enum { WORDS = GRANULE };
    static uint32_t a[WORDS * TILE_ROWS], b[WORDS * TILE_COLUMNS];
    static float sums[TILE];
    struct matmul_granule g = {a, b, WORDS, TILE_ROWS, sums, TILE_COLUMNS,
                               true};

    pairs_pay = granule_seconds(chains[TILE_ROWS], &g) * 2 >
                granule_seconds(pairs[TILE_ROWS], &g);
}

/* Intel's Sapphire Rapids takes four times as long for VDPBF16PS as for an FMA,
 * AMD's Zen 4 as long. Asked once; the bits do not show the answer. */
bool CPU(matmul_pairs_pay)(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    pthread_once(&once, pairs_time);
    return pairs_pay;
}

const struct matmul_format CPU(format_pairs) = {
    .rows = TILE_ROWS, .grain = 2, .per_word = 2, .chunk_words = MATMUL_CHUNK,
    .panels = MATMUL_PANELS, .together = 1, .pack_rows = CPU(matmul_rows_pairs),
    .pack_columns = CPU(matmul_columns_pairs), .granule = granule_pairs,
    .few = CPU(matmul_few_pairs), .line = CPU(matmul_line_pairs)};
#endif
