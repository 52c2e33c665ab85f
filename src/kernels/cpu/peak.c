/* SPDX-License-Identifier: Apache-2.0 */
/* peak.c - how many FMAs a second the cores can do when nothing else limits
 * them: independent accumulators that stay in registers. */
#include <time.h>
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/vector.h"

/* Two units of four cycles need eight; more would not fit AVX2's registers. */
enum { ACCUMULATORS = 10, ROUNDS = 50000 };

double CPU(peak_flops)(struct stream *stream, double seconds);

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

static double now_s(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

double CPU(peak_flops)(struct stream *stream, double seconds)
{
    double flops = 2.0 * WIDTH * ACCUMULATORS * ROUNDS *
                   threads_count(stream->threads);
    double start = now_s(), best = 0;
    volatile float sink = 0;

    do {
        double before = now_s(), rate;

        threads_run(stream->threads, peak_body, (void *)&sink);
        rate = flops / (now_s() - before);
        if (rate > best) best = rate;
    } while (now_s() - start < seconds);
    return best;
}
