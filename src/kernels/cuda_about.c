/* SPDX-License-Identifier: Apache-2.0 */
/* cuda_about.c - asks the plug-in of CUDA what it finds. */
#include "kernels/cuda_about.h"

#include <dlfcn.h>
#include <stdio.h>
#include <unistd.h>
#include "base/file.h"
#include "base/plugin.h"
#include "kernels/cuda/plugin/plugin.h"

enum cuda_found cuda_about(char *text, size_t bytes)
{
    char path[PATH_BYTES];
    const struct cuda_plugin *plugin;
    enum cuda_found found = CUDA_UNUSABLE;
    void *library;

    if (plugin_path("device_cuda.so", path, sizeof path) != OK) {
        snprintf(text, bytes, "%s", status_message());
        status_clear();
        return CUDA_UNUSABLE;
    }
    if (access(path, F_OK) != 0) {
        snprintf(text, bytes, "this build has no kernels for GPUs");
        return CUDA_ABSENT;
    }
    library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) {
        snprintf(text, bytes, "%s", dlerror());
        return CUDA_UNUSABLE;
    }
    plugin = dlsym(library, "lockstep_cuda_plugin");
    if (plugin == NULL || plugin->version != CUDA_PLUGIN_VERSION)
        snprintf(text, bytes, "%s belongs to another version of this program",
                 path);
    else if (plugin->about(text, bytes))
        found = CUDA_LOADS;
    dlclose(library);
    return found;
}
