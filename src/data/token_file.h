/* SPDX-License-Identifier: Apache-2.0 */
/* token_file.h - tokenised documents on disk, mapped for reading.
 *
 *    offset  bytes
 *         0      8   "LSTOKEN1"
 *         8      4   bytes per token, 2 or 4             all little-endian
 *        12      4   end token, after each document
 *        16      8   vocabulary (every id is smaller)
 *        24      8   number of tokens, n
 *        32      8   number of documents, d
 *        40      8   bytes of text that the tokens stand for
 *        48     64   tokenizer digest, hex, zeros if unknown
 *       112     64   source digest, hex, zeros if unknown
 *       176      4   CRC-32C of tokens and table
 *       180      4   CRC-32C of bytes 0 to 179
 *       184      8   zero
 *       192    n*b   tokens; each document ends with the end token
 *    +0 to 7      to a multiple of 8
 *       ...  8*(d+1)  first token of each document; then n
 *
 * Files are never changed after they are written (beside, then renamed). */
#ifndef LOCKSTEP_DATA_TOKEN_FILE_H
#define LOCKSTEP_DATA_TOKEN_FILE_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "base/file.h"
#include "base/status.h"

enum { TOKEN_DIGEST_BYTES = 65 };

struct token_file {
    struct file_map map;        /* owned */
    const char *path;           /* borrowed from the opener */
    const unsigned char *image; /* of the whole file, in the map */
    size_t length;              /* bytes */
    const unsigned char *tokens;/* in the map */
    const unsigned char *starts;/* in the map, [documents + 1] of 8 bytes */
    int bytes_per_token;        /* 2 or 4 */
    int32_t end_token;
    int64_t vocab;
    int64_t count;              /* tokens */
    int64_t documents;
    int64_t text_bytes;
    uint32_t crc;               /* of tokens and table: what the data is */
    char tokenizer[TOKEN_DIGEST_BYTES], source[TOKEN_DIGEST_BYTES];
};

/* Checks the header, every size, and the ends of the table: microseconds.
 * `path` must outlive the file. ERR_MISSING; ERR_FORMAT. */
status token_file_open(struct token_file *file, const char *path);
/* The same checks on the image of a file in memory, which must outlive it. */
status token_file_parse(struct token_file *file, const unsigned char *bytes,
                        size_t length);
void token_file_close(struct token_file *file); /* also if never opened */
/* The checksum of the whole file, that documents ascend and that every id is
 * below the vocabulary: one pass. ERR_FORMAT names the first wrong place. */
status token_file_verify(const struct token_file *file);
/* Id at `index` in [0, count). */
int32_t token_file_at(const struct token_file *file, int64_t index);
/* First token of document `index` in [0, documents]; the last is count. */
int64_t token_file_start(const struct token_file *file, int64_t index);

/* ---- writing ---- */

struct token_writer {
    char path[PATH_BYTES], temporary[PATH_BYTES];
    FILE *file;                 /* owned */
    int bytes_per_token;
    int32_t end_token;
    int64_t vocab, count, documents, text_bytes;
    uint32_t crc;
    int64_t *starts;            /* owned */
    int64_t start_capacity;
    char tokenizer[TOKEN_DIGEST_BYTES], source[TOKEN_DIGEST_BYTES];
};

/* Two bytes a token where the vocabulary allows it. Digests may be NULL. */
status token_writer_open(struct token_writer *writer, const char *path,
                         int64_t vocab, int32_t end_token,
                         const char *tokenizer, const char *source);
/* One document; the end token is added. text_bytes: of its text. ERR_FORMAT: an
 * id outside the vocabulary. */
status token_writer_add(struct token_writer *writer, const int32_t *ids,
                        int64_t count, int64_t text_bytes);
/* Completes, fsyncs and renames. ERR_IO says "disk full" by name. */
status token_writer_close(struct token_writer *writer);
/* Removes what was not closed. */
void token_writer_free(struct token_writer *writer);

#endif
