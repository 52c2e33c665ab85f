/* SPDX-License-Identifier: Apache-2.0 */
/* later_tokens.h - the part of a step that modules for later tokens need:
 * tokens and targets, how many targets the whole batch has, the losses of each
 * module.
 *
 * A module's gradients are those of weight / depth (targets / its targets)
 * times the sum of its losses: like the others they are divided by the targets
 * of the next tokens when the step is over. */
#ifndef LOCKSTEP_STEP_LATER_TOKENS_H
#define LOCKSTEP_STEP_LATER_TOKENS_H

#include "step/loss.h"
#include "step/team.h"

struct later_tokens {
    int depth;          /* modules; 0: none */
    double weight;      /* of the step; the caller's to fill */
    double targets[1 + MTP_MOST]; /* of the whole batch: of the next token, of
                         * each module */
    /* owned: [depth] tables, joined in one call, and their room */
    struct loss_sum losses[MTP_MOST];
    double *joined;
};

status later_build(struct later_tokens *later, int depth, int leaves,
                   const struct grid *grid);
void later_free(struct later_tokens *later);
/* A whole sequence, as sources fill it; this rank's tokens of it go from
 * token `at` on into each row of arrays [depth][rows]. */
struct later_sequence {
    int32_t *inputs, *targets, *documents;
    int64_t count;      /* of the whole sequence */
};
struct later_arrays { int32_t *inputs, *targets; int64_t rows; };
void later_fill(const struct program *program,
                const struct later_sequence *sequence,
                const struct later_arrays *out, int64_t at);
/* Before a step: nothing is counted, and no loss added. */
void later_begin(struct later_tokens *later);
/* Counts the targets of a sequence. */
void later_count(struct later_tokens *later,
                 const struct later_sequence *sequence);
/* After the last one, collective over the world: the weights of gradients in
 * every stage's run. */
status later_weigh(struct later_tokens *later, struct team *team,
                   struct pipeline *pipeline);
void later_add(struct later_tokens *later, const struct run *run, int64_t first,
               int index);
/* Mean losses of each module, out [depth]: collective over the world. *bad: one
 * is not finite; next, the loss of the next token, is told where. */
status later_join(struct later_tokens *later, struct team *team, double *out,
                  struct loss_sum *next, bool *bad);
/* The weight of a step. */
void later_choose(struct later_tokens *later,
                  const struct regularization *regular, int64_t step);

#endif
