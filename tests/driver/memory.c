/* SPDX-License-Identifier: Apache-2.0 */
/* memory.c - memory of GPUs that nobody but their work can use, and memory of
 * the host that is pinned.
 *
 *   BLOCKS=1  ranges up to half of a block share it, behind its beginning; the
 *             handle of each stands for the block (ipc.c) */
#include "work.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { RANGES = 4096, BLOCKS_MOST = 64, BLOCK_BYTES = 16 << 20,
       BLOCK_AHEAD = 256, BLOCK_APART = 512 };

/* Memory of a device can be used `shift` beside its addresses. The host is
 * device -1. */
struct range {
    uintptr_t first;
    size_t bytes, whole, shift;
    int device;
    struct shared_head *head; /* NULL: of the host */
    int file;                 /* -1: of another process, or none */
    int users;                /* how often it is open, of another process */
    struct block *block;      /* that it is part of; or NULL */
};
static struct range ranges[RANGES];
/* Not one of them itself. users 0: there is none. */
static struct block { struct range of; size_t used; int users; }
    blocks[BLOCKS_MOST];
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

/* Addresses from a multiple of `aligned` on; NULL: there are none. */
static char *reserve(size_t bytes, size_t aligned)
{
    char *all = mmap(NULL, bytes + aligned, PROT_NONE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    if (all == MAP_FAILED) return NULL;
    const size_t skip = -(uintptr_t)all % aligned;

    if (skip > 0) munmap(all, skip);
    munmap(all + skip + bytes, aligned - skip);
    return all + skip;
}

/* Both places of memory in a file. false: there are none. */
static bool place(struct range *range, int file, size_t aligned)
{
    char *first, *used = NULL;

    range->whole = whole_of(range->bytes);
    first = reserve(range->whole, aligned);
    if (first == NULL) return false;
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

/* Memory of its own, with its bytes and device. false: there is none. */
static bool take(struct range *range, size_t aligned)
{
    if (taken[range->device] + whole_of(range->bytes) > gpu_bytes())
        return false;
    range->head = shared_make(whole_of(range->bytes), &range->file);
    if (range->head == NULL) return false;
    if (!place(range, range->file, aligned)) {
        shared_end(range->head, range->file);
        return false;
    }
    __atomic_add_fetch(&taken[range->device], range->whole, __ATOMIC_SEQ_CST);
    return true;
}

static void give(const struct range *range)
{
    displace(range);
    shared_end(range->head, range->file);
    __atomic_sub_fetch(&taken[range->device], range->whole, __ATOMIC_SEQ_CST);
}

/* A block of the GPU with so much room, or a new one; NULL: there is none. With
 * the lock held. */
static struct block *block_with(size_t bytes, int device)
{
    struct block *unused = NULL;

    for (int i = 0; i < BLOCKS_MOST; i++) {
        struct block *block = &blocks[i];

        if (block->users == 0) unused = block;
        else if (block->of.device == device &&
                 block->used + bytes <= BLOCK_BYTES)
            return block;
    }
    if (unused == NULL) return NULL;
    *unused = (struct block){.of = {.bytes = BLOCK_BYTES, .device = device},
                             .used = BLOCK_AHEAD};
    return take(&unused->of, BLOCK_BYTES) ? unused : NULL;
}

static bool take_part(struct range *range)
{
    struct block *block;

    pthread_mutex_lock(&lock);
    block = block_with(range->bytes, range->device);
    if (block != NULL) {
        block->users++;
        range->first = block->of.first + block->used;
        range->shift = block->of.shift;
        range->head = block->of.head;
        range->file = block->of.file;
        range->block = block;
        block->used += (range->bytes + BLOCK_APART - 1) / BLOCK_APART *
                       BLOCK_APART;
    }
    pthread_mutex_unlock(&lock);
    return block != NULL;
}

static void give_part(const struct range *range)
{
    pthread_mutex_lock(&lock);
    if (--range->block->users == 0) give(&range->block->of);
    pthread_mutex_unlock(&lock);
}

/* It holds NaN until somebody writes. */
EXPORTED CUresult cuMemAlloc_v2(CUdeviceptr *out, size_t bytes)
{
    const bool is_part =
        driver_number("BLOCKS", 0) && bytes <= BLOCK_BYTES / 2;
    struct range range = {.bytes = bytes};

    if (driver_ready() != CUDA_SUCCESS) return driver_ready();
    if (bytes == 0) return CUDA_ERROR_INVALID_VALUE;
    driver_count(COUNT_TAKEN);
    range.device = driver_device();
    if (!(is_part ? take_part(&range) : take(&range, page_bytes())))
        return CUDA_ERROR_OUT_OF_MEMORY;
    memset((void *)(range.first + range.shift), 0xff, bytes);
    *out = (CUdeviceptr)range.first;
    return enlist(range);
}

EXPORTED CUresult cuMemFree_v2(CUdeviceptr at)
{
    struct range range;

    streams_finish();
    if (!strike((uintptr_t)at, false, false, &range))
        return CUDA_ERROR_INVALID_VALUE;
    if (range.block != NULL) give_part(&range);
    else give(&range);
    return CUDA_SUCCESS;
}

EXPORTED CUresult cuMemGetAddressRange_v2(CUdeviceptr *first, size_t *bytes,
                                          CUdeviceptr at)
{
    CUresult result = CUDA_ERROR_INVALID_VALUE;
    const struct range *range;

    if (driver_ready() != CUDA_SUCCESS) return driver_ready();
    pthread_mutex_lock(&lock);
    range = range_of((uintptr_t)at);
    if (range != NULL && range->device == driver_device()) {
        *first = (CUdeviceptr)range->first;
        *bytes = range->bytes;
        result = CUDA_SUCCESS;
    }
    pthread_mutex_unlock(&lock);
    return result;
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
        *bytes = range->block != NULL ? BLOCK_BYTES : range->bytes;
        *serial = range->head->serial;
    }
    pthread_mutex_unlock(&lock);
    return found;
}

/* Where this process has it open already; 0: it has not. */
static uintptr_t open_again(const struct shared_head *head)
{
    uintptr_t first = 0;

    pthread_mutex_lock(&lock);
    for (int i = 0; i < count && first == 0; i++)
        if (is_foreign(&ranges[i]) && ranges[i].device == driver_device() &&
            ranges[i].head->serial == head->serial) {
            ranges[i].users++;
            first = ranges[i].first;
        }
    pthread_mutex_unlock(&lock);
    return first;
}

CUresult memory_open(int file, struct shared_head *head, size_t bytes,
                     CUdeviceptr *out)
{
    struct range range = {.bytes = bytes, .device = driver_device(),
                          .head = head, .file = -1, .users = 1};

    *out = (CUdeviceptr)open_again(head);
    if (*out != 0) {
        munmap(head, SHARED_HEAD);
        return CUDA_SUCCESS;
    }
    if (!place(&range, file, page_bytes())) return CUDA_ERROR_OUT_OF_MEMORY;
    *out = (CUdeviceptr)range.first;
    return enlist(range);
}

/* Whether it stays open. */
static bool close_once(CUdeviceptr at)
{
    bool stays = false;

    pthread_mutex_lock(&lock);
    for (int i = 0; i < count; i++)
        if (ranges[i].first == (uintptr_t)at && is_foreign(&ranges[i]) &&
            ranges[i].users > 1) {
            ranges[i].users--;
            atomic_fetch_sub(&ranges[i].head->open, 1);
            stays = true;
        }
    pthread_mutex_unlock(&lock);
    return stays;
}

CUresult memory_close(CUdeviceptr at)
{
    struct range range;

    if (close_once(at)) return CUDA_SUCCESS;
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
    return enlist((struct range){.first = (uintptr_t)at, .bytes = bytes,
                                 .whole = bytes, .device = -1, .file = -1});
}

/* Waits for nothing: what copies to it later writes to memory of others. */
EXPORTED CUresult cuMemHostUnregister(void *at)
{
    struct range range;

    return strike((uintptr_t)at, true, false, &range)
               ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
