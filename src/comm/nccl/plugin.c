/* SPDX-License-Identifier: Apache-2.0 */
/* plugin.c - NCCL for the program: see plugin.h. */
#include "comm/nccl/plugin.h"

#include <dlfcn.h>
#include <nccl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define NCCL_FUNCTIONS(X)                                                  \
    X(ncclGetVersion) X(ncclGetUniqueId) X(ncclCommInitRankConfig)         \
    X(ncclCommGetAsyncError) X(ncclGetErrorString) X(ncclGetLastError)     \
    X(ncclGroupStart) X(ncclGroupEnd) X(ncclAllGather) X(ncclBroadcast)    \
    X(ncclSend) X(ncclRecv) X(ncclAllReduce) X(ncclReduceScatter)          \
    X(ncclReduce) X(ncclCommFinalize) X(ncclCommDestroy) X(ncclCommAbort)

/* Non-blocking communicators that can be finalized. */
enum { VERSION_LEAST = NCCL_VERSION(2, 14, 0) };

#define MEMBER(name) __typeof__(name) *name##_;
static struct {
    void *library;
    NCCL_FUNCTIONS(MEMBER)
} nccl;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static _Thread_local char sentence[400];

__attribute__((format(printf, 1, 2)))
static const char *say(const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(sentence, sizeof sentence, format, arguments);
    va_end(arguments);
    return sentence;
}

/* Its words for the error, and the last line of what it says beside that. */
static const char *explain(ncclResult_t error, ncclComm_t comm,
                           const char *asked)
{
    const char *more, *line;

    if (error == ncclSuccess || error == ncclInProgress) return NULL;
    more = nccl.ncclGetLastError_(comm);
    if (more == NULL) more = "";
    line = strrchr(more, '\n');
    if (line != NULL && line[1] != '\0') more = line + 1;
    return say("NCCL answers \"%s\" to %s%s%.*s",
               nccl.ncclGetErrorString_(error), asked, *more ? ": " : "",
               (int)strcspn(more, "\n"), more);
}

static const char *find(void)
{
    void *library = dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL);

    if (library == NULL)
        return say("there is no NCCL: libnccl.so.2 cannot be opened");
#define NCCL_FIND(name)                                                    \
    *(void **)&nccl.name##_ = dlsym(library, #name);                       \
    if (nccl.name##_ == NULL)                                              \
        return say("NCCL is too old: it has no %s", #name);
    NCCL_FUNCTIONS(NCCL_FIND)
    nccl.library = library;
    return NULL;
}

static const char *plugin_open(int *version)
{
    const char *result = NULL;

    pthread_mutex_lock(&lock);
    if (nccl.library == NULL) result = find();
    pthread_mutex_unlock(&lock);
    if (result != NULL) return result;
    result = explain(nccl.ncclGetVersion_(version), NULL, "its version");
    if (result == NULL && *version < VERSION_LEAST)
        return say("NCCL %d.%d is too old: 2.14 is needed", *version / 10000,
                   *version / 100 % 100);
    return result;
}

static const char *make_id(char id[NCCL_ID_BYTES])
{
    ncclUniqueId unique;
    const char *result = explain(nccl.ncclGetUniqueId_(&unique), NULL,
                                 "an address to meet at");

    _Static_assert(sizeof unique == NCCL_ID_BYTES, "an id has 128 bytes");
    if (result == NULL) memcpy(id, &unique, sizeof unique);
    return result;
}

static const char *begin(const char id[NCCL_ID_BYTES], int rank, int size,
                         void **comm)
{
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    ncclUniqueId unique;
    ncclComm_t made = NULL;
    ncclResult_t result;

    config.blocking = 0;
    memcpy(&unique, id, sizeof unique);
    result = nccl.ncclCommInitRankConfig_(&made, size, unique, rank, &config);
    *comm = made;
    return explain(result, NULL, "a communicator");
}

static const char *look(void *comm, bool *done)
{
    ncclResult_t state = ncclSuccess;
    const ncclResult_t result = nccl.ncclCommGetAsyncError_(comm, &state);

    *done = result == ncclSuccess && state == ncclSuccess;
    return explain(result != ncclSuccess ? result : state, comm, "a call");
}

static const char *start(void)
{
    return explain(nccl.ncclGroupStart_(), NULL, "a group of calls");
}

static const char *end(void)
{
    return explain(nccl.ncclGroupEnd_(), NULL, "a group of calls");
}

static const char *gather(const struct nccl_place *at, void *out,
                          const void *in, int64_t bytes)
{
    return explain(nccl.ncclAllGather_(in, out, (size_t)bytes, ncclUint8,
                                       at->comm, at->stream), at->comm,
                   "an all-gather");
}

static const char *broadcast(const struct nccl_place *at, void *out,
                             const void *in, int64_t bytes, int root)
{
    return explain(nccl.ncclBroadcast_(in, out, (size_t)bytes, ncclUint8, root,
                                       at->comm, at->stream), at->comm,
                   "a broadcast");
}

static const char *send_to(const struct nccl_place *at, const void *in,
                           int64_t bytes, int peer)
{
    return explain(nccl.ncclSend_(in, (size_t)bytes, ncclUint8, peer, at->comm,
                                  at->stream), at->comm, "a send");
}

static const char *receive(const struct nccl_place *at, void *out,
                           int64_t bytes, int peer)
{
    return explain(nccl.ncclRecv_(out, (size_t)bytes, ncclUint8, peer,
                                  at->comm, at->stream), at->comm,
                   "a receive");
}

static const char *sum(const struct nccl_place *at, int64_t *out,
                       const int64_t *in, int64_t count)
{
    return explain(nccl.ncclAllReduce_(in, out, (size_t)count, ncclInt64,
                                       ncclSum, at->comm, at->stream),
                   at->comm, "an all-reduce");
}

static const char *sum_blocks(const struct nccl_place *at, int64_t *out,
                              const int64_t *in, int64_t count)
{
    return explain(nccl.ncclReduceScatter_(in, out, (size_t)count, ncclInt64,
                                           ncclSum, at->comm, at->stream),
                   at->comm, "a reduce-scatter");
}

static const char *sum_to(const struct nccl_place *at, int64_t *out,
                          const int64_t *in, int64_t count, int root)
{
    return explain(nccl.ncclReduce_(in, out, (size_t)count, ncclInt64, ncclSum,
                                    root, at->comm, at->stream), at->comm,
                   "a reduce");
}

static const char *finish(void *comm)
{
    return explain(nccl.ncclCommFinalize_(comm), comm, "the end");
}

static void plugin_close(void *comm)
{
    nccl.ncclCommDestroy_(comm);
}

static void plugin_abort(void *comm)
{
    nccl.ncclCommAbort_(comm);
}

__attribute__((visibility("default")))
const struct nccl_plugin lockstep_nccl_plugin = {
    .version = NCCL_PLUGIN_VERSION, .bytes = sizeof(struct nccl_plugin),
    .open = plugin_open, .make_id = make_id, .begin = begin, .look = look,
    .start = start, .end = end, .gather = gather, .broadcast = broadcast,
    .send = send_to, .receive = receive, .sum = sum,
    .sum_blocks = sum_blocks, .sum_to = sum_to, .finish = finish,
    .close = plugin_close, .abort = plugin_abort};
