/* SPDX-License-Identifier: Apache-2.0 */
/* plugin.c - opens the plug-in of CUDA. */
#include "device/plugin.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include "base/file.h"
#include "base/plugin.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static const struct cuda_plugin *found;

static status other_version(const char *path, const char *why)
{
    FAIL(ERR_DEVICE, "%s belongs to another version of this program: %s; make "
                     "builds it again", path, why);
}

/* Numbers of kernels, and what each reads, must mean the same to both. */
static status check_kernels(const struct cuda_plugin *plugin,
                            const struct gpu_kernels *wanted,
                            const char *path)
{
    char why[200];

    for (int i = 0; i < plugin->kernels.count && i < wanted->count; i++) {
        const struct gpu_kernel *its = &plugin->kernels.rows[i];
        const struct gpu_kernel *ours = &wanted->rows[i];

        if (strcmp(its->name, ours->name) == 0 && its->bytes == ours->bytes)
            continue;
        snprintf(why, sizeof why, "its kernel %d is %s, which reads %zu bytes, "
                 "expected %s and %zu", i, its->name, its->bytes, ours->name,
                 ours->bytes);
        return other_version(path, why);
    }
    if (plugin->kernels.count == wanted->count) return OK;
    snprintf(why, sizeof why, "it has %d kernels, expected %d",
             plugin->kernels.count, wanted->count);
    return other_version(path, why);
}

static status find(const struct gpu_kernels *wanted)
{
    char path[PATH_BYTES];
    const struct cuda_plugin *plugin;
    void *library;

    TRY(plugin_path("device_cuda.so", path, sizeof path));
    if (access(path, F_OK) != 0) return OK;
    library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) FAIL(ERR_DEVICE, "%s", dlerror());
    plugin = dlsym(library, "lockstep_cuda_plugin");
    if (plugin == NULL || plugin->version != CUDA_PLUGIN_VERSION ||
        plugin->bytes != sizeof *plugin)
        return other_version(path, "it has another table of functions");
    TRY(check_kernels(plugin, wanted, path));
    found = plugin;
    return OK;
}

status cuda_plugin_open(const struct gpu_kernels *wanted,
                        const struct cuda_plugin **out)
{
    status result = OK;

    pthread_mutex_lock(&lock);
    if (found == NULL) result = find(wanted);
    *out = found;
    pthread_mutex_unlock(&lock);
    return result;
}
