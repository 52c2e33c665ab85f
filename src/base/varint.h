/* SPDX-License-Identifier: Apache-2.0 */
/* varint.h - numbers in groups of 7 bits, the lowest first, as protobuf, Thrift
 * and Parquet write them. Source: Protocol Buffers, Encoding. */
#ifndef LOCKSTEP_BASE_VARINT_H
#define LOCKSTEP_BASE_VARINT_H

#include <stdint.h>

enum { VARINT_BYTES = 10 };
enum varint { VARINT_READ, VARINT_CUT, VARINT_LARGE };

/* Reads a number at *at and moves *at behind it. VARINT_CUT: it does not end
 * before `end`; VARINT_LARGE: it has more than 64 bits. */
static inline enum varint varint_read(const unsigned char **at,
                                      const unsigned char *end, uint64_t *out)
{
    *out = 0;
    for (int i = 0; i < VARINT_BYTES; i++) {
        if (*at == end) return VARINT_CUT;
        const unsigned char byte = *(*at)++;

        if (i == VARINT_BYTES - 1 && byte > 1) break;
        *out |= (uint64_t)(byte & 0x7F) << (7 * i);
        if (byte < 0x80) return VARINT_READ;
    }
    return VARINT_LARGE;
}

/* The signed number of a zigzag code: 0, -1, 1, -2, ... */
static inline int64_t varint_signed(uint64_t code)
{
    return (int64_t)(code >> 1) ^ -(int64_t)(code & 1);
}

#endif
