/* SPDX-License-Identifier: Apache-2.0 */
/* plugin.c - opens the plug-in of CUDA. */
#include "device/plugin.h"

#include <dlfcn.h>
#include <pthread.h>
#include <unistd.h>
#include "base/file.h"
#include "base/plugin.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static const struct cuda_plugin *found;

static status find(void)
{
    char path[PATH_BYTES];
    const struct cuda_plugin *plugin;
    void *library;

    TRY(plugin_path("device_cuda.so", path, sizeof path));
    if (access(path, F_OK) != 0) return OK;
    library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) FAIL(ERR_DEVICE, "%s", dlerror());
    plugin = dlsym(library, "lockstep_cuda_plugin");
    if (plugin == NULL || plugin->version != CUDA_PLUGIN_VERSION)
        FAIL(ERR_DEVICE, "%s belongs to another version of this program",
             path);
    found = plugin;
    return OK;
}

status cuda_plugin_open(const struct cuda_plugin **out)
{
    status result = OK;

    pthread_mutex_lock(&lock);
    if (found == NULL) result = find();
    *out = found;
    pthread_mutex_unlock(&lock);
    return result;
}
