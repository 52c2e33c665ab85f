/* SPDX-License-Identifier: Apache-2.0 */
/* layer.h - declarations shared by the layers; users of nn/ do not include
 * it. */
#ifndef LOCKSTEP_NN_LAYER_H
#define LOCKSTEP_NN_LAYER_H

#include "nn/exchange.h"
#include "nn/run.h"

/* For each addend of the micro-batch that a vector's gradient meets. */
struct vector_pass {
    struct addend_cursor cursor;
    struct addend addend;
    struct token_order order;
    struct tensor sums[STEP_PARAMS_MAX];
};
/* The next addend; sums of the step's vectors `first` .. STEP_PARAMS_MAX - 1
 * (those that exist) are ready to be written, and closed by vector_end. */
bool vector_next(struct run *run, const struct step *step, int first,
                 struct vector_pass *pass);
status vector_end(struct run *run, const struct step *step, int first,
                  const struct vector_pass *pass);
/* Scratch for the sums of `count` vectors of `width` elements. */
size_t vector_scratch(const struct program *p, int count, int64_t width);

/* *out = weight, or weight + 1 at `memory` in scratch, room for as many. */
status norm_weight(const struct run *run, struct tensor weight, bool plus_one,
                   void *memory, struct tensor *out);

/* The operands of the norm of a step, in the micro-batch: for its own event, or
 * for the event before it, where that makes it, too. Its scratch is that of its
 * own step. */
status norm_call(struct run *run, int step, struct norm_after *out);
/* Whether F of the step makes the norm after it, too. */
bool norm_is_joined(const struct program *p, const struct step *step);

/* W of a step with one matrix: waits for its slots, then `product` for each
 * addend of the micro-batch; nothing where nobody wants the gradient. */
typedef status addend_product(struct run *run, const struct step *step,
                              const struct addend *addend);
status weight_addends(const struct step *step, struct run *run,
                      addend_product *product);
/* The gradient of the step's first parameter, a matrix, from one addend: dyᵀ x,
 * both [tokens of the addend, width]. */
status weight_product(struct run *run, const struct step *step,
                      struct tensor dy, struct tensor x,
                      const struct addend *addend);
/* Like weight_product, for any use. */
status use_product(struct run *run, int use, struct tensor dy,
                      struct tensor x, const struct addend *addend);

/* Rows that an addend covers of a matrix of all tokens of the micro-batch, or
 * of those that this rank holds (then the addend is of whole sequences). */
struct tensor addend_rows(const struct run *run, struct tensor matrix,
                          const struct addend *addend);

/* Operands beside the two matrices of a product y = x Wᵀ + bias + left: those
 * that the step has, in `room`. */
struct product_room { struct tensor bias, left; };
void product_beside(struct run *run, const struct step *step,
                    struct product_room *room, struct matmul *call);

/* These functions choose a layer's input while the program is built
 * (relayout.c). Without tensor ranks it is x. scatter: the sum over ranks of x,
 * cut by tokens, + bias (may be NULL). local: the same when x is such a sum,
 * else x. whole: with all tokens; `again`: not kept for B. */
slot relayout_scatter(struct program *p, slot x,
                      const struct param_spec *bias);
slot relayout_local(struct program *p, slot x);
slot relayout_whole(struct program *p, slot x, bool again);
/* whole [all tokens, width] of part [own tokens, width], and the sums over
 * ranks the other way. `messages`: scratch that either of a width needs. */
status relayout_gather_tokens(struct run *run, struct tensor whole,
                              struct tensor part);
status relayout_scatter_sums(struct run *run, struct tensor part,
                             struct tensor whole);
size_t relayout_messages(const struct program *p, const struct group *tensor,
                         int64_t width);
/* x where there is one tensor rank; else an error: `name` is not cut. */
slot relayout_uncut(struct program *p, slot x, const char *name);
/* y = x Wᵀ of a matrix that every tensor rank has whole (local_linear.c). */
slot local_adapter(struct program *p, slot x, const struct param_spec *spec);
/* Like local_adapter, real: B of an adapter beside a router. */
slot local_logits(struct program *p, slot x, const struct param_spec *spec);
/* A and B of a matrix, without names inside: the rows of A, one piece after the
 * other; those of B, each as in W (adapter.c). */
void adapter_specs(const struct param_spec *weight,
                   const struct adapter *adapter, struct param_spec *a,
                   struct param_spec *b);
/* The gradient of the step's first parameter, dyᵀ x of the tokens that this
 * rank has, summed as that of a norm's weight. Both of one type. */
status local_sums(const struct step *step, struct run *run, struct tensor dy,
                  struct tensor x);
struct step_cost local_cost(const struct step *step, const struct program *p);
extern const struct layer layer_scatter, layer_dropout, layer_attention,
    layer_combine, layer_mtp_join;

#endif
