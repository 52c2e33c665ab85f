/* SPDX-License-Identifier: Apache-2.0 */
/* far.c - a second device made of the CPU, for tests.
 *
 *   address      that the program has  no access: code that reads or writes it
 *                                      ends at that line (or gets EFAULT)
 *   + shift      that kernels and copies of the device use
 *
 * One queue runs kernels, another copies to and from the host; they meet by
 * events alone. */
#include "device/apart_devices.h"

#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { PART_BYTES = 1 << 16 };

static const struct device_kinds far;

static void far_close(struct device *device)
{
    apart_leave(device);
    queue_free(device->copies);
    queue_free(device->kernels);
    threads_free(device->near.threads);
    for (int i = 0; i < device->count; i++)
        munmap(device->ranges[i].first,
               (size_t)(device->ranges[i].near - device->ranges[i].first) +
                   device->ranges[i].bytes);
    memory_free(device);
}

status far_open(struct device **out, const struct device_choice *choice)
{
    struct device *device;
    void *memory = NULL;

    TRY(memory_take(1, sizeof *device, &memory));
    *out = device = memory;
    *device = (struct device){.kind = &far};
    TRY(queue_build(&device->kernels, &(struct queue_about){
        .name = "kernels", .owner = device, .haste = choice->haste,
        .told_bytes = choice->launch_bytes}));
    TRY(queue_build(&device->copies, &(struct queue_about){
        .owner = device, .haste = choice->haste,
        .told_bytes = PART_BYTES + PART_BYTES / 4}));
    TRY(threads_build(&device->near.threads, choice->threads));
    return apart_enlist(device);
}

/* A page that nobody has lies between the two places. */
static status far_take(struct device *device, struct range *range)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    const size_t whole = (range->bytes + page - 1) / page * page;
    char *first;

    (void)device;
    first = mmap(NULL, 2 * whole + page, PROT_NONE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (first == MAP_FAILED)
        FAIL(ERR_MEMORY, "the device far has no %zu bytes", range->bytes);
    if (mprotect(first + whole + page, whole, PROT_READ | PROT_WRITE) != 0) {
        munmap(first, 2 * whole + page);
        FAIL(ERR_MEMORY, "the device far has no %zu bytes", range->bytes);
    }
    *range = (struct range){first, whole, first + whole + page,
                            first + whole + page};
    return OK;
}

static void far_give(struct device *device, const struct range *range)
{
    (void)device;
    munmap(range->first,
           (size_t)(range->near - range->first) + range->bytes);
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
static status far_copy(struct device *device, const struct device_rows *to,
                const struct device_rows *from, int64_t rows, size_t row)
{
    if (rows == 0 || row == 0) return OK;
    give(device->kernels,
         (struct copy){{apart_own(device, to->at), to->apart},
                       {apart_own(device, from->at), from->apart}, rows, row});
    return OK;
}

static status far_copy_parts(struct device *device,
                             const struct device_parts *copy)
{
    struct device_parts *told =
        queue_begin(device->kernels, do_copy_parts, sizeof *told);

    *told = *copy;
    told->to.at = apart_own(device, copy->to.at);
    if (copy->from.at != NULL) told->from.at = apart_own(device, copy->from.at);
    queue_end(device->kernels);
    return OK;
}

static status far_fill(struct device *device, void *to, int byte, size_t bytes)
{
    *(struct fill *)queue_begin(device->kernels, do_fill,
                                sizeof(struct fill)) =
        (struct fill){apart_own(device, to), byte, bytes};
    queue_end(device->kernels);
    return OK;
}

/* In parts that the queue of copies holds: kernels before it are done with the
 * memory, those after it find what was written. */
static status far_write(struct device *device, void *to, const void *from,
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
        *copy = (struct copy){{apart_own(device, (char *)to + at), 0},
                              {held, 0}, 1, part};
        end = queue_end(device->copies);
    }
    if (bytes > 0) queue_after(device->kernels, end);
    return OK;
}

static status far_read(struct device *device, const struct device_bytes *all,
                       int count)
{
    struct event last = {0};

    queue_after(device->copies, queue_now(device->kernels));
    for (int i = 0; i < count; i++)
        last = give(device->copies,
                    (struct copy){{all[i].to, 0},
                                  {apart_own(device, all[i].from), 0}, 1,
                                  all[i].bytes});
    event_await(last);
    return queue_status(device->kernels);
}

/* ---- what kernels are told ---- */

static const void *far_tell(struct device *device, const void *at,
                            size_t bytes)
{
    void *copy = queue_more(device->kernels, bytes);

    memcpy(copy, at, bytes);
    return copy;
}

/* Memory that is set, not added to, holds nothing until then. */
static void *far_lend(struct device *device, void *at, size_t bytes,
                      bool sets)
{
    (void)device;
    if (sets) memset(at, 0xff, bytes);
    return at;
}

static const struct device_kinds far = {
    .close = far_close, .take = far_take, .give = far_give, .copy = far_copy,
    .copy_parts = far_copy_parts, .fill = far_fill, .write = far_write,
    .read = far_read, .tell = far_tell, .lend = far_lend};
