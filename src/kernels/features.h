/* SPDX-License-Identifier: Apache-2.0 */
/* features.h - instructions that not every processor of an instruction set has
 * and fast kernels use where they are. The bits never show it. */
#ifndef LOCKSTEP_KERNELS_FEATURES_H
#define LOCKSTEP_KERNELS_FEATURES_H

#include <stdbool.h>

/* The features that a kernel may use: FEATURES_ALL unless a test says
 * otherwise. */
enum {
    FEATURE_PAIRS = 1, FEATURE_TILES = 2,
    FEATURE_EVEN_SLOW = 4, /* also where it does not pay */
    FEATURE_BYTES = 8, FEATURE_BYTES_WIDE = 16,
    FEATURES_ALL = FEATURE_PAIRS | FEATURE_TILES | FEATURE_BYTES |
                   FEATURE_BYTES_WIDE
};

bool features_pairs(void); /* VDPBF16PS, sums of pairs of bfloat16 */
/* AMX's TDPBF16PS on tiles. The first call asks the system for permission to
 * use the registers, for the whole process. */
bool features_tiles(void);
/* VPDPBUSD, sums of four products of bytes, in vectors of 256 bits (AVX-VNNI)
 * and of 512 (AVX512-VNNI). */
bool features_bytes(void);
bool features_bytes_wide(void);
bool features_even_slow(void);
/* Kernels use these at most, from their next call on. */
void features_limit(int features);

#endif
