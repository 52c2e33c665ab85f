/* SPDX-License-Identifier: Apache-2.0 */
/* token_sums.h - sums over tokens in token_order, for gradients of vectors.
 *
 * Threads share out (accumulator, strip of columns) pairs; no element's chain
 * is ever cut. Inlined, so that each caller's term becomes part of the loop. */
#ifndef LOCKSTEP_KERNELS_CPU_TOKEN_SUMS_H
#define LOCKSTEP_KERNELS_CPU_TOKEN_SUMS_H

#include <string.h>
#include "kernels/cpu/cpu.h"
#include "kernels/element.h"

/* Columns: long enough to read memory in runs and to hide the latency of an
 * addition, short enough to share out. */
enum { TOKEN_STRIP = 128 };

/* A strip of a token, columns column + j, and the chains of it. */
struct token_at {
    int64_t token, column;
    int count; /* columns */
    float *chain;
};

/* chain[j] becomes the chain with one more token. `dtype` of the operands. */
typedef void (*token_term)(enum dtype dtype, const void *context,
                           struct token_at at);

/* One granule, tokens [first, last), of one strip of columns. */
struct token_strip {
    int64_t first, last, column;
    int count;   /* columns */
    bool assign; /* to the accumulator, not add */
    float *sum;  /* accumulator */
};

ELEMENTARY void token_strip_add(enum dtype dtype, token_term term,
                                const void *context,
                                const struct token_strip *s)
{
    float chain[TOKEN_STRIP] = {0};

    for (int64_t token = s->first; token < s->last; token++) {
        if (s->count == TOKEN_STRIP) /* a constant makes better code */
            term(dtype, context, (struct token_at){token, s->column,
                                                   TOKEN_STRIP, chain});
        else
            term(dtype, context, (struct token_at){token, s->column, s->count,
                                                   chain});
    }
    for (int j = 0; j < s->count; j++)
        s->sum[j] = s->assign ? chain[j] : s->sum[j] + chain[j];
}

/* sums [leaves * parts, width] of operands. */
struct token_sums {
    struct tensor sums;
    const struct token_order *order;
    const void *context; /* of the term */
};

/* The share of one thread. */
ELEMENTARY void token_sums(enum dtype dtype, token_term term,
                           const struct token_sums *what, int index,
                           int threads)
{
    const struct tensor sums = what->sums;
    const struct token_order *order = what->order;
    int64_t width = sums.shape[1];
    int64_t strips = (width + TOKEN_STRIP - 1) / TOKEN_STRIP, begin, end;
    int contexts = token_order_contexts(order);
    int halves = order->context_chunks > 1 ? 2 : 1; /* of a context leaf */

    threads_split(sums.shape[0] * strips, 1, index, threads, &begin, &end);
    for (int64_t job = begin; job < end; job++) {
        int64_t unit = job / strips, column = job % strips * TOKEN_STRIP;
        int64_t part = unit % order->parts, leaf = unit / order->parts;
        int pair = (int)(leaf % contexts); /* of context chunks */
        int64_t first = token_order_part(order, part);
        int64_t last = token_order_part(order, part + 1);
        struct token_strip s = {
            .column = column, .assign = !order->continues,
            .count = width - column < TOKEN_STRIP ? (int)(width - column)
                                                  : TOKEN_STRIP,
            .sum = (float *)sums.data + unit * sums.stride[0] + column};

        if (s.assign) /* for a part without tokens */
            for (int j = 0; j < s.count; j++) s.sum[j] = 0;
        for (int64_t i = 0; i < order->sequences_per_leaf * halves; i++) {
            int64_t base = (leaf / contexts * order->sequences_per_leaf +
                            i / halves) * order->length +
                           token_order_first(order, pair,
                                             (int)(i % halves));

            for (int64_t g = first; g < last; g += GRANULE) {
                s.first = base + g;
                s.last = base + (g + GRANULE < last ? g + GRANULE : last);
                token_strip_add(dtype, term, what->context, &s);
                s.assign = false;
            }
        }
    }
}

/* Granules of a call in the order of their accumulators, for kernels that make
 * sums of whole granules beside other work on the tokens. Begins zeroed. */
struct token_granules {
    int64_t unit;         /* accumulator */
    int64_t run;          /* sequence (context chunk) of its leaf */
    int64_t at;           /* token of the run where the next one begins, from
                           * where the part begins */
    int64_t first, last;  /* tokens of the granule */
};

/* false: no more. */
static inline bool token_granule_next(const struct token_order *order,
                                      struct token_granules *g)
{
    const int contexts = token_order_contexts(order);
    const int halves = order->context_chunks > 1 ? 2 : 1;
    const int64_t units = (int64_t)order->leaves * contexts * order->parts;

    for (; g->unit < units; g->unit++, g->run = 0) {
        const int64_t part = g->unit % order->parts;
        const int64_t leaf = g->unit / order->parts;
        const int64_t begin = token_order_part(order, part);
        const int64_t end = token_order_part(order, part + 1);

        for (; g->run < order->sequences_per_leaf * halves;
             g->run++, g->at = 0) {
            const int64_t base =
                (leaf / contexts * order->sequences_per_leaf +
                 g->run / halves) * order->length +
                token_order_first(order, (int)(leaf % contexts),
                                  (int)(g->run % halves));

            if (begin + g->at >= end) continue;
            g->first = base + begin + g->at;
            g->at += GRANULE;
            g->last = base + (begin + g->at < end ? begin + g->at : end);
            return true;
        }
    }
    return false;
}

static inline int64_t token_granule_count(const struct token_order *order)
{
    struct token_granules g = {0};
    int64_t count = 0;

    while (token_granule_next(order, &g)) count++;
    return count;
}

/* sums from the sums of granules, [granules, apart], in columns [begin, end):
 * what token_sums does with its own. */
static inline void token_granules_add(struct tensor sums,
                                      const struct token_order *order,
                                      const float *granules, int64_t apart,
                                      int64_t begin, int64_t end)
{
    struct token_granules g = {0};
    int64_t before = -1, number = 0;

    for (int64_t unit = 0; !order->continues && unit < sums.shape[0]; unit++)
        memset((float *)sums.data + unit * sums.stride[0] + begin, 0,
               (size_t)(end - begin) * sizeof(float)); /* some have none */
    for (; token_granule_next(order, &g); number++) {
        const bool assign = g.unit != before && !order->continues;
        const float *from = granules + number * apart;
        float *to = (float *)sums.data + g.unit * sums.stride[0];

        SIMD for (int64_t j = begin; j < end; j++)
            to[j] = assign ? from[j] : to[j] + from[j];
        before = g.unit;
    }
}

static inline void token_sums_check(struct tensor sums, int64_t tokens,
                                    int64_t width,
                                    const struct token_order *order)
{
    CHECK(sums.dtype == DTYPE_F32 && sums.stride[1] == 1);
    CHECK(sums.shape[0] == (int64_t)order->leaves * order->parts *
                               token_order_contexts(order));
    CHECK(sums.shape[1] == width);
    CHECK(tokens == order->length * order->sequences_per_leaf * order->leaves);
}

#endif
