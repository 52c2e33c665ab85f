/* SPDX-License-Identifier: Apache-2.0 */
/* sums.h - the order of a sum, as callers tell it to kernels: leaves, segments
 * and granules of the contracted dimension, and of tokens. docs/numerics.md
 * states the sums. */
#ifndef LOCKSTEP_KERNELS_SUMS_H
#define LOCKSTEP_KERNELS_SUMS_H

#include <stdbool.h>
#include <stdint.h>

enum {
    GRANULE = 256,           /* elements of a chain in a product */
    ATTENTION_GRANULE = 128, /* positions of a chain in attention */
    LANES = 16,              /* of a row sum */
    SQUARES_BLOCK = 1024,    /* elements of a block of the gradient's norm */
    LEAVES_MAX = 64,         /* of any tree */
    HEAD_WIDTH_MAX = 256
};

/* How the contracted dimension of a product is summed. It is cut into
 * segments; each segment is cut into granules of GRANULE from its start; a
 * granule is one chain of FMAs from +0. The granules of one leaf are added in
 * order (the first is assigned), the leaves by the tree (grid_tree of
 * mesh/grid.h). segments[i].leaf ascends from 0 to leaves - 1; every leaf has
 * at least one segment. */
struct sum_segment {
    int64_t first;  /* index in the contracted dimension */
    int64_t length; /* elements, at least 1 */
    int leaf;
};
struct sum_order {
    const struct sum_segment *segments; /* borrowed */
    int64_t segment_count;
    int leaves; /* 1 to LEAVES_MAX */
};
/* Programming errors end here, before a segment without elements is divided
 * by. `k`: elements of the sum; `continues`: as in struct matmul. */
void sum_order_check(const struct sum_order *order, int64_t k, bool continues);

/* Which tokens of a gradient of a vector (norm weight, bias) belong to which
 * accumulator. Rows of a [tokens, width] matrix are sequences of `length`
 * tokens, one after the other. Accumulator (leaf, part) sums, for each of its
 * leaf's sequences in order, the tokens of the part: granules of up to GRANULE
 * tokens counted from the start of the part, each one chain from +0 over the
 * tokens; the first granule is assigned (added when `continues`), the others
 * are added in order. Part p is [p * length / parts, (p + 1) * length / parts).
 * Accumulators are [leaves * parts, width], part fastest.
 *
 * A sequence may be cut into an even number of context chunks, of which i and
 * context_chunks - 1 - i form context leaf i (docs/numerics.md). Then
 * accumulators are [leaves * context_chunks / 2 * parts, width]: those of a
 * context leaf take, from each sequence, the tokens of the one context chunk,
 * then of the other; parts and granules are those of a context chunk. */
struct token_order {
    int64_t length;             /* tokens of a sequence in this call */
    int64_t sequences_per_leaf; /* sequences in this call = leaves times it */
    int leaves, parts;
    bool continues;             /* accumulators hold an unfinished leaf */
    /* When the call has parts first_part, ..., first_part + parts - 1 of
     * all_parts only: length is theirs, of whole_length. all_parts 0: all. */
    int first_part, all_parts;
    int64_t whole_length;
    int context_chunks;         /* 0 or 1: not cut */
    int only;                   /* scatter_rows: just context leaf only - 1; 0:
                                 * all */
};
static inline int token_order_contexts(const struct token_order *order)
{
    return order->context_chunks > 1 ? order->context_chunks / 2 : 1;
}
static inline int64_t token_order_context_chunk(const struct token_order *order)
{
    return order->context_chunks > 1 ? order->length / order->context_chunks
                                     : order->length;
}
/* First token, in its sequence, of a context leaf's first or second context
 * chunk. */
static inline int64_t token_order_first(const struct token_order *order,
                                        int context, int second)
{
    return (second ? order->context_chunks - 1 - context : context) *
           token_order_context_chunk(order);
}
/* Context leaf of a token, from its place in its sequence. */
static inline int token_order_context(const struct token_order *order,
                                      int64_t token)
{
    const int at = (int)(token / token_order_context_chunk(order));

    return at < token_order_contexts(order) ? at
                                            : order->context_chunks - 1 - at;
}
/* Whether two tokens of a call are in one granule of one context chunk. */
static inline bool token_order_together(const struct token_order *order,
                                        int64_t a, int64_t b)
{
    const int64_t length = token_order_context_chunk(order);

    return a / length == b / length &&
           a % length / GRANULE == b % length / GRANULE;
}
/* Leaf of a token of a call: of the data, times context leaves; -1: not asked
 * for. */
static inline int64_t token_order_leaf(const struct token_order *order,
                                       int64_t token)
{
    const int context = token_order_context(order, token % order->length);
    const int64_t leaf = token / order->length / order->sequences_per_leaf;

    if (order->only == 0) return leaf * token_order_contexts(order) + context;
    return context == order->only - 1 ? leaf : -1;
}
/* Where part `part` of the call begins in each sequence, or in each context
 * chunk (its end: part + 1). */
static inline int64_t token_order_part(const struct token_order *order,
                                       int64_t part)
{
    const int64_t first = order->first_part, all = order->all_parts;
    const int64_t length =
        order->whole_length /
        (order->context_chunks > 1 ? order->context_chunks : 1);

    if (all == 0) return part * token_order_context_chunk(order) / order->parts;
    return (first + part) * length / all - first * length / all;
}

/* The root of the binary tree over sums [count], which become its nodes. */
static inline double squares_sum(double *sums, int64_t count)
{
    for (int64_t width = 1; width < count; width *= 2)
        for (int64_t i = 0; i + width < count; i += 2 * width)
            sums[i] = sums[i] + sums[i + width];
    return sums[0];
}

/* A matrix is multiplied by it to have norm 1: sums [count] are the blocks of
 * its squares, as squares_sum has them. A norm of at most `least`, or none,
 * counts as that. */
static inline double squares_factor(double *sums, int64_t count, double least)
{
    const double norm = __builtin_sqrt(squares_sum(sums, count));

    return 1 / (norm > least ? norm : least);
}

#endif
