/* SPDX-License-Identifier: Apache-2.0 */
/* exchange_model.h - the part of exchange.c that looks inside the program: what
 * its steps send along the tensor and context axes. */
#ifndef LOCKSTEP_PLAN_EXCHANGE_MODEL_H
#define LOCKSTEP_PLAN_EXCHANGE_MODEL_H

#include "plan/exchange.h"

/* Adds to the row of that group, kind and purpose, or begins it; rows of groups
 * of one rank are left out. */
void exchanges_add(struct exchanges *exchanges, struct exchange row);
/* One call of a layer, with its group. */
struct exchange exchange_of_layer(const struct mesh *mesh,
                                  const struct layer_exchange *exchange);
/* Adds the exchanges of all micro-batches of a step. */
void exchanges_of_program(struct exchanges *exchanges,
                          const struct stage *stage);

#endif
