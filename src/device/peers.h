/* SPDX-License-Identifier: Apache-2.0 */
/* peers.h - memory of a GPU that other ranks of this machine read (CUDA-IPC),
 * and work of the stream of messages with it. Ranks of one process find each
 * other's memory as it is.
 *
 * An event says when a rank's kernels are done with what others read; they wait
 * for it in their streams. */
#ifndef LOCKSTEP_DEVICE_PEERS_H
#define LOCKSTEP_DEVICE_PEERS_H

#include "device/parts.h"
#include "device/plugin.h"
#include "device/roots.h"

enum { PEER_RANGES = 4, PEER_EVENTS = 64, PEER_WHY_BYTES = 200 };

/* A rank shows the others where its memory is. */
struct peer_shown {
    uint64_t process;    /* a number that it drew; 0: it has no GPU */
    int64_t gpu;         /* its number on the machine */
    int64_t range_count;
    struct {
        uint64_t first, bytes; /* addresses in the rank's process */
        uint64_t mark, kept;   /* its first 8 bytes until device_shown, and
                                * what was there */
        struct gpu_handle handle;
    } ranges[PEER_RANGES];
    struct {
        uint64_t event;  /* in the rank's process */
        struct gpu_handle handle;
    } events[PEER_EVENTS];
};
/* The same here. */
struct peer_met {
    bool is_met, imported;
    int range_count;
    struct {
        char *first;
        int64_t bytes;
        void *block;       /* of the driver's, in which it lies */
    } ranges[PEER_RANGES];
    struct gpu_event *events[PEER_EVENTS];
};

/* Makes what others may open. ERR_DEVICE: the driver exports nothing; then,
 * and where there is no GPU, out->process is 0. */
status device_show(struct device *device, struct peer_shown *out);
/* Puts back what its marks replaced, when all others have met it. */
status device_shown(struct device *device, struct peer_shown *shown);
/* When all others have parted from it. */
void device_show_end(struct device *device, const struct peer_shown *shown);
/* Opens it. ERR_DEVICE: it cannot be, or what was shown is not there. */
status device_meet(struct device *device, const struct peer_shown *shown,
                   struct peer_met *out);
void device_part(struct device *device, struct peer_met *met);

/* Where a rank has shown memory: the number of the range, and the place in it.
 * false: it has not. `seen`: as messages know it. */
struct peer_place {
    int64_t range, offset;
};
bool device_place(const struct device *device, const void *seen,
                  struct peer_place *out);

/* The event comes when the device has done all kernels that it was given so
 * far, or, with messages, what this thread has awaited. OK: none failed. */
status device_mark(struct device *device, struct gpu_event *event,
                   bool messages);
/* Returns when the device has done all kernels that it was given so far. */
status device_made(struct device *device);
/* Work of messages that is given from now on begins then. */
status device_follow(struct device *device, struct gpu_event *event);
/* Copies on the GPU, to its own addresses. */
status device_move(struct device *device, const struct device_parts *parts);
status device_sum_roots(struct device *device,
                        const struct device_roots *roots);
/* Returns when the work of messages is done. */
status device_moved(struct device *device);

#endif
