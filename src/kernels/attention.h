/* SPDX-License-Identifier: Apache-2.0 */
/* attention.h - a call of attention: its operands, and which keys a query sees.
 * "real" as in kernels.h. */
#ifndef LOCKSTEP_KERNELS_ATTENTION_H
#define LOCKSTEP_KERNELS_ATTENTION_H

#include <stdbool.h>
#include <stdint.h>
#include "base/random.h"
#include "tensor/tensor.h"

/* Dropout of attention's weights: after the softmax, that of a pair is
 * multiplied by 0 with probability `rate`, else by 1 / (1 - rate), rounded to
 * real once. Which: word j % 4 of the generator's block at
 * (sequence, head << 46 | i << 22 | j / 4), i and j the positions of query and
 * key, against dropout_least. */
struct attention_dropout {
    double rate;            /* 0: none */
    struct random_key key;  /* of the layer */
    uint64_t sequence;      /* number of the call's first, in the run */
    int64_t head;           /* number of the call's first, in the model */
};
enum { DROPOUT_QUERY_SHIFT = 22, DROPOUT_HEAD_SHIFT = 46 };
static inline uint32_t dropout_least(double rate)
{
    return (uint32_t)(rate * 0x1p32);
}

/* Linear biases of scores (ALiBi): the score of a pair is (q . k + bias) scale,
 * its bias that of alibi_bias (kernels/alibi.h), of the query head's slope and
 * the key's position in its document. Source: Press, Smith and Lewis 2022,
 * arXiv:2108.12409, section 3, with the key's position instead of the distance,
 * as the released models add it: a softmax does not see the difference. */
struct attention_alibi {
    int heads;              /* of the whole model; 0: none */
    int64_t head;           /* number of the call's first */
};

/* The outputs of a backward call. The two halves are independent: a rank that
 * has all keys can compute dq of some queries; one that has all queries (with
 * their lse and delta) can compute dk and dv of some keys. */
enum attention_half { ATTENTION_WHOLE, ATTENTION_OF_QUERIES,
                      ATTENTION_OF_KEYS };

/* Attention over sequences of one shape. Query i of a sequence stands at
 * position first_query + i, key j at first_key + j; a query sees keys up to
 * its position, of its own document only. Positions are cut into granules of
 * ATTENTION_GRANULE from 0, merged by the absolute binary tree
 * (docs/numerics.md).
 *   q, out, dq, dout  [sequences * queries, heads, head_width]
 *   k, v, dk, dv      [sequences * keys, kv_heads, head_width]
 *   lse, delta        [sequences * queries, heads] real, any row stride
 * Narrow tables: out, dq, dk and dv each narrow or f32, f32 for nodes.
 * Strides: the last is 1, the second head_width (of k, v, dk, dv anything: 0
 * lets heads read the same keys), the first anything. Query
 * head h reads key-value head h / (heads / kv_heads).
 * `leaves` cuts the query heads: dk and dv of a key-value head are summed over
 * its query heads in order inside a leaf, then by the tree over leaves.
 * Windows: forward and ATTENTION_OF_QUERIES take any queries and all keys up to
 * the last one's position (first_key 0); ATTENTION_OF_KEYS any keys and all
 * queries from the first one's position on; ATTENTION_WHOLE all of both. The
 * bits do not show how a sequence was cut into windows.
 * Nodes: where the other window (of keys; OF_KEYS: of queries) is a node of the
 * tree, 2^n granules that begin at a multiple of as many, the halves set that
 * node of the sum, which `add` merges. Forward with a denominator does too:
 *   out  weighted values, not divided   lse  maximum   denominator 0: nothing
 *                                                      seen, the rest unset */
struct attention {
    struct tensor q, k, v, out, lse;
    struct tensor dq, dk, dv, dout;   /* backward only; set, not added to */
    /* [sequences * queries], [sequences * keys] or NULL: any number that is
     * the document's own; with alibi the position of its first token. */
    const int32_t *query_documents, *key_documents;
    int64_t sequences, queries, keys, first_query, first_key;
    int heads, kv_heads, head_width, leaves;
    int value_width;                  /* elements of v and dout from it on are
                                       * zeros, and so are those of out and dv;
                                       * 0: none is known to be */
    /* Products of bfloat16 in tiles (PRODUCT_TILES): q, k, v and dout are
     * bfloat16 numbers, of whatever type; weights and gradients of scores are
     * rounded to bfloat16 where they are multiplied. Not in float64. */
    bool tiles;
    double scale;                     /* rounded to real once */
    double softcap; /* of scores: c tanh(score (1 / c)); 0: none */
    int64_t window; /* keys that a query sees, its own the last; 0: all */
    int64_t chunk;  /* positions are cut into attention chunks from 0 on; a
                     * query sees its own only; 0: none. Not with a window */
    /* Rows (and documents) from sequence to sequence: a cache longer than what
     * is used, a window of a longer sequence; 0: queries, keys. */
    int64_t query_stride, key_stride;
    enum attention_half half;         /* backward */
    void *peaks;                      /* forward: [heads] real, each raised to
                                       * the largest score, scaled and capped,
                                       * that a query of the head sees; NULL:
                                       * nobody asks */
    struct attention_dropout drop;
    struct attention_alibi alibi;
    struct tensor denominator;        /* forward: a node; data NULL: all */
    struct tensor delta;              /* dout . out of each row and head, as
                                       * attention_delta sets it; data NULL: it
                                       * is made from out */
};

/* The first position whose key the query at a position may see. */
static inline int64_t attention_lowest(const struct attention *p,
                                       int64_t query)
{
    if (p->chunk > 0) return query - query % p->chunk;
    return p->window > 0 ? query - p->window + 1 : 0;
}

/* Behind the last position whose query may see the key at a position. */
static inline int64_t attention_past(const struct attention *p, int64_t key)
{
    if (p->chunk > 0) return key - key % p->chunk + p->chunk;
    return p->window > 0 ? key + p->window : INT64_MAX;
}

/* Row of a key or query from its position. */
static inline int64_t attention_key_row(const struct attention *p,
                                        int64_t sequence, int64_t key)
{
    return sequence * (p->key_stride ? p->key_stride : p->keys) + key -
           p->first_key;
}

static inline int64_t attention_query_row(const struct attention *p,
                                          int64_t sequence, int64_t query)
{
    return sequence * (p->query_stride ? p->query_stride : p->queries) +
           query - p->first_query;
}

/* A node of attention's tree. */
struct attention_node {
    struct tensor values;               /* [rows, heads, head_width] real */
    struct tensor maximum, denominator; /* [rows, heads], any row stride */
};

#endif
