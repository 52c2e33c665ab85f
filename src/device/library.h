/* SPDX-License-Identifier: Apache-2.0 */
/* library.h - memory and streams of a GPU for a library that moves messages by
 * itself, and the libraries that make products and attention. */
#ifndef LOCKSTEP_DEVICE_LIBRARY_H
#define LOCKSTEP_DEVICE_LIBRARY_H

#include "device/device.h"

/* Where the GPU has what messages see (device_seen); NULL: no GPU of this
 * process has it, or another device than this one. From any thread. */
void *device_there(const struct device *device, const void *seen);
/* A stream that the library gives work, as the driver knows it. ERR_DEVICE. */
status device_stream_open(struct device *device, void **out);
/* When its work is done. */
void device_stream_close(struct device *device, void *stream);
/* Whether all work of the stream is done. ERR_DEVICE: it cannot be. */
status device_stream_idle(struct device *device, void *stream, bool *out);
/* The calling thread uses this GPU from now on. */
status device_enter(struct device *device);
/* Names who makes products: a library with its version, and the GPU, on which
 * their bits depend. NULL device: the CPU. */
void device_maker(const struct device *device, char *text, size_t bytes);
/* Says who computes attention, "by cuDNN 9.19.0", or why no library does: of a
 * device that was to have one. */
void device_attention(const struct device *device, char *text, size_t bytes);
/* "13.1.0" of 130100, as cuBLASLt counts, and
 * cuDNN. */
void library_version(int64_t version, char *text, size_t bytes);

#endif
