/* SPDX-License-Identifier: Apache-2.0 */
/* integers.c - products of int8 and ternary codes.
 *
 * b is packed in strips of COLUMNS columns. Where there are instructions for
 * bytes, a word has four neighbours of a column, plus 1 so that they have no
 * sign (0, 1, 2), as VPDPBUSD and VPMADDUBSW want one operand:
 *
 *   sum of (b + 1) a = sum of b a + sum of a
 *
 * and the sum of a row of a, made once, is taken away again. VPMADDUBSW adds
 * two products in 16 bits: up to 508, so 64 of them fit. Elsewhere b is widened
 * to 16 bits, where 256 products fit.
 *
 *   scratch of all threads    sums of the rows of a [m, leaves]
 *   scratch of a thread       strip of b [words, COLUMNS, 4 bytes]        */
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/scratch.h"
#include "kernels/cpu/vector.h"
#include "kernels/element.h"
#include "kernels/features.h"

extern KERNELS_TYPE(integer_product) reference_integer_product_f32;

enum { COLUMNS = 2 * WIDTH, LEVELS = 7 /* of a tree of LEAVES_MAX */ };
#if defined(__AVX512F__)
enum { PANEL = 14 };
#elif defined(__AVX2__)
enum { PANEL = 6 };
#else
enum { PANEL = 4 };
#endif

/* Rows of a and a leaf of a strip. */
struct block {
    const int8_t *a[PANEL];
    const void *b;         /* packed */
    int64_t length;        /* elements of the leaf */
    int32_t (*sums)[COLUMNS];
};

#if defined(__AVX512F__)
#define BYTES_TARGET __attribute__((target("avx512vnni")))
typedef __m512i words;
#define WORDS(name) _mm512_##name
#define DOT(sum, b, a) _mm512_dpbusd_epi32(sum, b, a)
#define WORDS_LOAD(from) _mm512_loadu_si512(from)
#define WORDS_STORE(to, x) _mm512_storeu_si512(to, x)
#define WORDS_ZERO() _mm512_setzero_si512()
#elif defined(__AVX2__)
#define BYTES_TARGET __attribute__((target("avxvnni")))
typedef __m256i words;
#define WORDS(name) _mm256_##name
#define DOT(sum, b, a) _mm256_dpbusd_avx_epi32(sum, b, a)
#define WORDS_LOAD(from) _mm256_loadu_si256((const __m256i *)(from))
#define WORDS_STORE(to, x) _mm256_storeu_si256((__m256i *)(to), x)
#define WORDS_ZERO() _mm256_setzero_si256()
#endif

#if defined(__AVX2__)
/* Four bytes of a row; the last one of a leaf may have fewer, then zeros. */
INLINE int32_t word_whole(const int8_t *a)
{
    int32_t word;

    memcpy(&word, a, sizeof word);
    return word;
}

static int32_t word_last(const int8_t *a, int64_t count)
{
    int32_t word = 0;

    for (int64_t i = 0; i < count; i++)
        word |= (int32_t)((uint32_t)(uint8_t)a[i] << 8 * i);
    return word;
}

enum { RUN = 64 }; /* sums of two products that fit into 16 bits */

/* Sums of a panel: in registers between two functions that move them. */
#define SUMS_LOAD(sum, from)                                               \
    UNROLL for (int i = 0; i < PANEL; i++)                                 \
    {                                                                      \
        sum[i][0] = WORDS_LOAD(from[i]);                                   \
        sum[i][1] = WORDS_LOAD(from[i] + WIDTH);                           \
    }
#define SUMS_STORE(to, sum)                                                \
    UNROLL for (int i = 0; i < PANEL; i++)                                 \
    {                                                                      \
        WORDS_STORE(to[i], sum[i][0]);                                     \
        WORDS_STORE(to[i] + WIDTH, sum[i][1]);                             \
    }

/* Adds the whole words of the leaf. */
BYTES_TARGET static void block_bytes(const struct block *x)
{
    const char *b = x->b;
    words sum[PANEL][2];

    UNROLL for (int i = 0; i < PANEL; i++)
        sum[i][0] = sum[i][1] = WORDS_ZERO();
    for (int64_t k = 0; k + 4 <= x->length; k += 4, b += 4 * COLUMNS) {
        const words b0 = WORDS_LOAD(b), b1 = WORDS_LOAD(b + 4 * WIDTH);

        UNROLL for (int i = 0; i < PANEL; i++) {
            const words a = WORDS(set1_epi32)(word_whole(x->a[i] + k));

            sum[i][0] = DOT(sum[i][0], b0, a);
            sum[i][1] = DOT(sum[i][1], b1, a);
        }
    }
    SUMS_STORE(x->sums, sum)
}

/* Adds pairs up in two instructions: a run of words, whose sums are in 16 bits
 * until it ends. */
static void run_pairs(const struct block *x, int64_t first, int64_t end)
{
    const words ones = WORDS(set1_epi16)(1);
    const char *b = (const char *)x->b + first * COLUMNS;
    words sum[PANEL][2], all[PANEL][2];

    UNROLL for (int i = 0; i < PANEL; i++)
        sum[i][0] = sum[i][1] = WORDS_ZERO();
    for (int64_t k = first; k < end; k += 4, b += 4 * COLUMNS) {
        const words b0 = WORDS_LOAD(b), b1 = WORDS_LOAD(b + 4 * WIDTH);

        UNROLL for (int i = 0; i < PANEL; i++) {
            const words a = WORDS(set1_epi32)(word_whole(x->a[i] + k));

            sum[i][0] =
                WORDS(add_epi16)(sum[i][0], WORDS(maddubs_epi16)(b0, a));
            sum[i][1] =
                WORDS(add_epi16)(sum[i][1], WORDS(maddubs_epi16)(b1, a));
        }
    }
    SUMS_LOAD(all, x->sums)
    UNROLL for (int i = 0; i < PANEL; i++)
        UNROLL for (int h = 0; h < 2; h++)
            all[i][h] = WORDS(add_epi32)(
                all[i][h], WORDS(madd_epi16)(sum[i][h], ones));
    SUMS_STORE(x->sums, all)
}

static void block_pairs(const struct block *x)
{
    const int64_t whole = x->length / 4 * 4;

    memset(x->sums, 0, PANEL * sizeof *x->sums);
    for (int64_t k = 0; k < whole; k += 4 * RUN)
        run_pairs(x, k, k + 4 * RUN < whole ? k + 4 * RUN : whole);
}

/* The last one to three elements of the leaf. */
static void block_rest(const struct block *x)
{
    const words ones = WORDS(set1_epi16)(1);
    const int64_t k = x->length / 4 * 4;
    const char *b = (const char *)x->b + k * COLUMNS;
    words sum[PANEL][2];

    if (k == x->length) return;
    SUMS_LOAD(sum, x->sums)
    for (int i = 0; i < PANEL; i++) {
        const words a =
            WORDS(set1_epi32)(word_last(x->a[i] + k, x->length - k));

        for (int h = 0; h < 2; h++) {
            const words pairs = WORDS(maddubs_epi16)(
                WORDS_LOAD(b + 4 * WIDTH * h), a);

            sum[i][h] = WORDS(add_epi32)(sum[i][h],
                                         WORDS(madd_epi16)(pairs, ones));
        }
    }
    SUMS_STORE(x->sums, sum)
}

/* Four elements of a column, each plus 1. */
INLINE uint32_t lifted(uint32_t codes)
{
    const uint32_t ones = 0x01010101u;

    return ones + (codes & ones) - 2 * (codes >> 7 & ones);
}

static void leaf_pack(const struct integer_product *p, int64_t column,
                      int64_t columns, const struct sum_segment *leaf,
                      char *out)
{
    for (int64_t j = 0; j < COLUMNS; j++) {
        const int8_t *b = (const int8_t *)p->b.data +
                          (column + (j < columns ? j : 0)) * p->b.stride[0] +
                          leaf->first;
        char *to = out + 4 * j;

        for (int64_t k = 0; k < leaf->length; k += 4, to += 4 * COLUMNS) {
            const int64_t left = leaf->length - k;
            const uint32_t word = lifted((uint32_t)(
                left >= 4 ? word_whole(b + k) : word_last(b + k, left)));

            memcpy(to, &word, 4);
        }
    }
}

enum { LIFT = 1, WORD_ELEMENTS = 4, WORD_BYTES = 4 };

static void block_sum(const struct block *x, bool bytes)
{
    if (bytes) block_bytes(x);
    else block_pairs(x);
    block_rest(x);
}

static bool has_bytes(void)
{
#if defined(__AVX512F__)
    return features_bytes_wide();
#else
    return features_bytes();
#endif
}
#else
enum { RUN = 256, LIFT = 0, WORD_ELEMENTS = 1, WORD_BYTES = 2 };

static void block_sum(const struct block *x, bool bytes)
{
    const int16_t *b = x->b;

    (void)bytes;
    memset(x->sums, 0, PANEL * sizeof *x->sums);
    for (int64_t k = 0; k < x->length; k += RUN) {
        const int64_t end = k + RUN < x->length ? k + RUN : x->length;

        for (int i = 0; i < PANEL; i++) {
            int16_t sum[COLUMNS] = {0};

            for (int64_t e = k; e < end; e++) {
                const int16_t a = x->a[i][e];

                SIMD for (int j = 0; j < COLUMNS; j++)
                    sum[j] = (int16_t)(sum[j] + a * b[e * COLUMNS + j]);
            }
            SIMD for (int j = 0; j < COLUMNS; j++) x->sums[i][j] += sum[j];
        }
    }
}

static void leaf_pack(const struct integer_product *p, int64_t column,
                      int64_t columns, const struct sum_segment *leaf,
                      char *out)
{
    int16_t *to = (int16_t *)(void *)out;

    for (int64_t k = 0; k < leaf->length; k++)
        for (int64_t j = 0; j < COLUMNS; j++)
            to[k * COLUMNS + j] =
                j < columns ? ((const int8_t *)p->b.data)
                                  [(column + j) * p->b.stride[0] +
                                   leaf->first + k]
                            : 0;
}

static bool has_bytes(void)
{
    return false;
}
#endif

/* ---- the call ---- */

struct job {
    const struct integer_product *p;
    int32_t *row_sums;     /* [m, leaves] */
    char *scratch;         /* of the threads */
    size_t strip_bytes;
    bool bytes;            /* by VPDPBUSD */
};

static size_t leaf_bytes(const struct sum_segment *leaf)
{
    const int64_t count =
        (leaf->length + WORD_ELEMENTS - 1) / WORD_ELEMENTS;

    return (size_t)(count * COLUMNS * WORD_BYTES);
}

static void sums_body(void *argument, int index, int count)
{
    const struct job *job = argument;
    const struct integer_product *p = job->p;
    const int leaves = p->order->leaves;
    int64_t first, last;

    threads_split(p->c.shape[0], 1, index, count, &first, &last);
    for (int64_t i = first; i < last; i++)
        for (int leaf = 0; leaf < leaves; leaf++) {
            const struct sum_segment s = p->order->segments[leaf];
            const int8_t *a =
                (const int8_t *)p->a.data + i * p->a.stride[0] + s.first;
            int32_t sum = 0;

            _Pragma("omp simd reduction(+ : sum)")
            for (int64_t k = 0; k < s.length; k++) sum += a[k];
            job->row_sums[i * leaves + leaf] = sum;
        }
}

/* A panel of rows in a strip of columns. */
struct panel {
    int64_t row, rows, column, columns;
};

/* v of a leaf, and the tree as far as it is complete: node n is at `depth`. */
static void leaf_values(const struct job *job, const struct panel *x, int leaf,
                        int32_t (*sums)[COLUMNS], float (*v)[COLUMNS])
{
    const struct integer_product *p = job->p;
    const int leaves = p->order->leaves;
    float scales[COLUMNS] = {0};

    for (int64_t j = 0; j < x->columns; j++)
        scales[j] = p->b_scales[(x->column + j) * leaves + leaf];
    for (int64_t i = 0; i < x->rows; i++) {
        const int64_t at = (x->row + i) * leaves + leaf;
        const float scale = p->a_scales[at];
        const int32_t lift = LIFT ? job->row_sums[at] : 0;

        SIMD for (int j = 0; j < COLUMNS; j++)
            v[i][j] = (float)(sums[i][j] - lift) * (scale * scales[j]);
    }
}

ELEMENTARY void row_add(enum dtype dtype, const void *from, bool before,
                        int64_t count, float *v)
{
    SIMD for (int64_t j = 0; j < count; j++) {
        const float x = element_get(from, dtype, j);

        v[j] = before ? x + v[j] : v[j] + x;
    }
}

ELEMENTARY void row_write(enum dtype dtype, void *to, int64_t count,
                          const float *v)
{
    SIMD for (int64_t j = 0; j < count; j++) element_set(to, dtype, j, v[j]);
}

static void panel_finish(const struct integer_product *p,
                         const struct panel *x, float (*v)[COLUMNS])
{
    for (int64_t i = 0; i < x->rows; i++) {
        const int64_t row = x->row + i;

        if (p->bias != NULL)
            ELEMENT_CHOOSE(p->bias->dtype, row_add,
                           element_at(p->bias->data, p->bias->dtype,
                                      x->column),
                           false, x->columns, v[i]);
        if (p->left != NULL)
            ELEMENT_CHOOSE(p->left->dtype, row_add,
                           element_at(p->left->data, p->left->dtype,
                                      row * p->left->stride[0] + x->column),
                           true, x->columns, v[i]);
        ELEMENT_CHOOSE(p->c.dtype, row_write,
                       element_at(p->c.data, p->c.dtype,
                                  row * p->c.stride[0] + x->column),
                       x->columns, v[i]);
    }
}

static void nodes_add(float (*left)[COLUMNS], float (*right)[COLUMNS],
                      int64_t rows)
{
    for (int64_t i = 0; i < rows; i++)
        SIMD for (int j = 0; j < COLUMNS; j++)
            left[i][j] = left[i][j] + right[i][j];
}

static void panel_make(const struct job *job, const struct panel *x,
                       const char *strip)
{
    const struct integer_product *p = job->p;
    int32_t sums[PANEL][COLUMNS];
    float nodes[LEVELS][PANEL][COLUMNS];
    int depth = 0;

    for (int leaf = 0; leaf < p->order->leaves; leaf++) {
        const struct sum_segment s = p->order->segments[leaf];
        struct block block = {.b = strip, .length = s.length, .sums = sums};

        for (int64_t i = 0; i < PANEL; i++)
            block.a[i] = (const int8_t *)p->a.data + s.first +
                         (x->row + (i < x->rows ? i : x->rows - 1)) *
                             p->a.stride[0];
        block_sum(&block, job->bytes);
        leaf_values(job, x, leaf, sums, nodes[depth++]);
        for (int n = leaf + 1; n % 2 == 0; n /= 2, depth--)
            nodes_add(nodes[depth - 2], nodes[depth - 1], x->rows);
        strip += leaf_bytes(&s);
    }
    for (; depth > 1; depth--)
        nodes_add(nodes[depth - 2], nodes[depth - 1], x->rows);
    panel_finish(p, x, nodes[0]);
}

static void strip_pack(const struct job *job, const struct panel *x,
                       char *strip)
{
    const struct sum_order *order = job->p->order;

    for (int leaf = 0; leaf < order->leaves; leaf++) {
        leaf_pack(job->p, x->column, x->columns, &order->segments[leaf],
                  strip);
        strip += leaf_bytes(&order->segments[leaf]);
    }
}

static void panels_body(void *argument, int index, int count)
{
    const struct job *job = argument;
    const int64_t m = job->p->c.shape[0], n = job->p->c.shape[1];
    const int64_t panels = (m + PANEL - 1) / PANEL;
    const int64_t strips = (n + COLUMNS - 1) / COLUMNS;
    char *strip = job->scratch + (size_t)index * job->strip_bytes;
    int64_t first, last, packed = -1;

    threads_split(strips * panels, 1, index, count, &first, &last);
    for (int64_t i = first; i < last; i++) {
        struct panel x = {.row = i % panels * PANEL, .rows = PANEL,
                          .column = i / panels * COLUMNS, .columns = COLUMNS};

        if (m - x.row < PANEL) x.rows = m - x.row;
        if (n - x.column < COLUMNS) x.columns = n - x.column;
        if (packed != x.column) strip_pack(job, &x, strip);
        packed = x.column;
        panel_make(job, &x, strip);
    }
}

status CPU(integer_product)(struct stream *stream,
                            const struct integer_product *p)
{
    const int64_t m = p->c.shape[0], n = p->c.shape[1];
    const size_t threads = (size_t)threads_count(stream->threads);
    const size_t sums = (size_t)(m * p->order->leaves) * sizeof(int32_t);
    struct job job = {.p = p, .row_sums = stream->scratch,
                      .bytes = has_bytes()};
    size_t used = (sums + LINE - 1) / LINE * LINE;

    integer_product_check(p);
    if (m == 0 || n == 0) return OK;
    for (int leaf = 0; leaf < p->order->leaves; leaf++)
        job.strip_bytes += leaf_bytes(&p->order->segments[leaf]);
    job.strip_bytes = (job.strip_bytes + LINE - 1) / LINE * LINE;
    job.scratch = (char *)stream->scratch + used;
    /* Longer rows than any model has. */
    if (used + threads * job.strip_bytes > stream->scratch_bytes)
        return reference_integer_product_f32(stream, p);
    if (LIFT) cpu_run(stream, m * p->a.shape[1], sums_body, &job);
    cpu_run(stream, m * n, panels_body, &job);
    return OK;
}
