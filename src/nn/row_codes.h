/* SPDX-License-Identifier: Apache-2.0 */
/* row_codes.h - rows that go to the ranks of their experts as codes of the
 * recipe (docs/precision.md, "Rows of experts as codes").
 *
 *   of a row   codes [width] | its scale, float32, if the recipe has one
 *
 * A rank that has the experts decodes the rows, and its products round them
 * again. That gives the same numbers only where a row is rounded alone and
 * alike for both of its products, and what was rounded rounds to itself: by
 * no scale, or by one of a token. With numerics.mode=fast rows of other recipes
 * go as E4M3 with a scale for each token, and are rounded twice. */
#ifndef LOCKSTEP_NN_ROW_CODES_H
#define LOCKSTEP_NN_ROW_CODES_H

#include "nn/run.h"

/* Why x of experts cannot go as codes, for people; NULL: it can. */
const char *row_codes_refusal(const struct precision_use *use);
/* Whether rows go as codes that products round again: not exact. */
bool row_codes_twice(const struct precision_use *use);
/* How x of experts, or gate dy (`gradient`), is coded in a block that has the
 * recipe; NULL: rows of so many elements go as they are. */
const struct precision_role *row_codes_of(const struct precision_use *use,
                                          bool gradient, int64_t width);
int64_t row_codes_bytes(const struct precision_role *role, int64_t width);

/* Memory of a call for up to so many rows. */
size_t row_codes_scratch(int64_t rows);
/* rows [count, width] bfloat16; codes of row r from r row_codes_bytes on. */
status row_codes_encode(struct run *run, const struct precision_role *role,
                        void *scratch, struct tensor rows, void *codes);
status row_codes_decode(struct run *run, const struct precision_role *role,
                        void *scratch, const void *codes, struct tensor rows);

#endif
