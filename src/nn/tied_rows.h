/* SPDX-License-Identifier: Apache-2.0 */
/* tied_rows.h - the rows of a table that the tokens of a step name, in the
 * order in which they came up.
 *
 * The gradient of looking up a tied table is zero but for these: a few MB
 * instead of a second table. Where the head is not the same matrix, the
 * gradient is that of the parameter and whole. */
#ifndef LOCKSTEP_NN_TIED_ROWS_H
#define LOCKSTEP_NN_TIED_ROWS_H

#include "nn/program.h"

enum { TIED_BLOCK = 64 }; /* rows of the table that are added at a time */

struct tied_rows {
    int32_t *places; /* owned, [table]: place of a row among the named; -1 */
    int32_t *rows;   /* owned, [most]: the other way round */
    int64_t table, most, count;
};

status tied_rows_build(struct tied_rows *named, int64_t table, int64_t most);
void tied_rows_free(struct tied_rows *named);
/* Before the first micro-batch of a step. */
void tied_rows_reset(struct tied_rows *named);
/* out [count] = places of the rows in index [count], new ones where a row comes
 * up for the first time. */
void tied_rows_find(struct tied_rows *named, const int32_t *index,
                     int64_t count, int32_t *out);

#endif
