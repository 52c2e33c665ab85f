/* SPDX-License-Identifier: Apache-2.0 */
/* router.c - the rows of routers for one instruction set: the reference's own
 * text, in which loops become vectors. */
#define REAL_BITS 32
#include "kernels/cpu/cpu.h"
#include "kernels/reference/real.h"

#define ROUTER_ROW(row) CPU(row)
#define ROUTER_SIMD SIMD
#include "kernels/router_rows.h"
