/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_pack.c - can what lies in a cache hurt us? The input is the image of an
 * index of packed samples, and the body of a table of starts. Checksums are
 * corrected first (an attacker would). */
#include <stdlib.h>
#include <string.h>
#include "base/arena.h"
#include "data/pack_file.h"
#include "data/token_foreign.h"
#include "tests/fuzz/mutate.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { HEADER = 128, FACTS = 8, TOTALS = 72, CRC = 96, BLOCK = 4096,
       STARTS_HEADER = 64, SAMPLES_MOST = 4096 };

static void correct(unsigned char *image, size_t size)
{
    uint64_t totals[2], body, blocks;
    uint32_t crc = crc32c(0, image, CRC);

    memcpy(image + CRC, &crc, sizeof crc);
    memcpy(totals, image + TOTALS, sizeof totals);
    if (totals[0] > size || totals[1] > size) return;
    body = 16 * totals[1] + 8 * (totals[0] + 1);
    blocks = (body + BLOCK - 1) / BLOCK;
    if (size != HEADER + body + 4 * blocks) return;
    for (uint64_t b = 0; b < blocks; b++) {
        const uint64_t left = body - b * BLOCK;

        crc = crc32c(0, image + HEADER + b * BLOCK,
                     left < BLOCK ? (size_t)left : BLOCK);
        memcpy(image + HEADER + body + 4 * b, &crc, sizeof crc);
    }
}

/* Rows that passed the checks lie inside the file. */
static void read_pack(const struct pack *pack)
{
    for (int64_t s = 0; s < pack->samples && s < SAMPLES_MOST; s++) {
        int64_t total = 0;

        if (pack_file_check(pack, s) != OK) continue;
        for (int64_t i = pack->first[s]; i < pack->first[s + 1]; i++) {
            const struct pack_fragment *fragment = &pack->fragments[i];

            CHECK(fragment->at >= 0 && fragment->count > 0);
            CHECK(fragment->at <= pack->tokens - fragment->count);
            total += fragment->count;
        }
        CHECK(total <= pack->sequence);
    }
}

static void read_starts(unsigned char *image, size_t size)
{
    struct token_file file = {.path = "", .layout = TOKENS_RAW};
    const int64_t documents =
        (int64_t)(size / 8) - STARTS_HEADER / 8 - 1;
    int64_t facts[4] = {0, 3, 0, documents};
    uint32_t crc;

    if (documents < 1) return;
    memcpy(&file.count, image + size - 8, 8);
    facts[2] = file.count;
    memcpy(image, "LSSTARTS", 8);
    memcpy(image + 8, facts, sizeof facts);
    crc = crc32c(0, image + STARTS_HEADER, size - STARTS_HEADER);
    memcpy(image + 40, &crc, sizeof crc);
    crc = crc32c(0, image, 44);
    memcpy(image + 44, &crc, sizeof crc);
    if (!token_starts_parse(&file, 3, image, size)) return;
    for (int64_t i = 0; i < file.documents; i++)
        CHECK(token_file_start(&file, i) < token_file_start(&file, i + 1));
    CHECK(token_file_start(&file, file.documents) == file.count);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    unsigned char *image = malloc(size + 1);
    struct pack_facts facts;
    struct pack pack;

    if (image == NULL) return 0;
    if (size > 0) memcpy(image, data, size);
    if (size >= HEADER) {
        memcpy(&facts, image + FACTS, sizeof facts);
        facts.sequence %= (uint64_t)INT64_MAX; /* ours are no larger */
        facts.tokens %= (uint64_t)INT64_MAX;
        memcpy(image + FACTS, &facts, sizeof facts);
        correct(image, size);
        if (pack_file_parse(&pack, &facts, image, size)) read_pack(&pack);
        pack_free(&pack);
    }
    read_starts(image, size);
    status_clear();
    free(image);
    CHECK(arena_bytes_out() == 0);
    return 0;
}

/* ---- the mutator ---- */

/* A valid index of as many samples and fragments as are drawn. */
static size_t make_pack(uint8_t *data, size_t room)
{
    const uint64_t samples = draw(12), sequence = 1 + draw(40);
    struct out out = {.bytes = data, .room = room};
    uint64_t fragments[64][2], first[13] = {0}, count = 0, at = 0;

    for (uint64_t s = 0; s < samples; s++) {
        for (uint64_t left = sequence; left > 0 && count < 64;) {
            const uint64_t length = 1 + draw(left);

            fragments[count][0] = at;
            fragments[count++][1] = length;
            at += length;
            left -= length;
            if (draw(4) == 0) break;
        }
        first[s + 1] = count;
    }
    put(&out, "LSPACK01", 8);
    put_integer(&out, 77, 8);
    put_integer(&out, count, 8);
    put_integer(&out, at, 8);
    put_integer(&out, sequence, 8);
    for (int i = 0; i < 4; i++) put_integer(&out, 0, 8);
    put_integer(&out, samples, 8);
    put_integer(&out, count, 8);
    put_integer(&out, samples * sequence - at, 8);
    for (int i = 0; i < HEADER - CRC; i++) put_byte(&out, 0);
    for (uint64_t i = 0; i < count; i++)
        for (int k = 0; k < 2; k++) put_integer(&out, fragments[i][k], 8);
    for (uint64_t s = 0; s <= samples; s++) put_integer(&out, first[s], 8);
    put_integer(&out, 0, 4); /* checksums are corrected by the reader */
    return out.full ? 0 : out.at;
}

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t room,
                               unsigned seed)
{
    mutate_seed(seed);
    if (draw(8) == 0 || size < HEADER) {
        const size_t made = make_pack(data, room);

        if (made != 0) size = made;
    }
    if (size < HEADER || draw(16) == 0)
        return LLVMFuzzerMutate(data, size, room);
    for (uint64_t i = draw(4); i > 0; i--)
        mutate_integer(data, size, draw(2) ? 8 + 8 * draw(11)
                                           : 8 * draw(size / 8), 8);
    return size;
}
