/* SPDX-License-Identifier: Apache-2.0 */
/* byte_source.h - the bytes of a file from first to last, unpacked on the way
 * when it is gzip or zstd.
 *
 * The first bytes of a file determine its format, not its name. Several members
 * or frames one after the other, as `cat a.gz b.gz` produces them, are one
 * source. Memory is a few buffers; a zstd window above 128 MiB is refused. */
#ifndef LOCKSTEP_CORPUS_BYTE_SOURCE_H
#define LOCKSTEP_CORPUS_BYTE_SOURCE_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include "base/status.h"
#include "base/text.h"

struct byte_source {
    const char *path;       /* borrowed, for messages */
    FILE *file;             /* owned */
    int64_t consumed;       /* bytes of the file read so far */
    unsigned char *buffer;  /* owned: bytes of the file */
    size_t at, length;      /* of the buffer: used, there */
    void *gzip, *zstd;      /* owned decoders; both NULL: not packed */
    bool ended;             /* no byte of the file is left */
    bool inside;            /* a packed member or frame is not complete */
};

/* A file that is open; it is taken. `path` must outlive the source. */
status byte_source_begin(struct byte_source *source, FILE *file,
                         const char *path);
/* Up to `most` bytes into `out`; *got 0: the end. ERR_FORMAT: what is packed
 * is damaged or ends too early. */
status byte_source_read(struct byte_source *source, void *out, size_t most,
                        size_t *got);
void byte_source_close(struct byte_source *source); /* also if never opened */

/* The line that begins here, without its end, in `line` (its length is reset
 * first). *there false: the source is at its end. ERR_FORMAT: a line of more
 * than `most` bytes, which are not all read. */
struct line_reader {
    struct byte_source source; /* owned */
    char *buffer;              /* owned [LINE_BUFFER] */
    size_t at, length;
    int64_t number;            /* of the line read last, from 1 */
    bool cut;                  /* that line ended with the file, not a '\n' */
    size_t most;               /* bytes of a line; 0: LINE_BYTES_MOST */
    const char *most_of;       /* what says so, for the error; NULL: nothing */
};
enum { LINE_BYTES_MOST = 64 << 20 };
/* ERR_MISSING, ERR_IO, ERR_MEMORY. `path` must outlive the reader. */
status line_reader_open(struct line_reader *reader, const char *path);
status line_reader_begin(struct line_reader *reader, FILE *file,
                         const char *path);
status line_reader_next(struct line_reader *reader, struct text *line,
                        bool *there);
void line_reader_close(struct line_reader *reader);

#endif
