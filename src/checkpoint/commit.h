/* SPDX-License-Identifier: Apache-2.0 */
/* commit.h - the directory of a checkpoint: made aside, appearing whole. */
#ifndef LOCKSTEP_CHECKPOINT_COMMIT_H
#define LOCKSTEP_CHECKPOINT_COMMIT_H

#include "checkpoint/save.h"

/* save->final and save->temporary. */
status commit_name_directory(struct checkpoint_save *save);
/* Makes save->temporary, empty. ERR_IO: no permission, or the file
 * system has less room than the checkpoint needs. */
status commit_make_directory(struct checkpoint_save *save);

#endif
