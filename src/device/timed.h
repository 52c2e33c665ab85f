/* SPDX-License-Identifier: Apache-2.0 */
/* timed.h - when a GPU ran the kernels of a step that is metered: an event
 * before and one behind each kernel, read when the GPU has passed them. Inside
 * device/, in the thread that opened the device. */
#ifndef LOCKSTEP_DEVICE_TIMED_H
#define LOCKSTEP_DEVICE_TIMED_H

#include "base/meter.h"
#include "device/plugin.h"

enum { TIMED_MOST = 1024 };

struct timed {
    const struct cuda_plugin *plugin; /* borrowed */
    struct gpu *gpu;                  /* borrowed */
    struct gpu_event *base;           /* owned: was recorded at base_ns */
    int64_t base_ns;                  /* 0: not yet */
    int count;
    struct timed_span {
        struct gpu_event *begin, *end; /* owned */
        struct meter_track *track;
        struct meter_what what;
        int instruction;
    } spans[TIMED_MOST];
};

/* Each returns NULL, or one sentence (plugin.h). */
const char *timed_build(struct timed *timed, const struct cuda_plugin *plugin,
                        struct gpu *gpu);
void timed_free(struct timed *timed);
/* Work that is started from now on may be a kernel. */
const char *timed_begin(struct timed *timed);
/* It was, and ends here. */
const char *timed_end(struct timed *timed, struct meter_track *track,
                      const struct meter_what *what);
/* All that are open are over, and are counted. */
const char *timed_settle(struct timed *timed);

#endif
