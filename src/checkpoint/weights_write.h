/* SPDX-License-Identifier: Apache-2.0 */
/* weights_write.h - tensors into a Hugging Face directory, in as many shards
 * as their size needs. */
#ifndef LOCKSTEP_CHECKPOINT_WEIGHTS_WRITE_H
#define LOCKSTEP_CHECKPOINT_WEIGHTS_WRITE_H

#include "checkpoint/safetensors_write.h"

/* The hub's limit: decimal gigabytes. */
#define SHARD_BYTES_DEFAULT ((int64_t)5000000000)

/* shard_of [count] = 0-based shard of each tensor: in the order given, a new
 * shard begins where the next tensor would exceed the limit; a larger tensor
 * has one of its own. *shards = their number, at least 1. */
status weights_split(const struct safetensors_tensor *tensors, int count,
                     int64_t limit_bytes, int *shard_of, int *shards);
/* "model.safetensors", or "model-00001-of-00003.safetensors" when numbered or
 * shards > 1. */
void shard_name(char out[64], const char *stem, int shard, int shards,
                bool numbered);
/* Text of model.safetensors.index.json. */
status weights_index_text(struct text *out,
                          const struct safetensors_tensor *tensors, int count,
                          const int *shard_of, int shards,
                          const char *stem);

struct weights_writer {
    char directory[PATH_BYTES];
    const char *stem;                    /* borrowed, "model" */
    bool numbered;                       /* also a single shard */
    bool join;                           /* write into another's files */
    bool part;                           /* others write the rest elsewhere */
    const struct safetensors_tensor *tensors; /* borrowed until freed */
    int count;
    int shards;
    int *shard_of;                       /* owned [count] */
    int *place;                          /* owned [count], index in shard */
    struct safetensors_writer *files;    /* owned [shards] */
};

/* Makes the directory if need be. limit_bytes 0: SHARD_BYTES_DEFAULT. Before
 * the call `stem`, `numbered`, `join` and `part` may be set in a zeroed
 * writer; the stem is otherwise "model". */
status weights_writer_open(struct weights_writer *writer,
                           const char *directory,
                           const struct safetensors_tensor *tensors,
                           int count, int64_t limit_bytes);
/* Elements [first, first + count) of tensors[index], in its own type. */
status weights_writer_put(const struct weights_writer *writer, int index,
                          int64_t first, int64_t count, const void *elements);
/* fsync of every shard, for who joined. */
status weights_writer_sync(const struct weights_writer *writer);
status weights_writer_commit_shards(struct weights_writer *writer);
/* Shards, then the index (unless one plain file has all). */
status weights_writer_commit(struct weights_writer *writer);
void weights_writer_free(struct weights_writer *writer);

#endif
