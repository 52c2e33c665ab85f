/* SPDX-License-Identifier: Apache-2.0 */
/* expert_ranks.h - experts that the ranks of the expert axis divide among
 * themselves: what their tokens have chosen, and the rows that are sent.
 *
 *   rank 0  tokens of rank 0 ─┐ rows of each   ┌─ experts 0 to 3
 *   rank 1  tokens of rank 1 ─┴ choice, and ───┴─ experts 4 to 7
 *                               back
 *
 * A rank gathers the choices of all of them (the sources), so each knows who
 * sends what. A row goes to the rank that has its expert; there rows lie expert
 * after expert, those of an expert source after source, as if one rank had all
 * the tokens.
 *
 *   slot of joined choices   [tokens, choices] gates of this rank's tokens,
 *                            real; then [sources, tokens, choices] experts */
#ifndef LOCKSTEP_NN_EXPERT_RANKS_H
#define LOCKSTEP_NN_EXPERT_RANKS_H

#include "nn/choice.h"

/* Whether the ranks of the expert axis divide the experts. */
bool experts_are_spread(const struct program *p);
/* Those of `experts` that this rank has. */
struct expert_span { int first, count; };
struct expert_span experts_held(const struct program *p, int experts);
/* Rows that this rank may get of a token of each source together, under any
 * routing. */
int64_t experts_rows_most(const struct program *p,
                          const struct router_form *form);
/* ERR_CONFIG: the experts or the leaves of the batch cannot be divided so. */
status experts_check_ranks(const struct program *p,
                           const struct router_form *form);

/* The choices of all sources, as one rank would have them; gates: none. */
struct choice joined_of(struct run *run, const struct step *step);
/* Rows of x [tokens, width] to the ranks that have the experts. *joined: the
 * choices of all. */
slot expert_ranks_send(struct program *p, slot x, slot choice,
                       const struct experts_spec *spec, slot *joined);
/* Rows back to the ranks of their tokens, in the order of tokens and
 * choices. */
slot expert_ranks_return(struct program *p, slot rows, slot joined,
                         const struct experts_spec *spec);

#endif
