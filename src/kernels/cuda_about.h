/* SPDX-License-Identifier: Apache-2.0 */
/* cuda_about.h - whether this machine could run kernels of CUDA. */
#ifndef LOCKSTEP_KERNELS_CUDA_ABOUT_H
#define LOCKSTEP_KERNELS_CUDA_ABOUT_H

#include <stdbool.h>
#include <stddef.h>

struct gpu_kernels;

/* The kernels of this program (device/plugin.h). */
extern const struct gpu_kernels cuda_kernels;

/* CUDA_ABSENT: this build has no plug-in. CUDA_LOADS: the first GPU loads every
 * kernel. `text`: one sentence about what was found. Asked once for the
 * process, which may still fork ranks that use a GPU. */
enum cuda_found { CUDA_ABSENT, CUDA_UNUSABLE, CUDA_LOADS };
enum cuda_found cuda_about(char *text, size_t bytes);
/* Memory, clocks, errors and links of all GPUs in one line; false: why they are
 * not known. */
bool cuda_health(char *text, size_t bytes);

/* The library of products (numerics.gpu=fast): its version, or why there is
 * none. */
bool cuda_products(char *text, size_t bytes);
/* The library of attention (numerics.attention), likewise. */
bool cuda_attention(char *text, size_t bytes);

/* Bytes of the first GPU's memory that its context and the kernels take, which
 * no plan has; 0: unknown. */
size_t cuda_foreign(void);

#endif
