/* SPDX-License-Identifier: Apache-2.0 */
/* peers.c - memory of GPUs that other processes read, and work of the stream of
 * messages with it. */
#include "kernels/cuda/plugin/driver.h"

#include <string.h>

#define ASK(gpu, asked, call)                                              \
    do {                                                                   \
        CUresult error_ = driver.cuCtxSetCurrent_((gpu)->context);         \
        if (error_ == CUDA_SUCCESS) error_ = (call);                       \
        return driver_says(error_, asked);                                 \
    } while (0)

_Static_assert(sizeof(struct gpu_handle) == sizeof(CUipcMemHandle) &&
                   sizeof(struct gpu_handle) == sizeof(CUipcEventHandle),
               "handles have 64 bytes");

const char *gpu_show(struct gpu *gpu, void *memory, struct gpu_handle *out)
{
    CUipcMemHandle handle;

    memset(&handle, 0, sizeof handle);
    CUresult error = driver.cuCtxSetCurrent_(gpu->context);

    if (error == CUDA_SUCCESS)
        error = driver.cuIpcGetMemHandle_(&handle,
                                          (CUdeviceptr)(uintptr_t)memory);
    memcpy(out, &handle, sizeof handle);
    return driver_says(error, "memory for other processes");
}

const char *gpu_meet(struct gpu *gpu, const struct gpu_handle *from,
                     void **block, size_t *bytes)
{
    CUdeviceptr memory = 0, first = 0;
    CUipcMemHandle handle;
    CUresult error = driver.cuCtxSetCurrent_(gpu->context);

    memcpy(&handle, from, sizeof handle);
    if (error == CUDA_SUCCESS)
        error = driver.cuIpcOpenMemHandle_(&memory, handle,
                                           CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
    *block = (void *)(uintptr_t)memory;
    *bytes = 0;
    if (error == CUDA_SUCCESS &&
        driver.cuMemGetAddressRange_(&first, bytes, memory) == CUDA_SUCCESS)
        *bytes -= (size_t)(memory - first);
    return driver_says(error, "memory of another process");
}

void gpu_part(struct gpu *gpu, void *block)
{
    if (driver.cuCtxSetCurrent_(gpu->context) == CUDA_SUCCESS)
        driver.cuIpcCloseMemHandle_((CUdeviceptr)(uintptr_t)block);
}

const char *gpu_show_event(struct gpu *gpu, struct gpu_event **out,
                           struct gpu_handle *to)
{
    CUipcEventHandle handle;
    CUevent event = NULL;
    CUresult error = driver.cuCtxSetCurrent_(gpu->context);

    memset(&handle, 0, sizeof handle);
    if (error == CUDA_SUCCESS)
        error = driver.cuEventCreate_(&event, CU_EVENT_DISABLE_TIMING |
                                                  CU_EVENT_INTERPROCESS);
    if (error == CUDA_SUCCESS)
        error = driver.cuIpcGetEventHandle_(&handle, event);
    if (error != CUDA_SUCCESS && event != NULL) {
        driver.cuEventDestroy_(event);
        event = NULL;
    }
    *out = (struct gpu_event *)event;
    memcpy(to, &handle, sizeof handle);
    return driver_says(error, "an event for other processes");
}

const char *gpu_meet_event(struct gpu *gpu, const struct gpu_handle *from,
                           struct gpu_event **out)
{
    CUipcEventHandle handle;

    memcpy(&handle, from, sizeof handle);
    ASK(gpu, "an event of another process",
        driver.cuIpcOpenEventHandle_((CUevent *)out, handle));
}

/* ---- the stream of messages ---- */

static CUresult start(struct gpu *gpu, enum cuda_kernel kernel, int64_t blocks,
                      const void *call, size_t bytes)
{
    void *extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, (void *)(uintptr_t)call,
                     CU_LAUNCH_PARAM_BUFFER_SIZE, &bytes, CU_LAUNCH_PARAM_END};

    if (blocks == 0) return CUDA_SUCCESS;
    return driver.cuLaunchKernel_(gpu->functions[kernel], (unsigned)blocks, 1,
                                  1, BLOCK_THREADS, 1, 1, 0,
                                  gpu->streams[GPU_MESSAGES], NULL, extra);
}

const char *gpu_move_parts(struct gpu *gpu, const struct device_parts *parts)
{
    int64_t threads;
    const struct copy_parts_call call = parts_call(parts, &threads);

    if (blocks_of(threads) > INT32_MAX)
        return driver_sentence("a copy has %lld parts",
                               (long long)(parts->rows * parts->parts));
    ASK(gpu, "a copy from another rank",
        start(gpu, CUDA_copy_parts, blocks_of(threads), &call, sizeof call));
}

const char *gpu_sum_roots(struct gpu *gpu, const struct device_roots *roots)
{
    const struct sum_roots_call call = {*roots, blocks_of(roots->elements)};

    if (call.row_blocks * roots->rows > INT32_MAX)
        return driver_sentence("a sum has %lld elements",
                               (long long)(roots->rows * roots->elements));
    ASK(gpu, "a sum of what ranks have",
        start(gpu, CUDA_sum_roots, call.row_blocks * roots->rows, &call,
              sizeof call));
}
