/* SPDX-License-Identifier: Apache-2.0 */
/* mixture.c - which source each sample of a run comes from. */
#include "data/mixture.h"

#include <string.h>

#include "base/arena.h"
#include "base/random.h"

__extension__ typedef unsigned __int128 wide;

/* The circle has 2^62 points; a step goes 0.618... of them further. */
static const uint64_t circle = UINT64_C(1) << 62;
static const uint64_t golden = UINT64_C(0x9E3779B97F4A7C15) >> 2;

/* Sum of floor((golden i + b) / circle) over i in [0, n), modulo 2^64: the
 * lattice points under a line, counted like Euclid's algorithm divides. */
static uint64_t floor_sum(uint64_t n, uint64_t b)
{
    uint64_t a = golden, m = circle, sum = 0;

    for (;;) {
        const uint64_t pairs = n % 2 == 0 ? n / 2 * (n - 1) : (n - 1) / 2 * n;
        wide top;

        if (n == 0) return sum;
        sum += pairs * (a / m) + n * (b / m);
        a %= m;
        b %= m;
        top = (wide)a * n + b;
        if (top < m) return sum;
        n = (uint64_t)(top / m);
        b = (uint64_t)(top % m);
        const uint64_t other = m;

        m = a;
        a = other;
    }
}

/* The number of the first n points that lie in [low, high): floor((y + circle -
 * x) / circle) is one more than floor(y / circle) exactly when y's place is at
 * least x. */
static int64_t points_in(uint64_t offset, uint64_t low, uint64_t high,
                         int64_t n)
{
    if (low == high) return 0;
    return (int64_t)(floor_sum((uint64_t)n, offset + circle - low) -
                     floor_sum((uint64_t)n, offset + circle - high));
}

static const uint64_t *edges_of(const struct mixture *mixture, int phase)
{
    return mixture->edges + (int64_t)phase * (mixture->sources + 1);
}

static int64_t *before_of(const struct mixture *mixture, int phase)
{
    return mixture->before + (int64_t)phase * mixture->sources;
}

static int phase_of(const struct mixture *mixture, int64_t sample)
{
    int phase = mixture->phases - 1;

    while (phase > 0 && mixture->from[phase] > sample) phase--;
    return phase;
}

int64_t mixture_taken(const struct mixture *mixture, int source,
                      int64_t sample)
{
    const int phase = phase_of(mixture, sample);
    const uint64_t *edges = edges_of(mixture, phase);

    return before_of(mixture, phase)[source] +
           points_in(mixture->offset, edges[source], edges[source + 1],
                     sample - mixture->from[phase]);
}

void mixture_at(const struct mixture *mixture, int64_t sample, int *source,
                int64_t *index)
{
    const int phase = phase_of(mixture, sample);
    const uint64_t *edges = edges_of(mixture, phase);
    const uint64_t n = (uint64_t)(sample - mixture->from[phase]);
    const uint64_t at =
        (uint64_t)(((wide)golden * n + mixture->offset) % circle);
    int low = 0, high = mixture->sources;

    while (high - low > 1) { /* the last whose first point is at most `at` */
        const int middle = low + (high - low) / 2;

        if (edges[middle] <= at) low = middle;
        else high = middle;
    }
    *source = low;
    *index = mixture_taken(mixture, low, sample);
}

/* Edges are rounded where a double ends; the last is exact. */
static void set_edges(struct mixture *mixture, int phase,
                      const double *weights)
{
    uint64_t *edges = mixture->edges +
                      (int64_t)phase * (mixture->sources + 1);
    double sum = 0, part = 0;
    int last = 0;

    for (int i = 0; i < mixture->sources; i++) {
        sum += weights[i];
        if (weights[i] > 0) last = i;
    }
    for (int i = 0; i < mixture->sources; i++) {
        edges[i] = i > last ? circle
                            : (uint64_t)(part / sum * (double)circle);
        part += weights[i];
    }
    edges[mixture->sources] = circle;
}

status mixture_build(struct mixture *mixture, int sources, int phases,
                     const double *weights, const int64_t *from,
                     uint64_t seed)
{
    const size_t cells = (size_t)phases * ((size_t)sources + 1);
    void *memory;

    *mixture = (struct mixture){.sources = sources, .phases = phases};
    TRY(memory_take((size_t)phases, sizeof *mixture->from, &memory));
    mixture->from = memory;
    TRY(memory_take(cells, sizeof *mixture->edges, &memory));
    mixture->edges = memory;
    TRY(memory_take(cells, sizeof *mixture->before, &memory));
    mixture->before = memory;
    memcpy(mixture->from, from, (size_t)phases * sizeof *from);
    mixture->offset = random_below(random_key_make(seed, "data.mixture"), 0,
                                   circle);
    for (int p = 0; p < phases; p++) {
        set_edges(mixture, p, weights + (int64_t)p * sources);
        for (int s = 0; s < sources; s++) {
            const uint64_t *edges = edges_of(mixture, p - (p > 0));

            before_of(mixture, p)[s] =
                p == 0 ? 0
                       : before_of(mixture, p - 1)[s] +
                             points_in(mixture->offset, edges[s],
                                       edges[s + 1], from[p] - from[p - 1]);
        }
    }
    return OK;
}

void mixture_free(struct mixture *mixture)
{
    memory_free(mixture->from);
    memory_free(mixture->edges);
    memory_free(mixture->before);
    *mixture = (struct mixture){0};
}
