/* SPDX-License-Identifier: Apache-2.0 */
/* plugin.c - where plug-ins lie. */
#include "base/plugin.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/file.h"

status plugin_path(const char *file, char *out, size_t bytes)
{
    const char *directory = getenv("LOCKSTEP_PLUGINS");
    char program[PATH_BYTES];

    if (directory == NULL) {
        const ssize_t length = readlink("/proc/self/exe", program,
                                        sizeof program - 1);

        program[length > 0 ? length : 0] = '\0';
        char *slash = strrchr(program, '/');
        if (slash != NULL) *slash = '\0';
        directory = program;
    }
    TRY(path_join(out, bytes, directory, file));
    return OK;
}
