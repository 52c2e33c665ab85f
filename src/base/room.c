/* SPDX-License-Identifier: Apache-2.0 */
/* room.c - limits of this process. */
#include "base/room.h"

#include <stdint.h>
#include <stdio.h>
#include <sys/resource.h>
#include <unistd.h>
#include "base/text.h"

/* Address space in use; 0: unknown. */
static uint64_t used_bytes(void)
{
    unsigned long long pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");

    if (file == NULL) return 0;
    if (fscanf(file, "%llu", &pages) != 1) pages = 0;
    fclose(file);
    return pages * (uint64_t)sysconf(_SC_PAGESIZE);
}

status room_check(size_t bytes)
{
    const uint64_t used = used_bytes();
    char needs[32], has[32], most[32];
    struct rlimit limit;

    if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY ||
        used == 0 || (used <= limit.rlim_cur && bytes <= limit.rlim_cur - used))
        return OK;
    FAIL(ERR_MEMORY, "the plan takes %s beside the %s in use, and this process "
         "may have %s of address space (ulimit -v)", text_bytes(needs, bytes),
         text_bytes(has, used), text_bytes(most, limit.rlim_cur));
}

status room_for_files(int64_t least, const char *who)
{
    struct rlimit limit;

    if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return OK; /* not known */
    if (limit.rlim_max < (rlim_t)least)
        FAIL(ERR_IO, "a process may have %lld files open here; %s needs %lld "
                     "(ulimit -n)", (long long)limit.rlim_max, who,
             (long long)least);
    limit.rlim_cur = limit.rlim_max;
    (void)setrlimit(RLIMIT_NOFILE, &limit); /* else as many as there were */
    return OK;
}
