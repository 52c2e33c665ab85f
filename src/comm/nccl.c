/* SPDX-License-Identifier: Apache-2.0 */
/* nccl.c - opens the plug-in of NCCL. */
#include "comm/nccl.h"

#include <dlfcn.h>
#include <pthread.h>
#include <unistd.h>
#include "base/file.h"
#include "base/plugin.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static const struct nccl_plugin *found;

static status find(void)
{
    char path[PATH_BYTES];
    const struct nccl_plugin *plugin;
    void *library;

    TRY(plugin_path("comm_nccl.so", path, sizeof path));
    if (access(path, F_OK) != 0)
        FAIL(ERR_DEVICE, "this build has no plug-in for NCCL (docs/cuda.md)");
    library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) FAIL(ERR_DEVICE, "%s", dlerror());
    plugin = dlsym(library, "lockstep_nccl_plugin");
    if (plugin == NULL || plugin->version != NCCL_PLUGIN_VERSION ||
        plugin->bytes != sizeof *plugin)
        FAIL(ERR_DEVICE, "%s belongs to another version of this program: make "
                         "builds it again", path);
    found = plugin;
    return OK;
}

status nccl_open(const struct nccl_plugin **out, int *version)
{
    const char *sentence;
    status result = OK;

    pthread_mutex_lock(&lock);
    if (found == NULL) result = find();
    *out = found;
    pthread_mutex_unlock(&lock);
    TRY(result);
    sentence = found->open(version);
    if (sentence != NULL) FAIL(ERR_DEVICE, "%s", sentence);
    return OK;
}
