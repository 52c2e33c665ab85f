/* SPDX-License-Identifier: Apache-2.0 */
/* cuda_about.c - asks the plug-in of CUDA what it finds. */
#include "kernels/cuda_about.h"

#include <stdio.h>
#include "device/plugin.h"

enum cuda_found cuda_about(char *text, size_t bytes)
{
    const struct cuda_plugin *plugin;

    if (cuda_plugin_open(&plugin) != OK) {
        snprintf(text, bytes, "%s", status_message());
        status_clear();
        return CUDA_UNUSABLE;
    }
    if (plugin == NULL) {
        snprintf(text, bytes, "this build has no kernels for GPUs");
        return CUDA_ABSENT;
    }
    return plugin->about(text, bytes) ? CUDA_LOADS : CUDA_UNUSABLE;
}
