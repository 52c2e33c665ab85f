/* SPDX-License-Identifier: Apache-2.0 */
/* huge_pages.c - asks for a huge page more, and gives back what is over. */
#include "base/huge_pages.h"

#include <stdint.h>
#include <sys/mman.h>

void *huge_pages_map(size_t bytes, int access)
{
    const size_t more = HUGE_PAGE_BYTES;
    char *start = mmap(NULL, bytes + more, access,
                       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    size_t before;

    if (start == MAP_FAILED) return NULL;
    before = -(uintptr_t)start % more;
    if (before > 0) munmap(start, before);
    munmap(start + before + bytes, more - before);
    return start + before;
}
