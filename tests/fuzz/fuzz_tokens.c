/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_tokens.c - can a token file from a stranger hurt us? The input is the
 * image of a file. Its checksums are corrected first (an attacker would), so
 * that what stands behind them is tried too. */
#include <stdlib.h>
#include <string.h>
#include "base/arena.h"
#include "base/file.h"
#include "data/token_file.h"
#include "tests/fuzz/mutate.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { HEADER = 192, BODY_CRC = 176, HEADER_CRC = 180 };

static void put_crc(unsigned char *at, uint32_t crc)
{
    for (int i = 0; i < 4; i++) at[i] = (unsigned char)(crc >> 8 * i);
}

/* A verified file can be read without further checks. */
static void read_all(const struct token_file *file)
{
    for (int64_t i = 0; i < file->count; i++) {
        const int32_t id = token_file_at(file, i);

        CHECK(id >= 0 && id < file->vocab);
    }
    for (int64_t i = 0; i < file->documents; i++)
        CHECK(token_file_start(file, i) < token_file_start(file, i + 1));
    CHECK(token_file_start(file, file->documents) == file->count);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct token_file file = {.path = "fuzz"};
    unsigned char *image = malloc(size + 1);

    if (image == NULL) return 0;
    if (size > 0) memcpy(image, data, size);
    if (size >= HEADER) {
        put_crc(image + BODY_CRC, crc32c(0, image + HEADER, size - HEADER));
        put_crc(image + HEADER_CRC, crc32c(0, image, HEADER_CRC));
    }
    if (token_file_parse(&file, image, size) == OK &&
        token_file_verify(&file) == OK)
        read_all(&file);
    token_file_close(&file); /* the checksums of its pages are its own */
    status_clear();
    free(image);
    CHECK(arena_bytes_out() == 0);
    return 0;
}

/* ---- the mutator ---- */

/* A valid image with as many documents and tokens as are drawn. */
static size_t make_tokens(uint8_t *data, size_t room)
{
    const uint64_t width = draw(2) ? 2 : 4, documents = draw(20);
    const uint64_t mask = draw(2);
    struct out out = {.bytes = data, .room = room};
    uint64_t starts[21] = {0}, n;

    for (uint64_t i = 0; i < documents; i++)
        starts[i + 1] = starts[i] + 1 + draw(30);
    n = starts[documents];
    put(&out, "LSTOKEN1", 8);
    put_integer(&out, width, 4);
    put_integer(&out, 0, 4);
    put_integer(&out, 100, 8);
    put_integer(&out, n, 8);
    put_integer(&out, documents, 8);
    put_integer(&out, 3 * n, 8);
    for (int i = 0; i < 128; i++) put_byte(&out, i < 64 ? 'a' : 'b');
    put_integer(&out, 0, 8); /* checksums are corrected by the reader */
    put_integer(&out, mask, 8);
    for (uint64_t i = 0, d = 1; i < n; i++) {
        const bool last = i + 1 == starts[d];

        put_integer(&out, last ? 0 : 1 + draw(99), (int)width);
        d += last;
    }
    while (out.at % 8 != 0) put_byte(&out, 0);
    for (uint64_t i = 0; i <= documents; i++) put_integer(&out, starts[i], 8);
    for (uint64_t i = 0; mask && i < (n + 7) / 8; i++)
        put_byte(&out, i + 1 == (n + 7) / 8 && n % 8 ? 0 : 255);
    return out.full ? 0 : out.at;
}

/* Valid images are made; or integers of the header or behind it change. */
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t room,
                               unsigned seed)
{
    mutate_seed(seed);
    if (draw(8) == 0 || size < HEADER) {
        const size_t made = make_tokens(data, room);

        if (made != 0) size = made;
    }
    if (size < HEADER || draw(16) == 0)
        return LLVMFuzzerMutate(data, size, room);
    for (uint64_t i = draw(3); i > 0; i--) {
        static const int fields[] = {16, 24, 32, 40, 184};
        const size_t words = (size - HEADER) / 8;

        if (words == 0 || draw(2) == 0)
            mutate_integer(data, size, (size_t)fields[draw(5)], 8);
        else if (draw(3) == 0)
            mutate_integer(data, size, 8 + 4 * draw(2), 4);
        else mutate_integer(data, size, HEADER + 8 * draw(words), 8);
    }
    return size;
}
