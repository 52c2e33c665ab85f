/* SPDX-License-Identifier: Apache-2.0 */
/* ipc.c - memory and events of the driver for tests that other processes open.
 *
 * Both lie in files in memory, which the opener finds by the number of the
 * process that made them. The first page of a file says how often it is open,
 * and whether its owner has given it back: from then on the opener's work with
 * it ends with an error, and the process that gave it back is counted ("early"
 * in DRIVER_COUNTS). A handle of this process cannot be opened here.
 *
 *   IPC=0     the driver refuses to export anything, as with MIG
 *   PEERS=0   a GPU cannot see the memory of another one
 *   ASTRAY=1  a handle leads 256 bytes beside its memory */
#include "work.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { MAGIC = 0x49504331, EVENTS = 4096, ASTRAY_BYTES = 256 };

/* The beginning of a handle; the rest of its 64 bytes is zero. */
struct told {
    uint32_t magic;
    int32_t process, file, device;
    uint64_t bytes, serial;
};
_Static_assert(sizeof(struct told) <= CU_IPC_HANDLE_SIZE, "a handle holds it");

static _Atomic uint64_t serials;
static struct shared_event *events[EVENTS];
static _Atomic int event_count;

struct shared_head *shared_make(size_t bytes, int *file)
{
    struct shared_head *head;

    *file = memfd_create("lockstep-driver", MFD_CLOEXEC);
    if (*file < 0) return NULL;
    head = ftruncate(*file, (off_t)(SHARED_HEAD + bytes)) != 0
               ? MAP_FAILED
               : mmap(NULL, SHARED_HEAD, PROT_READ | PROT_WRITE, MAP_SHARED,
                      *file, 0);
    if (head == MAP_FAILED) {
        close(*file);
        return NULL;
    }
    head->serial = ((uint64_t)getpid() << 32) + ++serials;
    return head;
}

void shared_end(struct shared_head *head, int file)
{
    if (atomic_load(&head->open) > 0) driver_count(COUNT_EARLY);
    atomic_store(&head->gone, true);
    munmap(head, SHARED_HEAD);
    close(file);
}

static void tell(const struct told *told, void *handle)
{
    memset(handle, 0, CU_IPC_HANDLE_SIZE);
    memcpy(handle, told, sizeof *told);
}

/* The file of a handle, mapped from its first page on. */
static CUresult open_handle(const void *handle, struct told *told,
                            struct shared_head **head, int *file)
{
    char path[64];

    memcpy(told, handle, sizeof *told);
    if (told->magic != MAGIC) return CUDA_ERROR_INVALID_VALUE;
    if (told->process == getpid()) return CUDA_ERROR_INVALID_CONTEXT;
    snprintf(path, sizeof path, "/proc/%d/fd/%d", told->process, told->file);
    *file = open(path, O_RDWR | O_CLOEXEC);
    if (*file < 0) return CUDA_ERROR_INVALID_HANDLE;
    *head = mmap(NULL, SHARED_HEAD, PROT_READ | PROT_WRITE, MAP_SHARED, *file,
                 0);
    if (*head == MAP_FAILED || (*head)->serial != told->serial ||
        atomic_load(&(*head)->gone)) {
        close(*file); /* another file has this number by now */
        return CUDA_ERROR_INVALID_HANDLE;
    }
    atomic_fetch_add(&(*head)->open, 1);
    driver_count(COUNT_OPENED);
    return CUDA_SUCCESS;
}

/* ---- memory ---- */

EXPORTED CUresult cuIpcGetMemHandle(CUipcMemHandle *out, CUdeviceptr at)
{
    struct told told = {.magic = MAGIC, .process = getpid()};

    if (driver_ready() != CUDA_SUCCESS) return driver_ready();
    if (!driver_number("IPC", 1)) return CUDA_ERROR_NOT_SUPPORTED;
    if (!memory_file(at, &told.file, &told.bytes, &told.serial))
        return CUDA_ERROR_INVALID_VALUE;
    told.device = driver_device();
    tell(&told, out);
    return CUDA_SUCCESS;
}

EXPORTED CUresult cuIpcOpenMemHandle_v2(CUdeviceptr *out,
                                        CUipcMemHandle handle, unsigned flags)
{
    struct shared_head *head;
    struct told told;
    CUresult result = driver_ready();
    int file;

    if (result != CUDA_SUCCESS) return result;
    if (flags != CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS)
        return CUDA_ERROR_INVALID_VALUE;
    memcpy(&told, &handle, sizeof told);
    if (told.device != driver_device() && !driver_number("PEERS", 1))
        return CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
    result = open_handle(&handle, &told, &head, &file);
    if (result != CUDA_SUCCESS) return result;
    result = memory_open(file, head, told.bytes, out);
    close(file);
    /* Behind it: there is memory, too. */
    if (driver_number("ASTRAY", 0)) *out += ASTRAY_BYTES;
    return result;
}

EXPORTED CUresult cuIpcCloseMemHandle(CUdeviceptr at)
{
    streams_finish();
    return memory_close(driver_number("ASTRAY", 0) ? at - ASTRAY_BYTES : at);
}

/* ---- events ---- */

struct shared_event *shared_event_make(int *file)
{
    struct shared_event *event = (struct shared_event *)shared_make(0, file);
    const int at = event != NULL ? atomic_fetch_add(&event_count, 1) : EVENTS;

    if (at < EVENTS) events[at] = event;
    return event;
}

bool shared_event_done(struct shared_event *event, uint64_t number)
{
    if (atomic_load(&event->done) >= number) return true;
    if (atomic_load(&event->asked) < number)
        atomic_store(&event->asked, number);
    /* Work of a process that has ended has ended, too. */
    return kill((pid_t)(event->head.serial >> 32), 0) != 0 && errno == ESRCH;
}

void shared_events_ask(void (*ask)(CUevent))
{
    for (int i = 0; i < event_count && i < EVENTS; i++) {
        struct shared_event *event = events[i];

        if (event != NULL && !atomic_load(&event->head.gone) &&
            atomic_load(&event->asked) > atomic_load(&event->done))
            ask(event->owner);
    }
}

bool shared_events_any(void)
{
    return event_count > 0;
}

/* Its page stays: the engine may look at it. */
void shared_event_end(struct shared_event *event, int file)
{
    if (atomic_load(&event->head.open) > 0) driver_count(COUNT_EARLY);
    atomic_store(&event->head.gone, true);
    close(file);
}

EXPORTED CUresult cuIpcGetEventHandle(CUipcEventHandle *out, CUevent event)
{
    struct told told = {.magic = MAGIC, .process = getpid()};
    struct shared_event *shared;

    if (driver_ready() != CUDA_SUCCESS) return driver_ready();
    if (!driver_number("IPC", 1)) return CUDA_ERROR_NOT_SUPPORTED;
    shared = event_shared(event, &told.file);
    if (shared == NULL) return CUDA_ERROR_INVALID_HANDLE;
    told.serial = shared->head.serial;
    told.device = driver_device();
    tell(&told, out);
    return CUDA_SUCCESS;
}

EXPORTED CUresult cuIpcOpenEventHandle(CUevent *out, CUipcEventHandle handle)
{
    struct shared_head *head;
    struct told told;
    CUresult result = driver_ready();
    int file;

    if (result != CUDA_SUCCESS) return result;
    result = open_handle(&handle, &told, &head, &file);
    if (result != CUDA_SUCCESS) return result;
    close(file);
    return event_open((struct shared_event *)head, out);
}
