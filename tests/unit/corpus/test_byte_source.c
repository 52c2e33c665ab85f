/* SPDX-License-Identifier: Apache-2.0 */
/* test_byte_source.c - mirrors src/corpus/byte_source.c: plain, gzip and zstd
 * give the same bytes; damage is named. */
#include "corpus/byte_source.h"

#include <zlib.h>
#include <zstd.h>
#include "tests/test.h"

enum { PLAIN, GZIP, ZSTD, KINDS, LENGTH = 700000 };

/* Bytes that pack a little, with lines of all lengths. */
static void make(unsigned char *bytes)
{
    uint32_t state = 1;

    for (int i = 0; i < LENGTH; i++) {
        state = state * 1664525u + 1013904223u;
        bytes[i] = (unsigned char)(state >> 24 & 0x1F);
        if (bytes[i] == 7 && state >> 16 % 3 == 0) bytes[i] = '\n';
    }
}

/* Two members or frames, one after the other. */
static size_t packed(int kind, const unsigned char *bytes, size_t length,
                     unsigned char *out, size_t room)
{
    const size_t half = length / 3;
    size_t at = 0;

    if (kind == PLAIN) {
        memcpy(out, bytes, length);
        return length;
    }
    for (int part = 0; part < 2; part++) {
        const unsigned char *from = bytes + (part ? half : 0);
        const size_t count = part ? length - half : half;

        if (kind == ZSTD) { /* with a checksum, as the zstd command writes */
            ZSTD_CCtx *context = ZSTD_createCCtx();

            ZSTD_CCtx_setParameter(context, ZSTD_c_checksumFlag, 1);
            at += ZSTD_compress2(context, out + at, room - at, from, count);
            ZSTD_freeCCtx(context);
            continue;
        }
        z_stream z = {.next_in = (unsigned char *)(uintptr_t)from,
                      .avail_in = (unsigned)count, .next_out = out + at,
                      .avail_out = (unsigned)(room - at)};

        CHECK(deflateInit2(&z, 1, Z_DEFLATED, 15 + 16, 8, 0) == Z_OK);
        CHECK(deflate(&z, Z_FINISH) == Z_STREAM_END);
        at += z.total_out;
        deflateEnd(&z);
    }
    return at;
}

static status read_all(const unsigned char *bytes, size_t length,
                       unsigned char *out, size_t room, size_t *total)
{
    FILE *file = fmemopen((void *)(uintptr_t)bytes, length, "rb");
    struct byte_source source;
    size_t got = 1;
    status result = byte_source_begin(&source, file, "a.gz");

    *total = 0;
    while (result == OK && got > 0) {
        result = byte_source_read(
            &source, out + *total,
            room - *total < 100000 ? room - *total : 100000, &got);
        *total += got;
    }
    byte_source_close(&source);
    return result;
}

TEST(packed_and_plain_are_the_same_bytes)
{
    static unsigned char bytes[LENGTH], file[2 * LENGTH], out[LENGTH + 1];

    make(bytes);
    for (int kind = 0; kind < KINDS; kind++) {
        const size_t length = packed(kind, bytes, LENGTH, file, sizeof file);
        size_t total;

        IS_OK(read_all(file, length, out, sizeof out, &total));
        EQUAL_INT(total, LENGTH);
        EQUAL_BYTES(out, bytes, LENGTH);
    }
}

TEST(what_is_cut_or_changed_is_named)
{
    static unsigned char bytes[LENGTH], file[2 * LENGTH], out[LENGTH + 1];

    make(bytes);
    for (int kind = GZIP; kind < KINDS; kind++) {
        const size_t length = packed(kind, bytes, LENGTH, file, sizeof file);
        size_t total;

        FAILS(read_all(file, length - 5, out, sizeof out, &total), ERR_FORMAT,
              "ends too early");
        status_clear();
        memset(file + length / 2, 0x55, 1000);
        FAILS(read_all(file, length, out, sizeof out, &total), ERR_FORMAT,
              kind == GZIP ? "damaged gzip" : "damaged zstd");
        status_clear();
    }
}

/* pzstd puts the size of each frame into one before it that is skipped. */
TEST(frames_to_be_skipped_are_skipped)
{
    static const unsigned char skipped[] = {0x5A, 0x2A, 0x4D, 0x18, 3, 0, 0, 0,
                                            'a', 'b', 'c'};
    static unsigned char bytes[LENGTH], file[2 * LENGTH], out[LENGTH + 1];
    size_t length = 0, total;

    make(bytes);
    for (int part = 0; part < 2; part++) {
        memcpy(file + length, skipped, sizeof skipped);
        length += sizeof skipped;
        if (part == 0)
            length += packed(ZSTD, bytes, LENGTH, file + length,
                             sizeof file - length);
    }
    IS_OK(read_all(file, length, out, sizeof out, &total));
    EQUAL_INT(total, LENGTH);
    EQUAL_BYTES(out, bytes, LENGTH);
    file[0] = 0x60; /* one behind the range: bytes as they are */
    IS_OK(read_all(file, 20, out, sizeof out, &total));
    EQUAL_INT(total, 20);
}

/* Frames of one block of three bytes as they are. */
TEST(a_dictionary_or_a_large_window_is_named)
{
    static const unsigned char plain[] = {
        0x28, 0xB5, 0x2F, 0xFD, 0, 0x88, 0x19, 0, 0, 'a', 'b', 'c'};
    static const unsigned char wide[] = { /* 256 MiB in place of 128 */
        0x28, 0xB5, 0x2F, 0xFD, 0, 0x90, 0x19, 0, 0, 'a', 'b', 'c'};
    static const unsigned char keyed[] = { /* dictionary 7 */
        0x28, 0xB5, 0x2F, 0xFD, 1, 0, 7, 0x19, 0, 0, 'a', 'b', 'c'};
    unsigned char out[16];
    size_t total;

    IS_OK(read_all(plain, sizeof plain, out, sizeof out, &total));
    EQUAL_INT(total, 3);
    FAILS(read_all(wide, sizeof wide, out, sizeof out, &total), ERR_CONFIG,
          "a window of more than 128 MiB");
    status_clear();
    FAILS(read_all(keyed, sizeof keyed, out, sizeof out, &total), ERR_CONFIG,
          "is compressed with a dictionary");
}

TEST(lines_are_found_across_chunks)
{
    static unsigned char bytes[LENGTH], file[2 * LENGTH];
    const size_t length = (make(bytes),
                           packed(ZSTD, bytes, LENGTH, file, sizeof file));
    struct line_reader reader;
    struct text line = {0};
    size_t at = 0;
    bool there;

    IS_OK(line_reader_begin(&reader, fmemopen(file, length, "rb"), "a.zst"));
    for (;;) {
        IS_OK(line_reader_next(&reader, &line, &there));
        if (!there) break;
        EQUAL_BYTES(bytes + at, line.bytes, line.length);
        at += line.length + !reader.cut;
        if (!reader.cut) EQUAL_INT(bytes[at - 1], '\n');
    }
    EQUAL_INT(at, LENGTH);
    text_free(&line);
    line_reader_close(&reader);
}

TEST_MAIN(packed_and_plain_are_the_same_bytes,
          what_is_cut_or_changed_is_named, frames_to_be_skipped_are_skipped,
          a_dictionary_or_a_large_window_is_named,
          lines_are_found_across_chunks)
