/* SPDX-License-Identifier: Apache-2.0 */
/* groups.h - parameter groups: which rows of optimizer.groups speak of which
 * parameter, and what they change.
 *
 *     PATTERN [frozen] [KEY=VALUE ...]
 *
 * PATTERN is a glob (* any characters, ? one) over the names of parameters
 * here ("layers.3.attention.wqkv") and in Hugging Face files
 * ("model.layers.3.self_attn.q_proj.weight"). Rows are read from first to
 * last; of two that set the same thing of the same parameter the later wins.
 *
 *   frozen         no update, no states, no part of the gradient's norm;
 *                  a selection bias of a router stays as it is
 *   lr_factor      of the rate of the step
 *   weight_decay   also of vectors, which have none else
 *   beta1, beta2
 *   optimizer      a row of the table (kind.h) */
#ifndef LOCKSTEP_OPTIMIZER_GROUPS_H
#define LOCKSTEP_OPTIMIZER_GROUPS_H

#include "mesh/param.h"
#include "optimizer/kind.h"

/* rules [params->count]: what the rows say, over what is there already; then
 * the rates. The table may be a part of the model. */
status groups_apply(const struct groups *groups,
                    const struct param_table *params,
                    struct optimizer_rule *rules);
/* ERR_CONFIG: a row that cannot be read (names the nearest key), that matches
 * nothing of the whole model (names the nearest parameter), or that matches
 * some outside tensors of a matrix which is one here. */
status groups_check(const struct groups *groups,
                    const struct param_table *whole);
/* Does the text match the glob? */
bool groups_match(const char *pattern, const char *text);

#endif
