/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_tokens.c - can a token file from a stranger hurt us? The input is the
 * image of a file. Its checksums are corrected first (an attacker would), so
 * that what stands behind them is tried too. */
#include <stdlib.h>
#include <string.h>
#include "base/arena.h"
#include "base/file.h"
#include "data/token_file.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { HEADER = 192, BODY_CRC = 176, HEADER_CRC = 180 };

static void put_crc(unsigned char *at, uint32_t crc)
{
    for (int i = 0; i < 4; i++) at[i] = (unsigned char)(crc >> 8 * i);
}

/* What was verified can be read without further checks. */
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
