/* SPDX-License-Identifier: Apache-2.0 */
/* transfer.h - whole reads and writes at an offset of an open file.
 *
 * The system may transfer less than asked, or be interrupted; here a transfer
 * is complete or an error that names the path. Files are read with pread, not
 * mapped: a file that another process cuts short is then an error, not a
 * signal. */
#ifndef LOCKSTEP_CHECKPOINT_TRANSFER_H
#define LOCKSTEP_CHECKPOINT_TRANSFER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "base/status.h"

/* A regular file for reading; *length = its bytes. ERR_MISSING; ERR_FORMAT:
 * not a regular file, or a link when follow_links is false. */
status transfer_open(const char *path, bool follow_links, int *descriptor,
                     int64_t *length);
/* ERR_FORMAT when the file ends before offset + length. */
status transfer_read(int descriptor, const char *path, int64_t offset,
                     void *bytes, size_t length);
/* ERR_IO says "disk full" or "file size limit" by name. */
status transfer_write(int descriptor, const char *path, int64_t offset,
                      const void *bytes, size_t length);
/* fsync; a failure is final, for the kernel may have dropped the pages. */
status transfer_sync(int descriptor, const char *path);
/* The last component of a path. */
const char *transfer_name(const char *path);

#endif
