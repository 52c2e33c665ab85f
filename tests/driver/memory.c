/* SPDX-License-Identifier: Apache-2.0 */
/* memory.c - memory of GPUs that nobody but their work can use, and memory of
 * the host that is pinned. */
#include "work.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { RANGES = 4096 };

/* Memory of a device can be used `shift` beside its addresses. The host is
 * device -1. */
struct range {
    uintptr_t first;
    size_t bytes, whole, shift;
    int device;
};
static struct range ranges[RANGES];
static int count;
static size_t taken[GPUS_MOST];
static size_t known, known_most; /* bytes of all ranges */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static size_t page_bytes(void)
{
    return (size_t)sysconf(_SC_PAGESIZE);
}

static bool holds(const struct range *range, uintptr_t at)
{
    return at >= range->first && at < range->first + range->bytes;
}

/* With the lock held. */
static struct range *range_of(uintptr_t at)
{
    for (int i = 0; i < count; i++)
        if (holds(&ranges[i], at)) return &ranges[i];
    return NULL;
}

static CUresult enlist(struct range range)
{
    CUresult result = CUDA_ERROR_OUT_OF_MEMORY;

    pthread_mutex_lock(&lock);
    if (count < RANGES) {
        ranges[count++] = range;
        known += range.bytes;
        if (known > known_most) known_most = known;
        result = CUDA_SUCCESS;
    }
    pthread_mutex_unlock(&lock);
    return result;
}

/* Whether there was one, which *out is. */
static bool strike(uintptr_t first, bool host, struct range *out)
{
    bool found = false;

    pthread_mutex_lock(&lock);
    for (int i = 0; i < count && !found; i++) {
        if (ranges[i].first != first || (ranges[i].device < 0) != host)
            continue;
        *out = ranges[i];
        known -= ranges[i].bytes;
        ranges[i] = ranges[--count];
        found = true;
    }
    pthread_mutex_unlock(&lock);
    return found;
}

void *memory_near(int device, CUdeviceptr at, size_t bytes)
{
    void *near = NULL;
    const struct range *range;

    pthread_mutex_lock(&lock);
    range = range_of((uintptr_t)at);
    if (range != NULL && range->device == device &&
        (uintptr_t)at + bytes <= range->first + range->bytes)
        near = (void *)((uintptr_t)at + range->shift);
    pthread_mutex_unlock(&lock);
    return near;
}

size_t memory_most(void)
{
    return known_most;
}

bool memory_is_pinned(const void *at)
{
    const struct range *range;
    bool pinned;

    pthread_mutex_lock(&lock);
    range = range_of((uintptr_t)at);
    pinned = range != NULL && range->device < 0;
    pthread_mutex_unlock(&lock);
    return pinned;
}

static bool is_mapped(uintptr_t at)
{
    unsigned char one;

    if (at < 0x10000 || at >= (uintptr_t)1 << 47) return false;
    return mincore((void *)(at / page_bytes() * page_bytes()), 1, &one) == 0;
}

void memory_translate(int device, void *call, size_t bytes)
{
    const uintptr_t nobody = (uintptr_t)0x6e6f << 48;
    uintptr_t *words = call;

    pthread_mutex_lock(&lock);
    for (size_t i = 0; i < bytes / sizeof *words; i++) {
        const struct range *range = range_of(words[i]);

        if (range != NULL && range->device == device) words[i] += range->shift;
        else if (range != NULL || is_mapped(words[i])) words[i] |= nobody;
    }
    pthread_mutex_unlock(&lock);
}

static size_t gpu_bytes(void)
{
    const char *text = getenv("GPU_BYTES");

    return text != NULL ? strtoull(text, NULL, 10) : (size_t)8 << 30;
}

EXPORTED CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice device)
{
    (void)device;
    *bytes = gpu_bytes();
    return CUDA_SUCCESS;
}

EXPORTED CUresult cuMemGetInfo_v2(size_t *unused, size_t *total)
{
    if (driver_ready() != CUDA_SUCCESS) return driver_ready();
    *total = gpu_bytes();
    *unused = *total - taken[driver_device()];
    return CUDA_SUCCESS;
}

/* Memory that work on what lies at `first` uses: whole multiples of 4 GiB
 * before it. What a kernel is told has gaps, with what was there before. A gap
 * beside an integer may look like an address of the device; translating it
 * leaves the lower half, the integer, as it is. */
static char *used_for(char *first, size_t bytes)
{
    for (uintptr_t i = 1; i < (uintptr_t)first >> 32; i++) {
        char *at = (char *)((uintptr_t)first - (i << 32));
        char *found = mmap(at, bytes, PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE |
                               MAP_FIXED_NOREPLACE, -1, 0);

        if (found == at) return at;
        if (found != MAP_FAILED) munmap(found, bytes);
    }
    return NULL;
}

/* It holds NaN until somebody writes. */
EXPORTED CUresult cuMemAlloc_v2(CUdeviceptr *out, size_t bytes)
{
    const size_t page = page_bytes();
    const size_t whole = (bytes + page - 1) / page * page;
    char *first, *used = NULL;

    if (driver_ready() != CUDA_SUCCESS) return driver_ready();
    if (bytes == 0) return CUDA_ERROR_INVALID_VALUE;
    driver_count(COUNT_TAKEN);
    if (taken[driver_device()] + whole > gpu_bytes())
        return CUDA_ERROR_OUT_OF_MEMORY;
    first = mmap(NULL, whole, PROT_NONE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (first != MAP_FAILED) used = used_for(first, whole);
    if (used == NULL) {
        if (first != MAP_FAILED) munmap(first, whole);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    memset(used, 0xff, whole);
    __atomic_add_fetch(&taken[driver_device()], whole, __ATOMIC_SEQ_CST);
    *out = (CUdeviceptr)(uintptr_t)first;
    return enlist((struct range){(uintptr_t)first, bytes, whole,
                                 (uintptr_t)used - (uintptr_t)first,
                                 driver_device()});
}

EXPORTED CUresult cuMemFree_v2(CUdeviceptr at)
{
    struct range range;

    streams_finish();
    if (!strike((uintptr_t)at, false, &range)) return CUDA_ERROR_INVALID_VALUE;
    munmap((void *)range.first, range.whole);
    munmap((void *)(range.first + range.shift), range.whole);
    __atomic_sub_fetch(&taken[range.device], range.whole, __ATOMIC_SEQ_CST);
    return CUDA_SUCCESS;
}

EXPORTED CUresult cuMemHostRegister_v2(void *at, size_t bytes, unsigned flags)
{
    (void)flags;
    if (driver_ready() != CUDA_SUCCESS) return driver_ready();
    driver_count(COUNT_TAKEN);
    return enlist((struct range){(uintptr_t)at, bytes, bytes, 0, -1});
}

EXPORTED CUresult cuMemHostUnregister(void *at)
{
    struct range range;

    streams_finish();
    return strike((uintptr_t)at, true, &range) ? CUDA_SUCCESS
                                               : CUDA_ERROR_INVALID_VALUE;
}
