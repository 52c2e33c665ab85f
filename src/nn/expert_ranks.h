/* SPDX-License-Identifier: Apache-2.0 */
/* expert_ranks.h - experts that the ranks of the expert axis divide among
 * themselves: what their tokens have chosen, and the rows that are sent.
 *
 *   rank 0  tokens of rank 0 ─┐ rows of each   ┌─ experts 0 to 3
 *   rank 1  tokens of rank 1 ─┴ choice, and ───┴─ experts 4 to 7
 *                               back
 *
 * A rank has the choices of all of them (the sources), so each knows who sends
 * what. A row goes to the rank that has its expert; there rows lie expert after
 * expert, those of an expert source after source, as if one rank had all the
 * tokens.
 *
 * Tensor ranks that are folded (struct mesh) divide the experts, too, and each
 * has a part of the tokens of its source. Rows of a source lie by position,
 * whichever of its ranks sent them:
 *
 *   expert 2 x tensor 2   member   0     1     2     3
 *   source                         0     0     1     1
 *   of each context chunk of tokens        left  right left  right
 *   of 8 experts                   0-1   2-3   4-5   6-7
 *
 * Context ranks that are folded are sources of their own.
 *
 * A rank has room for `bound` rows. Where more come they go in turns: each has
 * as many pairs of an expert and a source, in this order, as there is room for;
 * one pair has no more rows than a source has tokens. */
#ifndef LOCKSTEP_NN_EXPERT_RANKS_H
#define LOCKSTEP_NN_EXPERT_RANKS_H

#include "nn/choice.h"

/* Whether ranks divide the experts; whether tensor ranks do. */
bool experts_are_spread(const struct program *p);
bool experts_are_folded(const struct program *p);
/* Ranks whose tokens differ in more than the part of a context chunk; those of
 * them that have parts of the same sequences. */
int experts_sources(const struct program *p);
int experts_contexts(const struct program *p);
/* Ranks that cut each expert, of those that divide them. They all have the rows
 * of its tokens; each returns its part of their sums. */
int experts_cut(const struct program *p);
/* "mesh.expert times mesh.tensor": the ranks that divide the experts. */
enum { EXPERT_AXES_BYTES = 96 };
const char *experts_axes(const struct mesh *mesh,
                         char out[EXPERT_AXES_BYTES]);
/* The experts, of so many, that this rank has. */
struct expert_span { int first, count; };
struct expert_span experts_held(const struct program *p, int experts);
/* Rows for which this rank has room, for each token of a source; all that can
 * come under any routing. */
int64_t experts_rows_bound(const struct program *p,
                           const struct router_form *form);
int64_t experts_rows_most(const struct program *p,
                          const struct router_form *form);
/* ERR_CONFIG: the experts or the leaves of the batch cannot be divided so. */
status experts_check_ranks(const struct program *p,
                           const struct router_form *form);

/* The experts of this rank, and what goes to them and comes back: a row for
 * each choice, in the order of tokens and choices; sums over tensor ranks where
 * there are several (expert_parallel.c). */
slot spread_experts(struct program *p, slot x, slot choice,
                    const struct experts_spec *spec);

#endif
