/* SPDX-License-Identifier: Apache-2.0 */
/* huge_pages.h - memory of the system that begins where a huge page does, so
 * that it may be made of them. */
#ifndef LOCKSTEP_BASE_HUGE_PAGES_H
#define LOCKSTEP_BASE_HUGE_PAGES_H

#include <stddef.h>

enum { HUGE_PAGE_BYTES = 1 << 21 };

/* Private and zero, with PROT_... as `access`; munmap gives it back. NULL: the
 * system refused (errno). */
void *huge_pages_map(size_t bytes, int access);
/* Up to the next huge page. */
static inline size_t huge_pages_round(size_t bytes)
{
    return (bytes + HUGE_PAGE_BYTES - 1) / HUGE_PAGE_BYTES * HUGE_PAGE_BYTES;
}

#endif
