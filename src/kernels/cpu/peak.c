/* SPDX-License-Identifier: Apache-2.0 */
/* peak.c - how many FMAs a second the cores can do when nothing else limits
 * them: independent accumulators that stay in registers. */
#include "base/clock.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/vector.h"
#include "kernels/features.h"

/* Two units of four cycles need eight; more would not fit AVX2's registers. */
enum { ACCUMULATORS = 10, ROUNDS = 50000, TILE_ROUNDS = 4000 };

double CPU(peak_flops)(struct stream *stream, double seconds);
#if defined(__AVX512F__)
/* With the instruction that the product of bfloat16 is named after; 0: this
 * processor has none. */
double CPU(peak_product)(struct stream *stream, enum product product,
                         double seconds);
#endif

static void peak_body(void *argument, int index, int count)
{
    volatile float *sink = argument;
    vector sums[ACCUMULATORS], factor = vector_fill(0.999f);
    vector step = vector_fill(0.001f), total = vector_fill(0);

    (void)index, (void)count;
    UNROLL for (int i = 0; i < ACCUMULATORS; i++)
        sums[i] = vector_fill((float)i);
    for (int round = 0; round < ROUNDS; round++)
        UNROLL for (int i = 0; i < ACCUMULATORS; i++)
            sums[i] = vector_fma(sums[i], factor, step);
    UNROLL for (int i = 0; i < ACCUMULATORS; i++) total += sums[i];
    if (total[0] < 0) *sink = total[0]; /* never, but nobody knows */
}

/* Sums of pairs of bfloat16. */
#if defined(__AVX512F__)
#include <immintrin.h>

__attribute__((target("avx512bf16"))) static void pairs_body(void *argument,
                                                             int index,
                                                             int count)
{
    volatile float *sink = argument;
    vector total = vector_fill(0);
    __m512 sums[ACCUMULATORS];
    __m512bh pair = (__m512bh)_mm512_set1_epi32(0x3C003C00);

    (void)index, (void)count;
    UNROLL for (int i = 0; i < ACCUMULATORS; i++) sums[i] = _mm512_set1_ps(1);
    for (int round = 0; round < ROUNDS; round++)
        UNROLL for (int i = 0; i < ACCUMULATORS; i++)
            sums[i] = _mm512_dpbf16_ps(sums[i], pair, pair);
    UNROLL for (int i = 0; i < ACCUMULATORS; i++) total += (vector)sums[i];
    if (total[0] < 0) *sink = total[0];
}

/* Four sums of tiles: what matmul_amx.c has. */
__attribute__((target("amx-tile,amx-bf16"))) static void tiles_body(
    void *argument, int index, int count)
{
    static const uint8_t shapes[64] = {
        1, [16] = 64, [18] = 64, [20] = 64, [22] = 64, [24] = 64, [26] = 64,
        [48] = 16, 16, 16, 16, 16, 16};

    (void)argument, (void)index, (void)count;
    _tile_loadconfig(shapes);
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    _tile_zero(4);
    _tile_zero(5);
    for (int round = 0; round < TILE_ROUNDS; round++) {
        _tile_dpbf16ps(0, 4, 5);
        _tile_dpbf16ps(1, 4, 5);
        _tile_dpbf16ps(2, 4, 5);
        _tile_dpbf16ps(3, 4, 5);
    }
    _tile_release();
}
#endif

/* The best of the rates seen in about `seconds`; `flops` of one thread. */
static double rate_of(struct stream *stream,
                      void (*body)(void *argument, int index, int count),
                      double flops, double seconds)
{
    double start = clock_s(), best = 0;
    volatile float sink = 0;

    do {
        double before = clock_s(), rate;

        threads_run(stream->threads, body, (void *)&sink);
        rate = flops * threads_count(stream->threads) / (clock_s() - before);
        if (rate > best) best = rate;
    } while (clock_s() - start < seconds);
    return best;
}

double CPU(peak_flops)(struct stream *stream, double seconds)
{
    return rate_of(stream, peak_body, 2.0 * WIDTH * ACCUMULATORS * ROUNDS,
                   seconds);
}

#if defined(__AVX512F__)
double CPU(peak_product)(struct stream *stream, enum product product,
                         double seconds)
{
    if (product == PRODUCT_PAIRS && features_pairs())
        return rate_of(stream, pairs_body,
                       4.0 * WIDTH * ACCUMULATORS * ROUNDS, seconds);
    if (product == PRODUCT_TILES && features_tiles())
        return rate_of(stream, tiles_body, 4 * 16384.0 * TILE_ROUNDS, seconds);
    return 0;
}
#endif
