/* SPDX-License-Identifier: Apache-2.0 */
/* snappy.h - unpacks a block of Snappy, the usual packing of Parquet pages.
 *
 *   varint length of what is unpacked, then elements by the low two bits of
 *   their first byte: 0 literal bytes; 1, 2, 3 a copy of what came before,
 *   with 11, 16 or 32 bits of distance
 *
 * Source: the format description of the Snappy project. */
#ifndef LOCKSTEP_CORPUS_SNAPPY_H
#define LOCKSTEP_CORPUS_SNAPPY_H

#include <stdbool.h>
#include <stddef.h>

/* out [length]: all of it is filled, or the result is false. */
bool snappy_unpack(const unsigned char *packed, size_t packed_length,
                   unsigned char *out, size_t length);

#endif
