/* SPDX-License-Identifier: Apache-2.0 */
/* nccl_box.c - messages as files in memory, or in the directory NCCL_BOXES. */
#include "tests/driver/nccl_box.h"

#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PATH_MOST = 400 };

static const char *place(void)
{
    const char *set = getenv("NCCL_BOXES");

    return set != NULL ? set : "/dev/shm";
}

static void path_of(const struct box_name *n, char out[PATH_MOST])
{
    snprintf(out, PATH_MOST, "%s/lockstep-nccl-%s-%c%llu-%d-%d", place(),
             n->comm, n->kind, (unsigned long long)n->number, n->from, n->to);
}

static bool write_all(int file, const char *data, int64_t bytes)
{
    while (bytes > 0) {
        const ssize_t done = write(file, data, (size_t)bytes);

        if (done <= 0) return false;
        data += done;
        bytes -= done;
    }
    return true;
}

bool box_put(const struct box_name *name, const void *data, int64_t bytes)
{
    char path[PATH_MOST], unfinished[PATH_MOST + 4];
    bool written;
    int file;

    path_of(name, path);
    snprintf(unfinished, sizeof unfinished, "%s.new", path);
    file = open(unfinished, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (file < 0) return false;
    written = write_all(file, data, bytes);
    close(file);
    return written && rename(unfinished, path) == 0;
}

int box_take(const struct box_name *name, void *data, int64_t bytes)
{
    char path[PATH_MOST];
    char *at = data;
    struct stat about;
    int file, result = 1;

    path_of(name, path);
    file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0) return errno == ENOENT ? 0 : -1;
    if (fstat(file, &about) != 0 || about.st_size != bytes) result = -1;
    while (result == 1 && bytes > 0) {
        const ssize_t done = read(file, at, (size_t)bytes);

        if (done <= 0) result = -1;
        at += done;
        bytes -= done;
    }
    close(file);
    unlink(path);
    return result;
}

void box_clear(const char *comm)
{
    char pattern[PATH_MOST];
    glob_t found;

    snprintf(pattern, sizeof pattern, "%s/lockstep-nccl-%s-*", place(), comm);
    if (glob(pattern, GLOB_NOSORT, NULL, &found) != 0) return;
    for (size_t i = 0; i < found.gl_pathc; i++) unlink(found.gl_pathv[i]);
    globfree(&found);
}
