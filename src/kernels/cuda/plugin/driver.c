/* SPDX-License-Identifier: Apache-2.0 */
/* driver.c - opens the driver, and says what it answers. */
#include "kernels/cuda/plugin/driver.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>

struct driver driver;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static _Thread_local char sentence[320];

const char *driver_sentence(const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(sentence, sizeof sentence, format, arguments);
    va_end(arguments);
    return sentence;
}

#define TEXT_OF(name) #name

static const char *find(void)
{
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);

    if (library == NULL)
        return driver_sentence("there is no driver: libcuda.so.1 cannot be "
                               "opened");
#define DRIVER_FIND(name)                                                  \
    *(void **)&driver.name##_ = dlsym(library, TEXT_OF(name));             \
    if (driver.name##_ == NULL)                                            \
        return driver_sentence("the driver is too old: it has no %s",      \
                               TEXT_OF(name));
    DRIVER_FUNCTIONS(DRIVER_FIND)
    driver.library = library;
    return NULL;
}

const char *driver_open(void)
{
    const char *result = NULL;

    pthread_mutex_lock(&lock);
    if (driver.library == NULL) result = find();
    pthread_mutex_unlock(&lock);
    return result;
}

const char *library_says(const char *library, const char *name,
                         const char *asked)
{
    return driver_sentence("%s answers %s to %s", library,
                           name != NULL ? name : "an unknown error", asked);
}

const char *driver_says(CUresult error, const char *asked)
{
    const char *name = NULL;

    if (error == CUDA_SUCCESS) return NULL;
    if (error == (CUresult)DRIVER_SAID) return sentence;
    if (driver.cuGetErrorName_(error, &name) != CUDA_SUCCESS) name = NULL;
    return library_says("the driver", name, asked);
}
