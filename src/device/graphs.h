/* SPDX-License-Identifier: Apache-2.0 */
/* graphs.h - work of a device that is repeated is started as one graph. */
#ifndef LOCKSTEP_DEVICE_GRAPHS_H
#define LOCKSTEP_DEVICE_GRAPHS_H

#include "device/device.h"

/* From now on, on the device cuda: what kernels do stays the same. Nothing on
 * other devices. ERR_DEVICE. */
status device_gather(struct device *device);
/* How many graphs there were so far, and what memory they took of the GPU,
 * which is not planned: a sentence. False: none. */
bool device_graphs(const struct device *device, char *text, size_t bytes);

#endif
