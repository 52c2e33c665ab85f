/* SPDX-License-Identifier: Apache-2.0 */
/* apart_devices.c - devices whose memory the host does not see: who has which
 * memory, and where messages find it. */
#include "device/apart_devices.h"
#include "device/graphs.h"
#include "device/library.h"

#include <pthread.h>

enum { DEVICES = 1024 };

/* The devices of this process. Messages ask which of them owns the memory that
 * they move. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct device *devices[DEVICES];
static int device_count;
static _Atomic int live;

status apart_enlist(struct device *device)
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

void apart_leave(const struct device *device)
{
    pthread_mutex_lock(&lock);
    for (int i = 0; i < device_count; i++)
        if (devices[i] == device) {
            devices[i] = NULL;
            live--;
        }
    pthread_mutex_unlock(&lock);
}

status device_take(struct device *device, size_t bytes, void **out)
{
    struct range range = {.bytes = bytes};

    if (device == NULL) return memory_take(bytes, 1, out);
    CHECK(device->count < DEVICE_RANGES);
    *out = NULL;
    if (bytes == 0) return OK;
    TRY(device->kind->take(device, &range));
    pthread_mutex_lock(&lock); /* others look for what messages move */
    device->ranges[device->count++] = range;
    pthread_mutex_unlock(&lock);
    *out = range.first;
    return OK;
}

void device_give(struct device *device, void *memory)
{
    int at = 0;

    if (device == NULL) {
        memory_free(memory);
        return;
    }
    if (memory == NULL) return;
    event_await(queue_now(device->kernels));
    if (device->copies != NULL) event_await(queue_now(device->copies));
    while (device->ranges[at].first != memory) at++;
    const struct range range = device->ranges[at];

    /* First: another thread may be given these addresses at once. */
    pthread_mutex_lock(&lock);
    device->ranges[at] = device->ranges[--device->count];
    pthread_mutex_unlock(&lock);
    device->kind->give(device, &range);
}

void device_join(struct device *device, const struct stream *stream)
{
    if (device == NULL) return;
    struct threads *const threads = device->near.threads;
    struct device *const gpu = device->near.gpu;

    device->near = *stream;
    device->near.threads = threads;
    device->near.gpu = gpu;
    device->near.scratch = device_near(device, stream->scratch);
    device->near.device = NULL;
    CHECK(device->near.scratch != NULL || stream->scratch == NULL);
}

status device_gather(struct device *device)
{
    return device != NULL && device->kind->gather != NULL
               ? device->kind->gather(device) : OK;
}

bool device_graphs(const struct device *device, char *text, size_t bytes)
{
    return device != NULL && device->kind->graphs != NULL &&
           device->kind->graphs(device, text, bytes);
}

struct queue *device_kernels(struct device *device)
{
    return device->kernels;
}

struct stream *device_stream(struct device *device)
{
    return &device->near;
}

const void *device_tell(struct device *device, const void *at, size_t bytes)
{
    return device->kind->tell(device, at, bytes);
}

void *device_lend(struct device *device, void *at, size_t bytes, bool sets)
{
    return device->kind->lend(device, at, bytes, sets);
}

void device_pin(struct device *device, void *at, size_t bytes, bool pinned)
{
    if (device != NULL && device->kind->pin != NULL && bytes > 0)
        device->kind->pin(device, at, bytes, pinned);
}

void device_ring(struct device *device, void *host, void *there, size_t bytes)
{
    if (device != NULL && device->kind->ring != NULL)
        device->kind->ring(device, host, there, bytes);
}

void device_room(struct device *device, void *at, size_t bytes)
{
    if (device != NULL && device->kind->room != NULL)
        device->kind->room(device, at, bytes);
}

void device_attention_room(struct device *device, void *at, size_t bytes)
{
    if (device != NULL && device->kind->attention_room != NULL)
        device->kind->attention_room(device, at, bytes);
}

static bool is_in(const char *first, size_t bytes, const void *at)
{
    return first != NULL && (uintptr_t)at >= (uintptr_t)first &&
           (uintptr_t)at < (uintptr_t)first + bytes;
}

void *device_near(const struct device *device, const void *at)
{
    for (int i = 0; i < device->count; i++) {
        const struct range *range = &device->ranges[i];

        if (is_in(range->first, range->bytes, at))
            return range->near + ((const char *)at - range->first);
    }
    return NULL;
}

void *apart_own(const struct device *device, const void *at)
{
    void *near = device_near(device, at);

    CHECK(near != NULL);
    return near;
}

/* ---- messages ---- */

/* The device that has the memory, and its range; NULL: none. `seen`: the
 * address is one that messages have. */
static struct device *find(const void *at, bool seen, struct range *range)
{
    struct device *found = NULL;

    pthread_mutex_lock(&lock);
    for (int i = 0; i < device_count && found == NULL; i++)
        for (int j = 0; devices[i] != NULL && j < devices[i]->count; j++) {
            *range = devices[i]->ranges[j];
            if (!is_in(seen ? range->seen : range->first, range->bytes, at))
                continue;
            found = devices[i];
            break;
        }
    pthread_mutex_unlock(&lock);
    return found;
}

struct device_point device_point(const void *at)
{
    struct range range;
    struct device *device = live > 0 ? find(at, false, &range) : NULL;
    struct device_point point = {0};

    if (device == NULL) return point;
    if (device->kind->seal != NULL)
        queue_note(device->kernels, device->kind->seal(device));
    const struct event kernels = queue_now(device->kernels);

    point.kernels.queue = kernels.queue;
    point.kernels.number = kernels.number;
    if (device->copies == NULL) return point;
    const struct event copies = queue_now(device->copies);

    point.copies.queue = copies.queue;
    point.copies.number = copies.number;
    return point;
}

status device_await(const struct device_point *point)
{
    if (point->kernels.queue == NULL) return OK;
    event_await((struct event){point->kernels.queue, point->kernels.number});
    event_await((struct event){point->copies.queue, point->copies.number});
    return queue_status(point->kernels.queue);
}

static status do_hold(void *owner, void *told)
{
    const struct device_hold *hold = told;

    (void)owner;
    hold->await(hold->of, hold->number);
    return OK;
}

void device_hold(const struct device_point *point,
                 const struct device_hold *hold)
{
    struct queue *queue = point->kernels.queue;

    if (queue == NULL) return;
    *(struct device_hold *)queue_begin(queue, do_hold, sizeof *hold) = *hold;
    queue_end(queue);
}

static status finish(struct device *device)
{
    event_await(queue_now(device->kernels));
    if (device->copies != NULL) event_await(queue_now(device->copies));
    if (device->kind->count != NULL)
        queue_note(device->kernels, device->kind->count(device));
    return queue_status(device->kernels);
}

status device_finish(struct stream *stream)
{
    return stream->device != NULL ? finish(stream->device) : OK;
}

status device_settle(const void *at)
{
    struct range range;
    struct device *device = live > 0 ? find(at, false, &range) : NULL;

    return device != NULL ? finish(device) : OK;
}

void *device_seen(void *at)
{
    struct range range;

    if (live == 0 || find(at, false, &range) == NULL) return at;
    return range.seen + ((char *)at - range.first);
}

status device_spoil(void *at, size_t bytes, bool *out)
{
    struct range range;
    struct device *device = live > 0 ? find(at, false, &range) : NULL;

    *out = device != NULL;
    if (device == NULL || bytes == 0) return OK;
    return device->kind->fill(device, at, 0xff, bytes);
}

static status bring(const struct device_seen_rows *rows, bool fetches)
{
    struct range range;
    struct device *device;
    struct device_seen_rows copy = *rows;

    if (live == 0 || rows->rows == 0 || rows->row == 0) return OK;
    device = find(rows->seen, true, &range);
    if (device == NULL || device->kind->fetch == NULL) return OK;
    copy.there = range.near + ((char *)rows->seen - range.seen);
    return fetches ? device->kind->fetch(device, &copy)
                   : device->kind->store(device, &copy);
}

status device_fetch(const struct device_seen_rows *rows)
{
    return bring(rows, true);
}

status device_store(const struct device_seen_rows *rows)
{
    return bring(rows, false);
}

/* ---- libraries ---- */

void *device_there(const struct device *device, const void *seen)
{
    struct range range;

    if (device == NULL || device->kind->stream_open == NULL ||
        find(seen, true, &range) != device)
        return NULL;
    return range.near + ((const char *)seen - range.seen);
}

status device_stream_open(struct device *device, void **out)
{
    return device->kind->stream_open(device, out);
}

void device_stream_close(struct device *device, void *stream)
{
    device->kind->stream_close(device, stream);
}

status device_stream_idle(struct device *device, void *stream, bool *out)
{
    return device->kind->stream_idle(device, stream, out);
}

status device_enter(struct device *device)
{
    return device->kind->enter(device);
}
