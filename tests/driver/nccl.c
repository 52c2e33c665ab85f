/* SPDX-License-Identifier: Apache-2.0 */
/* nccl.c - a libnccl.so.2 between GPUs of the driver for tests. Calls happen
 * in streams of that driver, later, in whatever order other streams allow: the
 * ranks of a communicator, threads or processes of this machine, send all they
 * have and take what has come until all has. Sums are added in an order that is
 * drawn. Communicators do not block; two ranks need two GPUs.
 *
 *   NCCL_COUNTS=FILE   calls of each kind are added to the file
 *   NCCL_HANGS=R:N     launch N, from 1, of a communicator's rank R never ends
 *   NCCL_FAILS=R:N     it fails
 *   NCCL_ALONE=1       ranks never meet */
#include <dlfcn.h>
#include <nccl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "tests/driver/nccl_box.h"

#define EXPORTED __attribute__((visibility("default")))
enum { RANKS_MOST = 1024, POLLS = 2, ID_DIGITS = 16 };

struct ncclComm {
    char name[ID_DIGITS + 1];
    int rank, size, device;
    bool met[RANKS_MOST], ready;
    _Atomic bool aborted;
    _Atomic int state, polls, under_way; /* launches */
    uint64_t calls, launches, sent[RANKS_MOST], received[RANKS_MOST];
};

enum what { SEND, RECEIVE, SUM };
struct part {
    enum what what;
    char kind;
    uint64_t number;
    int peer;          /* of a sum: who has the result; -1: all */
    char *out;         /* as the GPU knows them */
    const char *in;
    int64_t bytes;
    char *kept;        /* owned: of a sum, what each rank sent */
    bool *came;        /* owned: likewise */
    bool done;
};
struct launch {
    ncclComm_t comm;
    cudaStream_t stream;
    struct part *parts; /* owned */
    size_t count, room;
    bool began, hangs;
};

static _Thread_local struct { int depth; struct launch *launch; } open_group;
static _Thread_local char last_error[200];
static _Atomic long counts[4]; /* gathers, sums, sends, communicators */
static _Atomic uint64_t drawn = 88172645463325252u;

/* The driver for tests has them. */
static void *(*driver_place)(int device, const void *at, size_t bytes);
static void (*driver_try)(void *stream, bool (*)(void *), void *);
static int (*driver_now)(void);

static bool find_driver(void)
{
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);

    if (library == NULL) return false;
    *(void **)&driver_place = dlsym(library, "lockstep_driver_place");
    *(void **)&driver_try = dlsym(library, "lockstep_driver_try");
    *(void **)&driver_now = dlsym(library, "lockstep_driver_now");
    return driver_place != NULL && driver_try != NULL && driver_now != NULL;
}

/* "R:N" in the environment is this launch. */
static bool is_named(const char *name, const struct ncclComm *comm)
{
    const char *text = getenv(name);
    int rank, number;

    return text != NULL && sscanf(text, "%d:%d", &rank, &number) == 2 &&
           rank == comm->rank && (uint64_t)number == comm->launches;
}

static ncclResult_t fail(ncclResult_t error, const char *why)
{
    snprintf(last_error, sizeof last_error, "%s", why);
    return error;
}

/* ---- launches ---- */

static struct box_name name_of(const ncclComm_t comm, const struct part *p,
                               int from, int to)
{
    return (struct box_name){comm->name, p->kind, p->number, from, to};
}

static void *near(const ncclComm_t comm, const void *at, int64_t bytes)
{
    return driver_place(comm->device, at, (size_t)bytes);
}

static bool part_begin(const ncclComm_t comm, struct part *p)
{
    const void *in = p->in != NULL ? near(comm, p->in, p->bytes) : NULL;
    struct box_name to;

    if (p->what == RECEIVE) return true;
    if (in == NULL) return false;
    for (int i = 0; i < comm->size; i++) {
        if (p->what == SUM ? p->peer >= 0 && i != p->peer : i != p->peer)
            continue;
        to = name_of(comm, p, comm->rank, i);
        if (!box_put(&to, in, p->bytes)) return false;
    }
    p->done = p->what == SEND ||
              (p->what == SUM && p->peer >= 0 && p->peer != comm->rank);
    return true;
}

static void add_all(const ncclComm_t comm, const struct part *p, int64_t *out)
{
    const int64_t count = p->bytes / (int64_t)sizeof *out;
    const int first =
        (int)(atomic_fetch_add(&drawn, 7919) % (uint64_t)comm->size);

    for (int64_t i = 0; i < count; i++) {
        uint64_t sum = 0;

        for (int j = 0; j < comm->size; j++) {
            const int rank = (first + j) % comm->size;
            uint64_t one;

            memcpy(&one, p->kept + rank * p->bytes + i * 8, sizeof one);
            sum += one;
        }
        out[i] = (int64_t)sum;
    }
}

/* 1: done; 0: not yet; -1: wrong. */
static int part_take(const ncclComm_t comm, struct part *p)
{
    void *out = near(comm, p->out, p->bytes);
    struct box_name from;
    int result = 1;

    if (out == NULL) return -1;
    if (p->what == RECEIVE) {
        from = name_of(comm, p, p->peer, comm->rank);
        return box_take(&from, out, p->bytes);
    }
    for (int i = 0; i < comm->size; i++) {
        int one;

        if (p->came[i]) continue;
        from = name_of(comm, p, i, comm->rank);
        one = box_take(&from, p->kept + i * p->bytes, p->bytes);
        if (one < 0) return -1;
        p->came[i] = one == 1;
        if (one == 0) result = 0;
    }
    if (result == 1) add_all(comm, p, out);
    return result;
}

static bool launch_end(struct launch *l, int state)
{
    if (state != ncclSuccess) atomic_store(&l->comm->state, state);
    for (size_t i = 0; i < l->count; i++) {
        free(l->parts[i].kept);
        free(l->parts[i].came);
    }
    free(l->parts);
    atomic_fetch_sub(&l->comm->under_way, 1);
    free(l);
    return true;
}

/* In the driver's thread, again and again until it is true. */
static bool launch_try(void *argument)
{
    struct launch *l = argument;
    bool all = true;

    if (atomic_load(&l->comm->aborted)) return launch_end(l, ncclSuccess);
    if (l->hangs) return false;
    for (size_t i = 0; i < l->count && !l->began; i++)
        if (!part_begin(l->comm, &l->parts[i]))
            return launch_end(l, ncclUnhandledCudaError);
    l->began = true;
    for (size_t i = 0; i < l->count; i++) {
        const int took = l->parts[i].done ? 1
                                          : part_take(l->comm, &l->parts[i]);

        if (took < 0) return launch_end(l, ncclRemoteError);
        l->parts[i].done = took == 1;
        all = all && took == 1;
    }
    return all ? launch_end(l, ncclSuccess) : false;
}

static struct part *part_add(ncclComm_t comm, cudaStream_t stream)
{
    struct launch *l = open_group.launch;

    if (l == NULL) {
        l = open_group.launch = calloc(1, sizeof *l);
        l->comm = comm;
        l->stream = stream;
    }
    if (l->comm != comm || l->stream != stream) abort();
    if (l->count == l->room) {
        l->room = l->room > 0 ? 2 * l->room : 16;
        l->parts = realloc(l->parts, l->room * sizeof *l->parts);
    }
    l->parts[l->count] = (struct part){.peer = -1};
    return &l->parts[l->count++];
}

static ncclResult_t usable(const ncclComm_t comm)
{
    if (comm == NULL || !comm->ready)
        return fail(ncclInvalidUsage, "the communicator is not ready");
    if (driver_now() != comm->device)
        return fail(ncclInvalidUsage, "the thread uses another GPU");
    return ncclSuccess;
}

EXPORTED ncclResult_t ncclGroupStart(void)
{
    open_group.depth++;
    return ncclSuccess;
}

EXPORTED ncclResult_t ncclGroupEnd(void)
{
    struct launch *l = open_group.launch;

    if (open_group.depth <= 0) return ncclInvalidUsage;
    if (--open_group.depth > 0 || l == NULL) return ncclSuccess;
    open_group.launch = NULL;
    l->comm->launches++;
    atomic_fetch_add(&l->comm->under_way, 1);
    l->hangs = is_named("NCCL_HANGS", l->comm);
    if (is_named("NCCL_FAILS", l->comm))
        atomic_store(&l->comm->state, ncclRemoteError);
    atomic_store(&l->comm->polls, POLLS);
    driver_try(l->stream, launch_try, l);
    return ncclInProgress;
}

/* ---- calls ---- */

static void transfer(ncclComm_t comm, cudaStream_t stream, struct part part)
{
    *part_add(comm, stream) = part;
}

EXPORTED ncclResult_t ncclSend(const void *in, size_t count,
                               ncclDataType_t type, int peer, ncclComm_t comm,
                               cudaStream_t stream)
{
    if (usable(comm) != ncclSuccess) return ncclInvalidUsage;
    if (type != ncclUint8 || peer < 0 || peer >= comm->size)
        return fail(ncclInvalidArgument, "a send");
    ncclGroupStart();
    transfer(comm, stream, (struct part){
        .what = SEND, .kind = 'p', .number = comm->sent[peer]++, .peer = peer,
        .in = in, .bytes = (int64_t)count});
    counts[2]++;
    return ncclGroupEnd();
}

EXPORTED ncclResult_t ncclRecv(void *out, size_t count, ncclDataType_t type,
                               int peer, ncclComm_t comm, cudaStream_t stream)
{
    if (usable(comm) != ncclSuccess) return ncclInvalidUsage;
    if (type != ncclUint8 || peer < 0 || peer >= comm->size)
        return fail(ncclInvalidArgument, "a receive");
    ncclGroupStart();
    transfer(comm, stream, (struct part){
        .what = RECEIVE, .kind = 'p', .number = comm->received[peer]++,
        .peer = peer, .out = out, .bytes = (int64_t)count});
    return ncclGroupEnd();
}

EXPORTED ncclResult_t ncclAllGather(const void *in, void *out, size_t count,
                                    ncclDataType_t type, ncclComm_t comm,
                                    cudaStream_t stream)
{
    if (usable(comm) != ncclSuccess) return ncclInvalidUsage;
    if (type != ncclUint8) return fail(ncclInvalidArgument, "an all-gather");
    ncclGroupStart();
    for (int i = 0; i < comm->size; i++) {
        transfer(comm, stream, (struct part){
            .what = SEND, .kind = 'c', .number = comm->calls, .peer = i,
            .in = in, .bytes = (int64_t)count});
        transfer(comm, stream, (struct part){
            .what = RECEIVE, .kind = 'c', .number = comm->calls, .peer = i,
            .out = (char *)out + (size_t)i * count, .bytes = (int64_t)count});
    }
    comm->calls++;
    counts[0]++;
    return ncclGroupEnd();
}

EXPORTED ncclResult_t ncclBroadcast(const void *in, void *out, size_t count,
                                    ncclDataType_t type, int root,
                                    ncclComm_t comm, cudaStream_t stream)
{
    if (usable(comm) != ncclSuccess) return ncclInvalidUsage;
    if (type != ncclUint8) return fail(ncclInvalidArgument, "a broadcast");
    ncclGroupStart();
    for (int i = 0; i < comm->size && root == comm->rank; i++)
        transfer(comm, stream, (struct part){
            .what = SEND, .kind = 'c', .number = comm->calls, .peer = i,
            .in = in, .bytes = (int64_t)count});
    transfer(comm, stream, (struct part){
        .what = RECEIVE, .kind = 'c', .number = comm->calls, .peer = root,
        .out = out, .bytes = (int64_t)count});
    comm->calls++;
    counts[0]++;
    return ncclGroupEnd();
}

static void sum(const void *in, void *out, size_t count, int root,
                ncclComm_t comm, cudaStream_t stream)
{
    const int64_t bytes = (int64_t)count * 8;

    transfer(comm, stream, (struct part){
        .what = SUM, .kind = 'c', .number = comm->calls++, .peer = root,
        .in = in, .out = out, .bytes = bytes,
        .kept = malloc((size_t)(bytes * comm->size) + 1),
        .came = calloc((size_t)comm->size, 1)});
    counts[1]++;
}

static ncclResult_t summable(ncclDataType_t type, ncclRedOp_t how,
                             ncclComm_t comm)
{
    if (usable(comm) != ncclSuccess) return ncclInvalidUsage;
    if (type == ncclInt64 && how == ncclSum) return ncclSuccess;
    return fail(ncclInvalidArgument, "only integers of 64 bits are added");
}

EXPORTED ncclResult_t ncclAllReduce(const void *in, void *out, size_t count,
                                    ncclDataType_t type, ncclRedOp_t how,
                                    ncclComm_t comm, cudaStream_t stream)
{
    const ncclResult_t may = summable(type, how, comm);

    if (may != ncclSuccess) return may;
    ncclGroupStart();
    sum(in, out, count, -1, comm, stream);
    return ncclGroupEnd();
}

EXPORTED ncclResult_t ncclReduceScatter(const void *in, void *out,
                                        size_t count, ncclDataType_t type,
                                        ncclRedOp_t how, ncclComm_t comm,
                                        cudaStream_t stream)
{
    const ncclResult_t may = summable(type, how, comm);

    if (may != ncclSuccess) return may;
    ncclGroupStart();
    for (int i = 0; i < comm->size; i++)
        sum((const char *)in + (size_t)i * count * 8, out, count, i, comm,
            stream);
    return ncclGroupEnd();
}

EXPORTED ncclResult_t ncclReduce(const void *in, void *out, size_t count,
                                 ncclDataType_t type, ncclRedOp_t how,
                                 int root, ncclComm_t comm,
                                 cudaStream_t stream)
{
    const ncclResult_t may = summable(type, how, comm);

    if (may != ncclSuccess) return may;
    ncclGroupStart();
    sum(in, out, count, root, comm, stream);
    return ncclGroupEnd();
}

/* ---- communicators ---- */

EXPORTED ncclResult_t ncclGetVersion(int *version)
{
    *version = NCCL_VERSION_CODE;
    return ncclSuccess;
}

EXPORTED ncclResult_t ncclGetUniqueId(ncclUniqueId *id)
{
    unsigned char bytes[ID_DIGITS / 2];

    memset(id, 0, sizeof *id);
    if (getentropy(bytes, sizeof bytes) != 0) return ncclSystemError;
    for (size_t i = 0; i < sizeof bytes; i++)
        snprintf(id->internal + 2 * i, 3, "%02x", bytes[i]);
    return ncclSuccess;
}

static struct box_name hello(const ncclComm_t comm, int from, int to)
{
    return (struct box_name){comm->name, 'h', 0, from, to};
}

EXPORTED ncclResult_t ncclCommInitRankConfig(ncclComm_t *out, int size,
                                             ncclUniqueId id, int rank,
                                             ncclConfig_t *config)
{
    ncclComm_t comm;

    if (config == NULL || config->blocking != 0 || size > RANKS_MOST ||
        rank < 0 || rank >= size || id.internal[0] == '\0')
        return fail(ncclInvalidArgument, "a communicator");
    if (!find_driver() || driver_now() < 0)
        return fail(ncclUnhandledCudaError, "no driver for tests");
    comm = *out = calloc(1, sizeof *comm);
    snprintf(comm->name, sizeof comm->name, "%.*s", ID_DIGITS, id.internal);
    comm->rank = rank;
    comm->size = size;
    comm->device = driver_now();
    for (int i = 0; i < size && getenv("NCCL_ALONE") == NULL; i++) {
        const struct box_name to = hello(comm, rank, i);

        if (!box_put(&to, &comm->device, sizeof comm->device))
            return ncclSystemError;
    }
    counts[3]++;
    return ncclInProgress;
}

/* Whether all ranks have said hello, each from a GPU of its own. */
static ncclResult_t meet(ncclComm_t comm)
{
    bool all = true;

    for (int i = 0; i < comm->size; i++) {
        const struct box_name from = hello(comm, i, comm->rank);
        int device = -1;

        if (comm->met[i]) continue;
        if (box_take(&from, &device, sizeof device) != 1) {
            all = false;
            continue;
        }
        comm->met[i] = true;
        if (i == comm->rank || device != comm->device) continue;
        snprintf(last_error, sizeof last_error, "Duplicate GPU detected : "
                 "rank %d and rank %d both on CUDA device %d", comm->rank, i,
                 device);
        return ncclInvalidUsage;
    }
    comm->ready = all;
    return all ? ncclSuccess : ncclInProgress;
}

EXPORTED ncclResult_t ncclCommGetAsyncError(ncclComm_t comm,
                                            ncclResult_t *state)
{
    *state = (ncclResult_t)atomic_load(&comm->state);
    if (*state != ncclSuccess) return ncclSuccess;
    if (!comm->ready) *state = meet(comm);
    else if (comm->polls > 0 && comm->polls-- > 0) *state = ncclInProgress;
    return ncclSuccess;
}

EXPORTED const char *ncclGetErrorString(ncclResult_t error)
{
    static const char *const names[] = {
        "no error", "unhandled cuda error", "unhandled system error",
        "internal error", "invalid argument", "invalid usage",
        "remote process exited or there was a network error", "in progress"};

    return names[error];
}

EXPORTED const char *ncclGetLastError(ncclComm_t comm)
{
    (void)comm;
    return last_error;
}

EXPORTED ncclResult_t ncclCommFinalize(ncclComm_t comm)
{
    atomic_store(&comm->polls, POLLS);
    return ncclInProgress;
}

EXPORTED ncclResult_t ncclCommDestroy(ncclComm_t comm)
{
    if (atomic_load(&comm->under_way) > 0) abort();
    free(comm);
    return ncclSuccess;
}

/* Launches that are left find it later. */
EXPORTED ncclResult_t ncclCommAbort(ncclComm_t comm)
{
    atomic_store(&comm->aborted, true);
    box_clear(comm->name);
    return ncclSuccess;
}

__attribute__((destructor)) static void say_counts(void)
{
    const char *path = getenv("NCCL_COUNTS");
    FILE *file = path != NULL ? fopen(path, "a") : NULL;

    if (file == NULL) return;
    fprintf(file, "gathers %ld sums %ld sends %ld communicators %ld\n",
            counts[0], counts[1], counts[2], counts[3]);
    fclose(file);
}
