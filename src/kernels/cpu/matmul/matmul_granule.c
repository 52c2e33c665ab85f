/* SPDX-License-Identifier: Apache-2.0 */
/* matmul_granule.c - the inner loop of the product: a granule is TILE_ROWS x
 * TILE_COLUMNS chains in registers.
 *
 * There is one copy of the code for every row count, so that a short panel
 * costs no more than its rows; and one for each way to add a word: an FMA, one
 * that flushes, or VDPBF16PS, which adds a pair of bfloat16, the odd one
 * first. */
#include <pthread.h>
#include "base/clock.h"
#include "kernels/cpu/flushing.h"
#include "kernels/cpu/matmul/matmul.h"
#include "kernels/cpu/scratch.h"

#if defined(__AVX512F__)
#include <immintrin.h>

/* Code compiled with this attribute runs on every AVX-512 processor as long as
 * it calls no instruction of the extension. */
#define EXTENDED __attribute__((target("avx512bf16")))

EXTENDED INLINE vector pairs_fma(vector a, vector b, vector sum)
{
    return (vector)_mm512_dpbf16_ps((__m512)sum, (__m512bh)a, (__m512bh)b);
}

/* gcc 12 compiles vector_fill to more than one broadcast where no arithmetic
 * follows, so the instruction is written here. */
INLINE vector words_fill(float x)
{
    return (vector)_mm512_set1_ps(x);
}

INLINE void vector_past_caches(float *to, vector x)
{
    _mm512_stream_ps(to, (__m512)x);
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

INLINE void vector_past_caches(float *to, vector x)
{
    vector_store(to, x);
}
#endif

/* Reading b is all there is to do then, and it may come from memory. */
enum { ROWS_AHEAD = 2 };

/* How a word is added: by an FMA, by one that flushes denormal numbers
 * (flushing.h), or a pair by VDPBF16PS. */
enum chain { CHAIN_FMA, CHAIN_FLUSHES, CHAIN_PAIRS };

#if MODE_FLUSHES
INLINE unsigned modes_now(void)
{
    return _mm_getcsr();
}

/* From here on the sums are made with these modes. */
INLINE void modes_set(const int rows, unsigned modes,
                      vector (*sum)[TILE_VECTORS])
{
    UNROLL for (int i = 0; i < rows; i++)
        UNROLL for (int v = 0; v < TILE_VECTORS; v++) FLUSHING_PIN(sum[i][v]);
    flushing_set(modes);
    UNROLL for (int i = 0; i < rows; i++)
        UNROLL for (int v = 0; v < TILE_VECTORS; v++) FLUSHING_PIN(sum[i][v]);
}
#else
enum { FLUSH_TO_ZERO, DENORMALS_ARE_ZERO };

INLINE unsigned modes_now(void)
{
    return 0;
}

/* Never called: such chains are in matmul_narrow.c. */
INLINE void modes_set(const int rows, unsigned modes,
                      vector (*sum)[TILE_VECTORS])
{
    (void)rows, (void)modes, (void)sum;
}
#endif

/* How the words of a panel lie: packed; each in a row of memory, far from the
 * next; or row by row. */
enum form { FORM_PACKED, FORM_FAR, FORM_ROWS };

enum { WORDS_AHEAD = 12 }; /* of FORM_FAR: no processor guesses them all */

struct panel_words {
    const char *first[ROWS_GROUPS]; /* FORM_ROWS; else the first is the word */
    int64_t apart[ROWS_GROUP], step;
    const char *ahead[AHEAD_OPERANDS]; /* unless FORM_PACKED */
};

INLINE struct panel_words panel_words(const enum form form,
                                      const struct matmul_granule *g)
{
    struct panel_words a = {.first = {(const char *)g->a},
                            .step = g->a_word * (int64_t)sizeof *g->a};

    UNROLL for (int i = 0; i < AHEAD_OPERANDS; i++)
        a.ahead[i] = g->ahead[i].from;

    if (form != FORM_ROWS) return a;
    a.step = sizeof *g->a;
    UNROLL for (int i = 0; i < ROWS_GROUPS; i++)
        a.first[i] = g->in_rows->first[i];
    UNROLL for (int i = 1; i < ROWS_GROUP; i++)
        a.apart[i] = g->in_rows->apart[i];
    return a;
}

/* The word of row i. */
INLINE float word_of(const enum form form, const struct panel_words *a, int i)
{
    const char *at = form == FORM_ROWS
                         ? a->first[i / ROWS_GROUP] + a->apart[i % ROWS_GROUP]
                         : a->first[0] + i * (int)sizeof(float);
    float word;

    memcpy(&word, at, sizeof word);
    return word;
}

INLINE void words_next(const int rows, const enum form form,
                       const struct matmul_granule *g, struct panel_words *a)
{
    const int groups = form == FORM_ROWS
                           ? (rows + ROWS_GROUP - 1) / ROWS_GROUP : 1;

    if (form == FORM_FAR) {
        __builtin_prefetch(a->first[0] + WORDS_AHEAD * a->step);
        __builtin_prefetch(a->first[0] + WORDS_AHEAD * a->step +
                           (rows - 1) * (int)sizeof(float));
    }
    UNROLL for (int i = 0; i < AHEAD_OPERANDS && form != FORM_PACKED; i++) {
        __builtin_prefetch(a->ahead[i], 0, 2);
        a->ahead[i] += g->ahead[i].step;
    }
    UNROLL for (int i = 0; i < groups; i++) a->first[i] += a->step;
}

/* sum = tile + sum. */
EXTENDED INLINE void tile_before(const int rows, const float *tile,
                                 int64_t stride, vector (*sum)[TILE_VECTORS])
{
    UNROLL for (int i = 0; i < rows; i++)
        UNROLL for (int v = 0; v < TILE_VECTORS; v++)
            sum[i][v] = vector_load(tile + i * stride + v * WIDTH) + sum[i][v];
}

/* Past the caches, where `past_caches` is true: whole lines, so that nothing
 * has to be read first. */
EXTENDED INLINE void sums_put(const int rows, const bool past_caches,
                              const struct matmul_granule *g,
                              vector (*sum)[TILE_VECTORS])
{
    UNROLL for (int i = 0; i < rows; i++)
        UNROLL for (int v = 0; v < TILE_VECTORS; v++) {
            float *at = g->to + i * g->stride + v * WIDTH;

            if (past_caches) vector_past_caches(at, sum[i][v]);
            else vector_store(at, sum[i][v]);
        }
}

EXTENDED INLINE void sums_store(const int rows, const struct matmul_granule *g,
                                vector (*sum)[TILE_VECTORS])
{
    for (int i = 0; i < g->count; i++)
        tile_before(rows, g->top - i * TILE, TILE_COLUMNS, sum);
    if (g->below) tile_before(rows, g->below, g->below_stride, sum);
    if (g->left) tile_before(rows, g->left, g->left_stride, sum);
    if (g->past_caches) sums_put(rows, true, g, sum);
    else sums_put(rows, false, g, sum);
}

/* Chains over the words, and what is added to them. */
EXTENDED INLINE void granule(const int rows, const enum chain chain,
                             const enum form form,
                             const struct matmul_granule *g)
{
    const unsigned modes = chain == CHAIN_FLUSHES ? modes_now() : 0;
    vector sum[TILE_ROWS][TILE_VECTORS];
    struct panel_words a = panel_words(form, g);
    const float *restrict b = (const float *)g->b;
    const int64_t b_word = form == FORM_FAR ? g->b_word : TILE_COLUMNS;

    UNROLL for (int i = 0; i < rows; i++) {
        UNROLL for (int v = 0; v < TILE_VECTORS; v++)
            sum[i][v] = vector_fill(0);
        if (g->past_caches) continue;
        __builtin_prefetch(g->to + i * g->stride, 1);
        __builtin_prefetch(g->to + i * g->stride + TILE_COLUMNS - 1, 1);
    }
    if (chain == CHAIN_FLUSHES)
        modes_set(rows, modes | FLUSH_TO_ZERO | DENORMALS_ARE_ZERO, sum);
    for (int w = 0; w < g->words; w++) {
        vector row[TILE_VECTORS];

        if (rows <= ROWS_AHEAD) matmul_ahead(b);

        UNROLL for (int v = 0; v < TILE_VECTORS; v++)
            row[v] = vector_load(b + v * WIDTH);
        UNROLL for (int i = 0; i < rows; i++) {
            vector x = words_fill(word_of(form, &a, i));

            UNROLL for (int v = 0; v < TILE_VECTORS; v++)
                sum[i][v] = chain == CHAIN_PAIRS
                                ? pairs_fma(x, row[v], sum[i][v])
                                : vector_fma(x, row[v], sum[i][v]);
        }
        words_next(rows, form, g, &a);
        if (form == FORM_FAR)
            UNROLL for (int v = 0; v < TILE_VECTORS; v++)
                __builtin_prefetch(b + WORDS_AHEAD * b_word + v * WIDTH);
        b += b_word;
    }
    if (chain == CHAIN_FLUSHES) modes_set(rows, modes, sum);
    sums_store(rows, g, sum);
}

typedef void granule_of_rows(const struct matmul_granule *g);

#define ROWS_OF(name, n, pairs, form)                                        \
    __attribute__((noinline)) EXTENDED static void name##_##n(               \
        const struct matmul_granule *g)                                      \
    {                                                                        \
        granule(n, pairs, form, g);                                          \
    }
#define NAME_OF(name, n, pairs, form) name##_##n,
#define SIX_ROW_COUNTS(X, name, p, form)                                     \
    X(name, 1, p, form) X(name, 2, p, form) X(name, 3, p, form)              \
    X(name, 4, p, form) X(name, 5, p, form) X(name, 6, p, form)
#if defined(__AVX512F__)
#define EACH_ROW_COUNT(X, name, p, form)                                     \
    SIX_ROW_COUNTS(X, name, p, form)                                         \
    X(name, 7, p, form) X(name, 8, p, form) X(name, 9, p, form)              \
    X(name, 10, p, form) X(name, 11, p, form) X(name, 12, p, form)           \
    X(name, 13, p, form) X(name, 14, p, form)
#else
#define EACH_ROW_COUNT(X, name, p, form) SIX_ROW_COUNTS(X, name, p, form)
#endif

EACH_ROW_COUNT(ROWS_OF, chains, CHAIN_FMA, FORM_PACKED)
EACH_ROW_COUNT(ROWS_OF, far, CHAIN_FMA, FORM_FAR)
EACH_ROW_COUNT(ROWS_OF, in_rows, CHAIN_FMA, FORM_ROWS)

static granule_of_rows *const chains[TILE_ROWS + 1] = {
    NULL, EACH_ROW_COUNT(NAME_OF, chains, CHAIN_FMA, FORM_PACKED)};
static granule_of_rows *const far[TILE_ROWS + 1] = {
    NULL, EACH_ROW_COUNT(NAME_OF, far, CHAIN_FMA, FORM_FAR)};
static granule_of_rows *const in_rows[TILE_ROWS + 1] = {
    NULL, EACH_ROW_COUNT(NAME_OF, in_rows, CHAIN_FMA, FORM_ROWS)};

void CPU(matmul_chains)(const struct matmul_granule *g)
{
    if (g->in_rows) in_rows[g->rows](g);
    else if (g->a_word > TILE_ROWS || g->b_word != TILE_COLUMNS)
        far[g->rows](g);
    else chains[g->rows](g);
}

#if MODE_FLUSHES
EACH_ROW_COUNT(ROWS_OF, flushing, CHAIN_FLUSHES, FORM_PACKED)

static granule_of_rows *const flushing[TILE_ROWS + 1] = {
    NULL, EACH_ROW_COUNT(NAME_OF, flushing, CHAIN_FLUSHES, FORM_PACKED)};

void CPU(matmul_chains_flushing)(const struct matmul_granule *g)
{
    flushing[g->rows](g);
}
#endif

#if defined(__AVX512F__)
EACH_ROW_COUNT(ROWS_OF, pairs, CHAIN_PAIRS, FORM_PACKED)

static granule_of_rows *const pairs[TILE_ROWS + 1] = {
    NULL, EACH_ROW_COUNT(NAME_OF, pairs, CHAIN_PAIRS, FORM_PACKED)};

static void granule_pairs(const struct matmul_granule *g)
{
    pairs[g->rows](g);
}

static double granule_seconds(granule_of_rows *of, struct matmul_granule *g)
{
    double best = 1;

    for (int i = 0; i < 8; i++) {
        const double before = clock_s();
        double took;

        of(g);
        took = clock_s() - before;
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
    struct matmul_granule g = {
        .a = a, .b = b, .a_word = TILE_ROWS, .words = WORDS, .rows = TILE_ROWS,
        .to = sums, .stride = TILE_COLUMNS, .assign = true};

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
    .rows = TILE_ROWS, .grain = 2, .per_word = 2, .slab_words = MATMUL_SLAB,
    .panels = MATMUL_PANELS, .together = 1, .merges = true,
    .pack_rows = CPU(matmul_rows_pairs),
    .pack_columns = CPU(matmul_columns_pairs), .granule = granule_pairs,
    .few = CPU(matmul_few_pairs), .line = CPU(matmul_line_pairs)};
#endif
