/* SPDX-License-Identifier: Apache-2.0 */
/* trainer.h - a run from its configuration to its last checkpoint. */
#ifndef LOCKSTEP_TRAIN_TRAINER_H
#define LOCKSTEP_TRAIN_TRAINER_H

#include "setup/setup.h"

struct trainer_request {
    struct options_set *set; /* run.dir names the run; mesh: auto is resolved */
    bool resume;     /* run.dir holds a run: go on from its newest checkpoint */
    bool from_scratch; /* with resume: at step 0, where no checkpoint is */
    bool dry_run;    /* say what would be done, touch nothing */
    const char *trace; /* file for Perfetto, one a rank; NULL: none */
    bool json;       /* the last line is a JSON object */
    int64_t copies;  /* steps from copy to copy in memory; 0: none; COPIES_AUTO
                      * (memory_copy.h) */
    int ranks;       /* that share the batch: threads of this process, or the
                      * processes that a launcher of MPI started; 0: as many as
                      * were launched, or 1 */
};

/* OK: finished. ERR_STOPPED: saved on a signal, resume me. ERR_NUMERIC names
 * step and layer; the checkpoints before stand. */
status trainer_run(const struct trainer_request *request);

/* Before any rank is: an impossible layout is one sentence with its hint. */
status trainer_check_layout(const struct trainer_request *request);

/* Options of an existing run, for resume and plan: its config.yaml, then
 * `assignments` (a.b=c). ERR_CONFIG: a key that may not change. */
status trainer_options(struct options_set *set, const char *run,
                       const char *const *assignments, int count);

#endif
