/* SPDX-License-Identifier: Apache-2.0 */
/* tally.c - statistics of many numbers. */
#include "step/tally.h"

#include <float.h>
#include <math.h>

void tally_reset(struct tally *tally)
{
    memset(tally, 0, sizeof *tally);
    tally->least = (double)INFINITY;
    tally->greatest = -(double)INFINITY;
}

/* The bucket of a number of size 2^e (1 + f): two buckets per octave. */
static int bucket_of(double value)
{
    uint64_t bits;
    int64_t side;

    memcpy(&bits, &value, sizeof bits);
    side = (int64_t)(bits >> 51 & 0xFFF) - 2 * (1023 + TALLY_LEAST);
    if (side < 0) return TALLY_SIDE;
    if (side >= TALLY_SIDE) side = TALLY_SIDE - 1;
    return bits >> 63 ? TALLY_SIDE - 1 - (int)side : TALLY_SIDE + 1 + (int)side;
}

/* Lower edge of the `side`th bucket of positive numbers. */
static double edge(int side)
{
    const double base = side % 2 ? 1.5 : 1;

    return ldexp(base, TALLY_LEAST + side / 2);
}

double tally_edge(int bucket)
{
    if (bucket == TALLY_BUCKETS - 1) return DBL_MAX;
    if (bucket >= TALLY_SIDE) return edge(bucket - TALLY_SIDE);
    return -edge(TALLY_SIDE - 1 - bucket);
}

static double element(enum dtype dtype, const void *data, int64_t i)
{
    switch (dtype) {
    case DTYPE_F32: return (double)((const float *)data)[i];
    case DTYPE_F64: return ((const double *)data)[i];
    case DTYPE_BF16: return (double)bf16_to_f32(((const uint16_t *)data)[i]);
    default: return (double)f16_to_f32(((const uint16_t *)data)[i]);
    }
}

/* The difference of two numbers of a type has its own rounding: that of
 * float64, which is none for neighbours of equal sign. */
static void add_range(struct tally *tally, const struct tally_of *of,
                      int64_t first, int64_t last)
{
    tally->count += last - first;
    for (int64_t i = first; i < last; i++) {
        double value = element(of->dtype, of->data, i);

        if (of->less != NULL) value -= element(of->dtype, of->less, i);
        exact_add(&tally->squares, value * value);
        if (!of->histogram) continue;
        exact_add(&tally->sum, value);
        if (!isfinite(value)) continue;
        if (value < tally->least) tally->least = value;
        if (value > tally->greatest) tally->greatest = value;
        tally->buckets[bucket_of(value)]++;
    }
}

static void join(struct tally *to, const struct tally *from, bool histogram)
{
    exact_join(&to->squares, &from->squares);
    to->count += from->count;
    if (!histogram) return;
    exact_join(&to->sum, &from->sum);
    if (from->least < to->least) to->least = from->least;
    if (from->greatest > to->greatest) to->greatest = from->greatest;
    for (int i = 0; i < TALLY_BUCKETS; i++) to->buckets[i] += from->buckets[i];
}

struct work { const struct tally_of *of; struct tally *room; };

static void add_part(void *argument, int index, int count)
{
    const struct work *work = argument;
    int64_t first, last;

    threads_split(work->of->count, 1, index, count, &first, &last);
    tally_reset(&work->room[index]);
    add_range(&work->room[index], work->of, first, last);
}

enum { ALONE_MOST = 1 << 14 }; /* elements that are not worth threads */

void tally_add(struct tally *tally, const struct tally_of *of,
               struct threads *threads, struct tally *room)
{
    struct work work = {of, room};

    if (of->count < ALONE_MOST) {
        add_range(tally, of, 0, of->count);
        return;
    }
    threads_run(threads, add_part, &work);
    for (int i = 0; i < threads_count(threads); i++)
        join(tally, &room[i], of->histogram);
}

status tally_join(struct tally *tally, struct team *team, bool histogram,
                  double *values)
{
    const int ranks = team_size(team);
    double *at = values + EXACT_VALUES, *ends;
    int count = EXACT_VALUES + 1;

    if (ranks == 1) return OK;
    exact_pack(&tally->squares, values);
    *at++ = (double)tally->count;
    if (histogram) {
        exact_pack(&tally->sum, at);
        at += EXACT_VALUES;
        for (int i = 0; i < TALLY_BUCKETS; i++)
            *at++ = (double)tally->buckets[i];
        count = TALLY_VALUES + 2 * ranks;
    }
    ends = at; /* each rank's extremes: 0 where others stand */
    for (int i = 0; histogram && i < 2 * ranks; i++) ends[i] = 0;
    if (histogram) {
        ends[2 * team_rank(team)] = tally->least;
        ends[2 * team_rank(team) + 1] = tally->greatest;
    }
    TRY(team_join(team, values, count));
    exact_unpack(&tally->squares, values);
    tally->count = (int64_t)values[EXACT_VALUES];
    if (!histogram) return OK;
    exact_unpack(&tally->sum, values + EXACT_VALUES + 1);
    for (int i = 0; i < TALLY_BUCKETS; i++)
        tally->buckets[i] = (int64_t)(ends - TALLY_BUCKETS)[i];
    for (int i = 0; i < ranks; i++) {
        if (ends[2 * i] < tally->least) tally->least = ends[2 * i];
        if (ends[2 * i + 1] > tally->greatest)
            tally->greatest = ends[2 * i + 1];
    }
    return OK;
}

double tally_norm(const struct tally *tally)
{
    return sqrt(exact_value(&tally->squares));
}
