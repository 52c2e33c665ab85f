/* SPDX-License-Identifier: Apache-2.0 */
/* amx.h - the processor's tiles (AMX) as products of bfloat16 use them: all
 * registers of 16 rows of 64 bytes. */
#ifndef LOCKSTEP_KERNELS_CPU_AMX_H
#define LOCKSTEP_KERNELS_CPU_AMX_H

#include "kernels/cpu/cpu.h"

enum {
    SIDE = 16,                 /* rows of a register, words of a row */
    ROW_BYTES = SIDE * 4,
    PANEL = 2 * SIDE,          /* rows */
    BLOCK_WORDS = PANEL * SIDE /* of a panel, for PRODUCT_BLOCK elements */
};

#define TILES_TARGET __attribute__((target("amx-tile,amx-bf16")))

/* Around a thread's work. */
void CPU(tiles_begin)(void);
void CPU(tiles_end)(void);

#endif
