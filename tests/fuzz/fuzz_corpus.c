/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_corpus.c - can a packed stream of lines hurt us? The input is a file:
 * plain, gzip or zstd by its first bytes. */
#include <stdio.h>
#include "base/arena.h"
#include "data/byte_stream.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { WORK_MAX = 1 << 24 }; /* bytes: what is packed may be a bomb */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct line_reader reader = {0};
    struct text line = {0};
    size_t work = 0;
    bool there = true;
    FILE *file;

    if (size == 0) return 0;
    file = fmemopen((void *)(uintptr_t)data, size, "rb");
    if (file != NULL && line_reader_begin(&reader, file, "fuzz") == OK)
        while (there && work < WORK_MAX &&
               line_reader_next(&reader, &line, &there) == OK)
            work += line.length + 1;
    line_reader_close(&reader);
    text_free(&line);
    status_clear();
    CHECK(arena_bytes_out() == 0);
    return 0;
}
