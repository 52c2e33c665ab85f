/* SPDX-License-Identifier: Apache-2.0 */
/* token_sums.h - sums over tokens, for gradients of vectors. */
#ifndef LOCKSTEP_KERNELS_REFERENCE_TOKEN_SUMS_H
#define LOCKSTEP_KERNELS_REFERENCE_TOKEN_SUMS_H

#include "kernels/reference/real.h"

/* The chain with one more token: chain + a term of (token, column). */
typedef real (*token_term)(const void *context, int64_t token, int64_t column,
                           real chain);

/* sums [leaves * parts, width] = terms of all tokens in `order`
 * (kernels/sums.h). */
void NAME(token_sums)(struct tensor sums, const struct token_order *order,
                      token_term term, const void *context);

#endif
