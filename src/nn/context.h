/* SPDX-License-Identifier: Apache-2.0 */
/* context.h - attention of sequences that ranks cut (docs/
 * context_parallelism.md); not for users of nn/.
 *
 * With C ranks along the context axis a sequence is 2 C spans, and rank r has
 * spans r and 2 C - 1 - r: early queries see few keys, late ones many, so each
 * rank has the same number of pairs. Source: Llama 3, arXiv:2407.21783,
 * section 3.3.2 (chunks, gathered keys and values). */
#ifndef LOCKSTEP_NN_CONTEXT_H
#define LOCKSTEP_NN_CONTEXT_H

#include "nn/layer.h"

/* Attention of this rank's queries; `call` has its own queries, keys and
 * documents, and where results go. */
status context_forward(struct run *run, const struct attention *call);
status context_backward(struct run *run, const struct attention *call);
/* Layer scratch of a step with so many heads on this rank. */
size_t context_scratch(const struct program *program,
                       const struct attention *heads);
/* Pairs of query and key that this rank computes in one sequence. */
int64_t context_pairs(const struct program *program);
/* Bytes that this rank sends in a forward, or in a backward pass. */
int64_t context_bytes(const struct program *program,
                      const struct attention *heads, bool backward);

#endif
