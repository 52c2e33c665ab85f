/* SPDX-License-Identifier: Apache-2.0 */
/* mirror.h - checkpoints of a run in object storage.
 *
 *     s3://BUCKET/PREFIX/config.yaml, tokenizer.json, metrics.jsonl, ...
 *                       /step-00001000/model-..., optim-..., ..., manifest.json
 *                       /latest             "step-00001000"
 *
 * A step is sent after its save is whole on the disk: each object is read back
 * and compared, the manifest goes last of a step, then `latest` names it, then
 * old steps are removed. If the process ends in between, the step before is
 * still there, and `latest` names it. */
#ifndef LOCKSTEP_CHECKPOINT_MIRROR_H
#define LOCKSTEP_CHECKPOINT_MIRROR_H

#include <stdbool.h>
#include <stdint.h>
#include "base/status.h"
#include "checkpoint/s3_text.h"

/* A process that sends checkpoints to a place: lockstep.txt there names the one
 * that began last, and the others send no more. It is replaced only where it is
 * what was read before (s3_put_if): of two that begin at once one is refused.
 * In a storage without conditional writes it is read back, no more: then the
 * first one may notice the other only as it sends a step. Zeroed: not begun. */
struct mirror_writer {
    char text[160]; /* of lockstep.txt; "": not made */
    bool claimed;   /* it stood there */
};
/* Before a run: the place can be written by this user, no run has sent a
 * checkpoint there, and `writer` has it now. */
status mirror_check(const char *url, struct mirror_writer *writer);

struct mirror_step {
    const char *run, *url;
    struct mirror_writer *writer;        /* borrowed; NULL: nobody asks */
    int64_t step, keep_last, keep_every; /* as checkpoint_prune */
    int64_t best; /* as checkpoint_best_step has `known`; -1: none is kept */
    /* OK: this process may still write for the run (control/lease.h). Asked
     * before a step is sent, before `latest` moves, and before old steps go. */
    status (*may_write)(const char *run, bool now);
};
/* A step that is there already is not sent again; earlier ones that are on the
 * disk and not there are sent, too. ERR_STOPPED: the time after
 * mirror_stop_soon is over; what is missing is sent with a later step.
 * ERR_CONFIG: refused, or another process sends there since. */
status mirror_send(const struct mirror_step *what);
/* The process is asked to end: it sends for 15 s more at most. */
void mirror_stop_soon(void);

/* Makes `run`, which must not be there, with the newest step, and the best
 * where `best` is not NULL and one was recorded (*best 0: none): in
 * RUN.fetching, which becomes RUN when every block is verified. ERR_MISSING:
 * there is none. */
status mirror_fetch(const char *url, const char *run, int64_t *step,
                    int64_t *best);
/* The newest step into a run that is there, and files that it lacks. What has
 * its name there becomes STEP.damaged. */
status mirror_restore(const char *url, const char *run, int64_t *step);
/* The number of the newest step, if the storage answers in so many seconds.
 * ERR_MISSING: there is none; ERR_STOPPED: no answer. */
status mirror_newest(const char *url, double seconds, int64_t *step);

/* Beside steps a mirror has the first STORES_MIRRORED_FILES of stores_run_files
 * (base/local_stores.h); some may be missing. */
enum { MIRROR_LATEST_MOST = 64 };
/* STEP/FILE. ERR_CONFIG: too long. */
status mirror_key(char out[S3_KEY_BYTES], const char *step, const char *file);

#endif
