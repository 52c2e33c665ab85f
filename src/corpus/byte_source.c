/* SPDX-License-Identifier: Apache-2.0 */
/* byte_source.c - the bytes of a file from first to last, unpacked on the way
 * when it is gzip or zstd. */
#include "corpus/byte_source.h"

#include <errno.h>
#include <string.h>
#include <zlib.h>
#include <zstd.h>
#include <zstd_errors.h>

#include "base/arena.h"
#include "base/file.h"

enum {
    BUFFER_BYTES = 1 << 18,
    LINE_BUFFER = 1 << 18,
    GZIP_WINDOW = 15 + 16, /* zlib's code for "a gzip header must come" */
    ZSTD_WINDOW_LOG_MAX = 27
};

static status refill(struct byte_source *s)
{
    s->at = 0;
    s->length = fread(s->buffer, 1, BUFFER_BYTES, s->file);
    if (s->length == 0) {
        if (ferror(s->file))
            FAIL(ERR_IO, "reading %s: %s", s->path, strerror(errno));
        s->ended = true;
    }
    s->consumed += (int64_t)s->length;
    return OK;
}

static status begin_gzip(struct byte_source *s)
{
    TRY(memory_take(1, sizeof(z_stream), &s->gzip));
    memset(s->gzip, 0, sizeof(z_stream));
    if (inflateInit2((z_stream *)s->gzip, GZIP_WINDOW) != Z_OK) {
        memory_free(s->gzip);
        s->gzip = NULL;
        FAIL(ERR_MEMORY, "%s: zlib has no memory to unpack it", s->path);
    }
    return OK;
}

static status begin_zstd(struct byte_source *s)
{
    ZSTD_DCtx *context = ZSTD_createDCtx();

    if (context == NULL)
        FAIL(ERR_MEMORY, "%s: zstd has no memory to unpack it", s->path);
    s->zstd = context;
    (void)ZSTD_DCtx_setParameter(context, ZSTD_d_windowLogMax,
                                 ZSTD_WINDOW_LOG_MAX);
    return OK;
}

/* A frame, or one to be skipped: pzstd begins with the packed size in such. */
static bool is_zstd(const unsigned char *bytes, size_t length)
{
    static const unsigned char frame[] = {0x28, 0xB5, 0x2F, 0xFD};
    static const unsigned char skipped[] = {0x2A, 0x4D, 0x18};

    return length >= 4 && (memcmp(bytes, frame, 4) == 0 ||
                           (bytes[0] >> 4 == 5 &&
                            memcmp(bytes + 1, skipped, 3) == 0));
}

status byte_source_begin(struct byte_source *s, FILE *file, const char *path)
{
    static const unsigned char gzip[] = {0x1F, 0x8B};
    void *memory;

    *s = (struct byte_source){.path = path, .file = file};
    TRY(memory_take(1, BUFFER_BYTES, &memory));
    s->buffer = memory;
    TRY(refill(s));
    if (s->length >= sizeof gzip && memcmp(s->buffer, gzip, 2) == 0)
        TRY(begin_gzip(s));
    else if (is_zstd(s->buffer, s->length))
        TRY(begin_zstd(s));
    return OK;
}

static status damaged(const struct byte_source *s, const char *kind,
                      const char *what)
{
    FAIL(ERR_FORMAT, "%s: damaged %s data before byte %lld: %s", s->path, kind,
         (long long)(s->consumed - (int64_t)(s->length - s->at)), what);
}

static status read_gzip(struct byte_source *s, void *out, size_t most,
                        size_t *got)
{
    z_stream *z = s->gzip;

    if (!s->inside) { /* a member ended, and more bytes follow */
        if (inflateReset(z) != Z_OK)
            FAIL(ERR_MEMORY, "%s: zlib cannot go on", s->path);
        s->inside = true;
    }
    z->next_in = s->buffer + s->at;
    z->avail_in = (unsigned)(s->length - s->at);
    z->next_out = out;
    z->avail_out = most > BUFFER_BYTES ? BUFFER_BYTES : (unsigned)most;
    const unsigned room = z->avail_out;
    const int code = inflate(z, Z_NO_FLUSH);

    s->at = s->length - z->avail_in;
    *got = room - z->avail_out;
    if (code == Z_STREAM_END)
        s->inside = false;
    else if (code == Z_MEM_ERROR)
        FAIL(ERR_MEMORY, "%s: zlib has no memory to unpack it", s->path);
    else if (code != Z_OK && code != Z_BUF_ERROR)
        return damaged(s, "gzip", z->msg != NULL ? z->msg : "no such stream");
    return OK;
}

static status read_zstd(struct byte_source *s, void *out, size_t most,
                        size_t *got)
{
    ZSTD_inBuffer from = {s->buffer, s->length, s->at};
    ZSTD_outBuffer to = {out, most, 0};
    const size_t code = ZSTD_decompressStream(s->zstd, &to, &from);

    s->at = from.pos;
    *got = to.pos;
    switch (ZSTD_getErrorCode(code)) {
    case ZSTD_error_no_error: break;
    case ZSTD_error_dictionary_wrong:
        FAIL(ERR_CONFIG, "%s: is compressed with a dictionary, which is not "
             "supported; decompress it with zstd -d -D DICTIONARY", s->path);
    case ZSTD_error_frameParameter_windowTooLarge:
        FAIL(ERR_CONFIG, "%s: is packed with a window of more than %d MiB; "
             "pack it again without zstd --long", s->path,
             1 << (ZSTD_WINDOW_LOG_MAX - 20));
    default: return damaged(s, "zstd", ZSTD_getErrorName(code));
    }
    s->inside = code != 0;
    return OK;
}

status byte_source_read(struct byte_source *s, void *out, size_t most,
                        size_t *got)
{
    *got = 0;
    while (*got == 0 && most > 0) {
        if (s->at == s->length && !s->ended) TRY(refill(s));
        if (s->at == s->length && !s->inside) return OK;
        if (s->gzip != NULL)
            TRY(read_gzip(s, out, most, got));
        else if (s->zstd != NULL)
            TRY(read_zstd(s, out, most, got));
        else {
            const size_t left = s->length - s->at;

            *got = left < most ? left : most;
            memcpy(out, s->buffer + s->at, *got);
            s->at += *got;
        }
        if (*got == 0 && s->inside && s->ended)
            FAIL(ERR_FORMAT, "%s: the packed data ends too early, after %lld "
                 "bytes (truncated)", s->path, (long long)s->consumed);
    }
    return OK;
}

void byte_source_close(struct byte_source *s)
{
    if (s->gzip != NULL) {
        inflateEnd((z_stream *)s->gzip);
        memory_free(s->gzip);
    }
    ZSTD_freeDCtx(s->zstd);
    if (s->file != NULL) fclose(s->file);
    memory_free(s->buffer);
    *s = (struct byte_source){0};
}

/* ---- lines ---- */

status line_reader_begin(struct line_reader *reader, FILE *file,
                         const char *path)
{
    void *memory;

    *reader = (struct line_reader){0};
    TRY(byte_source_begin(&reader->source, file, path));
    TRY(memory_take(1, LINE_BUFFER, &memory));
    reader->buffer = memory;
    return OK;
}

status line_reader_open(struct line_reader *reader, const char *path)
{
    FILE *file = fopen(path, "rb");

    *reader = (struct line_reader){0};
    if (file == NULL)
        FAIL(errno == ENOENT ? ERR_MISSING : ERR_IO, "%s: %s", path,
             strerror(errno));
    return line_reader_begin(reader, file, path);
}

static status too_long(const struct line_reader *reader, size_t most)
{
    FAIL(ERR_FORMAT, "%s, line %lld: longer than %zu bytes%s%s",
         reader->source.path, (long long)reader->number + 1, most,
         reader->most_of != NULL ? ", the most of " : "",
         reader->most_of != NULL ? reader->most_of : "");
}

status line_reader_next(struct line_reader *reader, struct text *line,
                        bool *there)
{
    const size_t most = reader->most > 0 ? reader->most : LINE_BYTES_MOST;

    line->length = 0;
    *there = false;
    reader->cut = false;
    for (;;) {
        const char *from = reader->buffer + reader->at;
        const size_t left = reader->length - reader->at;
        const char *end = left > 0 ? memchr(from, '\n', left) : NULL;
        const size_t count = end != NULL ? (size_t)(end - from) : left;

        if (count > most - line->length) return too_long(reader, most);
        if (left > 0) {
            *there = true;
            TRY(text_append(line, from, count));
            reader->at += count;
        }
        if (end != NULL) {
            reader->at++;
            break;
        }
        reader->at = 0;
        TRY(byte_source_read(&reader->source, reader->buffer, LINE_BUFFER,
                             &reader->length));
        if (reader->length == 0) {
            reader->cut = true;
            break;
        }
    }
    reader->number += *there;
    return OK;
}

void line_reader_close(struct line_reader *reader)
{
    byte_source_close(&reader->source);
    memory_free(reader->buffer);
    *reader = (struct line_reader){0};
}
