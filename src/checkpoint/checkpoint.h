/* SPDX-License-Identifier: Apache-2.0 */
/* checkpoint.h - one saved step of a run, opened for reading.
 *
 *    RUN/ckpt/latest                     text: step-00001000
 *    RUN/ckpt/step-00001000/
 *        manifest.json                   what is here, with checksums
 *        state.json                      counters, data cursor, schedule
 *        model-00001-of-00002.safetensors, model.safetensors.index.json
 *        optim-00001-of-00003.safetensors
 *        config.json, ...                whatever the run adds
 *
 * Tensors are whole, under global names, whatever the layout that wrote them;
 * a reader asks for the runs that it holds (parts.h). Each 1 MiB block of a
 * tensor is verified when it is read. */
#ifndef LOCKSTEP_CHECKPOINT_CHECKPOINT_H
#define LOCKSTEP_CHECKPOINT_CHECKPOINT_H

#include "base/arena.h"
#include "base/file.h"
#include "base/json.h"
#include "base/threads.h"
#include "checkpoint/manifest.h"
#include "checkpoint/parts.h"

/* Names of the lists: of the whole, and of what one machine has of it. */
#define CHECKPOINT_MANIFEST "manifest.json"
#define CHECKPOINT_SHARDS "shards.json"

struct shard_set;

struct checkpoint {
    char directory[PATH_BYTES]; /* of several stores: the step's name */
    struct manifest manifest;
    const struct json *state;  /* object of state.json */
    struct threads *threads;   /* borrowed; NULL: one thread */
    const struct shard_set *shards; /* borrowed; NULL: its files are here */
    int *descriptors;          /* owned [file_count]; -1: none */
    unsigned char *buffer;     /* owned, a block for each thread */
    struct arena arena;
};

/* Checks manifest, sizes, names and headers, not yet the tensors' bytes.
 * ERR_MISSING; ERR_FORMAT says which file is damaged and how. */
status checkpoint_open(struct checkpoint *checkpoint, const char *directory,
                       struct threads *threads);
/* Like checkpoint_open, by the list of that name. */
status checkpoint_open_listed(struct checkpoint *checkpoint,
                              const char *directory, const char *list,
                              struct threads *threads);
/* One that lies on several machines. ERR_MISSING, ERR_FORMAT, ERR_PEER. */
status checkpoint_open_shards(struct checkpoint *checkpoint,
                              const struct shard_set *shards,
                              struct threads *threads);
void checkpoint_close(struct checkpoint *checkpoint);

/* Every checksum of every tensor. ERR_FORMAT names the first bad block. */
status checkpoint_verify(struct checkpoint *checkpoint);
/* Like checkpoint_verify, by several readers: each every shares-th block, from
 * `share` on. */
status checkpoint_verify_share(struct checkpoint *checkpoint, int share,
                               int shares);

/* NULL: not there. */
const struct manifest_tensor *
checkpoint_find(const struct checkpoint *checkpoint, const char *name,
                const char *kind);
/* Fills part->data through part->runs, converted to part->dtype; blocks that
 * are touched are verified first. ERR_FORMAT: no such tensor, another shape,
 * a damaged block. */
status checkpoint_read_tensor(struct checkpoint *checkpoint,
                              const struct saved_part *part);
/* out [count] = elements [first, first + count) of a tensor. */
status checkpoint_read_range(struct checkpoint *checkpoint,
                             const struct manifest_tensor *tensor,
                             int64_t first, int64_t count, enum dtype dtype,
                             void *out);

#endif
