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
    struct shared_head *head; /* NULL: of the host */
    int file;                 /* -1: of another process, or none */
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

/* Another process has it. */
static bool is_foreign(const struct range *range)
{
    return range->head != NULL && range->file < 0;
}

static CUresult enlist(struct range range)
{
    CUresult result = CUDA_ERROR_OUT_OF_MEMORY;

    pthread_mutex_lock(&lock);
    if (count < RANGES) {
        ranges[count++] = range;
        known += is_foreign(&range) ? 0 : range.bytes;
        if (known > known_most) known_most = known;
        driver_count(COUNT_LEFT);
        result = CUDA_SUCCESS;
    }
    pthread_mutex_unlock(&lock);
    return result;
}

/* Whether there was one, which *out is. */
static bool strike(uintptr_t first, bool host, bool foreign,
                   struct range *out)
{
    bool found = false;

    pthread_mutex_lock(&lock);
    for (int i = 0; i < count && !found; i++) {
        if (ranges[i].first != first || (ranges[i].device < 0) != host ||
            is_foreign(&ranges[i]) != foreign)
            continue;
        *out = ranges[i];
        known -= foreign ? 0 : ranges[i].bytes;
        ranges[i] = ranges[--count];
        driver_gone();
        found = true;
    }
    pthread_mutex_unlock(&lock);
    return found;
}

static bool is_there(const struct range *range)
{
    return range->head == NULL || !atomic_load(&range->head->gone);
}

void *memory_near(int device, CUdeviceptr at, size_t bytes)
{
    void *near = NULL;
    const struct range *range;

    pthread_mutex_lock(&lock);
    range = range_of((uintptr_t)at);
    if (range != NULL && range->device == device && is_there(range) &&
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

        if (range != NULL && range->device == device && is_there(range))
            words[i] += range->shift;
        else if (range != NULL || is_mapped(words[i])) words[i] |= nobody;
    }
    pthread_mutex_unlock(&lock);
}

static size_t gpu_bytes(void)
{
    const char *text = getenv("GPU_BYTES");

    return text != NULL ? strtoull(text, NULL, 10) : (size_t)8 << 30;
}

/* Memory that the driver takes of a GPU for itself, or gives back. */
void memory_foreign(int device, int64_t bytes)
{
    __atomic_add_fetch(&taken[device], (size_t)bytes, __ATOMIC_SEQ_CST);
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
static char *used_for(char *first, size_t bytes, int file)
{
    for (uintptr_t i = 1; i < (uintptr_t)first >> 32; i++) {
        char *at = (char *)((uintptr_t)first - (i << 32));
        char *found = mmap(at, bytes, PROT_READ | PROT_WRITE,
                           MAP_SHARED | MAP_NORESERVE | MAP_FIXED_NOREPLACE,
                           file, SHARED_HEAD);

        if (found == at) return at;
        if (found != MAP_FAILED) munmap(found, bytes);
    }
    return NULL;
}

static size_t whole_of(size_t bytes)
{
    return (bytes + page_bytes() - 1) / page_bytes() * page_bytes();
}

/* Both places of memory in a file. false: there are none. */
static bool place(struct range *range, int file)
{
    char *first, *used = NULL;

    range->whole = whole_of(range->bytes);
    first = mmap(NULL, range->whole, PROT_NONE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (first == MAP_FAILED) return false;
    used = used_for(first, range->whole, file);
    if (used == NULL) {
        munmap(first, range->whole);
        return false;
    }
    range->first = (uintptr_t)first;
    range->shift = (uintptr_t)used - (uintptr_t)first;
    return true;
}

static void displace(const struct range *range)
{
    munmap((void *)range->first, range->whole);
    munmap((void *)(range->first + range->shift), range->whole);
}

/* It holds NaN until somebody writes. */
EXPORTED CUresult cuMemAlloc_v2(CUdeviceptr *out, size_t bytes)
{
    struct range range = {.bytes = bytes};

    if (driver_ready() != CUDA_SUCCESS) return driver_ready();
    if (bytes == 0) return CUDA_ERROR_INVALID_VALUE;
    driver_count(COUNT_TAKEN);
    range.device = driver_device();
    if (taken[range.device] + whole_of(bytes) > gpu_bytes())
        return CUDA_ERROR_OUT_OF_MEMORY;
    range.head = shared_make(whole_of(bytes), &range.file);
    if (range.head == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
    if (!place(&range, range.file)) {
        shared_end(range.head, range.file);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    memset((void *)(range.first + range.shift), 0xff, range.whole);
    __atomic_add_fetch(&taken[range.device], range.whole, __ATOMIC_SEQ_CST);
    *out = (CUdeviceptr)range.first;
    return enlist(range);
}

EXPORTED CUresult cuMemFree_v2(CUdeviceptr at)
{
    struct range range;

    streams_finish();
    if (!strike((uintptr_t)at, false, false, &range))
        return CUDA_ERROR_INVALID_VALUE;
    displace(&range);
    shared_end(range.head, range.file);
    __atomic_sub_fetch(&taken[range.device], range.whole, __ATOMIC_SEQ_CST);
    return CUDA_SUCCESS;
}

/* ---- of other processes ---- */

bool memory_file(CUdeviceptr at, int *file, uint64_t *bytes, uint64_t *serial)
{
    const struct range *range;
    bool found;

    pthread_mutex_lock(&lock);
    range = range_of((uintptr_t)at);
    found = range != NULL && range->first == (uintptr_t)at &&
            range->head != NULL && !is_foreign(range) &&
            range->device == driver_device();
    if (found) {
        *file = range->file;
        *bytes = range->bytes;
        *serial = range->head->serial;
    }
    pthread_mutex_unlock(&lock);
    return found;
}

CUresult memory_open(int file, struct shared_head *head, size_t bytes,
                     CUdeviceptr *out)
{
    struct range range = {.bytes = bytes, .device = driver_device(),
                          .head = head, .file = -1};

    if (!place(&range, file)) return CUDA_ERROR_OUT_OF_MEMORY;
    *out = (CUdeviceptr)range.first;
    return enlist(range);
}

CUresult memory_close(CUdeviceptr at)
{
    struct range range;

    if (!strike((uintptr_t)at, false, true, &range))
        return CUDA_ERROR_INVALID_VALUE;
    displace(&range);
    atomic_fetch_sub(&range.head->open, 1);
    munmap(range.head, SHARED_HEAD);
    return CUDA_SUCCESS;
}

EXPORTED CUresult cuMemHostRegister_v2(void *at, size_t bytes, unsigned flags)
{
    (void)flags;
    if (driver_ready() != CUDA_SUCCESS) return driver_ready();
    driver_count(COUNT_TAKEN);
    return enlist((struct range){(uintptr_t)at, bytes, bytes, 0, -1, NULL,
                                 -1});
}

EXPORTED CUresult cuMemHostUnregister(void *at)
{
    struct range range;

    streams_finish();
    return strike((uintptr_t)at, true, false, &range)
               ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
