/* SPDX-License-Identifier: Apache-2.0 */
/* driver.c - GPUs, contexts and modules of the driver for tests. */
#include "driver.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { STACK_BYTES = 1024 /* of a new context */ };

struct CUctx_st contexts[GPUS_MOST];
static _Thread_local CUcontext current;

#define FUNCTION(name)                                                     \
    {#name, sizeof(struct name##_call), CUDA_##name, {0}, false},
static struct CUfunc_st functions[] = {CUDA_KERNELS(FUNCTION)};

int driver_number(const char *name, int otherwise)
{
    const char *text = getenv(name);

    return text != NULL ? atoi(text) : otherwise;
}

/* The program's own code calls it. */
void status_bug(const char *file, int line, const char *claim)
{
    fprintf(stderr, "driver: %s:%d: %s\n", file, line, claim);
    abort();
}

CUresult driver_ready(void)
{
    if (current == NULL) return CUDA_ERROR_INVALID_CONTEXT;
    return streams_error();
}

int driver_device(void)
{
    return current->device;
}

uint32_t driver_stack(void)
{
    return current->stack;
}

/* A process that another forked after that had asked this cannot use a GPU. */
EXPORTED CUresult cuInit(unsigned flags)
{
    static pid_t owner;

    (void)flags;
    if (owner == 0) owner = getpid();
    if (owner != getpid()) return CUDA_ERROR_NOT_INITIALIZED;
    for (int i = 0; i < GPUS_MOST; i++) {
        contexts[i].device = i;
        if (contexts[i].stack == 0) contexts[i].stack = STACK_BYTES;
    }
    return driver_number("GPUS", 1) == 0 ? CUDA_ERROR_NO_DEVICE
                                         : CUDA_SUCCESS;
}

EXPORTED CUresult cuDriverGetVersion(int *version)
{
    *version = driver_number("DRIVER", 13000);
    return CUDA_SUCCESS;
}

EXPORTED CUresult cuGetErrorName(CUresult error, const char **name)
{
#define NAMED(code) case code: *name = #code; return CUDA_SUCCESS
    switch (error) {
    NAMED(CUDA_ERROR_INVALID_VALUE);
    NAMED(CUDA_ERROR_NOT_INITIALIZED);
    NAMED(CUDA_ERROR_INVALID_CONTEXT);
    NAMED(CUDA_ERROR_INVALID_HANDLE);
    NAMED(CUDA_ERROR_INVALID_IMAGE);
    NAMED(CUDA_ERROR_NOT_FOUND);
    NAMED(CUDA_ERROR_NOT_READY);
    NAMED(CUDA_ERROR_NO_BINARY_FOR_GPU);
    NAMED(CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES);
    NAMED(CUDA_ERROR_OUT_OF_MEMORY);
    NAMED(CUDA_ERROR_ILLEGAL_ADDRESS);
    NAMED(CUDA_ERROR_NOT_SUPPORTED);
    NAMED(CUDA_ERROR_PEER_ACCESS_UNSUPPORTED);
    default: return CUDA_ERROR_INVALID_VALUE;
    }
}

EXPORTED CUresult cuDeviceGetCount(int *count)
{
    *count = driver_number("GPUS", 1);
    return CUDA_SUCCESS;
}

EXPORTED CUresult cuDeviceGet(CUdevice *device, int index)
{
    *device = index;
    return CUDA_SUCCESS;
}

EXPORTED CUresult cuDeviceGetName(char *name, int bytes, CUdevice device)
{
    const char *text = getenv("GPU_NAME");

    (void)device;
    snprintf(name, (size_t)bytes, "%s", text != NULL ? text : "a test");
    return CUDA_SUCCESS;
}

EXPORTED CUresult cuDeviceGetPCIBusId(char *id, int bytes, CUdevice device)
{
    snprintf(id, (size_t)bytes, "0000:%02x:00.0", (unsigned)device);
    return CUDA_SUCCESS;
}

EXPORTED CUresult cuDeviceGetAttribute(int *value, CUdevice_attribute of,
                                       CUdevice device)
{
    (void)device;
    *value = of == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR
                 ? driver_number("MAJOR", 9) : driver_number("MINOR", 0);
    return CUDA_SUCCESS;
}

/* GPUs that this process has a context on, for nvml.c. */
static _Atomic int retained[GPUS_MOST];

EXPORTED int lockstep_driver_retained(int device)
{
    return retained[device];
}

EXPORTED CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device)
{
    retained[device]++;
    *context = &contexts[device];
    return CUDA_SUCCESS;
}

EXPORTED CUresult cuDevicePrimaryCtxRelease(CUdevice device)
{
    retained[device]--;
    return CUDA_SUCCESS;
}

EXPORTED CUresult cuCtxSetCurrent(CUcontext context)
{
    current = context;
    return CUDA_SUCCESS;
}

EXPORTED CUresult cuCtxGetLimit(size_t *value, CUlimit limit)
{
    if (driver_ready() != CUDA_SUCCESS) return driver_ready();
    if (limit != CU_LIMIT_STACK_SIZE) return CUDA_ERROR_UNSUPPORTED_LIMIT;
    *value = current->stack;
    return CUDA_SUCCESS;
}

EXPORTED CUresult cuCtxSetLimit(CUlimit limit, size_t value)
{
    if (driver_ready() != CUDA_SUCCESS) return driver_ready();
    if (limit != CU_LIMIT_STACK_SIZE) return CUDA_ERROR_UNSUPPORTED_LIMIT;
    current->stack = (uint32_t)value;
    return CUDA_SUCCESS;
}

EXPORTED CUresult cuModuleLoadData(CUmodule *module, const void *image)
{
    struct CUmod_st made;
    const CUresult result = image_choose(image, &made);

    if (driver_ready() != CUDA_SUCCESS) return driver_ready();
    if (result != CUDA_SUCCESS) return result;
    *module = malloc(sizeof **module);
    **module = made;
    return CUDA_SUCCESS;
}

EXPORTED CUresult cuModuleGetFunction(CUfunction *function, CUmodule module,
                                      const char *name)
{
    struct kernel_image image;

    if (driver_ready() != CUDA_SUCCESS) return driver_ready();
    if (!image_kernel(module, name, &image)) return CUDA_ERROR_NOT_FOUND;
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++)
        if (strcmp(functions[i].name, name) == 0) {
            *function = &functions[i];
            functions[i].image = image;
            return CUDA_SUCCESS;
        }
    return CUDA_ERROR_NOT_FOUND;
}

/* Until then a kernel has no memory: the driver loads it late. */
EXPORTED CUresult cuFuncLoad(CUfunction function)
{
    if (driver_ready() != CUDA_SUCCESS) return driver_ready();
    function->loaded = true;
    return CUDA_SUCCESS;
}

EXPORTED CUresult cuFuncGetAttribute(int *value, CUfunction_attribute of,
                                     CUfunction function)
{
    if (driver_ready() != CUDA_SUCCESS) return driver_ready();
    if (of != CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES)
        return CUDA_ERROR_INVALID_VALUE;
    *value = (int)function->image.local;
    return CUDA_SUCCESS;
}

EXPORTED CUresult cuModuleUnload(CUmodule module)
{
    free(module);
    return CUDA_SUCCESS;
}
