/* SPDX-License-Identifier: Apache-2.0 */
/* save.h - writing a checkpoint: all of it or nothing.
 *
 * Files are written under RUN/ckpt/.tmp-step-00001000, fsynced, and appear by
 * one rename; then `latest` is replaced. Killed at any moment, the checkpoints
 * before are untouched and no half of this one has a name that is read. */
#ifndef LOCKSTEP_CHECKPOINT_SAVE_H
#define LOCKSTEP_CHECKPOINT_SAVE_H

#include "base/threads.h"
#include "checkpoint/manifest.h"
#include "checkpoint/parts.h"
#include "checkpoint/weights_write.h"

/* A small file to store beside the tensors: config.json, tokenizer.json. */
struct checkpoint_file {
    const char *name;  /* one component */
    const void *bytes;
    size_t length;
};

struct checkpoint_plan {
    const char *run;          /* RUN; ckpt is made if need be */
    int64_t step, tokens;
    struct grid grid;
    const char *lockstep;     /* version of the program */
    int64_t numerics;         /* version of the sums */
    const char *config_json;  /* architecture, part of the model's identity */
    const char *tokenizer;    /* digest; NULL or "": none */
    const char *state_json;   /* an object */
    const struct saved_part *parts; /* every tensor; the order is kept */
    int part_count;
    const struct checkpoint_file *files;
    int file_count;
    int64_t shard_bytes;      /* 0: SHARD_BYTES_DEFAULT */
    struct threads *threads;  /* NULL: one thread */
    void *buffer;             /* checkpoint_buffer_bytes; NULL: taken here */
    /* The directory gets the shards of one machine (shards.h): what its ranks
     * write, and holes for the rest. `beside`: files that shards.json lists,
     * and the manifest does not. */
    bool part;
    const struct checkpoint_file *beside;
    int beside_count;
};

size_t checkpoint_buffer_bytes(const struct threads *threads);

/* Reads the parts, changes nothing of them. A checkpoint of the same step is
 * replaced. ERR_IO ("disk full" with the bytes that it needs): nothing but
 * time is lost. ERR_CONFIG: the parts do not cover their tensors. */
status checkpoint_save(const struct checkpoint_plan *plan);

/* Like checkpoint_save, in three calls, where several hold parts of a tensor:
 * each writes its own; checksums join by xor, covered elements by sum. */
struct checkpoint_save {
    const struct checkpoint_plan *plan; /* borrowed */
    char final[PATH_BYTES], temporary[PATH_BYTES];
    struct arena arena;                 /* all tables below */
    struct weights_writer model, optim;
    struct safetensors_tensor *tensors; /* [part_count], weights first */
    int weight_count;
    int *place;                         /* [part_count], part -> tensors */
    int64_t *first_block;               /* [part_count + 1] */
    uint32_t *contributions;            /* [blocks], xor over all writers */
    uint32_t *own;                      /* [blocks], of this machine's;
                                         * NULL: not kept apart */
    int64_t *covered;                   /* [part_count], elements */
    uint64_t *places;                   /* [part_count], sums of their numbers
                                         * modulo 2^64 */
    unsigned char *buffer;              /* borrowed or in the arena */
    bool made;                          /* the temporary directory is ours */
};

status checkpoint_save_begin(struct checkpoint_save *save,
                             const struct checkpoint_plan *plan);
/* parts [plan->part_count] as in the plan, with the runs and data of one
 * holder. May be called again for another. */
status checkpoint_save_write(struct checkpoint_save *save,
                             const struct saved_part *parts);
/* All files are on the disk, under the temporary directory. */
status checkpoint_save_finish(struct checkpoint_save *save);
/* Reads it back, from the disk where the system can forget its copy: every
 * shares-th block, from `share` on. ERR_FORMAT: it is not what was written. */
status checkpoint_save_check(const struct checkpoint_save *save, int share,
                             int shares);
/* It gets its name. */
status checkpoint_save_commit(struct checkpoint_save *save);

/* Holders in other processes: one begins; then the others join, with the same
 * plan but for its data; all write and sync; those who joined give what they
 * add up to (checkpoint_share_bytes at `out`) to the one who began, who adds
 * it, finishes and, when all have checked their shares, commits. */
status checkpoint_save_join(struct checkpoint_save *save,
                            const struct checkpoint_plan *plan);
size_t checkpoint_share_bytes(const struct checkpoint_save *save);
/* Waits until what was written is on the disk. */
status checkpoint_save_sync(const struct checkpoint_save *save);
void checkpoint_save_share(const struct checkpoint_save *save, void *out);
void checkpoint_save_add(struct checkpoint_save *save, const void *share);
/* With plan->part: all shares of this machine are added; then the sum of all
 * machines takes their place. */
status checkpoint_save_keep_own(struct checkpoint_save *save);
void checkpoint_save_set(struct checkpoint_save *save, const void *share);

/* 0 + 1 + ... + (n - 1) modulo 2^64. */
static inline uint64_t sum_below(uint64_t n)
{
    return n % 2 == 0 ? n / 2 * (n - 1) : (n - 1) / 2 * n;
}
/* Removes what was not committed. */
void checkpoint_save_free(struct checkpoint_save *save);

#endif
