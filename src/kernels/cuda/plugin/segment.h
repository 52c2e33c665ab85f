/* SPDX-License-Identifier: Apache-2.0 */
/* segment.h - work of the stream of kernels that the driver does not have yet.
 * Work that is given to the driver at once is a segment: a chain of kernels,
 * copies and fills. A segment that is repeated becomes a CUDA graph, which the
 * driver starts in one call.
 *
 * A segment is recognised by its kernels, their numbers of blocks, and its
 * copies and fills. The arguments of its kernels are compared byte by byte with
 * those of the graph, and those that differ are set in the graph. So a graph
 * does exactly the work that was asked for. */
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
