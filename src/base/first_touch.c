/* SPDX-License-Identifier: Apache-2.0 */
/* first_touch.c - pages of fresh memory, supplied by all threads of a pool. */
#include "base/first_touch.h"

#include <errno.h>
#include <stdint.h>
#include <sys/mman.h>
#include <unistd.h>

/* Linux 5.14; older headers lack it. */
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

enum { RUN_BYTES = 2 << 20 }; /* a huge page of most processors */

struct area {
    char *first, *last; /* whole pages */
    size_t page;
};

/* Writes what is there. */
static void touch_each(char *first, const char *last, size_t page)
{
    for (volatile char *at = first; at < last; at += page) *at = *at;
}

static void touch_body(void *argument, int index, int count)
{
    const struct area *area = argument;
    const uintptr_t base = (uintptr_t)area->first / RUN_BYTES;
    const uintptr_t end = ((uintptr_t)area->last - 1) / RUN_BYTES + 1;

    for (uintptr_t run = base + (uintptr_t)index; run < end;
         run += (uintptr_t)count) {
        char *first = run == base ? area->first
                                  : area->first + (run * RUN_BYTES -
                                                   (uintptr_t)area->first);
        const size_t left = (size_t)(area->last - first);
        size_t bytes = RUN_BYTES - (uintptr_t)first % RUN_BYTES;

        if (bytes > left) bytes = left;
        if (madvise(first, bytes, MADV_POPULATE_WRITE) != 0 && errno == EINVAL)
            touch_each(first, first + bytes, area->page);
    }
}

void first_touch(struct threads *threads, void *memory, size_t bytes)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    const size_t before = -(uintptr_t)memory % page;
    struct area area = {.page = page};

    if (bytes < before + page) return;
    area.first = (char *)memory + before;
    area.last = area.first + (bytes - before) / page * page;
    threads_run(threads, touch_body, &area);
}
