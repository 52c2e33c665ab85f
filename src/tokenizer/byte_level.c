/* SPDX-License-Identifier: Apache-2.0 */
/* byte_level.c - the alphabet in which byte-level tokenizers write bytes. */
#include "tokenizer/byte_level.h"

#include "base/text.h"

static bool prints_itself(int byte)
{
    return (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte <= 0xAC) ||
           byte >= 0xAE;
}

void byte_level_init(struct byte_level *alphabet)
{
    uint16_t next = 0x100;

    for (int i = 0; i < BYTE_LEVEL_LIMIT; i++) alphabet->byte[i] = -1;
    for (int i = 0; i < 256; i++) {
        const uint16_t character =
            prints_itself(i) ? (uint16_t)i : next++;

        alphabet->character[i] = character;
        alphabet->byte[character] = (int16_t)i;
    }
}

bool byte_level_read(const struct byte_level *alphabet, const char *written,
                     size_t length, unsigned char *out, size_t *count)
{
    size_t at = 0, n = 0;

    while (at < length) {
        uint32_t code;

        at += (size_t)text_utf8_decode(written + at, length - at, &code);
        if (code >= BYTE_LEVEL_LIMIT || alphabet->byte[code] < 0) return false;
        out[n++] = (unsigned char)alphabet->byte[code];
    }
    *count = n;
    return true;
}

size_t byte_level_write(const struct byte_level *alphabet,
                        const unsigned char *bytes, size_t length, char *out)
{
    size_t n = 0;

    for (size_t i = 0; i < length; i++)
        n += (size_t)text_utf8_encode(alphabet->character[bytes[i]], out + n);
    return n;
}
