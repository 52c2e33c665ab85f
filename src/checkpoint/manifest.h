/* SPDX-License-Identifier: Apache-2.0 */
/* manifest.h - the table of contents of a checkpoint.
 *
 * JSON, one line per file and per tensor, ending with a checksum of itself:
 *
 *    {
 *    "format": "lockstep checkpoint", "version": 1,
 *    "lockstep": "0.1.0", "numerics": 1,
 *    "step": 1000, "tokens": 2048000,
 *    "grid": {"data": 8, "tensor": 4, "context": 1},
 *    "model": "<sha-256>", "tokenizer": "<sha-256>",
 *    "block_bytes": 1048576,
 *    "files": [
 *    {"name": "state.json", "bytes": 310, "crc32c": "90ab12cd"},
 *    ...],
 *    "tensors": [
 *    {"name": "lm_head.weight", "kind": "weight", "dtype": "F32",
 *     "shape": [512, 64], "file": 3, "first": 4096, "bytes": 131072,
 *     "crc32c": "<8 hexadecimal digits for each block of the tensor>"},
 *    ...],
 *    "crc32c": "0f1e2d3c"      of every byte before this line
 *    }
 *
 * It holds nothing that depends on the clock, the machine or the layout: equal
 * states give equal bytes. "crc32c" of a safetensors file covers its header
 * (8 + N bytes); that of another file covers all of it. */
#ifndef LOCKSTEP_CHECKPOINT_MANIFEST_H
#define LOCKSTEP_CHECKPOINT_MANIFEST_H

#include <stdbool.h>
#include "base/arena.h"
#include "base/text.h"
#include "mesh/layout.h"
#include "tensor/tensor.h"

enum {
    MANIFEST_VERSION = 1,
    CHECKPOINT_BLOCK_BYTES = 1 << 20,
    MANIFEST_BYTES_MAX = 64 << 20,
    DIGEST_BYTES = 65 /* SHA-256 in hexadecimal and a NUL */
};

struct manifest_file {
    const char *name;  /* one component */
    int64_t bytes;
    uint32_t crc;      /* of the header if tensors point here, else of all */
    bool holds_tensors;
};

struct manifest_tensor {
    const char *name;  /* global, without the kind */
    const char *kind;  /* "weight", "m", "v", ... */
    enum dtype dtype;
    int dimensions;
    int64_t shape[TENSOR_DIMENSIONS_MAX]; /* of the whole */
    int64_t elements;
    int file;          /* index into files */
    int64_t first;     /* byte offset in the file */
    int64_t bytes;
    int64_t blocks;
    uint32_t *crcs;    /* [blocks] */
};

struct manifest {
    char lockstep[32];      /* version of the program that wrote it */
    int64_t numerics;       /* version of the definitions of sums */
    int64_t step, tokens;
    struct grid grid;
    char model[DIGEST_BYTES], tokenizer[DIGEST_BYTES]; /* "": not given */
    int file_count;
    struct manifest_file *files;     /* [file_count] */
    int tensor_count;
    struct manifest_tensor *tensors; /* [tensor_count] by kind and name */
};

/* CRC-32C of n zero bytes. */
uint32_t crc32c_zeros(uint64_t length);
/* The contribution of bytes with checksum `crc` to the checksum of a block that
 * holds `after` bytes behind them. Contributions are joined with xor, and at
 * last with crc32c_zeros(length of the block). */
uint32_t crc32c_contribution(uint32_t crc, uint64_t length, uint64_t after);

status manifest_write(struct text *out, const struct manifest *manifest);
/* Checks everything that can be checked without the files. `source` names it
 * in errors. Texts and tables live in `arena`. ERR_FORMAT. */
status manifest_read(struct manifest *manifest, struct arena *arena,
                     const char *text, size_t length, const char *source);
/* The same without the checksum of the text, for the fuzzer. */
status manifest_parse(struct manifest *manifest, struct arena *arena,
                      const char *text, size_t length, const char *source);
/* Name of a tensor in its safetensors file: name, or name.kind. Writes at
 * most 640 bytes. */
const char *tensor_file_name(char out[640], const char *name,
                             const char *kind);

#endif
