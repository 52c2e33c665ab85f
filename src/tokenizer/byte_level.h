/* SPDX-License-Identifier: Apache-2.0 */
/* byte_level.h - the alphabet in which byte-level tokenizers write bytes.
 *
 * tokenizer.json can hold only text, so each of the 256 bytes is written as
 * one printable character: itself where it is printable in Latin-1 (! to ~,
 * U+00A1 to U+00AC, U+00AE to U+00FF), else U+0100 and up in order of bytes.
 * A space is therefore written U+0120.
 * Source: Radford et al. 2019, GPT-2, section 2.2. */
#ifndef LOCKSTEP_TOKENIZER_BYTE_LEVEL_H
#define LOCKSTEP_TOKENIZER_BYTE_LEVEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { BYTE_LEVEL_LIMIT = 0x144 }; /* the alphabet lies below U+0144 */

/* Character of each byte, and byte of each character or -1. */
struct byte_level {
    uint16_t character[256];
    int16_t byte[BYTE_LEVEL_LIMIT];
};

void byte_level_init(struct byte_level *alphabet);
/* out = the bytes that `written` stands for; at most as many as length.
 * False, when a character is not of the alphabet. *count = bytes. */
bool byte_level_read(const struct byte_level *alphabet, const char *written,
                     size_t length, unsigned char *out, size_t *count);
/* out [2 * length] = bytes in the alphabet; returns the length. */
size_t byte_level_write(const struct byte_level *alphabet,
                        const unsigned char *bytes, size_t length, char *out);

#endif
