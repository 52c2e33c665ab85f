/* SPDX-License-Identifier: Apache-2.0 */
/* run_number.c - a number in a file of its own, as in RUN/control. */
#include "control/run_number.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"

uint64_t run_number_in(const struct text *text)
{
    uint64_t number;
    char *end;

    if (text->length == 0 || text->length >= RUN_NUMBER_BYTES ||
        !isdigit((unsigned char)text->bytes[0]))
        return 0;
    errno = 0;
    number = strtoull(text->bytes, &end, 10);
    return errno == 0 && *end == '\n' &&
                   end + 1 == text->bytes + text->length ? number : 0;
}

static status path_of(const char *run, const char *name, char path[PATH_BYTES])
{
    char directory[PATH_BYTES];

    TRY(path_join(directory, sizeof directory, run, "control"));
    return path_join(path, PATH_BYTES, directory, name);
}

status run_number_write(const char *run, const char *name, uint64_t number)
{
    char path[PATH_BYTES], line[RUN_NUMBER_BYTES];

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
        file_read_own(path, RUN_NUMBER_BYTES, &text) == OK)
        number = run_number_in(&text);
    status_clear();
    text_free(&text);
    return number;
}
