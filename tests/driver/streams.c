/* SPDX-License-Identifier: Apache-2.0 */
/* streams.c - work of the driver for tests: one thread does what streams were
 * given, each in its order, and among streams in an order that is drawn. */
#include "work.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define TRY_MS 0.1
enum { STREAMS = 4096 };

struct CUstream_st {
    int device;
    struct work *first, *last;
    uint64_t given, done, asked;
    double again_ms; /* before then its first work is not tried */
    bool is_gone;
    CUgraph captured; /* what it is given becomes nodes of it; or NULL */
};
struct CUevent_st {
    CUstream stream; /* NULL: nothing was recorded */
    uint64_t number;
    bool timed;
    double ms; /* when it was reached */
    struct shared_event *shared; /* for other processes; or NULL */
    int file;                    /* its; -1: another process made it */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t change = PTHREAD_COND_INITIALIZER;
static CUstream streams[STREAMS];
static int count;
static bool started, early;
static CUresult error;
static uint64_t drawn = 88172645463325252u;
static _Atomic long counts[COUNTS];

void driver_count(enum count what)
{
    counts[what]++;
}

void driver_gone(void)
{
    counts[COUNT_LEFT]--;
}

static void *side_near(int device, const struct side *side, size_t bytes)
{
    if (!side->host) return memory_near(device, side->at, bytes);
    return side->kept != NULL ? side->kept : (void *)(uintptr_t)side->at;
}

static CUresult do_copy(int device, const struct work *w)
{
    const size_t most = (w->rows - 1);
    char *to = side_near(device, &w->to, most * w->to.pitch + w->bytes);
    const char *from =
        side_near(device, &w->from, most * w->from.pitch + w->bytes);

    if (to == NULL || from == NULL) return CUDA_ERROR_ILLEGAL_ADDRESS;
    for (size_t i = 0; i < w->rows; i++)
        memcpy(to + i * w->to.pitch, from + i * w->from.pitch, w->bytes);
    return CUDA_SUCCESS;
}

static CUresult do_work(int device, const struct work *w)
{
    void *to;

    switch (w->what) {
    case COPY: return do_copy(device, w);
    case FILL:
        to = memory_near(device, w->to.at, w->bytes);
        if (to == NULL) return CUDA_ERROR_ILLEGAL_ADDRESS;
        memset(to, w->byte, w->bytes);
        return CUDA_SUCCESS;
    case LAUNCH:
        memory_translate(device, w->call, w->function->bytes);
        emulator_run(w->function->kernel, w->blocks, w->call,
                     w->function->bytes);
        usleep((unsigned)driver_number("LAUNCH_US", 0));
        return CUDA_SUCCESS;
    case CALL: w->run(w->call); return CUDA_SUCCESS;
    default: return CUDA_SUCCESS;
    }
}

static double now_ms(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return 1e3 * (double)now.tv_sec + 1e-6 * (double)now.tv_nsec;
}

/* `asks`: it waits for a stream that nobody had asked so far. */
static bool may_begin(CUstream s, bool *asks, bool *tries)
{
    struct work *w = s->first;

    if (w == NULL || (!early && s->asked <= s->done)) return false;
    if (w->what == TRY && now_ms() < s->again_ms) {
        *tries = true;
        return false;
    }
    if (w->what == WAIT && w->shared != NULL) {
        if (shared_event_done(w->shared, w->number)) return true;
        *tries = true;
        return false;
    }
    if (w->what != WAIT || w->after == NULL || w->after->done >= w->number)
        return true;
    if (w->after->asked >= w->number) return false;
    w->after->asked = w->number;
    *asks = true;
    return false;
}

/* Another process waits for it. With the lock held. */
static void event_ask(CUevent event)
{
    if (event->stream != NULL && event->stream->asked < event->number)
        event->stream->asked = event->number;
}

/* A stream whose next work may be done: from a drawn one on, the first. Streams
 * that were asked for may be before it. */
static CUstream choose(bool *tries)
{
    bool asks = true;

    *tries = shared_events_any();
    shared_events_ask(event_ask);
    while (asks && count > 0) {
        asks = false;
        drawn ^= drawn << 13, drawn ^= drawn >> 7, drawn ^= drawn << 17;
        for (int i = 0; i < count; i++) {
            CUstream s =
                streams[(drawn + (uint64_t)i) % (uint64_t)count];

            if (may_begin(s, &asks, tries)) return s;
        }
    }
    return NULL;
}

/* Until something changes, or work may be tried again. */
static void engine_rest(bool tries)
{
    if (!tries) {
        pthread_cond_wait(&change, &lock);
        return;
    }
    pthread_mutex_unlock(&lock);
    usleep((unsigned)(1000 * TRY_MS));
    pthread_mutex_lock(&lock);
}

static void *engine(void *unused)
{
    (void)unused;
    pthread_mutex_lock(&lock);
    for (;;) {
        bool tries;
        CUstream s = choose(&tries);
        struct work *w = s != NULL ? s->first : NULL;
        CUresult result = CUDA_SUCCESS;

        if (w == NULL) {
            engine_rest(tries);
            continue;
        }
        pthread_mutex_unlock(&lock);
        if (w->what == TRY && !w->done(w->call)) {
            pthread_mutex_lock(&lock);
            s->again_ms = now_ms() + TRY_MS;
            continue;
        }
        if (w->what == TRY) w->call = NULL; /* it has given it back */
        if (error == CUDA_SUCCESS) result = do_work(s->device, w);
        free(w->call);
        free(w->to.kept);
        free(w->from.kept);
        pthread_mutex_lock(&lock);
        if (result != CUDA_SUCCESS) error = result;
        if (w->event != NULL) w->event->ms = now_ms();
        if (w->what == MARK && w->shared != NULL)
            atomic_store(&w->shared->done, w->number);
        s->first = w->next;
        if (s->first == NULL) s->last = NULL;
        s->done++;
        free(w);
        pthread_cond_broadcast(&change);
    }
    return NULL;
}

static void begin(void)
{
    const char *way = getenv("LOCKSTEP_DRIVER");
    pthread_t thread;

    if (started) return;
    started = true;
    early = way != NULL && strcmp(way, "early") == 0;
    pthread_create(&thread, NULL, engine, NULL);
    pthread_detach(thread);
}

/* With the lock held. */
static void await(CUstream s, uint64_t number)
{
    if (s->asked < number) s->asked = number;
    pthread_cond_broadcast(&change);
    while (s->done < number) pthread_cond_wait(&change, &lock);
}

CUresult streams_error(void)
{
    CUresult result;

    pthread_mutex_lock(&lock);
    result = error;
    pthread_mutex_unlock(&lock);
    return result;
}

void streams_finish(void)
{
    pthread_mutex_lock(&lock);
    for (int i = 0; i < count; i++) await(streams[i], streams[i]->given);
    pthread_mutex_unlock(&lock);
}

/* Gives the stream a copy of the work; `waits`: until it is done. */
CUresult stream_give(CUstream s, const struct work *what, bool waits)
{
    struct work *w;

    if (s->captured != NULL)
        return waits ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED
                     : graph_capture(s->captured, what);
    w = malloc(sizeof *w);
    *w = *what;
    w->next = NULL;
    pthread_mutex_lock(&lock);
    if (s->last == NULL) s->first = w;
    else s->last->next = w;
    s->last = w;
    s->given++;
    if (w->what == LAUNCH) counts[COUNT_LAUNCHES]++;
    if (w->what == COPY) counts[COUNT_COPIES]++;
    if (w->what == WAIT) counts[COUNT_WAITS]++;
    if (!w->inside) counts[COUNT_CALLS]++;
    if (waits) counts[COUNT_STOPS]++;
    if (early) pthread_cond_broadcast(&change);
    if (waits) await(s, s->given);
    pthread_mutex_unlock(&lock);
    return CUDA_SUCCESS;
}

CUresult stream_usable(CUstream s)
{
    const CUresult result = driver_ready();

    if (result != CUDA_SUCCESS) return result;
    return s == NULL || s->is_gone || s->device != driver_device()
               ? CUDA_ERROR_INVALID_HANDLE : CUDA_SUCCESS;
}

EXPORTED CUresult cuStreamCreate(CUstream *out, unsigned flags)
{
    if (driver_ready() != CUDA_SUCCESS) return driver_ready();
    if (flags != CU_STREAM_NON_BLOCKING) return CUDA_ERROR_INVALID_VALUE;
    *out = calloc(1, sizeof **out);
    driver_count(COUNT_TAKEN);
    driver_count(COUNT_LEFT);
    (*out)->device = driver_device();
    pthread_mutex_lock(&lock);
    if (count < STREAMS) streams[count++] = *out;
    begin();
    pthread_mutex_unlock(&lock);
    return CUDA_SUCCESS;
}

/* Events may know it for longer. */
EXPORTED CUresult cuStreamDestroy_v2(CUstream s)
{
    pthread_mutex_lock(&lock);
    await(s, s->given);
    s->is_gone = true;
    driver_gone();
    for (int i = 0; i < count; i++)
        if (streams[i] == s) streams[i--] = streams[--count];
    pthread_mutex_unlock(&lock);
    return CUDA_SUCCESS;
}

/* A stream that is captured cannot be waited for. */
static CUresult stream_awaitable(CUstream s)
{
    const CUresult result = stream_usable(s);

    return result == CUDA_SUCCESS && s->captured != NULL
               ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED : result;
}

EXPORTED CUresult cuStreamSynchronize(CUstream s)
{
    if (stream_awaitable(s) != CUDA_SUCCESS) return stream_awaitable(s);
    driver_count(COUNT_STOPS);
    pthread_mutex_lock(&lock);
    await(s, s->given);
    pthread_mutex_unlock(&lock);
    return streams_error();
}

/* Other modes forbid calls that nobody here makes. */
EXPORTED CUresult cuStreamBeginCapture_v2(CUstream s, CUstreamCaptureMode mode)
{
    if (stream_usable(s) != CUDA_SUCCESS) return stream_usable(s);
    if (s->captured != NULL) return CUDA_ERROR_ILLEGAL_STATE;
    if (mode != CU_STREAM_CAPTURE_MODE_RELAXED)
        return CUDA_ERROR_INVALID_VALUE;
    return cuGraphCreate(&s->captured, 0);
}

EXPORTED CUresult cuStreamEndCapture(CUstream s, CUgraph *out)
{
    *out = NULL;
    if (stream_usable(s) != CUDA_SUCCESS) return stream_usable(s);
    if (s->captured == NULL) return CUDA_ERROR_ILLEGAL_STATE;
    *out = s->captured;
    s->captured = NULL;
    return CUDA_SUCCESS;
}

/* A stream that somebody asks about is waited for. */
EXPORTED CUresult cuStreamQuery(CUstream s)
{
    bool done;

    if (stream_awaitable(s) != CUDA_SUCCESS) return stream_awaitable(s);
    pthread_mutex_lock(&lock);
    if (s->asked < s->given) s->asked = s->given;
    done = s->done >= s->given;
    pthread_cond_broadcast(&change);
    pthread_mutex_unlock(&lock);
    if (streams_error() != CUDA_SUCCESS) return streams_error();
    return done ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

/* Waits for the newest record so far, also of another process. */
EXPORTED CUresult cuStreamWaitEvent(CUstream s, CUevent event, unsigned flags)
{
    const bool foreign = event->shared != NULL && event->file < 0;

    if (stream_usable(s) != CUDA_SUCCESS) return stream_usable(s);
    if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
    if (foreign)
        return stream_give(s, &(struct work){
            .what = WAIT, .shared = event->shared,
            .number = atomic_load(&event->shared->recorded)}, false);
    return stream_give(s, &(struct work){.what = WAIT, .after = event->stream,
                                         .number = event->number}, false);
}

EXPORTED CUresult cuEventCreate(CUevent *out, unsigned flags)
{
    const bool shared =
        flags == (CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS);

    if (driver_ready() != CUDA_SUCCESS) return driver_ready();
    if (flags != CU_EVENT_DISABLE_TIMING && flags != CU_EVENT_DEFAULT &&
        !shared)
        return CUDA_ERROR_INVALID_VALUE;
    *out = calloc(1, sizeof **out);
    driver_count(COUNT_TAKEN);
    driver_count(COUNT_LEFT);
    (*out)->timed = flags == CU_EVENT_DEFAULT;
    if (!shared) return CUDA_SUCCESS;
    (*out)->shared = shared_event_make(&(*out)->file);
    if ((*out)->shared == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
    (*out)->shared->owner = *out;
    return CUDA_SUCCESS;
}

struct shared_event *event_shared(CUevent event, int *file)
{
    *file = event->file;
    return event->file >= 0 ? event->shared : NULL;
}

CUresult event_open(struct shared_event *shared, CUevent *out)
{
    *out = calloc(1, sizeof **out);
    driver_count(COUNT_LEFT);
    (*out)->shared = shared;
    (*out)->file = -1;
    return CUDA_SUCCESS;
}

static void event_await(CUevent event)
{
    pthread_mutex_lock(&lock);
    if (event->stream != NULL) await(event->stream, event->number);
    pthread_mutex_unlock(&lock);
}

EXPORTED CUresult cuEventDestroy_v2(CUevent event)
{
    if (event->timed) event_await(event);
    if (event->shared != NULL && event->file < 0) {
        streams_finish(); /* none of them waits for it */
        atomic_fetch_sub(&event->shared->head.open, 1);
        munmap(event->shared, SHARED_HEAD);
    } else if (event->shared != NULL) {
        pthread_mutex_lock(&lock); /* the engine does not look at it */
        shared_event_end(event->shared, event->file);
        pthread_mutex_unlock(&lock);
    }
    driver_gone();
    free(event);
    return CUDA_SUCCESS;
}

EXPORTED CUresult cuEventRecord(CUevent event, CUstream s)
{
    uint64_t number = 0;

    if (stream_awaitable(s) != CUDA_SUCCESS) return stream_awaitable(s);
    if (event->shared != NULL && event->file < 0)
        return CUDA_ERROR_INVALID_HANDLE;
    if (event->shared != NULL)
        number = atomic_load(&event->shared->recorded) + 1;
    stream_give(s, &(struct work){.what = MARK, .shared = event->shared,
                                  .number = number,
                                  .event = event->timed ? event : NULL},
                false);
    pthread_mutex_lock(&lock);
    event->stream = s;
    event->number = s->given;
    pthread_mutex_unlock(&lock);
    if (event->shared != NULL) atomic_store(&event->shared->recorded, number);
    return CUDA_SUCCESS;
}

EXPORTED CUresult cuEventSynchronize(CUevent event)
{
    if (driver_ready() != CUDA_SUCCESS) return driver_ready();
    driver_count(COUNT_STOPS);
    event_await(event);
    return streams_error();
}

/* With the lock held. */
static CUresult time_of(const struct CUevent_st *event, double *ms)
{
    if (!event->timed || event->stream == NULL)
        return CUDA_ERROR_INVALID_HANDLE;
    *ms = event->ms;
    return event->stream->done < event->number ? CUDA_ERROR_NOT_READY
                                               : CUDA_SUCCESS;
}

EXPORTED CUresult cuEventElapsedTime(float *ms, CUevent first, CUevent then)
{
    double from = 0, to = 0;
    CUresult result = driver_ready();

    pthread_mutex_lock(&lock);
    if (result == CUDA_SUCCESS) result = time_of(first, &from);
    if (result == CUDA_SUCCESS) result = time_of(then, &to);
    pthread_mutex_unlock(&lock);
    *ms = (float)(to - from);
    return result;
}

/* ---- copies ---- */

void *driver_keep(const void *at, size_t bytes)
{
    void *kept = malloc(bytes);

    return memcpy(kept, at, bytes);
}

static CUresult copy(CUstream s, struct work *w)
{
    const bool up = w->from.host, down = w->to.host;
    const size_t span = (w->rows - 1) * w->from.pitch + w->bytes;

    if (stream_usable(s) != CUDA_SUCCESS) return stream_usable(s);
    if (w->bytes == 0 || w->rows == 0) return CUDA_SUCCESS;
    w->what = COPY;
    if (up && !memory_is_pinned((void *)(uintptr_t)w->from.at))
        w->from.kept = driver_keep((void *)(uintptr_t)w->from.at, span);
    return stream_give(s, w, down &&
                             !memory_is_pinned((void *)(uintptr_t)w->to.at));
}

EXPORTED CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void *from,
                                       size_t bytes, CUstream s)
{
    return copy(s, &(struct work){
        .to = {.at = to}, .from = {.host = true, .at = (uintptr_t)from},
        .bytes = bytes, .rows = 1});
}

EXPORTED CUresult cuMemcpyDtoHAsync_v2(void *to, CUdeviceptr from,
                                       size_t bytes, CUstream s)
{
    return copy(s, &(struct work){
        .to = {.host = true, .at = (uintptr_t)to}, .from = {.at = from},
        .bytes = bytes, .rows = 1});
}

EXPORTED CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from,
                                       size_t bytes, CUstream s)
{
    return copy(s, &(struct work){.to = {.at = to}, .from = {.at = from},
                                  .bytes = bytes, .rows = 1});
}

EXPORTED CUresult cuMemcpy2DAsync_v2(const CUDA_MEMCPY2D *p, CUstream s)
{
    const bool up = p->srcMemoryType == CU_MEMORYTYPE_HOST;
    const bool down = p->dstMemoryType == CU_MEMORYTYPE_HOST;

    if (p->srcPitch < p->WidthInBytes || p->dstPitch < p->WidthInBytes ||
        p->srcPitch > INT32_MAX || p->dstPitch > INT32_MAX)
        return CUDA_ERROR_INVALID_VALUE;
    return copy(s, &(struct work){
        .to = {down, down ? (uintptr_t)p->dstHost : p->dstDevice,
               p->dstPitch, NULL},
        .from = {up, up ? (uintptr_t)p->srcHost : p->srcDevice, p->srcPitch,
                 NULL},
        .bytes = p->WidthInBytes, .rows = p->Height});
}

EXPORTED CUresult cuMemsetD8Async(CUdeviceptr to, unsigned char byte,
                                  size_t bytes, CUstream s)
{
    if (stream_usable(s) != CUDA_SUCCESS) return stream_usable(s);
    return stream_give(s, &(struct work){.what = FILL, .to = {.at = to},
                                         .byte = byte, .bytes = bytes}, false);
}

/* ---- for libraries (nccl.c, cublaslt.c) ---- */

EXPORTED void lockstep_driver_try(CUstream s, bool (*done)(void *),
                                  void *argument)
{
    stream_give(s, &(struct work){.what = TRY, .done = done, .call = argument},
                false);
}

/* Once for each time that it is started, with a copy of the argument. */
EXPORTED CUresult lockstep_driver_do(CUstream s, void (*run)(void *),
                                     const void *argument, size_t bytes)
{
    return stream_give(s, &(struct work){
        .what = CALL, .run = run, .call = driver_keep(argument, bytes),
        .call_bytes = bytes}, false);
}

EXPORTED void *lockstep_driver_place(int device, const void *at, size_t bytes)
{
    return memory_near(device, (CUdeviceptr)(uintptr_t)at, bytes);
}

/* The GPU of a stream; -1: it is none. */
EXPORTED int lockstep_driver_of_stream(CUstream s)
{
    return s == NULL || s->is_gone ? -1 : s->device;
}

/* The GPU of the calling thread; -1: it has none. */
EXPORTED int lockstep_driver_now(void)
{
    return driver_ready() == CUDA_SUCCESS ? driver_device() : -1;
}

/* ---- launches ---- */

/* The call and its size, as cuLaunchKernel's `extra` has them. */
static bool extra_read(void **extra, const void **call, size_t *bytes)
{
    *call = NULL;
    *bytes = 0;
    for (; extra != NULL && *extra != CU_LAUNCH_PARAM_END; extra += 2)
        if (*extra == CU_LAUNCH_PARAM_BUFFER_POINTER) *call = extra[1];
        else if (*extra == CU_LAUNCH_PARAM_BUFFER_SIZE)
            *bytes = *(const size_t *)extra[1];
        else return false;
    return *call != NULL;
}

CUresult launch_read(const struct started *of, const void **call)
{
    const unsigned *const grid = of->grid, *const block = of->block;
    size_t bytes;

    if (of->function == NULL) return CUDA_ERROR_INVALID_HANDLE;
    if (grid[0] == 0 || grid[0] > INT32_MAX || grid[1] != 1 || grid[2] != 1 ||
        block[0] != BLOCK_THREADS || block[1] != 1 || block[2] != 1 ||
        of->parameters != NULL || !extra_read(of->extra, call, &bytes) ||
        bytes != of->function->bytes || bytes != of->function->image.call)
        return CUDA_ERROR_INVALID_VALUE;
    return image_starts(of->function, block[0], of->shared);
}

EXPORTED CUresult cuLaunchKernel(CUfunction function, unsigned blocks,
                                 unsigned blocks_y, unsigned blocks_z,
                                 unsigned threads, unsigned threads_y,
                                 unsigned threads_z, unsigned shared,
                                 CUstream s, void **parameters, void **extra)
{
    const unsigned grid[] = {blocks, blocks_y, blocks_z};
    const unsigned block[] = {threads, threads_y, threads_z};
    const void *call;
    CUresult result = stream_usable(s);

    if (result == CUDA_SUCCESS)
        result = launch_read(&(struct started){function, grid, block, shared,
                                               parameters, extra}, &call);
    if (result != CUDA_SUCCESS) return result;
    return stream_give(s, &(struct work){
        .what = LAUNCH, .function = function, .blocks = blocks,
        .call = driver_keep(call, function->bytes),
        .call_bytes = function->bytes}, false);
}

__attribute__((destructor)) static void say_counts(void)
{
    const char *path = getenv("DRIVER_COUNTS");
    FILE *file = path != NULL ? fopen(path, "a") : NULL;

    if (file == NULL) return;
    fprintf(file, "launches %ld copies %ld waits %ld calls %ld stops %ld "
            "taken %ld graphs %ld told %ld opened %ld early %ld left %ld "
            "bytes %zu\n",
            counts[COUNT_LAUNCHES], counts[COUNT_COPIES], counts[COUNT_WAITS],
            counts[COUNT_CALLS], counts[COUNT_STOPS], counts[COUNT_TAKEN],
            counts[COUNT_GRAPHS], counts[COUNT_TOLD], counts[COUNT_OPENED],
            counts[COUNT_EARLY], counts[COUNT_LEFT], memory_most());
    fclose(file);
}
