/* SPDX-License-Identifier: Apache-2.0 */
/* point.h - the event that a message takes, a point in the work of the device
 * whose memory it moves, and the one that it leaves. */
#ifndef LOCKSTEP_DEVICE_POINT_H
#define LOCKSTEP_DEVICE_POINT_H

#include "device/device.h"

/* All that the queues of a device were given so far; zeroed: nothing. */
struct device_point {
    struct { struct queue *queue; uint64_t number; } kernels, copies;
};

/* The one of now of the device of this process that has the memory; nothing for
 * other memory. In the thread that opened it. */
struct device_point device_point(const void *at);
/* Returns when that work is done, with the first error of a kernel. From any
 * thread. */
status device_await(const struct device_point *point);

/* Rows of what messages see of a device (device_seen), so many bytes apart. */
struct device_seen_rows {
    void *seen;
    int64_t apart, rows;
    size_t row;
    void *there; /* set by device_fetch and device_store: on the device */
};
/* The copy that messages see becomes what the device has, and the other way,
 * where the two are apart; nothing elsewhere. From any thread; the device is
 * done with the memory (device_await), and work that is given later finds it.
 * ERR_DEVICE. */
status device_fetch(const struct device_seen_rows *rows);
status device_store(const struct device_seen_rows *rows);

/* Something outside of the device that its work waits for. */
struct device_hold {
    void (*await)(void *of, uint64_t number); /* in the device's thread */
    void *of;
    uint64_t number;
};
/* Work that is given from now on begins when that is over. In the thread that
 * opened the device. */
void device_hold(const struct device_point *point,
                 const struct device_hold *hold);

#endif
