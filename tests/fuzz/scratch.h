/* SPDX-License-Identifier: Apache-2.0 */
/* scratch.h - a directory of a fuzzer's process, removed at its end. */
#ifndef LOCKSTEP_TESTS_FUZZ_SCRATCH_H
#define LOCKSTEP_TESTS_FUZZ_SCRATCH_H

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include "base/file.h"

static char scratch[PATH_BYTES];

static inline void scratch_remove(void)
{
    if (directory_remove(scratch) != OK) status_clear();
}

/* In memory where the system has such a place. False: it was there already. */
static inline bool scratch_make(void)
{
    const char *base = access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp";

    if (scratch[0]) return false;
    snprintf(scratch, sizeof scratch, "%s/lockstep-fuzz-XXXXXX", base);
    CHECK(mkdtemp(scratch) != NULL);
    atexit(scratch_remove);
    return true;
}

static inline void scratch_put(const char *name, const void *bytes,
                               size_t size)
{
    char path[PATH_BYTES];

    CHECK(path_join(path, PATH_BYTES, scratch, name) == OK);
    CHECK(file_write_atomic(path, bytes, size) == OK);
}

#endif
