/* SPDX-License-Identifier: Apache-2.0 */
/* calibrate_sentinel.c - the work that is timed before and after all other: a
 * product in a core's caches, passes through the cache that cores share and
 * through memory, and a cache line that goes from core to core
 * (planner/sentinel.h). */
#include <unistd.h>

#include "base/arena.h"
#include "base/median.h"
#include "base/threads_exchange.h"
#include "bench/calibrate_parts.h"
#include "bench/probe.h"

#define WARM_S 0.2
#define PRODUCT_S 0.2
enum { BURSTS = 128, WARM = 1, PASSES = 6, CACHES = 2, SHARE = 8,
       OWN_CACHES = 4, /* as large as what a core has of its own */
       PASS_BYTES = 64 << 20 /* of a rank in a timed pass, at least */ };

static status time_product(struct calibration *c, double *seconds)
{
    const double begun = probe_now_s();
    double bursts[BURSTS];
    int count = 0;

    /* Clocks of idle cores are another matter. */
    while (probe_now_s() - begun < WARM_S) TRY(pace_burst(c, seconds));
    while (count < BURSTS && probe_now_s() - begun < WARM_S + PRODUCT_S)
        TRY(pace_burst(c, &bursts[count++]));
    *seconds = count > 0 ? median_take(bursts, count) : *seconds;
    return OK;
}

size_t calibrate_stream_bytes(int ranks)
{
    const size_t least = CALIBRATE_FLOATS * sizeof(float);
    const size_t pages = (size_t)sysconf(_SC_PHYS_PAGES) *
                         (size_t)sysconf(_SC_PAGESIZE);
    const size_t most = pages / SHARE / (size_t)ranks;
    size_t bytes = least;

#ifdef _SC_LEVEL3_CACHE_SIZE
    const long cache = sysconf(_SC_LEVEL3_CACHE_SIZE);

    if (cache > 0) bytes = CACHES * (size_t)cache / (size_t)ranks;
#endif
    if (bytes > most) bytes = most;
    return bytes > least ? bytes : least;
}

size_t calibrate_cache_bytes(int ranks)
{
#if defined(_SC_LEVEL2_CACHE_SIZE) && defined(_SC_LEVEL3_CACHE_SIZE)
    const long own = sysconf(_SC_LEVEL2_CACHE_SIZE);
    const long last = sysconf(_SC_LEVEL3_CACHE_SIZE);
    const long most = last > 0 ? last / 2 / ranks : 0;
    const long bytes = own > 0 && OWN_CACHES * own < most ? OWN_CACHES * own
                                                          : most;

    return own > 0 && bytes > CACHES * own ? (size_t)bytes : 0;
#else
    (void)ranks;
    return 0;
#endif
}

struct streams {
    struct calibration *c;
    uint64_t *data[CALIBRATE_WORKERS]; /* owned */
    size_t words;
    int times;             /* that a pass goes through them */
    double seconds[CALIBRATE_WORKERS]; /* of a pass */
};

/* Reads and writes all of it; the first pass also takes the pages. */
static void stream(void *argument, int index, int count)
{
    struct streams *s = argument;
    uint64_t *data = s->data[index];
    double passes[PASSES];

    (void)count;
    for (int pass = -WARM; pass < PASSES; pass++) {
        threads_barrier(s->c->all);
        const double before = probe_now_s();

        for (int n = 0; n < s->times; n++)
            for (size_t i = 0; i < s->words; i++) data[i] += i;
        if (pass >= 0)
            passes[pass] = (probe_now_s() - before) / s->times;
    }
    s->seconds[index] = median_take(passes, PASSES);
}

static status time_stream(struct calibration *c, size_t bytes, double *seconds)
{
    const int ranks = c->request->ranks;
    struct streams s = {.c = c, .words = bytes / 8,
                        .times = bytes < PASS_BYTES && bytes > 0
                                     ? (int)(PASS_BYTES / bytes) : 1};
    status result = OK;

    *seconds = 0;
    if (bytes == 0) return OK; /* no such cache */
    for (int i = 0; i < ranks && result == OK; i++) {
        void *memory = NULL;

        result = memory_take(s.words, sizeof *s.data[i], &memory);
        s.data[i] = memory;
    }
    if (result == OK) threads_run(c->all, stream, &s);
    for (int i = 0; i < ranks; i++) {
        *seconds += s.seconds[i] / ranks;
        memory_free(s.data[i]);
    }
    return result;
}

status calibrate_sentinel(struct calibration *c, struct sentinel *out)
{
    TRY(time_product(c, &out->product_s));
    TRY(time_stream(c, calibrate_cache_bytes(c->request->ranks),
                    &out->cache_s));
    out->exchange_s = threads_exchange(c->all, EXCHANGE_BURSTS);
    return time_stream(c, calibrate_stream_bytes(c->request->ranks),
                       &out->memory_s);
}
