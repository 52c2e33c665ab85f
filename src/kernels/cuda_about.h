/* SPDX-License-Identifier: Apache-2.0 */
/* cuda_about.h - whether this machine could run kernels of CUDA. */
#ifndef LOCKSTEP_KERNELS_CUDA_ABOUT_H
#define LOCKSTEP_KERNELS_CUDA_ABOUT_H

#include <stdbool.h>
#include <stddef.h>

/* CUDA_ABSENT: this build has no plug-in. CUDA_LOADS: the first GPU loads every
 * kernel. `text`: one sentence about what was found. */
enum cuda_found { CUDA_ABSENT, CUDA_UNUSABLE, CUDA_LOADS };
enum cuda_found cuda_about(char *text, size_t bytes);

#endif
