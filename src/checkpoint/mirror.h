/* SPDX-License-Identifier: Apache-2.0 */
/* mirror.h - checkpoints of a run in object storage.
 *
 *     s3://BUCKET/PREFIX/config.yaml, tokenizer.json, metrics.jsonl, ...
 *                       /step-00001000/model-..., optim-..., ..., manifest.json
 *                       /latest             "step-00001000"
 *
 * A step is sent after its save is whole on the disk: each object is read back
 * and compared, the manifest goes last of a step, then `latest` names it, then
 * old steps are removed. Whoever stops in between leaves the step before. */
#ifndef LOCKSTEP_CHECKPOINT_MIRROR_H
#define LOCKSTEP_CHECKPOINT_MIRROR_H

#include <stdbool.h>
#include <stdint.h>
#include "base/status.h"

/* Before a run: the place can be written by this user, and no run has sent a
 * checkpoint there. */
status mirror_check(const char *url);

struct mirror_step {
    const char *run, *url;
    int64_t step, keep_last, keep_every; /* as checkpoint_prune */
    /* OK: this process may still write for the run (control/lease.h). Asked
     * before a step is sent, before `latest` moves, and before old steps go. */
    status (*may_write)(const char *run, bool now);
};
/* A step that is there already is not sent again. */
status mirror_send(const struct mirror_step *what);

/* Makes `run`, which must not be there, with the newest step; every block of it
 * is verified. ERR_MISSING: there is none. */
status mirror_fetch(const char *url, const char *run, int64_t *step);

#endif
