/* SPDX-License-Identifier: Apache-2.0 */
/* run_number.c - a number in a file of RUN/control. */
#include "control/run_number.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"

enum { NUMBER_BYTES = 24 };

static status path_of(const char *run, const char *name, char path[PATH_BYTES])
{
    char directory[PATH_BYTES];

    TRY(path_join(directory, sizeof directory, run, "control"));
    return path_join(path, PATH_BYTES, directory, name);
}

status run_number_write(const char *run, const char *name, uint64_t number)
{
    char path[PATH_BYTES], line[NUMBER_BYTES];

    TRY(path_of(run, name, path));
    snprintf(line, sizeof line, "%llu\n", (unsigned long long)number);
    return file_write_atomic(path, line, strlen(line));
}

uint64_t run_number_read(const char *run, const char *name)
{
    struct text text = {0};
    char path[PATH_BYTES];
    uint64_t number = 0;

    if (path_of(run, name, path) == OK && file_exists(path) &&
        file_read_own(path, NUMBER_BYTES, &text) == OK)
        number = strtoull(text.bytes, NULL, 10);
    status_clear();
    text_free(&text);
    return number;
}
