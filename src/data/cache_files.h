/* SPDX-License-Identifier: Apache-2.0 */
/* cache_files.h - files that data.cache keeps beside token files, so that the
 * next opening need not find them again:
 *
 *   .pack     which fragments of documents share a sample   (pack_file.h)
 *   .starts   documents of a file without a table        (token_starts.c)
 *   .split    documents that are held out                (split.h)
 *
 * None is more than a cache: a run makes what is damaged again. */
#ifndef LOCKSTEP_DATA_CACHE_FILES_H
#define LOCKSTEP_DATA_CACHE_FILES_H

#include <stdint.h>
#include "base/status.h"

struct kept {
    const char *kind; /* in words */
    int64_t bytes;
    int64_t documents, tokens; /* of what it was made of */
    uint32_t crc;     /* of all of it */
};

/* The kind that a name stands for; NULL: none of these. */
const char *kept_kind(const char *path);
/* Reads all of the file. bytes are set even if it is damaged. ERR_FORMAT. */
status kept_verify(const char *path, struct kept *out);

#endif
