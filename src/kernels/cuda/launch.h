/* SPDX-License-Identifier: Apache-2.0 */
/* launch.h - how kernels of CUDA are started.
 *
 * A kernel is written once, in src/kernels/cuda/NAME.cu, in the words of
 * words.h. nvcc compiles it for GPUs. gcc and clang compile it as C for the
 * emulator (emulator.c), which unit tests link: there the rows of kernels.h
 * that cuda/ fills are compared with the reference in every bit.
 *
 * A call is a struct of what the kernel reads: views, pointers, numbers. It is
 * copied when the kernel is started. It points to memory of the device, or to
 * copies that cuda_copy made, never to other memory of the host. Rows run one
 * after the other, and so do the kernels that they start. */
#ifndef LOCKSTEP_KERNELS_CUDA_LAUNCH_H
#define LOCKSTEP_KERNELS_CUDA_LAUNCH_H

#include "kernels/cuda/calls.h"
#include "kernels/narrow_product.h"

enum { BLOCK_THREADS = 256 /* of every kernel */ };

/* A tensor of float32 or of narrow numbers. */
static inline struct view view_real(struct tensor tensor)
{
    CHECK(dtype_real(tensor.dtype) == DTYPE_F32);
    return view_any(tensor);
}

/* So many parts of `each` have `count`. */
static inline int64_t parts_of(int64_t count, int64_t each)
{
    return (count + each - 1) / each;
}

/* Blocks that have so many threads. */
static inline int64_t blocks_of(int64_t threads)
{
    return parts_of(threads, BLOCK_THREADS);
}

/* Every kernel; `struct NAME_call` is what it reads. */
#define CUDA_KERNELS(X)                                                    \
    X(elementwise) X(rope) X(adamw) X(descend)                             \
    X(masters_join) X(masters_split) X(fixed_add) X(fixed_read)            \
    X(rmsnorm_forward) X(rmsnorm_backward)                                 \
    X(layernorm_forward) X(layernorm_backward)                             \
    X(add_norm) X(token_sums) PRODUCT_NAMES(X, matmul)                     \
    X(fold) X(sum_squares) X(squares_tree) X(normalize)                  \
    X(gather_rows) X(rows_sort) X(scatter_rows)                            \
    X(dropout) X(cross_entropy) X(update_elements) X(update_masters)       \
    X(attention_forward_64) X(attention_forward_128)                       \
    X(attention_forward_256) X(attention_queries_64)                       \
    X(attention_queries_128) X(attention_queries_256)                      \
    X(attention_keys_64) X(attention_keys_128) X(attention_keys_256)       \
    FLASH_NAMES(X, flash_forward) FLASH_NAMES(X, flash_queries)            \
    FLASH_NAMES(X, flash_keys) FLASH_WIDER_NAMES(X, flash_values)          \
    X(attention_merge) X(attention_finish) X(attention_heads)              \
    X(attention_delta) PRODUCT_NAMES(X, experts_product)                   \
    PRODUCT_NAMES(X, experts_gradient) X(experts_sums)                     \
    X(experts_combine) X(experts_gates) X(router_choose)                   \
    X(router_losses) X(router_backward) X(jitter)                          \
    X(numbers_clear) X(codes_peaks) X(codes_scales) X(codes_write)         \
    X(codes_sums) X(sums_clear) X(codes_means) X(codes_row_scales)         \
    X(codes_read) X(quantize_peaks) X(quantize_means) X(quantize_blocks)   \
    X(rotate_runs) X(unrotate_runs) X(integer_tiles) X(copy_parts)     \
    X(sum_roots) X(factored_sums) X(factored_moments) X(factored_matrix)   \
    X(factored_elements) X(factored_rate) X(turned_moments) X(turned_step)

/* The files that have them. */
#define CUDA_MODULES(X)                                                    \
    X(attention) X(attention_backward) X(codes) X(copies) X(elementwise)   \
    X(experts) X(factored) X(flash_backward) X(flash_forward) X(integers)  \
    X(lookup) X(loss) X(matmul) X(norm) X(quantize) X(rotate) X(router)    \
    X(sums) X(updates)

#define CUDA_KERNEL_NUMBER(name) CUDA_##name,
enum cuda_kernel { CUDA_KERNELS(CUDA_KERNEL_NUMBER) CUDA_KERNEL_COUNT };

/* The kernel of PRODUCT_NAMES for the granule, counted from the first one. */
static inline enum cuda_kernel product_kernel(enum cuda_kernel first,
                                              enum granule_kind kind,
                                              const struct sum_order *order)
{
    return (enum cuda_kernel)((int)first + 2 * (int)kind +
                              (order->leaves > 1));
}
static inline enum dtype product_dtype(enum granule_kind kind)
{
    return kind == GRANULE_CHAIN     ? DTYPE_F32
           : kind == GRANULE_WIDENED ? DTYPE_F16 : DTYPE_BF16;
}

/* Starts `blocks` blocks of BLOCK_THREADS threads; 0: nothing happens. */
status cuda_launch(struct stream *stream, enum cuda_kernel kernel,
                   int64_t blocks, const void *call, size_t bytes);
/* A copy of the host's memory for the next kernel, one of three at most; bytes
 * may be 0. */
status cuda_copy(struct stream *stream, const void *data, size_t bytes,
                 const void **out);
/* The emulator does both where no GPU is, and sets this; NULL in programs
 * without it. */
struct cuda_emulator {
    status (*launch)(enum cuda_kernel kernel, int64_t blocks, const void *call,
                     size_t bytes);
    status (*copy)(const void *data, size_t bytes, const void **out);
};
extern const struct cuda_emulator *cuda_emulator;
#define LAUNCH(stream, kernel, blocks, call)                               \
    TRY(cuda_launch(stream, CUDA_##kernel, blocks, call, sizeof *(call)))

#endif
