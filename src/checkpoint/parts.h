/* SPDX-License-Identifier: Apache-2.0 */
/* parts.h - the part of a whole tensor that this process holds, as runs.
 *
 * A checkpoint knows whole tensors under global names and nothing of meshes.
 * The caller says where its own elements lie in the whole tensor: as runs,
 * blocks of equally long, equally spaced rows (mesh/layout.h computes them).
 * One rank's run is the whole tensor; a column split is one run with a stride;
 * a tensor that is stored transposed outside has a local step.
 *
 *     whole   . . a a a . . . . b b b . . . . c c c . .
 *             |<->| whole_first  |<->| length, 3 repeats
 *                 |<-- whole_stride ->|
 *     local   a a a b b b c c c        from data[local_first] */
#ifndef LOCKSTEP_CHECKPOINT_PARTS_H
#define LOCKSTEP_CHECKPOINT_PARTS_H

#include <stdbool.h>
#include <stdint.h>
#include "base/status.h"
#include "tensor/tensor.h"

struct saved_run {
    int64_t whole_first;  /* element offset in the whole tensor */
    int64_t length;       /* elements of a row */
    int64_t repeats;      /* rows */
    int64_t whole_stride; /* elements from row to row, at least length */
    int64_t local_first;  /* element offset from the part's data */
    int64_t local_stride; /* elements from row to row; 0: rows touch */
    int64_t local_step;   /* elements from one to the next; 0: 1 */
};

struct saved_part {
    const char *name;     /* global; the weight's name for every kind */
    const char *kind;     /* "weight", "m", "v" or the like; file name
                           * of a tensor is name or name.kind */
    enum dtype dtype;     /* of the elements at data */
    int dimensions;       /* of the whole, 0 to TENSOR_DIMENSIONS_MAX */
    int64_t shape[TENSOR_DIMENSIONS_MAX]; /* of the whole, elements */
    int run_count;        /* 0 with data: the whole, dense; 0 without: none */
    const struct saved_run *runs;
    void *data;           /* borrowed; read by a save, written by a load */
    /* Elements that are stored in another way: sets out [count] of dtype to
     * those at local, local + step, ... of what data says. A load cannot write
     * them. NULL: they lie at data. */
    void (*decode)(const void *data, int64_t local, int64_t step,
                   int64_t count, void *out);
};

/* A stretch of one row: count elements of the whole from `whole`, found at
 * data[local], data[local + step], ... */
struct saved_stretch { int64_t whole, count, local, step; };

/* Elements of a shape. ERR_FORMAT: negative, or more bytes than 2^62. */
status part_elements(const char *name, int dimensions, const int64_t *shape,
                     enum dtype dtype, int64_t *elements);
/* Every number makes sense and stays in the whole; ERR_CONFIG otherwise. */
status part_check(const struct saved_part *part);
bool part_is_weight(const struct saved_part *part);
/* The runs, or the one of a whole dense part in *whole. */
int part_runs(const struct saved_part *part, struct saved_run *whole,
              const struct saved_run **runs);
/* Steps through what lies in elements [first, last) of the whole. Start with
 * *row = 0; false when there is no more. */
bool run_next(const struct saved_run *run, int64_t first, int64_t last,
              int64_t *row, struct saved_stretch *stretch);
/* Tensor names hold 1 to 511 printable ASCII characters except space, quotes
 * and backslash. File names are one component of [A-Za-z0-9._-] that does not
 * begin with a dot. */
bool name_is_safe(const char *name);
bool file_name_is_safe(const char *name);

#endif
