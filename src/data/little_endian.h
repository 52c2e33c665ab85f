/* SPDX-License-Identifier: Apache-2.0 */
/* little_endian.h - numbers of files, unaligned. Written so that a compiler
 * makes one load of each where the machine allows it. */
#ifndef LOCKSTEP_DATA_LITTLE_ENDIAN_H
#define LOCKSTEP_DATA_LITTLE_ENDIAN_H

#include <stdint.h>

static inline uint32_t load_u32(const unsigned char *at)
{
    return (uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 |
           (uint32_t)at[3] << 24;
}

static inline uint64_t load_u64(const unsigned char *at)
{
    return (uint64_t)at[0] | (uint64_t)at[1] << 8 | (uint64_t)at[2] << 16 |
           (uint64_t)at[3] << 24 | (uint64_t)at[4] << 32 |
           (uint64_t)at[5] << 40 | (uint64_t)at[6] << 48 |
           (uint64_t)at[7] << 56;
}

/* A number of 1, 2, 4 or 8 bytes. */
static inline uint64_t load_bytes(const unsigned char *at, int bytes)
{
    switch (bytes) {
    case 1: return at[0];
    case 2: return (uint64_t)at[0] | (uint64_t)at[1] << 8;
    case 4: return load_u32(at);
    default: return load_u64(at);
    }
}

#endif
