/* SPDX-License-Identifier: Apache-2.0 */
/* segment.h - work of the stream of kernels that the driver was not given yet.
 * Given as one, it is a segment: a chain of kernels, copies and fills. One that
 * comes again is a CUDA graph, which the driver starts in one call.
 *
 * A segment is known by its kernels, their numbers of blocks, and its copies
 * and fills. What kernels read is compared byte by byte; where it differs, the
 * graph is told. So nothing is started that was not asked for. */
#ifndef LOCKSTEP_KERNELS_CUDA_PLUGIN_SEGMENT_H
#define LOCKSTEP_KERNELS_CUDA_PLUGIN_SEGMENT_H

#include "kernels/cuda/plugin/driver.h"

struct segments;

/* functions: borrowed, [CUDA_KERNEL_COUNT]. NULL: there is no memory. */
struct segments *segments_new(const CUfunction *functions, CUcontext context,
                              CUstream stream);
void segments_free(struct segments *); /* NULL allowed */

/* Each takes a copy of what it is told. When there is no room for it, the
 * driver is given what is open first. */
CUresult segment_kernel(struct segments *, const struct gpu_launch *);
/* Host memory is pinned. */
CUresult segment_copy(struct segments *, enum gpu_way way, void *to,
                      const void *from, size_t bytes);
CUresult segment_fill(struct segments *, void *to, int byte, size_t bytes);
/* From pinned memory to what nothing in the open segment used so far: before
 * its kernels. */
CUresult segment_tell(struct segments *, void *there, const void *host,
                      size_t bytes);
/* Items of work that are open. */
int segment_count(const struct segments *);
/* Gives them to the driver. */
CUresult segment_flush(struct segments *);

#endif
