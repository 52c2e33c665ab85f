/* SPDX-License-Identifier: Apache-2.0 */
/* far.c - a second device made of the CPU, for tests.
 *
 *   address      what everybody has    no access: whoever reads or writes it
 *                                      ends at that line (or gets EFAULT)
 *   + shift      what kernels and copies of the device use
 *
 * One queue runs kernels, another copies to and from the host; they meet by
 * events alone. */
#include "device/far.h"

#include <pthread.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { RANGES = 64, DEVICES = 1024, PART_BYTES = 1 << 16 };

struct range {
    char *first;          /* without access */
    size_t bytes, shift;  /* to where it has access, behind a page that nobody
                           * has */
};

struct device {
    struct queue *kernels, *copies; /* owned */
    struct threads *threads;        /* owned: of kernels */
    struct range ranges[RANGES];    /* owned */
    int count;
    struct stream near;             /* as kernels see it */
};

/* The devices of this process, to whom memory belongs that messages move. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct device *devices[DEVICES];
static int device_count;
static _Atomic int live;

static status enlist(struct device *device)
{
    int at = 0;

    pthread_mutex_lock(&lock);
    while (at < device_count && devices[at] != NULL) at++;
    if (at < DEVICES) devices[at] = device;
    if (at == device_count && at < DEVICES) device_count++;
    pthread_mutex_unlock(&lock);
    if (at == DEVICES)
        FAIL(ERR_DEVICE, "a process has at most %d devices", DEVICES);
    live++;
    return OK;
}

static void leave(const struct device *device)
{
    pthread_mutex_lock(&lock);
    for (int i = 0; i < device_count; i++)
        if (devices[i] == device) {
            devices[i] = NULL;
            live--;
        }
    pthread_mutex_unlock(&lock);
}

bool far_any(void)
{
    return live > 0;
}

status far_open(struct device **out, const struct device_choice *choice)
{
    struct device *device;
    void *memory = NULL;

    TRY(memory_take(1, sizeof *device, &memory));
    *out = device = memory;
    *device = (struct device){0};
    TRY(queue_build(&device->kernels, &(struct queue_about){
        "kernels", device, choice->haste, choice->launch_bytes}));
    TRY(queue_build(&device->copies, &(struct queue_about){
        NULL, device, choice->haste, PART_BYTES + PART_BYTES / 4}));
    TRY(threads_build(&device->threads, choice->threads));
    return enlist(device);
}

void far_close(struct device *device)
{
    leave(device);
    queue_free(device->copies);
    queue_free(device->kernels);
    threads_free(device->threads);
    for (int i = 0; i < device->count; i++)
        munmap(device->ranges[i].first,
               device->ranges[i].shift + device->ranges[i].bytes);
    memory_free(device);
}

status far_take(struct device *device, size_t bytes, void **out)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    const size_t whole = (bytes + page - 1) / page * page;
    char *first;

    CHECK(device->count < RANGES);
    *out = NULL;
    if (bytes == 0) return OK;
    first = mmap(NULL, 2 * whole + page, PROT_NONE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (first == MAP_FAILED)
        FAIL(ERR_MEMORY, "the device far has no %zu bytes", bytes);
    if (mprotect(first + whole + page, whole, PROT_READ | PROT_WRITE) != 0) {
        munmap(first, 2 * whole + page);
        FAIL(ERR_MEMORY, "the device far has no %zu bytes", bytes);
    }
    pthread_mutex_lock(&lock); /* others look for what messages move */
    device->ranges[device->count++] = (struct range){first, whole,
                                                      whole + page};
    pthread_mutex_unlock(&lock);
    *out = first;
    return OK;
}

void far_give(struct device *device, void *memory)
{
    int at = 0;

    event_await(queue_now(device->kernels));
    event_await(queue_now(device->copies));
    while (device->ranges[at].first != memory) at++;
    munmap(memory, device->ranges[at].shift + device->ranges[at].bytes);
    pthread_mutex_lock(&lock);
    device->ranges[at] = device->ranges[--device->count];
    pthread_mutex_unlock(&lock);
}

void far_join(struct device *device, const struct stream *stream)
{
    device->near = *stream;
    device->near.threads = device->threads;
    device->near.scratch = device_near(device, stream->scratch);
    device->near.device = NULL;
    CHECK(device->near.scratch != NULL || stream->scratch == NULL);
}

struct queue *device_kernels(struct device *device)
{
    return device->kernels;
}

struct stream *device_stream(struct device *device)
{
    return &device->near;
}

void *device_near(const struct device *device, const void *at)
{
    const uintptr_t address = (uintptr_t)at;

    for (int i = 0; i < device->count; i++) {
        const struct range *range = &device->ranges[i];
        const uintptr_t first = (uintptr_t)range->first;

        if (address >= first && address < first + range->bytes)
            return range->first + (address - first) + range->shift;
    }
    return NULL;
}

/* Memory of the device, which must be its own. */
static void *own(const struct device *device, const void *at)
{
    void *near = device_near(device, at);

    CHECK(near != NULL);
    return near;
}

/* ---- copies ---- */

struct copy { struct device_rows to, from; int64_t rows; size_t row; };
struct fill { void *to; int byte; size_t bytes; };

static status do_copy(void *owner, void *told)
{
    const struct copy *copy = told;

    (void)owner;
    rows_copy(copy->to, copy->from, copy->rows, copy->row);
    return OK;
}

static status do_fill(void *owner, void *told)
{
    const struct fill *fill = told;

    (void)owner;
    memset(fill->to, fill->byte, fill->bytes);
    return OK;
}

static status do_copy_parts(void *owner, void *told)
{
    (void)owner;
    parts_copy(told);
    return OK;
}

static struct event give(struct queue *queue, struct copy copy)
{
    *(struct copy *)queue_begin(queue, do_copy, sizeof copy) = copy;
    return queue_end(queue);
}

/* From one place of the device to another: on the queue of kernels. */
status far_copy(struct device *device, const struct device_rows *to,
                const struct device_rows *from, int64_t rows, size_t row)
{
    if (rows == 0 || row == 0) return OK;
    give(device->kernels,
         (struct copy){{own(device, to->at), to->apart},
                       {own(device, from->at), from->apart}, rows, row});
    return OK;
}

status far_copy_parts(struct device *device, const struct device_parts *copy)
{
    struct device_parts *told =
        queue_begin(device->kernels, do_copy_parts, sizeof *told);

    *told = *copy;
    told->to.at = own(device, copy->to.at);
    if (copy->from.at != NULL) told->from.at = own(device, copy->from.at);
    queue_end(device->kernels);
    return OK;
}

status far_fill(struct device *device, void *to, int byte, size_t bytes)
{
    *(struct fill *)queue_begin(device->kernels, do_fill,
                                sizeof(struct fill)) =
        (struct fill){own(device, to), byte, bytes};
    queue_end(device->kernels);
    return OK;
}

/* In parts that the queue of copies holds: kernels before it are done with the
 * memory, those after it find what was written. */
status far_write(struct device *device, void *to, const void *from,
                 size_t bytes)
{
    struct event end = {0};

    for (size_t at = 0; at < bytes; at += PART_BYTES) {
        const size_t part = bytes - at < PART_BYTES ? bytes - at : PART_BYTES;
        struct copy *copy;
        void *held;

        if (at == 0) queue_after(device->copies, queue_now(device->kernels));
        copy = queue_begin(device->copies, do_copy, sizeof *copy);
        held = queue_more(device->copies, part);
        memcpy(held, (const char *)from + at, part);
        *copy = (struct copy){{own(device, (char *)to + at), 0}, {held, 0},
                              1, part};
        end = queue_end(device->copies);
    }
    if (bytes > 0) queue_after(device->kernels, end);
    return OK;
}

status far_read(struct device *device, void *to, const void *from,
                size_t bytes)
{
    if (bytes == 0) return OK;
    queue_after(device->copies, queue_now(device->kernels));
    event_await(give(device->copies,
                     (struct copy){{to, 0}, {own(device, from), 0}, 1,
                                   bytes}));
    return queue_status(device->kernels);
}

status far_finish(struct device *device)
{
    event_await(queue_now(device->kernels));
    event_await(queue_now(device->copies));
    return queue_status(device->kernels);
}

/* ---- messages ---- */

static void *find(const void *at, struct device **device)
{
    void *near = NULL;

    pthread_mutex_lock(&lock);
    for (int i = 0; i < device_count && near == NULL; i++) {
        *device = devices[i];
        if (*device != NULL) near = device_near(*device, at);
    }
    pthread_mutex_unlock(&lock);
    return near;
}

struct device_point far_point(const void *at)
{
    struct device *device = NULL;

    if (find(at, &device) == NULL) return (struct device_point){0};
    const struct event kernels = queue_now(device->kernels);
    const struct event copies = queue_now(device->copies);

    return (struct device_point){{kernels.queue, kernels.number},
                                 {copies.queue, copies.number}};
}

static status do_hold(void *owner, void *told)
{
    const struct device_hold *hold = told;

    (void)owner;
    hold->await(hold->of, hold->number);
    return OK;
}

void far_hold(struct queue *queue, const struct device_hold *hold)
{
    *(struct device_hold *)queue_begin(queue, do_hold, sizeof *hold) = *hold;
    queue_end(queue);
}

status far_settle(const void *at)
{
    struct device *device = NULL;

    return find(at, &device) != NULL ? far_finish(device) : OK;
}

void *far_seen(void *at)
{
    struct device *device = NULL;
    void *near = find(at, &device);

    return near != NULL ? near : at;
}
