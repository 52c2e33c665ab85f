/* SPDX-License-Identifier: Apache-2.0 */
/* run_dir.h - the directory of a run, and what a MODEL argument names.
 *
 *    RUN/config.yaml      the resolved configuration
 *    RUN/metrics.jsonl    one line for each step
 *    RUN/ledger.jsonl     steps that went wrong (observe/ledger.h)
 *    RUN/consumed.jsonl   samples of each step (observe/consumed.h)
 *    RUN/samples.jsonl    texts that validations continued (validate.prompts)
 *    RUN/log.txt          of rank 0; RUN/logs/rank-00003.log of the others
 *    RUN/layers.jsonl     of observed steps (observe.layers)
 *    RUN/tensorboard/     event files (observe.tensorboard)
 *    RUN/report.html
 *    RUN/lock             held by the process that trains; never stale
 *    RUN/ckpt/            checkpoints (checkpoint.h) */
#ifndef LOCKSTEP_CHECKPOINT_RUN_DIR_H
#define LOCKSTEP_CHECKPOINT_RUN_DIR_H

#include "base/file.h"
#include "base/status.h"

struct run_dir {
    char path[PATH_BYTES];
    char config[PATH_BYTES], metrics[PATH_BYTES], samples[PATH_BYTES];
    char consumed[PATH_BYTES];
    char report[PATH_BYTES], checkpoints[PATH_BYTES];
    struct file_lock lock;
};

/* A new run: makes the directory, takes its lock. ERR_CONFIG: it holds a run
 * already, or another process trains in it (its pid is in the sentence);
 * ERR_IO: it cannot be written. */
status run_dir_create(struct run_dir *run, const char *path);
/* An existing run, to be continued: takes its lock, and removes what an
 * interrupted save left in RUN/ckpt. ERR_MISSING: it is none. */
status run_dir_resume(struct run_dir *run, const char *path);
/* Removes what a process that was killed left of config.yaml, report.html and
 * other files of a run. For who has its lock, when nothing is refused any more.
 */
status run_dir_clean(const struct run_dir *run);
/* An existing run, to be read, also while another process trains. */
status run_dir_read(struct run_dir *run, const char *path);
/* Whether there is a run. */
bool run_dir_exists(const char *path);
void run_dir_close(struct run_dir *run); /* drops the lock */
/* Where rank `rank` of the run in directory `run` logs; makes RUN/logs where
 * that is needed. */
status run_dir_log(const char *run, int rank, char path[PATH_BYTES]);

enum place_kind { MODEL_RUN, MODEL_CHECKPOINT, MODEL_HUGGING_FACE };

struct model_place {
    enum place_kind kind;       /* what the argument is */
    char directory[PATH_BYTES]; /* of the checkpoint (a run's newest), or of
                                 * the Hugging Face files */
    int64_t step;               /* MODEL_RUN, or RUN/best: of that checkpoint;
                                 * else -1 */
};

/* ERR_MISSING, ERR_FORMAT: what is there instead, and which directories would
 * do; checkpoints of other trainers are named. */
status model_place_find(const char *path, struct model_place *out);

#endif
