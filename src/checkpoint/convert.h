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

/* Equal types, or a floating type (F32, F64, BF16, F16) to F32, F64 or BF16. */
bool convert_possible(enum dtype to, enum dtype from);
/* out[i out_step] = in[i in_step], 0 <= i < count; steps in elements of each
 * side's own type. The types must be possible. */
void convert_elements(enum dtype to, void *out, int64_t out_step,
                      enum dtype from, const void *in, int64_t in_step,
                      int64_t count);

#endif
