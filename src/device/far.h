/* SPDX-License-Identifier: Apache-2.0 */
/* far.h - the device far, inside device/: as the functions of device.h, which
 * check for it. */
#ifndef LOCKSTEP_DEVICE_FAR_H
#define LOCKSTEP_DEVICE_FAR_H

#include "device/parts.h"
#include "device/point.h"
#include "device/queue.h"

status far_open(struct device **out, const struct device_choice *choice);
void far_close(struct device *device);
status far_take(struct device *device, size_t bytes, void **out);
void far_give(struct device *device, void *memory);
void far_join(struct device *device, const struct stream *stream);
status far_copy(struct device *device, const struct device_rows *to,
                const struct device_rows *from, int64_t rows, size_t row);
status far_copy_parts(struct device *device, const struct device_parts *copy);
status far_fill(struct device *device, void *to, int byte, size_t bytes);
status far_write(struct device *device, void *to, const void *from,
                 size_t bytes);
status far_read(struct device *device, void *to, const void *from,
                size_t bytes);
status far_finish(struct device *device);
bool far_any(void);
struct device_point far_point(const void *at);
void far_hold(struct queue *queue, const struct device_hold *hold);
status far_settle(const void *at);
void *far_seen(void *at);

/* A copy that is made at once. */
void rows_copy(struct device_rows to, struct device_rows from, int64_t rows,
               size_t row);
void parts_copy(const struct device_parts *copy);

#endif
