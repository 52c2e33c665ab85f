/* SPDX-License-Identifier: Apache-2.0 */
/* safetensors.h - a strict reader of one .safetensors file.
 *
 *    offset  bytes
 *         0      8   N, length of the header, little-endian
 *         8      N   JSON: name -> dtype, shape, data_offsets; then spaces
 *     8 + N    ...   the tensors, row-major, little-endian, without gaps
 *
 * Everything that the header claims is checked when the file is opened, and
 * before memory is taken for it: the offsets tile the buffer, each tensor's
 * shape and type give its bytes, the buffer ends where the file does. What
 * follows can then read any part of any tensor without further doubt.
 * Source: the safetensors format, github.com/huggingface/safetensors. */
#ifndef LOCKSTEP_CHECKPOINT_SAFETENSORS_H
#define LOCKSTEP_CHECKPOINT_SAFETENSORS_H

#include <stdbool.h>
#include <stdint.h>
#include "base/arena.h"
#include "base/json.h"
#include "tensor/tensor.h"

enum {
    SAFETENSORS_DIMENSIONS_MAX = 8,
    /* The format allows 100,000,000 bytes; a tensor needs about 100, so this
     * is more than 150,000 of them. */
    SAFETENSORS_HEADER_BYTES_MAX = 16 << 20,
    SAFETENSORS_TENSORS_MAX = 1000000
};

struct safetensors_entry {
    const char *name;
    const char *type;    /* as in the file, "BF16" */
    enum dtype dtype;    /* DTYPE_COUNT: a type that we do not compute with */
    int dimensions;      /* 0 to SAFETENSORS_DIMENSIONS_MAX */
    int64_t shape[SAFETENSORS_DIMENSIONS_MAX]; /* elements */
    int64_t elements;
    int64_t first;       /* byte offset in the file */
    int64_t bytes;
};

struct safetensors {
    const char *path;    /* owned by arena */
    int descriptor;      /* owned; -1 or, zeroed with no arena name: closed */
    int count;
    struct safetensors_entry *entries;        /* [count] in file order */
    const struct safetensors_entry **by_name; /* [count] sorted by bytes */
    const struct json *metadata; /* object of strings; NULL: none */
    int64_t data_first;  /* byte offset of the buffer in the file */
    struct arena arena;
};

/* ERR_MISSING, ERR_IO, ERR_FORMAT with what is wrong and where. */
status safetensors_open(struct safetensors *file, const char *path,
                        bool follow_links);
/* The checks alone, on a header [length] in memory whose buffer has
 * data_bytes. The texts of the result live in file->arena. */
status safetensors_parse(struct safetensors *file, const char *header,
                         size_t length, int64_t data_bytes,
                         const char *path);
void safetensors_close(struct safetensors *file); /* also if never opened */

/* NULL: no such tensor. */
const struct safetensors_entry *
safetensors_find(const struct safetensors *file, const char *name);
/* out [count] = elements [first, first + count) of a tensor of this file as
 * `dtype` (convert.h). ERR_FORMAT: the types do not convert. */
status safetensors_read(const struct safetensors *file,
                        const struct safetensors_entry *entry, int64_t first,
                        int64_t count, enum dtype dtype, void *out);
/* "[2, 3]". Writes at most 192 bytes. */
const char *shape_text(char out[192], int dimensions, const int64_t *shape);
/* The type's name in the format, "F32". */
const char *safetensors_type(enum dtype dtype);

#endif
