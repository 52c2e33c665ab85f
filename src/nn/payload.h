/* SPDX-License-Identifier: Apache-2.0 */
/* payload.h - rows that go round a ring of ranks; not for users of nn/. */
#ifndef LOCKSTEP_NN_PAYLOAD_H
#define LOCKSTEP_NN_PAYLOAD_H

#include "comm/comm.h"
#include "nn/context.h"

/* The content of a message: a rank's rows, dense, one array after the other. */
struct payload {
    struct tensor k, v, q, dout, lse, delta; /* [tokens, heads, width] */
    char *data;
    int64_t bytes;
};

/* Tokens of a rank, all sequences. */
int64_t share_tokens(const struct share *s);
/* Room for [own tokens, heads, width]. */
struct tensor rows_take(struct room *room, const struct share *s,
                        enum dtype dtype, int64_t heads, int64_t width);
struct tensor rows_from(struct tensor t, int64_t first, int64_t rows);
/* [rows, heads, 1] as [rows, heads]. */
struct tensor rows_numbers(struct tensor t);
/* `to`, if it is narrow, rounds finished sums. */
status rows_round(struct run *run, struct tensor to, struct tensor from);
/* Bytes of a token's activations of so many heads, and of numbers, of which
 * each head has one. */
int64_t share_bytes(const struct share *s, int64_t elements);
int64_t share_real_bytes(const struct share *s, int64_t numbers);

/* Two blocks of keys and values, backward of queries too; the first holds the
 * rank's own. */
status payload_begin(struct run *run, struct payload block[2],
                     struct room *room, const struct share *s,
                     const struct attention *own, bool backward);
/* Documents of the tokens of rank `owner`; nothing where a sequence is one. */
void payload_documents(const struct run *run, const struct share *s, int owner,
                       int32_t *out);

typedef status payload_visit(void *argument, const struct payload *block,
                             int owner);
/* Every rank's block comes by once, the own one first; while one is used, it
 * goes on to the next rank and another arrives. */
status payload_travel(const struct share *s, struct payload two[2],
                      payload_visit *visit, void *argument);

#endif
