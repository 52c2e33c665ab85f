/* SPDX-License-Identifier: Apache-2.0 */
/* driver.h - the functions of the driver that the plug-in uses. */
#ifndef LOCKSTEP_KERNELS_CUDA_PLUGIN_DRIVER_H
#define LOCKSTEP_KERNELS_CUDA_PLUGIN_DRIVER_H

#include <cuda.h>
#include "device/plugin.h"
#include "kernels/cuda/launch.h"

/* cuda.h gives some of them names with the number of their version. */
#define DRIVER_FUNCTIONS(X)                                                \
    X(cuInit) X(cuDriverGetVersion) X(cuGetErrorName) X(cuDeviceGetCount)  \
    X(cuDeviceGet) X(cuDeviceGetName) X(cuDeviceGetAttribute)              \
    X(cuDeviceTotalMem) X(cuMemGetInfo) X(cuDeviceGetPCIBusId)             \
    X(cuDevicePrimaryCtxRetain) X(cuDevicePrimaryCtxRelease)               \
    X(cuCtxSetCurrent) X(cuCtxGetLimit) X(cuCtxSetLimit)                   \
    X(cuModuleLoadData) X(cuModuleGetFunction)                             \
    X(cuFuncLoad) X(cuFuncGetAttribute)                                    \
    X(cuModuleUnload) X(cuMemAlloc) X(cuMemFree) X(cuMemGetAddressRange)   \
    X(cuMemHostRegister) X(cuMemHostUnregister)                            \
    X(cuMemcpyHtoDAsync) X(cuMemcpyDtoHAsync) X(cuMemcpyDtoDAsync)         \
    X(cuMemcpy2DAsync) X(cuMemsetD8Async) X(cuStreamCreate)                \
    X(cuStreamDestroy) X(cuStreamSynchronize) X(cuStreamWaitEvent)         \
    X(cuStreamQuery)                                                       \
    X(cuEventCreate) X(cuEventDestroy) X(cuEventRecord)                    \
    X(cuEventSynchronize) X(cuEventElapsedTime) X(cuLaunchKernel)          \
    X(cuGraphCreate) X(cuGraphDestroy) X(cuGraphAddKernelNode)             \
    X(cuGraphAddMemcpyNode) X(cuGraphAddMemsetNode)                        \
    X(cuGraphInstantiateWithFlags) X(cuGraphExecDestroy)                   \
    X(cuGraphExecKernelNodeSetParams) X(cuGraphLaunch)                     \
    X(cuGraphAddChildGraphNode) X(cuStreamBeginCapture)                    \
    X(cuStreamEndCapture) X(cuIpcGetMemHandle) X(cuIpcOpenMemHandle)       \
    X(cuIpcCloseMemHandle) X(cuIpcGetEventHandle) X(cuIpcOpenEventHandle)

#define DRIVER_MEMBER(name) __typeof__(name) *name##_;
struct driver {
    void *library;
    DRIVER_FUNCTIONS(DRIVER_MEMBER)
};
extern struct driver driver;

/* Opens it once. NULL, or one sentence. */
const char *driver_open(void);
/* The name of an error, after "the driver answers ", to what was asked of it;
 * NULL: it is none. */
const char *driver_says(CUresult error, const char *asked);
/* "LIBRARY answers NAME to ASKED"; name NULL: the library knows no such error.
 */
const char *library_says(const char *library, const char *name,
                         const char *asked);
/* A sentence of this thread. DRIVER_SAID stands for the last one where an error
 * is asked for. */
enum { DRIVER_SAID = -1 };
const char *driver_sentence(const char *format, ...)
    __attribute__((format(printf, 1, 2)));

/* One that is open. */
enum { PINNED_MOST = 64 };
struct gpu {
    bool is_open;
    int number;
    CUcontext context;
    const CUfunction *functions; /* borrowed, [CUDA_KERNEL_COUNT] */
    CUstream streams[GPU_STREAMS];
    struct segments *open;       /* owned; NULL: work is given at once */
    struct { const char *at; size_t bytes; } pinned[PINNED_MOST];
    void *products;              /* owned: cuBLASLt's; NULL: not asked for */
    void *attention;             /* owned: cuDNN's; NULL: not asked for */
};
void products_close(struct gpu *gpu);
void attention_close(struct gpu *gpu);
/* The call of a copy of parts, and how many threads it has. */
struct copy_parts_call parts_call(const struct device_parts *copy,
                                  int64_t *threads);

extern const struct cuda_plugin lockstep_cuda_plugin;
/* Bytes of the GPU's memory that are in use, by NVML; 0: unknown. */
size_t gpu_used(CUdevice device);
const char *gpu_find(int number, struct gpu_about *out, CUdevice *device);

/* The kernels of a context, loaded once for all who have it open. */
const char *kernels_retain(int number, CUcontext *context,
                           const CUfunction **functions);
void kernels_release(int number);

#define DECLARE_PLUGIN(member, name) extern __typeof__(                     \
    *((struct cuda_plugin *)0)->member) name
DECLARE_PLUGIN(open, gpu_open);
DECLARE_PLUGIN(close, gpu_close);
DECLARE_PLUGIN(take, gpu_take);
DECLARE_PLUGIN(give, gpu_give);
DECLARE_PLUGIN(pin, gpu_pin);
DECLARE_PLUGIN(unpin, gpu_unpin);
DECLARE_PLUGIN(copy, gpu_copy_rows);
DECLARE_PLUGIN(copy_parts, gpu_copy_parts);
DECLARE_PLUGIN(fill, gpu_fill);
DECLARE_PLUGIN(launch, gpu_start);
DECLARE_PLUGIN(gather, gpu_gather);
DECLARE_PLUGIN(gathered, gpu_gathered);
DECLARE_PLUGIN(flush, gpu_flush);
DECLARE_PLUGIN(graphs, gpu_graphs);
DECLARE_PLUGIN(tell, gpu_tell);
DECLARE_PLUGIN(make_event, gpu_make_event);
DECLARE_PLUGIN(free_event, gpu_free_event);
DECLARE_PLUGIN(record, gpu_record);
DECLARE_PLUGIN(after, gpu_after);
DECLARE_PLUGIN(await, gpu_await);
DECLARE_PLUGIN(finish, gpu_finish);
DECLARE_PLUGIN(elapsed, gpu_elapsed);
DECLARE_PLUGIN(health, gpu_health);
DECLARE_PLUGIN(make_stream, gpu_make_stream);
DECLARE_PLUGIN(free_stream, gpu_free_stream);
DECLARE_PLUGIN(is_idle, gpu_is_idle);
DECLARE_PLUGIN(show, gpu_show);
DECLARE_PLUGIN(meet, gpu_meet);
DECLARE_PLUGIN(part, gpu_part);
DECLARE_PLUGIN(show_event, gpu_show_event);
DECLARE_PLUGIN(meet_event, gpu_meet_event);
DECLARE_PLUGIN(move_parts, gpu_move_parts);
DECLARE_PLUGIN(sum_roots, gpu_sum_roots);
DECLARE_PLUGIN(enter, gpu_enter);
DECLARE_PLUGIN(products, products_open);
DECLARE_PLUGIN(offers, products_offer);
DECLARE_PLUGIN(product, products_run);
DECLARE_PLUGIN(attention, attention_open);
DECLARE_PLUGIN(attends, attention_has);
DECLARE_PLUGIN(attend, attention_run);

#endif
