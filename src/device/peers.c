/* SPDX-License-Identifier: Apache-2.0 */
/* peers.c - memory of a GPU that other ranks of this machine read. */
#include "device/peers.h"

#include <stdatomic.h>
#include <sys/random.h>
#include "device/apart_devices.h"

/* A device and its GPU; plugin NULL: it has none. */
struct own {
    const struct cuda_plugin *plugin;
    struct gpu *gpu;
    int number;
};

static struct own own_of(const struct device *device)
{
    struct own own = {0};

    if (device != NULL && device->kind->gpu != NULL)
        own.plugin = device->kind->gpu(device, &own.gpu, &own.number);
    return own;
}

static status say(const struct own *own, const char *sentence)
{
    if (sentence == NULL) return OK;
    FAIL(ERR_DEVICE, "GPU %d: %s", own->number, sentence);
}

/* A number that no other process has, in whatever container it is. */
static uint64_t process_number(void)
{
    static _Atomic uint64_t number;
    uint64_t mine = 0, none = 0;

    if (number != 0) return number;
    if (getentropy(&mine, sizeof mine) != 0 || mine == 0) return 0;
    return atomic_compare_exchange_strong(&number, &none, mine) ? mine : none;
}

/* ---- marks ---- */

enum { BLOCK_LEAST = 2 << 20 };

/* Memory of another process as this one has it, and of the range in it. */
struct block { char *first; uint64_t bytes, range_bytes; };

static status copy_mark(const struct own *own, enum gpu_way way, void *to,
                        void *from)
{
    const struct gpu_copy copy = {way, {to, 0}, {from, 0}, 1,
                                  sizeof(uint64_t)};

    TRY(say(own, own->plugin->copy(own->gpu, GPU_MESSAGES, &copy)));
    return say(own, own->plugin->finish(own->gpu, GPU_MESSAGES));
}

/* Nothing else works on the device meanwhile. */
static status mark_range(const struct own *own, void *first, int64_t number,
                         struct peer_shown *out)
{
    uint64_t kept = 0, mark = process_number() + (uint64_t)(uintptr_t)first;

    TRY(copy_mark(own, GPU_TO_HOST, &kept, first));
    TRY(copy_mark(own, GPU_TO_DEVICE, first, &mark));
    out->ranges[number].kept = kept;
    out->ranges[number].mark = mark;
    return OK;
}

status device_shown(struct device *device, struct peer_shown *shown)
{
    const struct own own = own_of(device);

    for (int i = 0; i < shown->range_count; i++) {
        uint64_t kept = shown->ranges[i].kept;

        if (shown->ranges[i].mark == 0) continue;
        TRY(copy_mark(&own, GPU_TO_DEVICE, device->ranges[i].near, &kept));
        shown->ranges[i].mark = 0;
    }
    return OK;
}

/* Whether others find the mark at an address. */
static status is_marked(const struct own *own, uint64_t mark, char *at,
                        bool *out)
{
    uint64_t found = 0;

    TRY(copy_mark(own, GPU_TO_HOST, &found, at));
    *out = found == mark;
    return OK;
}

/* A driver may have two ranges in one block, which is what a handle stands for
 * then, whichever it was made of. Blocks begin at multiples of their sizes,
 * powers of two from BLOCK_LEAST on, so the address in the other process says
 * where in the block a range would be. */
static status find_range(const struct own *own, uint64_t first, uint64_t mark,
                         const struct block *block, char **out)
{
    uint64_t at = 0;
    bool found;

    TRY(is_marked(own, mark, block->first, &found));
    for (uint64_t size = BLOCK_LEAST; !found && size <= block->bytes;
         size *= 2) {
        if (at == first % size) continue;
        at = first % size;
        if (at + block->range_bytes > block->bytes) break;
        TRY(is_marked(own, mark, block->first + at, &found));
    }
    *out = block->first + at;
    if (found) return OK;
    FAIL(ERR_DEVICE, "GPU %d: a handle of another process leads to other "
                     "memory", own->number);
}

/* ---- showing ---- */

static status show(const struct own *own, const struct device *device,
                   struct peer_shown *out)
{
    if (own->plugin == NULL || device->count > PEER_RANGES)
        FAIL(ERR_DEVICE, "this rank has no GPU, or memory of more than %d "
                         "stages", PEER_RANGES);
    for (int i = 0; i < device->count; i++) {
        const struct range *range = &device->ranges[i];

        out->ranges[i].first = (uintptr_t)range->near;
        out->ranges[i].bytes = range->bytes;
        TRY(say(own, own->plugin->show(own->gpu, range->near,
                                       &out->ranges[i].handle)));
        out->range_count++;
        TRY(mark_range(own, range->near, i, out));
    }
    for (int i = 0; i < PEER_EVENTS; i++) {
        struct gpu_event *event = NULL;

        TRY(say(own, own->plugin->show_event(own->gpu, &event,
                                             &out->events[i].handle)));
        out->events[i].event = (uintptr_t)event;
    }
    out->process = process_number();
    return OK;
}

static status rest(struct device *device)
{
    if (device->copies != NULL) event_await(queue_now(device->copies));
    return device_made(device);
}

status device_show(struct device *device, struct peer_shown *out)
{
    const struct own own = own_of(device);
    status result;

    *out = (struct peer_shown){.gpu = own.number};
    if (own.plugin != NULL) TRY(rest(device));
    result = show(&own, device, out);
    if (result != OK) (void)device_shown(device, out);
    if (result != OK) device_show_end(device, out);
    if (result != OK) *out = (struct peer_shown){0};
    return result;
}

void device_show_end(struct device *device, const struct peer_shown *shown)
{
    const struct own own = own_of(device);

    for (int i = 0; i < PEER_EVENTS; i++)
        if (shown->events[i].event != 0)
            own.plugin->free_event(own.gpu, (struct gpu_event *)(uintptr_t)
                                                shown->events[i].event);
}

/* ---- meeting ---- */

/* A rank of this process: its memory is here already. */
static status meet_here(const struct own *own, const struct peer_shown *shown,
                        struct peer_met *out)
{
    if (shown->gpu != own->number)
        FAIL(ERR_DEVICE, "ranks of one process have GPUs %d and %d",
             own->number, (int)shown->gpu);
    for (int i = 0; i < shown->range_count; i++) {
        out->ranges[i].first = (char *)(uintptr_t)shown->ranges[i].first;
        out->ranges[i].bytes = (int64_t)shown->ranges[i].bytes;
    }
    for (int i = 0; i < PEER_EVENTS; i++)
        out->events[i] =
            (struct gpu_event *)(uintptr_t)shown->events[i].event;
    out->range_count = (int)shown->range_count;
    return OK;
}

static status meet_other(const struct own *own, const struct peer_shown *shown,
                         struct peer_met *out)
{
    out->imported = true;
    for (int i = 0; i < shown->range_count; i++) {
        void *memory = NULL;
        size_t bytes;

        TRY(say(own, own->plugin->meet(own->gpu, &shown->ranges[i].handle,
                                       &memory, &bytes)));
        out->ranges[i].block = memory;
        out->ranges[i].bytes = (int64_t)shown->ranges[i].bytes;
        out->range_count++;
        TRY(find_range(own, shown->ranges[i].first, shown->ranges[i].mark,
                       &(struct block){memory, bytes, shown->ranges[i].bytes},
                       &out->ranges[i].first));
    }
    for (int i = 0; i < PEER_EVENTS; i++)
        TRY(say(own, own->plugin->meet_event(own->gpu,
                                             &shown->events[i].handle,
                                             &out->events[i])));
    return OK;
}

status device_meet(struct device *device, const struct peer_shown *shown,
                   struct peer_met *out)
{
    const struct own own = own_of(device);
    status result;

    *out = (struct peer_met){0};
    if (own.plugin == NULL || shown->process == 0 || shown->range_count < 0 ||
        shown->range_count > PEER_RANGES)
        FAIL(ERR_DEVICE, "one of two ranks has no GPU");
    result = shown->process == process_number()
                 ? meet_here(&own, shown, out) : meet_other(&own, shown, out);
    if (result != OK) device_part(device, out);
    else out->is_met = true;
    return result;
}

void device_part(struct device *device, struct peer_met *met)
{
    const struct own own = own_of(device);

    for (int i = 0; met->imported && i < met->range_count; i++)
        own.plugin->part(own.gpu, met->ranges[i].block);
    for (int i = 0; met->imported && i < PEER_EVENTS; i++)
        if (met->events[i] != NULL)
            own.plugin->free_event(own.gpu, met->events[i]);
    *met = (struct peer_met){0};
}

/* ---- work ---- */

bool device_place(const struct device *device, const void *seen,
                  struct peer_place *out)
{
    const char *at = seen;

    for (int i = 0; device != NULL && i < device->count; i++) {
        const struct range *range = &device->ranges[i];

        if (at == NULL || at < range->seen || at >= range->seen + range->bytes)
            continue;
        *out = (struct peer_place){i, at - range->seen};
        return true;
    }
    return false;
}

status device_mark(struct device *device, struct gpu_event *event,
                   bool messages)
{
    const struct own own = own_of(device);

    TRY(say(&own, own.plugin->record(own.gpu, messages ? GPU_MESSAGES
                                                       : GPU_KERNELS, event)));
    return messages ? OK : queue_status(device->kernels);
}

status device_made(struct device *device)
{
    event_await(queue_now(device->kernels));
    return queue_status(device->kernels);
}

status device_follow(struct device *device, struct gpu_event *event)
{
    const struct own own = own_of(device);

    return say(&own, own.plugin->after(own.gpu, GPU_MESSAGES, event));
}

status device_move(struct device *device, const struct device_parts *parts)
{
    const struct own own = own_of(device);
    const struct gpu_copy whole = {GPU_INSIDE, parts->to, parts->from, 1,
                                   parts->bytes};

    if (parts->bytes == 0 || parts->rows == 0 || parts->parts == 0) return OK;
    if (parts->rows == 1 && parts->parts == 1)
        return say(&own, own.plugin->copy(own.gpu, GPU_MESSAGES, &whole));
    return say(&own, own.plugin->move_parts(own.gpu, parts));
}

status device_sum_roots(struct device *device,
                        const struct device_roots *roots)
{
    const struct own own = own_of(device);

    if (roots->elements == 0 || roots->rows == 0) return OK;
    return say(&own, own.plugin->sum_roots(own.gpu, roots));
}

status device_moved(struct device *device)
{
    const struct own own = own_of(device);

    return say(&own, own.plugin->finish(own.gpu, GPU_MESSAGES));
}
