/* SPDX-License-Identifier: Apache-2.0 */
/* gpu.c - a GPU that is open: memory, streams, events, copies and launches. */
#include "kernels/cuda/plugin/segment.h"

#include <pthread.h>

enum { OPEN_MOST = 1024 };
static struct gpu gpus[OPEN_MOST];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static struct gpu *gpu_new(void)
{
    struct gpu *gpu = NULL;

    pthread_mutex_lock(&lock);
    for (int i = 0; i < OPEN_MOST && gpu == NULL; i++)
        if (!gpus[i].is_open) gpu = &gpus[i];
    if (gpu != NULL) *gpu = (struct gpu){.is_open = true};
    pthread_mutex_unlock(&lock);
    return gpu;
}

static void gpu_old(struct gpu *gpu)
{
    pthread_mutex_lock(&lock);
    gpu->is_open = false;
    pthread_mutex_unlock(&lock);
}

/* Whatever thread this is. */
static CUresult enter(const struct gpu *gpu)
{
    return driver.cuCtxSetCurrent_(gpu->context);
}

#define ASK(gpu, asked, call)                                              \
    do {                                                                   \
        CUresult error_ = enter(gpu);                                      \
        if (error_ == CUDA_SUCCESS) error_ = (call);                       \
        return driver_says(error_, asked);                                 \
    } while (0)

/* The stream has all work that was given. */
static CUresult settle(const struct gpu *gpu, enum gpu_stream stream)
{
    CUresult error = enter(gpu);

    if (error != CUDA_SUCCESS || stream != GPU_KERNELS || gpu->open == NULL)
        return error;
    return segment_flush(gpu->open);
}

#define ASK_BEHIND(gpu, stream, asked, call)                               \
    do {                                                                   \
        CUresult error_ = settle(gpu, stream);                             \
        if (error_ == CUDA_SUCCESS) error_ = (call);                       \
        return driver_says(error_, asked);                                 \
    } while (0)

static CUdeviceptr there(const void *at)
{
    return (CUdeviceptr)(uintptr_t)at;
}

const char *gpu_open(int number, struct gpu **out)
{
    struct gpu *gpu = gpu_new();
    const char *sentence;
    CUresult error;

    *out = NULL;
    if (gpu == NULL)
        return driver_sentence("a process opens at most %d GPUs", OPEN_MOST);
    gpu->number = number;
    sentence = kernels_retain(number, &gpu->context, &gpu->functions);
    if (sentence != NULL) {
        gpu_old(gpu);
        return sentence;
    }
    error = enter(gpu);
    for (int i = 0; i < GPU_STREAMS && error == CUDA_SUCCESS; i++)
        error = driver.cuStreamCreate_(&gpu->streams[i],
                                       CU_STREAM_NON_BLOCKING);
    if (error != CUDA_SUCCESS) {
        gpu_close(gpu);
        return driver_says(error, "a stream");
    }
    *out = gpu;
    return NULL;
}

void gpu_close(struct gpu *gpu)
{
    (void)settle(gpu, GPU_KERNELS);
    segments_free(gpu->open);
    products_close(gpu);
    attention_close(gpu);
    for (int i = 0; i < GPU_STREAMS; i++)
        if (gpu->streams[i] != NULL) driver.cuStreamDestroy_(gpu->streams[i]);
    kernels_release(gpu->number);
    gpu_old(gpu);
}

/* ---- memory ---- */

const char *gpu_take(struct gpu *gpu, size_t bytes, void **out)
{
    CUdeviceptr memory = 0;
    CUresult error = settle(gpu, GPU_KERNELS);
    CUstream stream = gpu->streams[GPU_KERNELS];

    *out = NULL;
    if (error == CUDA_SUCCESS) error = driver.cuMemAlloc_(&memory, bytes);
    if (error == CUDA_SUCCESS)
        error = driver.cuMemsetD8Async_(memory, 0, bytes, stream);
    if (error == CUDA_SUCCESS) error = driver.cuStreamSynchronize_(stream);
    if (error == CUDA_SUCCESS) *out = (void *)(uintptr_t)memory;
    else if (memory != 0) driver.cuMemFree_(memory);
    return driver_says(error, "memory");
}

void gpu_give(struct gpu *gpu, void *memory)
{
    if (settle(gpu, GPU_KERNELS) == CUDA_SUCCESS)
        driver.cuMemFree_(there(memory));
}

/* Memory that is not noted is pinned all the same: its copies are not
 * gathered. */
static void note_pinned(struct gpu *gpu, const void *at, const void *old,
                        size_t bytes)
{
    for (int i = 0; i < PINNED_MOST; i++)
        if (gpu->pinned[i].at == old) {
            gpu->pinned[i].at = at;
            gpu->pinned[i].bytes = bytes;
            return;
        }
}

static bool is_pinned(const struct gpu *gpu, const void *at, size_t bytes)
{
    const char *first = at;

    for (int i = 0; i < PINNED_MOST; i++)
        if (gpu->pinned[i].at != NULL && first >= gpu->pinned[i].at &&
            first + bytes <= gpu->pinned[i].at + gpu->pinned[i].bytes)
            return true;
    return false;
}

const char *gpu_pin(struct gpu *gpu, void *at, size_t bytes)
{
    CUresult error = enter(gpu);

    if (error == CUDA_SUCCESS)
        error = driver.cuMemHostRegister_(at, bytes,
                                          CU_MEMHOSTREGISTER_PORTABLE);
    if (error == CUDA_SUCCESS) note_pinned(gpu, at, NULL, bytes);
    return driver_says(error, "memory of the host that is pinned");
}

/* Copies that are under way may use it: nobody says that the driver waits for
 * them. */
void gpu_unpin(struct gpu *gpu, void *at)
{
    note_pinned(gpu, NULL, at, 0);
    if (settle(gpu, GPU_KERNELS) != CUDA_SUCCESS) return;
    for (int i = 0; i < GPU_STREAMS; i++)
        driver.cuStreamSynchronize_(gpu->streams[i]);
    driver.cuMemHostUnregister_(at);
}

/* ---- copies ---- */

static CUresult copy_row(CUstream stream, const struct gpu_copy *copy,
                         int64_t row)
{
    char *to = (char *)copy->to.at + row * copy->to.apart;
    const char *from = (const char *)copy->from.at + row * copy->from.apart;

    switch (copy->way) {
    case GPU_TO_DEVICE:
        return driver.cuMemcpyHtoDAsync_(there(to), from, copy->row, stream);
    case GPU_TO_HOST:
        return driver.cuMemcpyDtoHAsync_(to, there(from), copy->row, stream);
    default:
        return driver.cuMemcpyDtoDAsync_(there(to), there(from), copy->row,
                                         stream);
    }
}

/* Rows between host and GPU, in one call. */
static CUresult copy_pitched(CUstream stream, const struct gpu_copy *copy)
{
    const bool up = copy->way == GPU_TO_DEVICE;
    const CUDA_MEMCPY2D all = {
        .srcMemoryType = up ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE,
        .srcHost = up ? copy->from.at : NULL,
        .srcDevice = up ? 0 : there(copy->from.at),
        .srcPitch = (size_t)copy->from.apart,
        .dstMemoryType = up ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_HOST,
        .dstHost = up ? NULL : copy->to.at,
        .dstDevice = up ? there(copy->to.at) : 0,
        .dstPitch = (size_t)copy->to.apart,
        .WidthInBytes = copy->row, .Height = (size_t)copy->rows};

    return driver.cuMemcpy2DAsync_(&all, stream);
}

static bool is_pitched(const struct gpu_copy *copy)
{
    const int64_t row = (int64_t)copy->row;

    return copy->way != GPU_INSIDE && copy->rows > 1 &&
           copy->to.apart >= row && copy->to.apart <= INT32_MAX &&
           copy->from.apart >= row && copy->from.apart <= INT32_MAX;
}

static bool can_gather(const struct gpu *gpu, enum gpu_stream number,
                       const struct gpu_copy *copy)
{
    if (gpu->open == NULL || number != GPU_KERNELS || copy->rows != 1)
        return false;
    if (copy->way == GPU_INSIDE) return true;
    return is_pinned(gpu, copy->way == GPU_TO_DEVICE ? copy->from.at
                                                     : copy->to.at, copy->row);
}

const char *gpu_copy_rows(struct gpu *gpu, enum gpu_stream number,
                          const struct gpu_copy *copy)
{
    CUstream stream = gpu->streams[number];
    const bool gathers = can_gather(gpu, number, copy);
    CUresult error = gathers ? enter(gpu) : settle(gpu, number);

    if (error == CUDA_SUCCESS && gathers)
        return driver_says(segment_copy(gpu->open, copy->way, copy->to.at,
                                        copy->from.at, copy->row), "a copy");

    if (error == CUDA_SUCCESS && is_pitched(copy))
        return driver_says(copy_pitched(stream, copy), "a copy of rows");
    for (int64_t i = 0; i < copy->rows && error == CUDA_SUCCESS; i++)
        error = copy_row(stream, copy, i);
    return driver_says(error, "a copy");
}

/* The largest unit that all of them are multiples of. */
static int unit_of(const struct device_parts *c)
{
    const uint64_t all = (uint64_t)c->bytes | (uint64_t)c->to.apart |
                         (uint64_t)c->from.apart | (uint64_t)c->to_part |
                         (uint64_t)c->from_part | (uintptr_t)c->to.at |
                         (uintptr_t)c->from.at;

    return all % 8 == 0 ? 8 : all % 4 == 0 ? 4 : all % 2 == 0 ? 2 : 1;
}

struct copy_parts_call parts_call(const struct device_parts *copy,
                                  int64_t *threads)
{
    const int unit = copy->turn != TURN_NONE ? copy->element : unit_of(copy);
    const struct copy_parts_call call = {
        .of = *copy, .unit = unit, .units = (int64_t)copy->bytes / unit};

    *threads = copy->rows * copy->parts * call.units;
    return call;
}

const char *gpu_copy_parts(struct gpu *gpu, const struct device_parts *copy)
{
    int64_t units;
    const struct copy_parts_call call = parts_call(copy, &units);

    return gpu_start(gpu, &(struct gpu_launch){
        CUDA_copy_parts, blocks_of(units), BLOCK_THREADS, &call,
        sizeof call});
}

const char *gpu_fill(struct gpu *gpu, void *to, int byte, size_t bytes)
{
    if (gpu->open != NULL)
        ASK(gpu, "a fill", segment_fill(gpu->open, to, byte, bytes));
    ASK(gpu, "a fill",
        driver.cuMemsetD8Async_(there(to), (unsigned char)byte, bytes,
                                gpu->streams[GPU_KERNELS]));
}

/* ---- work ---- */

#define KERNEL_NAME(name) #name,
static const char *const names[] = {CUDA_KERNELS(KERNEL_NAME)};

const char *gpu_start(struct gpu *gpu, const struct gpu_launch *l)
{
    size_t bytes = l->bytes;
    void *extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER,
                     (void *)(uintptr_t)l->call,
                     CU_LAUNCH_PARAM_BUFFER_SIZE, &bytes, CU_LAUNCH_PARAM_END};

    if (l->blocks > INT32_MAX)
        return driver_sentence("%s has %lld blocks, at most 2147483647",
                               names[l->kernel], (long long)l->blocks);
    if (gpu->open != NULL && l->threads == BLOCK_THREADS)
        ASK(gpu, names[l->kernel], segment_kernel(gpu->open, l));
    ASK_BEHIND(gpu, GPU_KERNELS, names[l->kernel],
        driver.cuLaunchKernel_(gpu->functions[l->kernel], (unsigned)l->blocks,
                               1, 1, (unsigned)l->threads, 1, 1, 0,
                               gpu->streams[GPU_KERNELS], NULL, extra));
}

/* ---- work that is gathered ---- */

const char *gpu_gather(struct gpu *gpu)
{
    if (gpu->open == NULL)
        gpu->open = segments_new(gpu);
    return gpu->open != NULL ? NULL
                             : driver_sentence("there is no memory to gather "
                                               "work in");
}

int gpu_gathered(struct gpu *gpu)
{
    return gpu->open != NULL ? segment_count(gpu->open) : 0;
}

const char *gpu_flush(struct gpu *gpu)
{
    return driver_says(settle(gpu, GPU_KERNELS), "work that was gathered");
}

void gpu_graphs(struct gpu *gpu, struct gpu_graphs *out)
{
    *out = (struct gpu_graphs){0};
    if (gpu->open != NULL) segment_graphs(gpu->open, out);
}

const char *gpu_tell(struct gpu *gpu, void *to, const void *host, size_t bytes)
{
    if (gpu->open != NULL)
        ASK(gpu, "a copy", segment_tell(gpu->open, to, host, bytes));
    ASK(gpu, "a copy",
        driver.cuMemcpyHtoDAsync_(there(to), host, bytes,
                                  gpu->streams[GPU_KERNELS]));
}

/* ---- events ---- */

/* An event is the driver's. */
static CUevent event_of(struct gpu_event *event)
{
    return (CUevent)event;
}

const char *gpu_make_event(struct gpu *gpu, bool timed, struct gpu_event **out)
{
    ASK(gpu, "an event",
        driver.cuEventCreate_((CUevent *)out,
                              timed ? CU_EVENT_DEFAULT
                                    : CU_EVENT_DISABLE_TIMING));
}

const char *gpu_elapsed(struct gpu *gpu, struct gpu_event *first,
                        struct gpu_event *then, float *ms)
{
    ASK(gpu, "the time between events",
        driver.cuEventElapsedTime_(ms, event_of(first), event_of(then)));
}

void gpu_free_event(struct gpu *gpu, struct gpu_event *event)
{
    if (enter(gpu) == CUDA_SUCCESS) driver.cuEventDestroy_(event_of(event));
}

const char *gpu_record(struct gpu *gpu, enum gpu_stream stream,
                       struct gpu_event *event)
{
    ASK_BEHIND(gpu, stream, "an event that is recorded",
        driver.cuEventRecord_(event_of(event), gpu->streams[stream]));
}

const char *gpu_after(struct gpu *gpu, enum gpu_stream stream,
                      struct gpu_event *event)
{
    ASK_BEHIND(gpu, stream, "an event that a stream waits for",
        driver.cuStreamWaitEvent_(gpu->streams[stream], event_of(event), 0));
}

const char *gpu_await(struct gpu *gpu, struct gpu_event *event)
{
    ASK(gpu, "the end of work", driver.cuEventSynchronize_(event_of(event)));
}

const char *gpu_finish(struct gpu *gpu, enum gpu_stream stream)
{
    ASK_BEHIND(gpu, stream, "the end of a stream",
        driver.cuStreamSynchronize_(gpu->streams[stream]));
}

/* ---- streams of libraries ---- */

const char *gpu_make_stream(struct gpu *gpu, void **out)
{
    ASK(gpu, "a stream",
        driver.cuStreamCreate_((CUstream *)out, CU_STREAM_NON_BLOCKING));
}

void gpu_free_stream(struct gpu *gpu, void *stream)
{
    if (enter(gpu) == CUDA_SUCCESS) driver.cuStreamDestroy_(stream);
}

const char *gpu_is_idle(struct gpu *gpu, void *stream, bool *out)
{
    CUresult error = enter(gpu);

    if (error == CUDA_SUCCESS) error = driver.cuStreamQuery_(stream);
    *out = error == CUDA_SUCCESS;
    if (error == CUDA_ERROR_NOT_READY) error = CUDA_SUCCESS;
    return driver_says(error, "whether a stream is done");
}

const char *gpu_enter(struct gpu *gpu)
{
    return driver_says(enter(gpu), "a context");
}
