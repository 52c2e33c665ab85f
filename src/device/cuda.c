/* SPDX-License-Identifier: Apache-2.0 */
/* cuda.c - the device cuda: a GPU behind the plug-in device_cuda.so.
 *
 *   kernels   a stream; the thread of the rank starts them itself
 *   copies    between host and GPU: another stream, which meets the one of
 *             kernels by events
 *   messages  a third one: messages see a copy in host memory, of pages that
 *             exist once a message moves them
 *
 * Kernels are told through a ring in pinned memory and its twin on the GPU. A
 * quarter of it is used again when the work that reads it is over.
 *
 * With device_graphs the plug-in gathers work of the stream of kernels and
 * starts repeated work as a graph. Kernels of a graph should have the same
 * addresses each time. So the twin is used from its beginning again whenever
 * nothing is gathered, which is safe because the stream runs in order. */
#include "device/gpu.h"

#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include "base/text.h"
#include "device/cuda.h"
#include "device/library.h"

static const struct device_kinds cuda;

size_t cuda_ring_bytes(const struct device_choice *choice)
{
    const size_t most = arena_aligned(choice->launch_bytes) +
                        arena_aligned(choice->lent_bytes);

    return QUARTERS * (most < QUARTER_LEAST ? QUARTER_LEAST : most);
}

/* ---- ends of items ---- */

/* All items so far have an end that can be awaited. */
static status seal(struct cuda *c)
{
    const uint64_t last = queue_now(c->device.kernels).number;

    if (last == c->marked) return OK;
    TRY(cuda_said(c, c->plugin->record(c->gpu, GPU_KERNELS,
                                  c->marks[last % MARKS])));
    for (uint64_t i = c->marked + 1; i <= last; i++)
        c->ends[i % MARKS] = last;
    c->marked = last;
    return OK;
}

/* Other threads know items that are sealed alone. */
static status await_item(struct cuda *c, uint64_t number)
{
    if (number > c->marked) TRY(seal(c));
    const uint64_t end = c->ends[number % MARKS];

    return cuda_said(c, c->plugin->await(c->gpu, c->marks[end % MARKS]));
}

/* ---- the ring ---- */

static uint64_t item_now(const struct cuda *c)
{
    return queue_now(c->device.kernels).number + 1;
}

static status quarter_next(struct cuda *c)
{
    const int next = (c->ring.at + 1) % QUARTERS;
    const uint64_t last = c->ring.last[next];

    if (last == item_now(c))
        FAIL(ERR_DEVICE, "GPU %d: a kernel is told more than %zu bytes",
             c->number, (QUARTERS - 1) * c->ring.quarter);
    if (last > 0) TRY(await_item(c, last));
    c->ring.at = next;
    c->ring.used = 0;
    return OK;
}

/* As many bytes of the twin. An item has three quarters of it at least. */
static status twin_take(struct cuda *c, size_t bytes, size_t offset,
                        char **there)
{
    if (c->graphs) {
        if (c->ring.item != item_now(c)) {
            if (c->ring.far > c->ring.quarter)
                TRY(cuda_said(c, c->plugin->flush(c->gpu)));
            if (c->plugin->gathered(c->gpu) == 0) c->ring.far = 0;
        }
        c->ring.item = item_now(c);
        offset = c->ring.far;
        c->ring.far += arena_aligned(bytes);
        if (c->ring.far > QUARTERS * c->ring.quarter)
            FAIL(ERR_DEVICE, "GPU %d: a kernel is told more than %zu bytes",
                 c->number, (QUARTERS - 1) * c->ring.quarter);
    }
    *there = c->ring.there + offset;
    return OK;
}

/* `bytes` of the ring, on the host and there. */
static status ring_take(struct cuda *c, size_t bytes, char **host,
                        char **there)
{
    size_t offset;

    if (bytes > c->ring.quarter)
        FAIL(ERR_DEVICE, "GPU %d: a kernel is told %zu bytes at once, at most "
             "%zu", c->number, bytes, c->ring.quarter);
    if (c->ring.used + bytes > c->ring.quarter) TRY(quarter_next(c));
    c->ring.last[c->ring.at] = item_now(c);
    offset = (size_t)c->ring.at * c->ring.quarter + c->ring.used;
    c->ring.used += arena_aligned(bytes);
    *host = c->ring.host + offset;
    return twin_take(c, bytes, offset, there);
}

static const char *copy_flat(const struct cuda *c, enum gpu_stream stream,
                             enum gpu_way way, void *to, const void *from,
                             size_t bytes)
{
    return c->plugin->copy(c->gpu, stream, &(struct gpu_copy){
        way, {to, 0}, {(void *)(uintptr_t)from, 0}, 1, bytes});
}

status gpu_copy(struct device *device, const void *data, size_t bytes,
                const void **out)
{
    struct cuda *c = cuda_of(device);
    char *host, *there;

    TRY(ring_take(c, bytes, &host, &there));
    if (bytes > 0) {
        memcpy(host, data, bytes);
        TRY(cuda_said(c, c->plugin->tell(c->gpu, there, host, bytes)));
    }
    *out = there;
    return OK;
}

status gpu_launch(struct device *device, int kernel, int64_t blocks,
                  const void *call, size_t bytes)
{
    struct cuda *c = cuda_of(device);

    if (blocks == 0) return OK;
    return cuda_said(c, c->plugin->launch(c->gpu, &(struct gpu_launch){
        kernel, blocks, 256, call, bytes}));
}

/* An error here is the queue's: its next status tells it. */
static const void *cuda_tell(struct device *device, const void *at,
                             size_t bytes)
{
    const void *there = NULL;

    queue_note(device->kernels, gpu_copy(device, at, bytes, &there));
    return there;
}

static status lend(struct cuda *c, void *at, size_t bytes, bool sets,
                   void **out)
{
    char *host, *there;

    CHECK(c->lent_count < LENT);
    TRY(ring_take(c, bytes, &host, &there));
    *out = there;
    if (bytes == 0) return OK;
    c->lent[c->lent_count++] = (struct lent){at, there, bytes};
    if (sets) return OK;
    return cuda_said(c, copy_flat(c, GPU_KERNELS, GPU_TO_DEVICE, there, at,
                                  bytes));
}

static void *cuda_lend(struct device *device, void *at, size_t bytes,
                       bool sets)
{
    void *there = NULL;

    queue_note(device->kernels, lend(cuda_of(device), at, bytes, sets, &there));
    return there;
}

/* ---- items of work ---- */

/* Lent memory goes back. The end of the item is recorded when it is
 * asked for (seal), and at the latest before its place is needed again. */
static status mark(void *owner, uint64_t number)
{
    struct cuda *c = owner;

    while (c->lent_count > 0) {
        const struct lent *lent = &c->lent[--c->lent_count];

        TRY(cuda_said(c, copy_flat(c, GPU_KERNELS, GPU_TO_HOST, lent->host,
                              lent->there, lent->bytes)));
    }
    return number - c->marked < MARKS / 2 ? OK : seal(c);
}

static status reach(void *owner, uint64_t number)
{
    return await_item(owner, number);
}

static status cuda_gather(struct device *device)
{
    struct cuda *c = cuda_of(device);

    c->graphs = true;
    return cuda_said(c, c->plugin->gather(c->gpu));
}

static bool cuda_graphs(const struct device *device, char *text, size_t bytes)
{
    const struct cuda *c = (const struct cuda *)device;
    struct gpu_graphs made;
    char size[32];

    c->plugin->graphs(c->gpu, &made);
    if (made.count == 0) return false;
    snprintf(text, bytes, "%lld CUDA graphs of %lld nodes; meanwhile the GPU "
             "lost %s of unused memory, which is not planned",
             (long long)made.count, (long long)made.nodes,
             text_bytes(size, (size_t)made.bytes));
    return true;
}

static status cuda_seal(struct device *device)
{
    return seal(cuda_of(device));
}

/* ---- times of kernels ---- */

/* Graphs have no events inside: with them only traces have times. */
static bool is_timed(const struct cuda *c, const struct meter_track *track)
{
    return !c->graphs || track->records;
}

static status before(void *owner, const struct meter_track *track)
{
    struct cuda *c = owner;

    if (!is_timed(c, track)) return OK;
    return cuda_said(c, timed_begin(&c->timed));
}

static void later(void *owner, struct meter_track *track,
                  const struct meter_what *what)
{
    struct cuda *c = owner;

    if (!is_timed(c, track)) return;
    queue_note(c->device.kernels,
               cuda_said(c, timed_end(&c->timed, track, what)));
}

static status cuda_count(struct device *device)
{
    struct cuda *c = cuda_of(device);

    return cuda_said(c, timed_settle(&c->timed));
}

static status meet(const struct cuda *c, enum gpu_stream first,
                   enum gpu_stream then)
{
    TRY(cuda_said(c, c->plugin->record(c->gpu, first, c->met)));
    return cuda_said(c, c->plugin->after(c->gpu, then, c->met));
}

static status do_copy(void *owner, void *told)
{
    const struct cuda *c = owner;
    const struct gpu_copy *copy = told;

    if (copy->rows == 1)
        return cuda_said(c, c->plugin->copy(c->gpu, GPU_KERNELS, copy));
    return cuda_said(c, c->plugin->copy_parts(c->gpu, &(struct device_parts){
        .to = copy->to, .from = copy->from, .rows = copy->rows, .parts = 1,
        .bytes = copy->row}));
}

static status cuda_copy(struct device *device, const struct device_rows *to,
                        const struct device_rows *from, int64_t rows,
                        size_t row)
{
    if (rows == 0 || row == 0) return OK;
    *(struct gpu_copy *)queue_begin(device->kernels, do_copy,
                                    sizeof(struct gpu_copy)) =
        (struct gpu_copy){GPU_INSIDE,
                          {apart_own(device, to->at), to->apart},
                          {apart_own(device, from->at), from->apart}, rows,
                          row};
    queue_end(device->kernels);
    return OK;
}

static status do_copy_parts(void *owner, void *told)
{
    const struct cuda *c = owner;

    return cuda_said(c, c->plugin->copy_parts(c->gpu, told));
}

static status cuda_copy_parts(struct device *device,
                              const struct device_parts *copy)
{
    struct device_parts *told =
        queue_begin(device->kernels, do_copy_parts, sizeof *told);

    *told = *copy;
    told->to.at = apart_own(device, copy->to.at);
    if (copy->from.at != NULL)
        told->from.at = apart_own(device, copy->from.at);
    queue_end(device->kernels);
    return OK;
}

struct fill { void *to; int byte; size_t bytes; };

static status do_fill(void *owner, void *told)
{
    const struct cuda *c = owner;
    const struct fill *fill = told;

    return cuda_said(c, c->plugin->fill(c->gpu, fill->to, fill->byte,
                                   fill->bytes));
}

static status cuda_fill(struct device *device, void *to, int byte,
                        size_t bytes)
{
    *(struct fill *)queue_begin(device->kernels, do_fill,
                                sizeof(struct fill)) =
        (struct fill){apart_own(device, to), byte, bytes};
    queue_end(device->kernels);
    return OK;
}

struct write { char *to; const char *from; size_t bytes; };

/* Kernels before it are done with the memory, those after it find what was
 * written. */
static status do_write(void *owner, void *told)
{
    struct cuda *c = owner;
    const struct write *write = told;
    char *host, *there;

    TRY(ring_take(c, write->bytes, &host, &there));
    memcpy(host, write->from, write->bytes);
    TRY(meet(c, GPU_KERNELS, GPU_COPIES));
    TRY(cuda_said(c, copy_flat(c, GPU_COPIES, GPU_TO_DEVICE, write->to, host,
                          write->bytes)));
    return meet(c, GPU_COPIES, GPU_KERNELS);
}

static status cuda_write(struct device *device, void *to, const void *from,
                         size_t bytes)
{
    const size_t most = cuda_of(device)->ring.quarter;

    for (size_t at = 0; at < bytes; at += most) {
        const size_t part = bytes - at < most ? bytes - at : most;

        *(struct write *)queue_begin(device->kernels, do_write,
                                     sizeof(struct write)) =
            (struct write){apart_own(device, (char *)to + at),
                           (const char *)from + at, part};
        queue_end(device->kernels);
    }
    return OK;
}

static status cuda_read(struct device *device, const struct device_bytes *all,
                        int count)
{
    const struct cuda *c = cuda_of(device);

    TRY(meet(c, GPU_KERNELS, GPU_COPIES));
    for (int i = 0; i < count; i++)
        TRY(cuda_said(c, copy_flat(c, GPU_COPIES, GPU_TO_HOST, all[i].to,
                              apart_own(device, all[i].from), all[i].bytes)));
    TRY(cuda_said(c, c->plugin->finish(c->gpu, GPU_COPIES)));
    return queue_status(device->kernels);
}

/* ---- messages ---- */

static status bring(struct device *device, const struct device_seen_rows *rows,
                    enum gpu_way way)
{
    const struct cuda *c = cuda_of(device);
    const struct device_rows seen = {rows->seen, rows->apart};
    const struct device_rows there = {rows->there, rows->apart};
    const bool up = way == GPU_TO_DEVICE;

    TRY(cuda_said(c, c->plugin->copy(c->gpu, GPU_MESSAGES, &(struct gpu_copy){
        way, up ? there : seen, up ? seen : there, rows->rows, rows->row})));
    return cuda_said(c, c->plugin->finish(c->gpu, GPU_MESSAGES));
}

static status cuda_fetch(struct device *device,
                         const struct device_seen_rows *rows)
{
    return bring(device, rows, GPU_TO_HOST);
}

static status cuda_store(struct device *device,
                         const struct device_seen_rows *rows)
{
    return bring(device, rows, GPU_TO_DEVICE);
}

/* ---- streams of libraries ---- */

static status cuda_stream_open(struct device *device, void **out)
{
    const struct cuda *c = cuda_of(device);

    return cuda_said(c, c->plugin->make_stream(c->gpu, out));
}

static void cuda_stream_close(struct device *device, void *stream)
{
    const struct cuda *c = cuda_of(device);

    c->plugin->free_stream(c->gpu, stream);
}

static status cuda_stream_idle(struct device *device, void *stream, bool *out)
{
    const struct cuda *c = cuda_of(device);

    return cuda_said(c, c->plugin->is_idle(c->gpu, stream, out));
}

static status cuda_enter(struct device *device)
{
    const struct cuda *c = cuda_of(device);

    return cuda_said(c, c->plugin->enter(c->gpu));
}

static const struct cuda_plugin *cuda_gpu(const struct device *device,
                                          struct gpu **out, int *number)
{
    const struct cuda *c = (const struct cuda *)device;

    *out = c->gpu;
    *number = c->number;
    return c->plugin;
}

/* ---- memory ---- */

static status take(const struct cuda *c, size_t bytes, void **out)
{
    const char *sentence = c->plugin->take(c->gpu, bytes, out);

    if (sentence == NULL) return OK;
    FAIL(ERR_MEMORY, "GPU %d has no %zu bytes: %s", c->number, bytes,
         sentence);
}

static status cuda_take(struct device *device, struct range *range)
{
    const struct cuda *c = cuda_of(device);
    void *there = NULL, *seen;

    TRY(take(c, range->bytes, &there));
    seen = mmap(NULL, range->bytes, PROT_READ | PROT_WRITE,
                MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (seen == MAP_FAILED) {
        c->plugin->give(c->gpu, there);
        FAIL(ERR_MEMORY, "there are no %zu bytes of addresses for what "
             "messages see of GPU %d", range->bytes, c->number);
    }
    range->first = range->near = there;
    range->seen = seen;
    return OK;
}

static void cuda_give(struct device *device, const struct range *range)
{
    const struct cuda *c = cuda_of(device);

    munmap(range->seen, range->bytes);
    c->plugin->give(c->gpu, range->first);
}

/* Where it cannot be, copies wait for the host. */
static void cuda_pin(struct device *device, void *at, size_t bytes,
                     bool pinned)
{
    const struct cuda *c = cuda_of(device);

    if (pinned) (void)c->plugin->pin(c->gpu, at, bytes);
    else c->plugin->unpin(c->gpu, at);
}

static void gpu_free(struct cuda *c)
{
    timed_free(&c->timed);
    for (int i = 0; i < MARKS; i++)
        if (c->marks[i] != NULL) c->plugin->free_event(c->gpu, c->marks[i]);
    if (c->met != NULL) c->plugin->free_event(c->gpu, c->met);
    c->plugin->close(c->gpu);
}

static void cuda_close(struct device *device)
{
    struct cuda *c = cuda_of(device);

    apart_leave(device);
    if (c->gpu != NULL)
        for (int i = 0; i < GPU_STREAMS; i++)
            (void)c->plugin->finish(c->gpu, (enum gpu_stream)i);
    queue_free(device->kernels);
    for (int i = 0; i < device->count; i++)
        cuda_give(device, &device->ranges[i]);
    if (c->gpu != NULL) gpu_free(c);
    memory_free(device);
}

static status make_events(struct cuda *c)
{
    for (int i = 0; i < MARKS; i++)
        TRY(cuda_said(c, c->plugin->make_event(c->gpu, false, &c->marks[i])));
    TRY(cuda_said(c, c->plugin->make_event(c->gpu, false, &c->met)));
    return cuda_said(c, timed_build(&c->timed, c->plugin, c->gpu));
}

static void cuda_ring(struct device *device, void *host, void *there,
                      size_t bytes)
{
    struct cuda *c = cuda_of(device);

    c->ring.quarter = bytes / QUARTERS / ARENA_ALIGN * ARENA_ALIGN;
    c->ring.host = host;
    c->ring.there = apart_own(device, there);
}

static status find_gpu(struct cuda *c, const struct device_choice *choice)
{
    struct gpu_about about;
    const char *sentence;

    TRY(cuda_plugin_open(choice->kernels, &c->plugin));
    if (c->plugin == NULL)
        FAIL(ERR_DEVICE, "device is cuda: this build has no kernels for GPUs "
                         "(docs/cuda.md); take auto or cpu");
    sentence = c->plugin->find(0, &about);
    if (sentence != NULL)
        FAIL(ERR_DEVICE, "device is cuda: %s; take auto or cpu", sentence);
    c->number = choice->local_rank % about.count;
    if (c->number > 0) sentence = c->plugin->find(c->number, &about);
    if (sentence != NULL) FAIL(ERR_DEVICE, "device is cuda: %s", sentence);
    memcpy(c->name, about.name, sizeof c->name);
    return OK;
}

status cuda_open(struct device **out, const struct device_choice *choice)
{
    struct cuda *c;
    void *memory = NULL;

    TRY(memory_take(1, sizeof *c, &memory));
    c = memory;
    *c = (struct cuda){.device.kind = &cuda};
    *out = &c->device;
    c->device.near.gpu = &c->device;
    TRY(find_gpu(c, choice));
    TRY(cuda_said(c, c->plugin->open(c->number, &c->gpu)));
    TRY(make_events(c));
    TRY(cuda_open_libraries(c, choice));
    TRY(queue_build(&c->device.kernels, &(struct queue_about){
        .owner = c, .haste = DEVICE_STRAIGHT,
        .told_bytes = choice->launch_bytes, .mark = mark, .reach = reach,
        .name = "kernels", .before = before, .later = later}));
    return apart_enlist(&c->device);
}

static const struct device_kinds cuda = {
    .close = cuda_close, .take = cuda_take, .give = cuda_give,
    .copy = cuda_copy, .copy_parts = cuda_copy_parts, .fill = cuda_fill,
    .write = cuda_write, .read = cuda_read, .tell = cuda_tell,
    .lend = cuda_lend, .seal = cuda_seal, .gather = cuda_gather,
    .graphs = cuda_graphs,
    .pin = cuda_pin, .fetch = cuda_fetch,
    .store = cuda_store, .count = cuda_count, .ring = cuda_ring,
    .stream_open = cuda_stream_open, .stream_close = cuda_stream_close,
    .stream_idle = cuda_stream_idle, .enter = cuda_enter, .gpu = cuda_gpu,
    .room = cuda_room, .attention_room = cuda_attention_room,
    .maker = cuda_maker};
