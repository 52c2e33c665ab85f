/* SPDX-License-Identifier: Apache-2.0 */
/* convert.h - elements from one type and spacing to another.
 *
 * Between equal types the bytes are copied, whatever they mean. Between
 * floating types each value is widened exactly to float64 and rounded once,
 * to nearest even. */
#ifndef LOCKSTEP_CHECKPOINT_CONVERT_H
#define LOCKSTEP_CHECKPOINT_CONVERT_H

#include <stdbool.h>
#include <stdint.h>
#include "tensor/tensor.h"

/* Equal types, or two of the floating ones (F32, F64, BF16, F16). */
bool convert_possible(enum dtype to, enum dtype from);
/* Elements of one type, `step` of them from each to the next. */
struct spacing { enum dtype dtype; int64_t step; };

/* out[i to.step] = in[i from.step], 0 <= i < count. The types must be
 * possible. */
void convert_elements(struct spacing to, void *out, struct spacing from,
                      const void *in, int64_t count);

#endif
