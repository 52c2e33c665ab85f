/* SPDX-License-Identifier: Apache-2.0 */
/* context.h - attention of sequences that ranks cut
 * (docs/context_parallelism.md); not for users of nn/.
 *
 * With C ranks along the context axis a sequence is 2 C spans, and rank r has
 * spans r and 2 C - 1 - r: early queries see few keys, late ones many, so each
 * rank has the same number of pairs. Source: Llama 3, arXiv:2407.21783,
 * section 3.3.2 (context chunks, gathered keys and values).
 *
 * Neighbours, program->method.exchange of them, may first exchange heads for
 * tokens; then each has some heads of their spans, which touch, and the groups
 * that are left cut sequences in the same way, with longer spans. */
#ifndef LOCKSTEP_NN_CONTEXT_H
#define LOCKSTEP_NN_CONTEXT_H

#include "nn/layer.h"

/* ---- for attention.c ---- */

/* Attention of this rank's queries; `call` has its own queries, keys and
 * documents, and where results go; scratch: context_scratch bytes. */
status context_forward(struct run *run, const struct attention *call,
                       void *scratch);
status context_backward(struct run *run, const struct attention *call,
                        void *scratch);
/* Layer scratch of a step with so many heads on this rank, whose dk and dv are
 * of the type of heads->dk. */
size_t context_scratch(const struct program *program,
                       const struct attention *heads);
/* Pairs of query and key that this rank computes in one sequence. */
int64_t context_pairs(const struct program *program);
/* Bytes that this rank sends in a forward, or in a backward pass. */
int64_t context_bytes(const struct program *program,
                      const struct attention *heads, bool backward);
/* ... in so many calls. */
int context_calls(const struct program *program, bool backward);

/* ---- between the kinds ---- */

/* Ranks first + i * step of the group that cut sequences among themselves. */
struct share {
    const struct run *run;
    struct group *group;
    int first, step, ranks;
    int rank;                        /* of these */
    int64_t sequences, span, length; /* tokens: of a span, of a sequence */
    enum dtype dtype;                /* of activations */
    bool striped;                    /* token i of a rank stands at i * ranks +
                                      * rank; else in its two spans */
};

/* The ranks among which keys are shared. */
struct share context_share(const struct run *run);
static inline int share_member(const struct share *s, int i)
{
    return s->first + i * s->step;
}
/* First position of a rank's first or second span. */
int64_t share_first(const struct share *s, int rank, int second);
/* Position of a rank's token, of those that it has of a sequence. */
int64_t share_position(const struct share *s, int rank, int64_t token);
/* Rows of a [tokens, heads, width] view as they lie. */
struct comm_block share_rows(const struct tensor *t);
/* A rank's tokens inside whole sequences with dense rows of `row` bytes. */
struct comm_block share_spans(const struct share *s, void *whole, int64_t row,
                              int rank);

/* Layer scratch, handed out from the front. */
struct room { char *at; };
void *room_take(struct room *room, int64_t bytes);

/* Each rank gets all keys (backward: and all queries). own->delta is set. */
status gather_forward(struct run *run, const struct share *share,
                      const struct attention *own, struct room room);
status gather_backward(struct run *run, const struct share *share,
                       const struct attention *own, struct room room);
int64_t gather_room(const struct share *share, const struct attention *own);

/* Blocks of keys (backward: and of queries) travel. */
status ring_forward(struct run *run, const struct share *share,
                    const struct attention *own, struct room room);
status ring_backward(struct run *run, const struct share *share,
                     const struct attention *own, struct room room);
int64_t ring_room(const struct share *share, const struct attention *own);

/* Like ring_forward and ring_backward, of striped tokens, outside the grid:
 * sums in order of arrival. */
status stripe_forward(struct run *run, const struct share *share,
                      const struct attention *own, struct room room);
status stripe_backward(struct run *run, const struct share *share,
                       const struct attention *own, struct room room);
int64_t stripe_room(const struct share *share, const struct attention *own);

#endif
