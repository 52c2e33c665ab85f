/* SPDX-License-Identifier: Apache-2.0 */
/* weights.h - the tensors of a Hugging Face directory, by name.
 *
 * Either one model.safetensors, or model.safetensors.index.json and the shards
 * it names. An importer needs each tensor once: it asks with weights_need and
 * ends with weights_all_used, so that nothing is forgotten silently. */
#ifndef LOCKSTEP_CHECKPOINT_WEIGHTS_H
#define LOCKSTEP_CHECKPOINT_WEIGHTS_H

#include <stdbool.h>
#include "base/arena.h"
#include "checkpoint/safetensors.h"

enum { WEIGHTS_FILES_MAX = 4096 };

struct weights_entry {
    const struct safetensors_entry *tensor; /* in its file */
    int file;                               /* index into files */
    int uses;                               /* calls of weights_need */
};

struct weights {
    const char *directory;     /* owned by arena */
    struct arena arena;
    int file_count;
    struct safetensors *files; /* [file_count] */
    int count;
    struct weights_entry *entries; /* [count] sorted by name */
};

/* ERR_MISSING: neither file is there (a hint names what is); ERR_FORMAT: a
 * file is damaged, or index and shards do not agree. */
status weights_open(struct weights *weights, const char *directory);
/* The one file `name` of the directory. */
status weights_open_file(struct weights *weights, const char *directory,
                         const char *name);
void weights_close(struct weights *weights);

/* Index of a tensor, or -1. Does not count as a use. */
int weights_find(const struct weights *weights, const char *name);
/* *index of the tensor that must be there with this shape, and count a use.
 * ERR_FORMAT names what is there instead, or the nearest name. */
status weights_need(struct weights *weights, const char *name, int dimensions,
                    const int64_t *shape, int *index);
/* out [count] = elements [first, first + count) as `dtype`. */
status weights_read(const struct weights *weights, int index, int64_t first,
                    int64_t count, enum dtype dtype, void *out);
/* Like weights_read. ERR_FORMAT names the first that is infinite or NaN: no
 * model can compute with it. */
status weights_read_finite(const struct weights *weights, int index,
                           int64_t first, int64_t count, enum dtype dtype,
                           void *out);
/* ERR_FORMAT lists tensors that were not used, or more than once. Names that
 * end in one of `ignored` (buffers that are not weights) are passed over. */
status weights_all_used(const struct weights *weights,
                        const char *const *ignored, int ignored_count);

#endif
