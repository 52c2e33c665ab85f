/* SPDX-License-Identifier: Apache-2.0 */
/* device.h - where kernels run: a stream on one machine. On a CPU a stream is
 * a thread pool and planned scratch, and kernels run at once. */
#ifndef LOCKSTEP_DEVICE_DEVICE_H
#define LOCKSTEP_DEVICE_DEVICE_H

#include <stddef.h>
#include "base/arena.h"
#include "base/threads.h"

struct kernels;

struct stream {
    struct threads *threads; /* borrowed; NULL: the calling thread alone */
    void *scratch;           /* borrowed; ARENA_ALIGN-aligned */
    size_t scratch_bytes;    /* kernels_scratch_bytes or more */
    const struct kernels *inner; /* borrowed, [2]: what metered tables call
                                  * (kernels_meter) */
};

#endif
