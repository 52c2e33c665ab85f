/* SPDX-License-Identifier: Apache-2.0 */
/* local_stores.h - files of a run on a machine's own disk, which others may
 * read.
 *
 *     DIRECTORY/STORE/ckpt/step-00001000/FILE   shards (checkpoint/shards.h)
 *     RUN/FILE                                  metrics, configuration, records
 *
 * A path is STORE/ckpt/step-00001000/FILE, or run/FILE with FILE one of
 * stores_run_files. Nothing else is read, and no link is followed. */
#ifndef LOCKSTEP_BASE_LOCAL_STORES_H
#define LOCKSTEP_BASE_LOCAL_STORES_H

#include "base/file.h"
#include "base/text.h"

struct stores { char directory[PATH_BYTES], run[PATH_BYTES]; };

/* A store has the name of its machine. */
enum { STORE_NAME_BYTES = 48, STORE_PATH_BYTES = 256 };

/* Letters, digits, '.', '_', '-', and no '.' first. */
bool store_name_is_plain(const char *name);

/* Files of a run beside its checkpoints; NULL: the end. */
extern const char *const stores_run_files[];
/* A mirror has all of them but the last, "records". */
enum { STORES_MIRRORED_FILES = 22 };

/* A line for each step of each store: "STORE/ckpt/step-00001000"; for a store
 * that has none yet, "STORE/ckpt/.none". A directory that is not there has
 * none. */
status stores_list(const struct stores *stores, struct text *out);
/* bytes [length] from `offset` on; *got: fewer at the end of the file.
 * ERR_MISSING; ERR_CONFIG: no such path. */
status stores_read(const struct stores *stores, const char *path,
                   int64_t offset, void *bytes, size_t length, size_t *got);

#endif
