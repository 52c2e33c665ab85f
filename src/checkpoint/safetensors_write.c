/* SPDX-License-Identifier: Apache-2.0 */
/* safetensors_write.c - a .safetensors file, declared first, filled in any
 * order, committed by rename. */
#include "checkpoint/safetensors_write.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/arena.h"
#include "base/fault.h"
#include "base/file.h"
#include "base/temporaries.h"
#include "checkpoint/parts.h"
#include "checkpoint/safetensors.h"
#include "checkpoint/transfer.h"

static int order_in_file(const void *left, const void *right)
{
    const struct safetensors_tensor *a = *(const struct safetensors_tensor
                                               *const *)left;
    const struct safetensors_tensor *b = *(const struct safetensors_tensor
                                               *const *)right;
    const int widths = dtype_bytes(b->dtype) - dtype_bytes(a->dtype);

    if (widths != 0) return widths;
    if (a->dtype != b->dtype) return a->dtype < b->dtype ? -1 : 1;
    return strcmp(a->name, b->name);
}

static status add_entry(struct text *header,
                        const struct safetensors_tensor *tensor,
                        int64_t begin, int64_t end)
{
    /* A safe name needs no escapes. */
    TRY(text_printf(header, ",\"%s\":{\"dtype\":\"%s\",\"shape\":[",
                    tensor->name, safetensors_type(tensor->dtype)));
    for (int i = 0; i < tensor->dimensions; i++)
        TRY(text_printf(header, "%s%lld", i ? "," : "",
                        (long long)tensor->shape[i]));
    return text_printf(header, "],\"data_offsets\":[%lld,%lld]}",
                       (long long)begin, (long long)end);
}

static status check_tensor(const struct safetensors_tensor *tensor,
                           int64_t *bytes)
{
    int64_t elements;

    if (!name_is_safe(tensor->name))
        FAIL(ERR_CONFIG, "%s: cannot be the name of a tensor", tensor->name);
    TRY(part_elements(tensor->name, tensor->dimensions, tensor->shape,
                      tensor->dtype, &elements));
    *bytes = elements * dtype_bytes(tensor->dtype);
    return OK;
}

/* The header text, and writer->first relative to the buffer. */
static status make_header(struct safetensors_writer *writer,
                          const struct safetensors_tensor **sorted)
{
    struct text *header = &writer->header;
    int64_t at = 0;

    TRY(text_append(header, "\0\0\0\0\0\0\0\0", 8));
    TRY(text_append_string(header, "{\"__metadata__\":{\"format\":\"pt\"}"));
    for (int i = 0; i < writer->count; i++) {
        const struct safetensors_tensor *tensor = sorted[i];
        int64_t bytes = 0, end;

        TRY(check_tensor(tensor, &bytes));
        if (__builtin_add_overflow(at, bytes, &end))
            FAIL(ERR_CONFIG, "%s: the file would exceed 2^63 bytes",
                 writer->path);
        writer->first[tensor - writer->tensors] = at;
        TRY(add_entry(header, tensor, at, end));
        at = end;
    }
    TRY(text_append(header, "}", 1));
    while (header->length % 8 != 0) TRY(text_append(header, " ", 1));
    if (header->length - 8 > SAFETENSORS_HEADER_BYTES_MAX)
        FAIL(ERR_CONFIG, "%s: %d tensors are too many for one file",
             writer->path, writer->count);
    for (int i = 0; i < 8; i++)
        header->bytes[i] = (char)((header->length - 8) >> (8 * i) & 0xff);
    if (__builtin_add_overflow(at, (int64_t)header->length,
                               &writer->file_bytes))
        FAIL(ERR_CONFIG, "%s: the file would exceed 2^63 bytes",
             writer->path);
    return OK;
}

static int order_by_name(const void *left, const void *right)
{
    const struct safetensors_tensor *a = *(const struct safetensors_tensor
                                               *const *)left;
    const struct safetensors_tensor *b = *(const struct safetensors_tensor
                                               *const *)right;

    return strcmp(a->name, b->name);
}

static status plan_file(struct safetensors_writer *writer)
{
    const size_t count = (size_t)writer->count;
    const struct safetensors_tensor **sorted = NULL;
    void *memory;
    status result;

    TRY(memory_take(count + 1, sizeof *writer->first, &memory));
    writer->first = memory;
    TRY(memory_take(count + 1, sizeof *sorted, &memory));
    sorted = memory;
    for (size_t i = 0; i < count; i++) sorted[i] = &writer->tensors[i];
    if (count > 1) qsort(sorted, count, sizeof *sorted, order_by_name);
    for (size_t i = 1; i < count; i++)
        if (strcmp(sorted[i - 1]->name, sorted[i]->name) == 0)
            FAIL_GOTO(done, result, ERR_CONFIG, "%s: declared twice",
                      sorted[i]->name);
    if (count > 1) qsort(sorted, count, sizeof *sorted, order_in_file);
    TRY_GOTO(done, result, make_header(writer, sorted));
    for (size_t i = 0; i < count; i++)
        writer->first[i] += (int64_t)writer->header.length;
done:
    memory_free(sorted);
    return result;
}

static status copy_path(char **out, const char *path, const char *ending)
{
    struct text text = {0};
    status result = text_printf(&text, "%s%s", path, ending);

    *out = text.bytes; /* the text's owner from here on frees it */
    return result;
}

static void free_path(char **path)
{
    struct text text = {.bytes = *path};

    text_free(&text);
    *path = NULL;
}

/* Asks for all blocks at once, so that a full disk shows before hours of
 * writing; a file system that cannot tell shows it at the write. */
static status reserve(const struct safetensors_writer *writer)
{
    int failed;

    if (writer->file_bytes == 0) return OK;
    do failed = fallocate(writer->descriptor, 0, 0, writer->file_bytes);
    while (failed && errno == EINTR);
    if (failed && (errno == ENOSPC || errno == EDQUOT))
        FAIL(ERR_IO, "%s: disk full: it needs %lld bytes", writer->path,
             (long long)writer->file_bytes);
    if (failed && errno == EFBIG)
        FAIL(ERR_IO, "%s: its %lld bytes are beyond the file size limit "
             "(ulimit -f)", writer->path, (long long)writer->file_bytes);
    if (failed && ftruncate(writer->descriptor, writer->file_bytes) != 0)
        FAIL(ERR_IO, "%s: cannot be given %lld bytes: %s", writer->path,
             (long long)writer->file_bytes, strerror(errno));
    return OK;
}

/* A part that nobody writes is a hole, which takes no room on most file
 * systems. */
static status leave_holes(const struct safetensors_writer *writer)
{
    if (ftruncate(writer->descriptor, writer->file_bytes) == 0) return OK;
    FAIL(ERR_IO, "%s: cannot be given %lld bytes: %s", writer->path,
         (long long)writer->file_bytes, strerror(errno));
}

enum opening { OPENING_WHOLE, OPENING_ALONE, OPENING_PART };

static status open_new(struct safetensors_writer *writer, const char *path,
                       const struct safetensors_tensor *tensors, int count,
                       enum opening opening)
{
    char name[PATH_BYTES];

    memset(writer, 0, sizeof *writer);
    writer->tensors = tensors;
    writer->count = count;
    TRY(copy_path(&writer->path, path, ""));
    TRY(plan_file(writer));
    if (opening == OPENING_ALONE) {
        TRY(file_temporary_name(path, name));
        TRY(copy_path(&writer->temporary, name, ""));
        temporary_note(name);
    } else {
        TRY(copy_path(&writer->temporary, path, ".tmp"));
    }
    /* A file that an interrupted run left under this name is worthless. O_EXCL
     * then refuses a link that another process puts there. */
    unlink(writer->temporary);
    TRY(file_open_own(writer->temporary, O_WRONLY | O_CREAT | O_EXCL,
                      &writer->descriptor));
    TRY(opening == OPENING_PART ? leave_holes(writer) : reserve(writer));
    return transfer_write(writer->descriptor, writer->path, 0,
                          writer->header.bytes, writer->header.length);
}

status safetensors_writer_open(struct safetensors_writer *writer,
                               const char *path,
                               const struct safetensors_tensor *tensors,
                               int count)
{
    return open_new(writer, path, tensors, count, OPENING_WHOLE);
}

status safetensors_writer_open_alone(struct safetensors_writer *writer,
                                     const char *path,
                                     const struct safetensors_tensor *tensors,
                                     int count)
{
    return open_new(writer, path, tensors, count, OPENING_ALONE);
}

status safetensors_writer_open_part(struct safetensors_writer *writer,
                                    const char *path,
                                    const struct safetensors_tensor *tensors,
                                    int count)
{
    return open_new(writer, path, tensors, count, OPENING_PART);
}

status safetensors_writer_join(struct safetensors_writer *writer,
                               const char *path,
                               const struct safetensors_tensor *tensors,
                               int count)
{
    struct stat found;

    *writer = (struct safetensors_writer){.tensors = tensors, .count = count,
                                          .joined = true};
    TRY(copy_path(&writer->path, path, ""));
    TRY(plan_file(writer));
    TRY(copy_path(&writer->temporary, path, ".tmp"));
    writer->descriptor = open(writer->temporary,
                              O_WRONLY | O_NOFOLLOW | O_CLOEXEC);
    if (writer->descriptor < 0) {
        writer->descriptor = 0;
        if (errno != ENOENT && errno != ENOTDIR)
            return file_fail("opening it", writer->temporary, errno);
        FAIL(ERR_IO, "%s: cannot be opened: %s; do all ranks see the same file "
                     "system?", writer->temporary, strerror(errno));
    }
    if (fstat(writer->descriptor, &found) != 0 ||
        found.st_size != writer->file_bytes)
        FAIL(ERR_IO, "%s: has %lld bytes, expected %lld", writer->temporary,
             (long long)found.st_size, (long long)writer->file_bytes);
    return OK;
}

status safetensors_writer_sync(const struct safetensors_writer *writer)
{
    return transfer_sync(writer->descriptor, writer->path);
}

status safetensors_writer_put(const struct safetensors_writer *writer,
                              int index, int64_t first, int64_t count,
                              const void *elements)
{
    const int64_t size = dtype_bytes(writer->tensors[index].dtype);

    TRY(fault_point("checkpoint.tensor"));
    TRY(transfer_write(writer->descriptor, writer->path,
                       writer->first[index] + first * size, elements,
                       (size_t)(count * size)));
    if (!fault_due("checkpoint.flip")) return OK;
    /* A disk that stores another byte than it was given. */
    const unsigned char flipped = *(const unsigned char *)elements ^ 16;

    return transfer_write(writer->descriptor, writer->path,
                          writer->first[index] + first * size, &flipped, 1);
}

status safetensors_writer_commit(struct safetensors_writer *writer)
{
    struct text parent = {0};
    const char *slash = strrchr(writer->path, '/');
    const int descriptor = writer->descriptor;
    status result;

    TRY(fault_point("checkpoint.sync"));
    TRY(transfer_sync(descriptor, writer->path));
    writer->descriptor = 0;
    if (close(descriptor) != 0)
        FAIL(ERR_IO, "%s: closing failed: %s", writer->path, strerror(errno));
    if (rename(writer->temporary, writer->path) != 0)
        FAIL(ERR_IO, "%s: cannot be renamed from %s: %s", writer->path,
             transfer_name(writer->temporary), strerror(errno));
    temporary_forget(writer->temporary);
    free_path(&writer->temporary);
    if (slash)
        TRY_GOTO(done, result,
                 text_append(&parent, writer->path,
                             (size_t)(slash - writer->path) + 1));
    result = directory_sync(slash ? parent.bytes : ".");
done:
    text_free(&parent);
    return result;
}

void safetensors_writer_free(struct safetensors_writer *writer)
{
    if (writer->descriptor > 0) close(writer->descriptor);
    if (writer->temporary && !writer->joined) {
        unlink(writer->temporary);
        temporary_forget(writer->temporary);
    }
    free_path(&writer->path);
    free_path(&writer->temporary);
    memory_free(writer->first);
    text_free(&writer->header);
    memset(writer, 0, sizeof *writer);
}
