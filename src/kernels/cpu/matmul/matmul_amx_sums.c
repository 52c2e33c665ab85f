/* SPDX-License-Identifier: Apache-2.0 */
/* matmul_amx_sums.c - sums of tiles: adding them up, and making c of them. */
#include "kernels/cpu/matmul/matmul_amx.h"

#if defined(__AVX512F__)
#include <immintrin.h>
#include "kernels/element.h"

#define NARROWS __attribute__((target("avx512bf16")))

INLINE vector widened(const char *from, const enum dtype dtype, int v)
{
    if (dtype == DTYPE_F32)
        return vector_load_words(from + v * WIDTH * (int)sizeof(float));
    return (vector)_mm512_slli_epi32(
        _mm512_cvtepu16_epi32(_mm256_loadu_si256(
            (const __m256i *)(const void *)from + v)), 16);
}

/* element_to_bf16. */
INLINE __m256i narrowed_any(vector x)
{
    const __m512i bits = (__m512i)x, high = _mm512_srli_epi32(bits, 16);
    const __m512i half =
        _mm512_add_epi32(_mm512_and_si512(high, _mm512_set1_epi32(1)),
                         _mm512_set1_epi32(0x7FFF));
    const __m512i rounded =
        _mm512_srli_epi32(_mm512_add_epi32(bits, half), 16);
    const __mmask16 nan =
        _mm512_cmp_ps_mask((__m512)x, (__m512)x, _CMP_UNORD_Q);

    return _mm512_cvtepi32_epi16(_mm512_mask_or_epi32(
        rounded, nan, high, _mm512_set1_epi32(0x40)));
}

/* The processor's own instruction, which rounds to nearest whatever MXCSR says,
 * but makes zeros of denormals: what every processor with tiles has. */
NARROWS INLINE __m512i narrowed(const vector *x)
{
    enum { DENORMAL = 0x20 };
    const __mmask16 denormal = _mm512_fpclass_ps_mask((__m512)x[0], DENORMAL) |
                               _mm512_fpclass_ps_mask((__m512)x[1], DENORMAL);

    if (__builtin_expect(denormal != 0, 0))
        return _mm512_inserti64x4(_mm512_castsi256_si512(narrowed_any(x[0])),
                                  narrowed_any(x[1]), 1);
    return (__m512i)_mm512_cvtne2ps_pbh((__m512)x[1], (__m512)x[0]);
}

/* True for stores that fill lines of memory. They may bypass the caches: nobody
 * reads the old content, and tiles need the room. */
INLINE bool fills_lines(const void *to)
{
    return (uintptr_t)to % LINE == 0;
}

INLINE void row_store_f32(float *to, const vector *row, bool past)
{
    UNROLL for (int v = 0; v < TILE_VECTORS; v++) {
        if (past && fills_lines(to))
            _mm512_stream_ps(to + v * WIDTH, (__m512)row[v]);
        else
            vector_store(to + v * WIDTH, row[v]);
    }
}

NARROWS INLINE void row_store_bf16(void *to, const vector *row, bool past)
{
    const __m512i all = narrowed(row);

    if (past && fills_lines(to))
        _mm512_stream_si512((__m512i *)to, all);
    else
        _mm512_storeu_si512(to, all);
}

/* c = left + ((to + from) + bias), each where present, of whole rows. */
NARROWS static void rows_finish(const struct matmul_work *work, int first,
                                int rows,
                                const volatile struct matmul_result *r)
{
    const volatile struct matmul_work *fields = work;
    const float *to = fields->to + first * TILE_COLUMNS, *from = fields->from;
    const int64_t c_stride = r->c_stride, left_stride = r->left_stride;
    const enum dtype c_type = r->c_type, left_type = r->left_type;
    const bool past = r->past;
    const char *left = r->left, *biases = r->bias;
    char *c = r->c + first * c_stride;
    vector bias[TILE_VECTORS] = {vector_fill(0), vector_fill(0)};

    if (from) from += first * TILE_COLUMNS;
    if (left) left += first * left_stride;
    for (int v = 0; biases && v < TILE_VECTORS; v++)
        bias[v] = widened(biases, DTYPE_BF16, v);
    for (int i = 0; i < rows; i++, to += TILE_COLUMNS, c += c_stride) {
        vector row[TILE_VECTORS];

        UNROLL for (int v = 0; v < TILE_VECTORS; v++) {
            row[v] = vector_load(to + v * WIDTH);
            if (from) row[v] = row[v] + vector_load(from + v * WIDTH);
            if (biases) row[v] = bias[v] + row[v];
            if (left && left_type == DTYPE_F32)
                row[v] = widened(left, DTYPE_F32, v) + row[v];
            else if (left)
                row[v] = widened(left, DTYPE_BF16, v) + row[v];
        }
        if (from) from += TILE_COLUMNS;
        if (left) left += left_stride;
        if (c_type == DTYPE_F32) row_store_f32((float *)(void *)c, row, past);
        else row_store_bf16(c, row, past);
    }
}

static void rows_add(float *to, const float *from)
{
    UNROLL for (int v = 0; v < PART * TILE_VECTORS; v++)
        vector_store(to + v * WIDTH, vector_load(to + v * WIDTH) +
                                         vector_load(from + v * WIDTH));
}

void CPU(matmul_later_part)(struct matmul_later *later)
{
    const int first = later->first;
    volatile struct matmul_work *work = &later->works[first];
    int row, rows;

    if (first == later->count) return;
    row = work->row;
    rows = work->rows - row < PART ? work->rows - row : PART;
    if (work->finishes)
        rows_finish(&later->works[first], row, rows, &later->result);
    else
        rows_add(work->to + row * TILE_COLUMNS,
                 work->from + row * TILE_COLUMNS);
    work->row = row + rows;
    if (row + rows == work->rows) later->first = first + 1;
}

int CPU(matmul_later_parts)(const struct matmul_later *later)
{
    int parts = 0;

    for (int i = later->first; i < later->count; i++)
        parts += (later->works[i].rows - later->works[i].row + PART - 1) / PART;
    return parts;
}
#else
/* A file has at least one declaration. */
extern const struct matmul_format CPU(format_tiles);
#endif
