/* SPDX-License-Identifier: Apache-2.0 */
/* stack.c - room for the stacks of this process. */
#include "base/stack.h"

#include <pthread.h>
#include <sys/resource.h>

enum { STACK_BYTES = 8 << 20,
       STACK_LEAST = 1 << 20 /* twice what a step takes */ };

/* Threads take their size from the limit, unless they are told. */
static void set_threads(void)
{
    pthread_attr_t attributes;

    if (pthread_attr_init(&attributes) != 0) return;
    if (pthread_attr_setstacksize(&attributes, STACK_BYTES) == 0)
        (void)pthread_setattr_default_np(&attributes);
    pthread_attr_destroy(&attributes);
}

status stack_make_room(void)
{
    struct rlimit now, more;

    if (getrlimit(RLIMIT_STACK, &now) != 0 || now.rlim_cur >= STACK_BYTES)
        return OK;
    set_threads();
    more = (struct rlimit){STACK_BYTES, now.rlim_max > STACK_BYTES
                                            ? now.rlim_max : STACK_BYTES};
    if (setrlimit(RLIMIT_STACK, &more) == 0) return OK;
    more = (struct rlimit){now.rlim_max, now.rlim_max};
    if (setrlimit(RLIMIT_STACK, &more) == 0) now = more;
    if (now.rlim_cur >= STACK_LEAST) return OK;
    FAIL(ERR_MEMORY, "a stack may have %llu KiB here (ulimit -s); lockstep "
                     "needs %d KiB, and ulimit -s 8192 is usual",
         (unsigned long long)now.rlim_cur >> 10, STACK_LEAST >> 10);
}
