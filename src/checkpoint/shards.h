/* SPDX-License-Identifier: Apache-2.0 */
/* shards.h - a checkpoint of which each machine keeps a part on its own disk.
 *
 *    DIR/a/ckpt/step-00001000/       on machine a
 *        manifest.json               of the whole, as in RUN/ckpt
 *        shards.json                 the same of what lies here: checksums of
 *                                    the blocks as they are on this disk
 *        nodes.json                  which machine has which ranks' shards
 *        model-..., optim-...        in full length, with holes for the rest
 *        state.json, config.json, metrics.jsonl, ...
 *
 * Each element is written by one rank, so a whole block is the exclusive or of
 * the machines' blocks. CRC-32C is linear: from the lists alone it follows
 * which blocks are whole, and what is missing. Blocks of zeros are not read.
 * A place is what reads the files of a machine: its disk, or its agent. */
#ifndef LOCKSTEP_CHECKPOINT_SHARDS_H
#define LOCKSTEP_CHECKPOINT_SHARDS_H

#include "base/local_stores.h"
#include "checkpoint/manifest.h"

struct shard_place {
    char name[STORE_NAME_BYTES]; /* of the machine */
    void *argument;
    status (*list)(void *argument, struct text *out);  /* stores_list */
    status (*read)(void *argument, const char *path, int64_t offset,
                   void *bytes, size_t length, size_t *got); /* stores_read */
};
/* On this machine. */
struct shard_place shard_place_here(const char *name,
                                    const struct stores *stores);
/* All of a file. ERR_FORMAT: it is longer. */
status shard_place_read(const struct shard_place *place, const char *path,
                        size_t bytes_most, struct text *out);

/* A step of a store, as a place lists it. */
struct shard_found {
    int place;
    char store[STORE_NAME_BYTES];
    int64_t step;                /* -1: it has none yet */
};
struct shard_list { struct shard_found *items; int count, room; };
/* Adds what a place has. Of two stores with one name, that of the machine with
 * the name counts, else the first. */
status shard_list_add(struct shard_list *list, const struct shard_place *places,
                      int place);
void shard_list_free(struct shard_list *list);
/* The largest step below `below`; -1: none. */
int64_t shard_list_newest(const struct shard_list *list, int64_t below);

struct shard_store {
    const struct shard_place *place; /* borrowed */
    char name[STORE_NAME_BYTES];
    struct manifest own;
};

struct shard_set {
    struct shard_store *stores; /* owned, [count] */
    int count;
    struct manifest whole;
    const char *text;           /* [length]: its bytes */
    size_t length;
    struct arena arena;
};

/* Opens a step from all stores that have it, but for those whose lists cannot
 * be read, or are of something else. ERR_MISSING: there is none. */
status shards_open(struct shard_set *shards, const struct shard_place *places,
                   const struct shard_list *list, int64_t step);
/* ERR_MISSING: which machine's shards are missing, and which blocks. */
status shards_check_whole(const struct shard_set *shards);
void shards_close(struct shard_set *shards);

/* out = a block of tensor number `tensor` of the manifest. What each store has
 * of it is compared with that store's list; the whole is not yet. ERR_FORMAT
 * names the machine. */
status shards_read_block(const struct shard_set *shards, int tensor,
                         int64_t block, unsigned char *out);
/* A file that a machine has beside its shards, checked, from the first that
 * has it whole. */
status shards_read_file(const struct shard_set *shards, const char *name,
                        size_t bytes_most, struct text *out);

/* Makes RUN/ckpt/step-N of it, verified; newest: and `latest`. */
status shards_gather(const struct shard_set *shards, const char *run,
                     bool newest);

#endif
