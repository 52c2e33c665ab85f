/* SPDX-License-Identifier: Apache-2.0 */
/* parquet.h - one column of a Parquet file, row by row.
 *
 *   PAR1 | row group: of each column its pages | ... | footer | length | PAR1
 *
 * Read are texts (byte arrays) and lists of 32- or 64-bit integers, required or
 * optional; pages of both versions; the encodings plain, dictionary and the
 * three deltas; unpacked, Snappy, gzip and Zstandard. Anything else is refused
 * by name. Checksums of pages are checked where they are. Memory is the footer,
 * a page and a dictionary. */
#ifndef LOCKSTEP_CORPUS_PARQUET_H
#define LOCKSTEP_CORPUS_PARQUET_H

#include <stddef.h>
#include <stdint.h>
#include "base/status.h"

/* A row that is not null: text [length], or ids [count] where text is NULL.
 * Valid during the call only. */
struct parquet_row {
    int64_t number;     /* of the row in the file */
    const char *text;
    size_t length;      /* bytes */
    const int32_t *ids;
    int64_t count;
};
typedef status parquet_take(void *context, const struct parquet_row *row);

struct parquet_file {
    const char *path;           /* for messages */
    const unsigned char *bytes; /* [length] of the file */
    size_t length;
};

/* All rows of the column (a.b: the field b of a). *at: bytes of the file before
 * the page of the row. ERR_FORMAT names file, place, what is there and what was
 * expected. */
status parquet_read(const struct parquet_file *file, const char *column,
                    parquet_take *take, void *context, int64_t *at);

#endif
