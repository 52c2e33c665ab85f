/* SPDX-License-Identifier: Apache-2.0 */
/* calibrate_beside.c - how much longer computation and messages take beside
 * each other. Ranks have all cores, so what a rank sends in the background, a
 * thread copies and adds on a core that also computes: both run on all cores
 * here, as many threads of each as there are ranks. */
#include <string.h>

#include "bench/calibrate_parts.h"
#include "bench/probe.h"

#define LEAST_S 0.1 /* the system changes threads every few milliseconds */
enum { MOVED_BYTES = 1 << 20 };

struct beside {
    struct calibration *c;
    struct threads *all;   /* owned: those that compute, then those that move */
    uint64_t *data;        /* owned, MOVED_BYTES of each rank */
    struct bench_case product;
    bool works[2];         /* products; moves */
    double limit;
    double seconds[2 * CALIBRATE_WORKERS]; /* of a call */
};

static void move(uint64_t *data)
{
    for (size_t i = 0; i < MOVED_BYTES / sizeof *data; i++) data[i] += i;
}

static void beside_body(void *argument, int index, int count)
{
    struct beside *b = argument;
    const int ranks = count / 2;
    const bool moves = index >= ranks;
    struct worker *w = &b->c->workers[index % ranks];
    uint64_t *data = b->data + (size_t)(index % ranks) *
                                   (MOVED_BYTES / sizeof *data);
    const double begun = probe_now_s();
    double elapsed = 0;
    int64_t calls = 0;

    while (b->works[moves] && elapsed < b->limit) {
        if (moves) {
            move(data);
        } else if (w->result == OK) {
            w->result = b->product.run(&b->c->kernels[b->c->narrow],
                                       &w->stream, w->operands);
        }
        calls++;
        elapsed = probe_now_s() - begun;
    }
    b->seconds[index] = calls > 0 ? elapsed / (double)calls : 0;
}

static status run_both(struct beside *b, bool products, bool moves,
                       double found[2])
{
    const int ranks = b->c->request->ranks;

    b->works[0] = products;
    b->works[1] = moves;
    threads_run(b->all, beside_body, b);
    found[0] = found[1] = 0;
    for (int i = 0; i < ranks; i++) {
        TRY(b->c->workers[i].result);
        found[0] += b->seconds[i] / ranks;
        found[1] += b->seconds[ranks + i] / ranks;
    }
    return OK;
}

static status measure(struct beside *b, double times[2])
{
    const int ranks = b->c->request->ranks;
    double alone[2], both[2], unused[2];
    void *memory = NULL;

    TRY(threads_build(&b->all, 2 * ranks));
    TRY(memory_take((size_t)ranks, MOVED_BYTES, &memory));
    b->data = memory;
    memset(b->data, 1, (size_t)ranks * MOVED_BYTES);
    for (int i = 0; i < ranks; i++) {
        calibrate_prepare(b->c->workers[i].operands, &b->product);
        b->c->workers[i].result = OK;
    }
    TRY(run_both(b, true, false, alone));
    TRY(run_both(b, false, true, unused));
    alone[1] = unused[1];
    TRY(run_both(b, true, true, both));
    for (int i = 0; i < 2; i++)
        times[i] = alone[i] > 0 ? both[i] / alone[i] : 1;
    return OK;
}

status calibrate_beside(struct calibration *c, double times[2])
{
    struct beside b = {
        .c = c, .product = {"matmul", "", {256, 256, 256}, case_product_nt,
                            case_product_run},
        .limit = c->limit > LEAST_S ? c->limit : LEAST_S};
    const status result = measure(&b, times);

    threads_free(b.all);
    memory_free(b.data);
    return result;
}
