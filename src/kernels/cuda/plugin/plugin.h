/* SPDX-License-Identifier: Apache-2.0 */
/* plugin.h - the plug-in of CUDA, device_cuda.so.
 *
 * It holds the kernels of cuda/ as machine code and PTX, and opens the driver,
 * libcuda.so.1, when it is asked. So it needs no GPU to be built, and no driver
 * to be opened. It says what is there; nothing is computed on a GPU yet. */
#ifndef LOCKSTEP_KERNELS_CUDA_PLUGIN_H
#define LOCKSTEP_KERNELS_CUDA_PLUGIN_H

#include <stdbool.h>
#include <stddef.h>

enum { CUDA_PLUGIN_VERSION = 1 };

struct cuda_plugin {
    int version;
    /* Whether the first GPU can load every kernel; `text` says what was found,
     * one sentence. */
    bool (*about)(char *text, size_t bytes);
};

/* Exported as "lockstep_cuda_plugin". */
extern const struct cuda_plugin lockstep_cuda_plugin;

#endif
