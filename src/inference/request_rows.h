/* SPDX-License-Identifier: Apache-2.0 */
/* request_rows.h - requests laid side by side into rows of a batch, each a
 * document of its own, so that little is padded.
 *
 *   row 0   |aaaaaaaaaaaaaaa|bbbbb...|cccccccc|ddd.|
 *   row 1   |eeeee...|ffff....|.....................
 *
 * A sum over keys is made of granules of 128 positions with 16 lanes, and of a
 * tree over granules (docs/numerics.md). A request therefore begins where
 * both fall as they would at position 0: one of at most 128 tokens at a
 * multiple of 16 and inside one granule, a longer one at a multiple of a power
 * of two granules that holds it. So its bits are those of the request alone,
 * whatever stands beside it. */
#ifndef LOCKSTEP_INFERENCE_REQUEST_ROWS_H
#define LOCKSTEP_INFERENCE_REQUEST_ROWS_H

#include "corpus/task_request.h"

struct request_place {
    int64_t request;
    int64_t row;
    int64_t offset; /* first token in the row */
    int64_t value;  /* number of its first scored target, counted over rows */
};

struct request_rows {
    const struct task_requests *requests; /* borrowed */
    struct request_place *places; /* owned [requests], by row and offset */
    int64_t *first;   /* owned [count + 1]: of a row, in places */
    int64_t *value;   /* owned [count + 1]: scored targets before a row */
    int64_t length;   /* tokens of a row */
    int64_t count;    /* rows */
};

/* Every request is at most `length` tokens long. */
status request_rows_build(struct request_rows *rows,
                          const struct task_requests *requests,
                          int64_t length);
void request_rows_free(struct request_rows *rows);
/* A length of rows that suits the longest request, at most `context`. */
int64_t request_rows_length(const struct task_requests *requests,
                            int64_t context);
/* Arrays of [length]; a row beyond the last has no targets. */
void request_rows_fill(const struct request_rows *rows, int64_t row,
                       int32_t *inputs, int32_t *targets, int32_t *positions,
                       int32_t *documents);
/* cells [length]: number of the scored target of each token, or -1. */
void request_rows_cells(const struct request_rows *rows, int64_t row,
                        int64_t *cells);

#endif
