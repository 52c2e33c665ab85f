/* SPDX-License-Identifier: Apache-2.0 */
/* freed_memory.c - one setting of the C library, where that is glibc. */
#include "base/freed_memory.h"

#include <stdlib.h>
#ifdef __GLIBC__
#include <malloc.h>
#endif

void freed_memory_keep(void)
{
#ifdef __GLIBC__
    mallopt(M_TRIM_THRESHOLD, 64 << 20);
    mallopt(M_MMAP_THRESHOLD, 32 << 20);
#endif
}
