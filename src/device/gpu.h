/* SPDX-License-Identifier: Apache-2.0 */
/* gpu.h - starts kernels of CUDA on the device cuda; kernels/cuda/launch.h is
 * made of it. These functions may be called only inside an item of work of a
 * queue: copies that are made here live until that item ends. */
#ifndef LOCKSTEP_DEVICE_GPU_H
#define LOCKSTEP_DEVICE_GPU_H

#include "device/attended.h"
#include "device/device.h"
#include "device/product.h"

/* `kernel` is the number that the plug-in knows it by. */
status gpu_launch(struct device *device, int kernel, int64_t blocks,
                  const void *call, size_t bytes);
/* A copy of the host's memory where kernels find it. */
status gpu_copy(struct device *device, const void *data, size_t bytes,
                const void **out);

/* Whether a library makes products of such operands (numerics.gpu=fast). */
bool gpu_makes_products(const struct device *device, enum gpu_number number);
/* Whether operands that begin at multiples of 16 bytes, and whose rows do, do
 * so in every layout. */
bool gpu_product_aligned(const struct device *device);
/* Room for sums that wait. */
struct gpu_room gpu_product_room(struct device *device);
/* Whether the library makes products of that form: the same on every rank. */
status gpu_product_made(struct device *device, const struct gpu_form *form,
                        bool *out);
/* By the library, which makes those of its form. */
status gpu_product(struct device *device, const struct gpu_product *product);

/* Whether a library computes attention of sequences so long
 * (numerics.attention). */
bool gpu_has_attention(const struct device *device, int64_t length);
/* Whether our own kernels do, on tensor cores, where the library does not. */
bool gpu_has_flash(const struct device *device);
/* For both: their calls follow each other. */
struct gpu_room gpu_attention_room(struct device *device);
/* Whether it has the form: the same on every rank. Its plan is made when that
 * is asked first. */
status gpu_attends(struct device *device, const struct attended_form *form,
                   bool *out);
/* By the library, which has the form. */
status gpu_attend(struct device *device, const struct gpu_attended *call);

#endif
