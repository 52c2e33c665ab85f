/* SPDX-License-Identifier: Apache-2.0 */
/* transfer.c - whole reads and writes at an offset of an open file. */
#include "checkpoint/transfer.h"
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/fault.h"

/* The kernel moves at most 2 GiB in one call; smaller calls cost nothing and
 * let a signal in. */
static const size_t CALL_BYTES_MAX = (size_t)1 << 30;

const char *transfer_name(const char *path)
{
    const char *slash = strrchr(path, '/');

    return slash && slash[1] ? slash + 1 : path;
}

status transfer_open(const char *path, bool follow_links, int *descriptor,
                     int64_t *length)
{
    /* O_NONBLOCK: a named pipe in the place of a file must not hang us. */
    const int flags = O_RDONLY | O_CLOEXEC | O_NONBLOCK |
                      (follow_links ? 0 : O_NOFOLLOW);
    struct stat about;
    int opened;

    do opened = open(path, flags);
    while (opened < 0 && errno == EINTR);
    if (opened < 0 && errno == ENOENT)
        FAIL(ERR_MISSING, "%s: there is no such file", path);
    if (opened < 0 && errno == ELOOP)
        FAIL(ERR_FORMAT, "%s: is a link, expected a regular file", path);
    if (opened < 0)
        FAIL(ERR_IO, "%s: cannot be opened: %s", path, strerror(errno));
    if (fstat(opened, &about) != 0) {
        const int reason = errno;

        close(opened);
        FAIL(ERR_IO, "%s: cannot be examined: %s", path, strerror(reason));
    }
    if (!S_ISREG(about.st_mode)) {
        close(opened);
        FAIL(ERR_FORMAT, "%s: expected a regular file", path);
    }
    *descriptor = opened;
    *length = (int64_t)about.st_size;
    return OK;
}

status transfer_read(int descriptor, const char *path, int64_t offset,
                     void *bytes, size_t length)
{
    char *at = bytes;

    TRY(fault_point("checkpoint.read"));
    while (length > 0) {
        const size_t ask = length < CALL_BYTES_MAX ? length : CALL_BYTES_MAX;
        const ssize_t got = pread(descriptor, at, ask, (off_t)offset);

        if (got < 0 && errno == EINTR) continue;
        if (got < 0)
            FAIL(ERR_IO, "%s: reading at byte %lld failed: %s", path,
                 (long long)offset, strerror(errno));
        if (got == 0)
            FAIL(ERR_FORMAT, "%s: ends at byte %lld, %zu more were expected",
                 path, (long long)offset, length);
        at += got;
        offset += got;
        length -= (size_t)got;
    }
    return OK;
}

status transfer_write(int descriptor, const char *path, int64_t offset,
                      const void *bytes, size_t length)
{
    const char *at = bytes;

    while (length > 0) {
        const size_t ask = length < CALL_BYTES_MAX ? length : CALL_BYTES_MAX;
        const ssize_t put = pwrite(descriptor, at, ask, (off_t)offset);

        if (put < 0 && errno == EINTR) continue;
        if (put < 0 && (errno == ENOSPC || errno == EDQUOT))
            FAIL(ERR_IO, "%s: disk full while writing byte %lld", path,
                 (long long)offset);
        if (put < 0 && errno == EFBIG)
            FAIL(ERR_IO,
                 "%s: byte %lld is beyond the file size limit (ulimit -f)",
                 path, (long long)offset);
        if (put <= 0)
            FAIL(ERR_IO, "%s: writing at byte %lld failed: %s", path,
                 (long long)offset, put < 0 ? strerror(errno) : "no progress");
        at += put;
        offset += put;
        length -= (size_t)put;
    }
    return OK;
}

status transfer_sync(int descriptor, const char *path)
{
    if (fsync(descriptor) == 0) return OK;
    if (errno == ENOSPC || errno == EDQUOT)
        FAIL(ERR_IO, "%s: disk full while syncing", path);
    FAIL(ERR_IO, "%s: syncing to disk failed: %s", path, strerror(errno));
}
