/* SPDX-License-Identifier: Apache-2.0 */
/* safetensors_write.h - a .safetensors file, declared first, filled in any
 * order, committed by rename.
 *
 * Names, types and shapes fix the header and the place of every byte, so that
 * several threads (or ranks, each on the same list) may then write their own
 * elements. Tensors are ordered by type, widest first, then by name, as the
 * reference writer does; the header is padded to a multiple of 8. */
#ifndef LOCKSTEP_CHECKPOINT_SAFETENSORS_WRITE_H
#define LOCKSTEP_CHECKPOINT_SAFETENSORS_WRITE_H

#include <stdbool.h>
#include "base/file.h"
#include "base/status.h"
#include "base/text.h"
#include "tensor/tensor.h"

struct safetensors_tensor {
    const char *name;
    enum dtype dtype;
    int dimensions; /* 0 to TENSOR_DIMENSIONS_MAX */
    int64_t shape[TENSOR_DIMENSIONS_MAX]; /* elements */
};

struct safetensors_writer {
    char *path;            /* owned; the final name */
    char *temporary;       /* owned; what is open */
    int descriptor;        /* owned; 0: none */
    const struct safetensors_tensor *tensors; /* borrowed until freed */
    int count;
    int64_t *first;        /* owned [count], byte offsets in the file */
    struct text header;    /* owned; with its 8 bytes of length */
    int64_t file_bytes;
    bool joined;           /* another's file: neither renamed nor removed */
};

/* Makes path.tmp at its full size; ERR_IO "disk full" if there is no room. */
status safetensors_writer_open(struct safetensors_writer *writer,
                               const char *path,
                               const struct safetensors_tensor *tensors,
                               int count);
/* The same under a name that nobody else has, for a file that a user named:
 * path.tmp may be the user's, or of another call. */
status safetensors_writer_open_alone(struct safetensors_writer *writer,
                                     const char *path,
                                     const struct safetensors_tensor *tensors,
                                     int count);
/* Like safetensors_writer_open, for a file of which only a part will be
 * written. */
status safetensors_writer_open_part(struct safetensors_writer *writer,
                                    const char *path,
                                    const struct safetensors_tensor *tensors,
                                    int count);
/* Opens the path.tmp that another made of the same list, to write into it too.
 * ERR_IO: it is not there, or of another size. */
status safetensors_writer_join(struct safetensors_writer *writer,
                               const char *path,
                               const struct safetensors_tensor *tensors,
                               int count);
/* Elements [first, first + count) of tensor `index`, in its own type. May be
 * called by several threads at once. */
status safetensors_writer_put(const struct safetensors_writer *writer,
                              int index, int64_t first, int64_t count,
                              const void *elements);
/* fsync, for who joined. */
status safetensors_writer_sync(const struct safetensors_writer *writer);
/* fsync and rename; the directory is synced too. */
status safetensors_writer_commit(struct safetensors_writer *writer);
/* Removes what was not committed. */
void safetensors_writer_free(struct safetensors_writer *writer);

#endif
