/* SPDX-License-Identifier: Apache-2.0 */
/* cuda_driver.c - stands for the driver of a GPU in cuda.sh: the environment
 * says what it finds. It takes modules by their first bytes, and knows all
 * kernels. */
#include <cuda.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { FATBIN_MAGIC = (int)0xBA55ED50 };

static int number(const char *name, int otherwise)
{
    const char *text = getenv(name);

    return text != NULL ? atoi(text) : otherwise;
}

CUresult cuInit(unsigned flags)
{
    (void)flags;
    return number("GPUS", 0) == 0 ? CUDA_ERROR_NO_DEVICE : CUDA_SUCCESS;
}

CUresult cuDriverGetVersion(int *version)
{
    *version = number("DRIVER", 13000);
    return CUDA_SUCCESS;
}

CUresult cuGetErrorName(CUresult error, const char **name)
{
    (void)error;
    *name = "CUDA_ERROR_TEST";
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetCount(int *count)
{
    *count = number("GPUS", 0);
    return CUDA_SUCCESS;
}

CUresult cuDeviceGet(CUdevice *device, int index)
{
    *device = index;
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetName(char *name, int bytes, CUdevice device)
{
    (void)device;
    strncpy(name, "a test", (size_t)bytes);
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetAttribute(int *value, CUdevice_attribute of,
                              CUdevice device)
{
    (void)device;
    *value = of == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR
                 ? number("MAJOR", 9) : number("MINOR", 0);
    return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device)
{
    (void)device;
    *context = NULL;
    return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRelease(CUdevice device)
{
    (void)device;
    return CUDA_SUCCESS;
}

CUresult cuCtxSetCurrent(CUcontext context)
{
    (void)context;
    return CUDA_SUCCESS;
}

CUresult cuModuleLoadData(CUmodule *module, const void *image)
{
    int magic;

    memcpy(&magic, image, sizeof magic);
    if (magic != FATBIN_MAGIC || number("BROKEN", 0))
        return CUDA_ERROR_INVALID_IMAGE;
    *module = (CUmodule)(uintptr_t)image;
    return CUDA_SUCCESS;
}

CUresult cuModuleGetFunction(CUfunction *function, CUmodule module,
                             const char *name)
{
    (void)module;
    (void)name;
    *function = NULL;
    return CUDA_SUCCESS;
}

#ifndef FEWER
CUresult cuModuleUnload(CUmodule module)
{
    (void)module;
    return CUDA_SUCCESS;
}
#endif
