/* SPDX-License-Identifier: Apache-2.0 */
/* plugin.c - the driver's answer, and the kernels that it is given. */
#include "kernels/cuda/plugin/plugin.h"

#include <cuda.h>
#include <dlfcn.h>
#include <stdio.h>
#include "kernels/cuda/launch.h"

/* The code that nvcc made of each file of kernels lies in MODULES_PATH. */
#define MODULE_BYTES(name)                                                 \
    __asm__(".section .rodata\n.balign 64\n.globl module_" #name "\n"      \
            ".hidden module_" #name "\nmodule_" #name ":\n"                \
            ".incbin \"" MODULES_PATH "/" #name ".fatbin\"\n.previous\n"); \
    extern const unsigned char module_##name[];
CUDA_MODULES(MODULE_BYTES)

#define MODULE_ADDRESS(name) module_##name,
static const unsigned char *const modules[] = {CUDA_MODULES(MODULE_ADDRESS)};
enum { MODULES = sizeof modules / sizeof *modules };

#define KERNEL_NAME(name) #name,
static const char *const names[] = {CUDA_KERNELS(KERNEL_NAME)};

/* The functions of the driver that are used. cuda.h gives some of them names
 * with the number of their version. */
#define DRIVER_FUNCTIONS(X)                                                \
    X(cuInit) X(cuDriverGetVersion) X(cuGetErrorName) X(cuDeviceGetCount)  \
    X(cuDeviceGet) X(cuDeviceGetName) X(cuDeviceGetAttribute)              \
    X(cuDevicePrimaryCtxRetain) X(cuDevicePrimaryCtxRelease)               \
    X(cuCtxSetCurrent) X(cuModuleLoadData) X(cuModuleGetFunction)          \
    X(cuModuleUnload)

#define DRIVER_MEMBER(name) __typeof__(name) *name##_;
struct driver {
    void *library;
    DRIVER_FUNCTIONS(DRIVER_MEMBER)
};

#define TEXT_OF(name) #name
#define SAY(...) snprintf(text, bytes, __VA_ARGS__)

/* Fills the table; false, with a sentence: it cannot be. */
static bool driver_open(struct driver *driver, char *text, size_t bytes)
{
    driver->library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (driver->library == NULL) {
        SAY("there is no driver: libcuda.so.1 cannot be opened");
        return false;
    }
#define DRIVER_FIND(name)                                                  \
    *(void **)&driver->name##_ = dlsym(driver->library, TEXT_OF(name));    \
    if (driver->name##_ == NULL) {                                         \
        SAY("the driver is too old: it has no %s", TEXT_OF(name));         \
        return false;                                                      \
    }
    DRIVER_FUNCTIONS(DRIVER_FIND)
    return true;
}

static const char *error_name(const struct driver *driver, CUresult error)
{
    const char *name = NULL;

    if (driver->cuGetErrorName_(error, &name) != CUDA_SUCCESS || name == NULL)
        return "an unknown error";
    return name;
}

/* A GPU, and what its kernels need. */
struct gpu {
    CUdevice device;
    char name[80];
    int major, minor, driver;
};

static bool gpu_find(const struct driver *driver, struct gpu *gpu, char *text,
                     size_t bytes)
{
    int count = 0;
    CUresult error = driver->cuInit_(0);

    if (error == CUDA_SUCCESS) error = driver->cuDeviceGetCount_(&count);
    if (error == CUDA_ERROR_NO_DEVICE ||
        (error == CUDA_SUCCESS && count == 0)) {
        SAY("there is a driver, but no GPU");
        return false;
    }
    if (error == CUDA_SUCCESS) error = driver->cuDeviceGet_(&gpu->device, 0);
    if (error == CUDA_SUCCESS)
        error = driver->cuDeviceGetName_(gpu->name, sizeof gpu->name,
                                         gpu->device);
    if (error == CUDA_SUCCESS)
        error = driver->cuDeviceGetAttribute_(
            &gpu->major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR,
            gpu->device);
    if (error == CUDA_SUCCESS)
        error = driver->cuDeviceGetAttribute_(
            &gpu->minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR,
            gpu->device);
    if (error == CUDA_SUCCESS)
        error = driver->cuDriverGetVersion_(&gpu->driver);
    if (error != CUDA_SUCCESS)
        SAY("the driver answers %s", error_name(driver, error));
    return error == CUDA_SUCCESS;
}

/* Loads every module and finds every kernel in one of them. */
static CUresult kernels_load(const struct driver *driver,
                             const struct gpu *gpu, int *found)
{
    CUmodule loaded[MODULES] = {NULL};
    CUcontext context;
    CUfunction function;
    CUresult error =
        driver->cuDevicePrimaryCtxRetain_(&context, gpu->device);

    *found = 0;
    if (error != CUDA_SUCCESS) return error;
    error = driver->cuCtxSetCurrent_(context);
    for (int i = 0; i < MODULES && error == CUDA_SUCCESS; i++)
        error = driver->cuModuleLoadData_(&loaded[i], modules[i]);
    for (int k = 0; k < CUDA_KERNEL_COUNT && error == CUDA_SUCCESS; k++)
        for (int i = 0; i < MODULES; i++)
            if (driver->cuModuleGetFunction_(&function, loaded[i], names[k]) ==
                CUDA_SUCCESS) {
                ++*found;
                break;
            }
    for (int i = 0; i < MODULES; i++)
        if (loaded[i] != NULL) driver->cuModuleUnload_(loaded[i]);
    driver->cuCtxSetCurrent_(NULL);
    driver->cuDevicePrimaryCtxRelease_(gpu->device);
    return error;
}

/* Whether the GPU and its driver are what the kernels were compiled for. */
static bool gpu_fits(const struct gpu *gpu, char *text, size_t bytes)
{
    if (gpu->major < 8)
        SAY("%s has compute capability %d.%d; kernels need 8.0", gpu->name,
            gpu->major, gpu->minor);
    else if (gpu->driver < CUDA_VERSION / 1000 * 1000)
        SAY("%s: its driver is for CUDA %d.%d; kernels need %d.0", gpu->name,
            gpu->driver / 1000, gpu->driver % 1000 / 10, CUDA_VERSION / 1000);
    return gpu->major >= 8 && gpu->driver >= CUDA_VERSION / 1000 * 1000;
}

static bool about(char *text, size_t bytes)
{
    struct driver driver;
    struct gpu gpu = {.name = ""};
    CUresult error;
    int found = 0;
    bool fits = driver_open(&driver, text, bytes) &&
                gpu_find(&driver, &gpu, text, bytes) &&
                gpu_fits(&gpu, text, bytes);

    if (fits) {
        error = kernels_load(&driver, &gpu, &found);
        fits = error == CUDA_SUCCESS && found == CUDA_KERNEL_COUNT;
        if (error != CUDA_SUCCESS)
            SAY("%s does not load the kernels: %s", gpu.name,
                error_name(&driver, error));
        else
            SAY("%s, compute capability %d.%d: loads %d of %d kernels; "
                "training uses none", gpu.name, gpu.major, gpu.minor, found,
                CUDA_KERNEL_COUNT);
    }
    if (driver.library != NULL) dlclose(driver.library);
    return fits;
}

__attribute__((visibility("default")))
const struct cuda_plugin lockstep_cuda_plugin = {CUDA_PLUGIN_VERSION, about};
