/* SPDX-License-Identifier: Apache-2.0 */
/* segment.h - work of the stream of kernels that the driver does not have yet.
 * Work that is given to the driver at once is a segment: a chain of kernels,
 * copies, fills, and products and attention of a library. A segment that is
 * repeated becomes a CUDA graph, which the driver starts in one call.
 *
 * A segment is recognised by its kernels, their numbers of blocks, and its
 * copies, fills, products and attention. The arguments of its kernels are
 * compared byte by byte with those of the graph, and those that differ are set
 * in the graph. So a graph does exactly the work that was asked for. */
#ifndef LOCKSTEP_KERNELS_CUDA_PLUGIN_SEGMENT_H
#define LOCKSTEP_KERNELS_CUDA_PLUGIN_SEGMENT_H

#include "kernels/cuda/plugin/driver.h"

struct segments;

/* A product that a library makes. Without gaps that hold anything: it is
 * compared as bytes. */
struct product_told {
    struct gpu_product product;
    struct gpu_algorithm algorithm;
    struct gpu_room room;
};
/* The library gives it to the stream. NULL, or one sentence. */
const char *products_give(struct gpu *, const struct product_told *, CUstream);

/* Attention that a library computes; without gaps, too. */
struct attention_told {
    struct gpu_attended call;
    struct gpu_room room;
};
const char *attention_give(struct gpu *, const struct attention_told *,
                           CUstream);

/* They gather work of the stream of kernels of a GPU that is open. NULL: there
 * is no memory. */
struct segments *segments_new(struct gpu *);
void segments_free(struct segments *); /* NULL allowed */

/* Each takes a copy of what it is told. When there is no room for it, the
 * driver is given what is open first. */
CUresult segment_kernel(struct segments *, const struct gpu_launch *);
/* Host memory is pinned. */
CUresult segment_copy(struct segments *, enum gpu_way way, void *to,
                      const void *from, size_t bytes);
CUresult segment_fill(struct segments *, void *to, int byte, size_t bytes);
CUresult segment_product(struct segments *, const struct product_told *);
CUresult segment_attention(struct segments *, const struct attention_told *);
/* From pinned memory to what nothing in the open segment used so far: before
 * its kernels. */
CUresult segment_tell(struct segments *, void *there, const void *host,
                      size_t bytes);
void segment_graphs(const struct segments *, struct gpu_graphs *out);
/* Items of work that are open. */
int segment_count(const struct segments *);
/* Gives them to the driver. */
CUresult segment_flush(struct segments *);

#endif
