/* SPDX-License-Identifier: Apache-2.0 */
/* segment.c - gathers work, and starts repeated work as a graph. Until a graph
 * is made its memory is reserved as addresses only; nothing is taken in a
 * step. */
#include "kernels/cuda/plugin/segment.h"

#include <string.h>
#include <sys/mman.h>

/* Shorter segments are given item by item. A segment that is as another, but
 * for what its kernels read, has a graph of its own until there are SAME_MOST;
 * then the one that was not used for longest is told what differs. */
enum { NODES_MOST = 1024, READ_BYTES = 512 << 10, TOLD_MOST = 64,
       GRAPHS_MOST = 128, SEEN_MOST = 256, SAME_MOST = 4, LEAST = 4,
       READ_ALIGN = 16,
       NODE_BYTES = 1 << 30 /* a longer copy or fill is no node */ };

enum node_kind { NODE_KERNEL, NODE_TO_DEVICE, NODE_TO_HOST, NODE_INSIDE,
                 NODE_FILL, NODE_PRODUCT, NODE_ATTENTION };

/* No gaps: nodes are compared as bytes. */
struct node {
    int32_t kind, kernel;
    uint32_t blocks;
    int32_t byte;
    uint64_t to, from, bytes;
    uint64_t at; /* in what kernels read, and libraries are told */
};

/* Not made: count is 0. */
struct graph {
    uint64_t key, used;    /* used: when it was started last */
    int count;
    size_t bytes;          /* of read */
    struct node nodes[NODES_MOST];
    CUgraphNode handles[NODES_MOST];
    char read[READ_BYTES];
    CUgraph graph;         /* owned, as exec */
    CUgraphExec exec;
};

struct told {
    char *there;
    const char *host;
    size_t bytes;
};

struct segments {
    struct gpu *gpu;         /* borrowed */
    CUstream stream;         /* of its kernels */
    CUstream recorder;       /* owned: work of libraries is captured there,
                              * nothing is done */
    struct node nodes[NODES_MOST];
    int count;
    char read[READ_BYTES]; /* by kernels; and libraries */
    size_t bytes;
    struct told told[TOLD_MOST];
    int told_count;
    uint64_t seen[SEEN_MOST]; /* keys of segments without a graph */
    int next_seen;
    struct graph graphs[GRAPHS_MOST];
    int graphs_count;
    uint64_t clock;
    struct gpu_graphs made;
};

struct segments *segments_new(struct gpu *gpu)
{
    struct segments *s = mmap(NULL, sizeof *s, PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1,
                              0);

    if (s == MAP_FAILED) return NULL;
    s->gpu = gpu;
    s->stream = gpu->streams[GPU_KERNELS];
    if (driver.cuCtxSetCurrent_(gpu->context) == CUDA_SUCCESS &&
        driver.cuStreamCreate_(&s->recorder, CU_STREAM_NON_BLOCKING) ==
            CUDA_SUCCESS)
        return s;
    munmap(s, sizeof *s);
    return NULL;
}

static void graph_free(struct graph *g)
{
    if (g->exec != NULL) driver.cuGraphExecDestroy_(g->exec);
    if (g->graph != NULL) driver.cuGraphDestroy_(g->graph);
    g->exec = NULL;
    g->graph = NULL;
    g->count = 0;
}

void segments_free(struct segments *s)
{
    if (s == NULL) return;
    for (int i = 0; i < s->graphs_count; i++) graph_free(&s->graphs[i]);
    driver.cuStreamDestroy_(s->recorder);
    munmap(s, sizeof *s);
}

int segment_count(const struct segments *s)
{
    return s->count + s->told_count;
}

void segment_graphs(const struct segments *s, struct gpu_graphs *out)
{
    *out = s->made;
}

/* ---- gathering ---- */

static size_t aligned(size_t bytes)
{
    return (bytes + READ_ALIGN - 1) / READ_ALIGN * READ_ALIGN;
}

static CUresult add(struct segments *s, const struct node *node,
                    const void *call)
{
    const size_t bytes = call != NULL ? aligned(node->bytes) : 0;
    CUresult error = CUDA_SUCCESS;

    if (bytes > READ_BYTES) return CUDA_ERROR_INVALID_VALUE;
    if (s->count == NODES_MOST || s->bytes + bytes > READ_BYTES)
        error = segment_flush(s);
    if (error != CUDA_SUCCESS) return error;
    s->nodes[s->count] = *node;
    s->nodes[s->count++].at = s->bytes;
    if (call == NULL) return CUDA_SUCCESS;
    memset(s->read + s->bytes, 0, bytes);
    memcpy(s->read + s->bytes, call, node->bytes);
    s->bytes += bytes;
    return CUDA_SUCCESS;
}

CUresult segment_kernel(struct segments *s, const struct gpu_launch *l)
{
    return add(s, &(struct node){.kind = NODE_KERNEL, .kernel = l->kernel,
                                 .blocks = (uint32_t)l->blocks,
                                 .bytes = l->bytes}, l->call);
}

CUresult segment_product(struct segments *s, const struct product_told *told)
{
    return add(s, &(struct node){.kind = NODE_PRODUCT, .bytes = sizeof *told},
               told);
}

CUresult segment_attention(struct segments *s,
                           const struct attention_told *told)
{
    return add(s, &(struct node){.kind = NODE_ATTENTION,
                                 .bytes = sizeof *told}, told);
}

/* One behind another on both sides, with less than a line between them, is one
 * copy. */
CUresult segment_tell(struct segments *s, void *there, const void *host,
                      size_t bytes)
{
    struct told *last = &s->told[s->told_count > 0 ? s->told_count - 1 : 0];
    CUresult error = CUDA_SUCCESS;

    if (s->told_count > 0) {
        const size_t apart = (size_t)((char *)there - last->there);

        if ((const char *)host - last->host == (char *)there - last->there &&
            apart >= last->bytes && apart - last->bytes < 64) {
            last->bytes = apart + bytes;
            return CUDA_SUCCESS;
        }
    }
    if (s->told_count == TOLD_MOST) error = segment_flush(s);
    if (error == CUDA_SUCCESS)
        s->told[s->told_count++] = (struct told){there, host, bytes};
    return error;
}

/* ---- one item after the other ---- */

static void *host_at(uint64_t at)
{
    return (void *)(uintptr_t)at;
}

static CUfunction function_of(const struct segments *s, const struct node *n)
{
    return n->kind == NODE_KERNEL ? s->gpu->functions[n->kernel] : NULL;
}

static CUresult start_kernel(const struct segments *s, const struct node *n)
{
    size_t bytes = n->bytes;
    void *extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER,
                     (void *)(uintptr_t)(s->read + n->at),
                     CU_LAUNCH_PARAM_BUFFER_SIZE, &bytes, CU_LAUNCH_PARAM_END};

    return driver.cuLaunchKernel_(function_of(s, n), n->blocks, 1, 1,
                                  BLOCK_THREADS, 1, 1, 0, s->stream, NULL,
                                  extra);
}

/* Whether a library does it. */
static bool is_library(const struct node *n)
{
    return n->kind == NODE_PRODUCT || n->kind == NODE_ATTENTION;
}

static CUresult start_library(const struct segments *s, const struct node *n,
                              const char *read, CUstream stream)
{
    struct product_told product;
    struct attention_told attention;
    const char *sentence;

    if (n->kind == NODE_PRODUCT) {
        memcpy(&product, read + n->at, sizeof product);
        sentence = products_give(s->gpu, &product, stream);
    } else {
        memcpy(&attention, read + n->at, sizeof attention);
        sentence = attention_give(s->gpu, &attention, stream);
    }
    return sentence == NULL ? CUDA_SUCCESS : (CUresult)DRIVER_SAID;
}

static CUresult start(const struct segments *s, const struct node *n)
{
    switch (n->kind) {
    case NODE_TO_DEVICE:
        return driver.cuMemcpyHtoDAsync_(n->to, host_at(n->from), n->bytes,
                                         s->stream);
    case NODE_TO_HOST:
        return driver.cuMemcpyDtoHAsync_(host_at(n->to), n->from, n->bytes,
                                         s->stream);
    case NODE_INSIDE:
        return driver.cuMemcpyDtoDAsync_(n->to, n->from, n->bytes, s->stream);
    case NODE_FILL:
        return driver.cuMemsetD8Async_(n->to, (unsigned char)n->byte,
                                       n->bytes, s->stream);
    case NODE_PRODUCT: case NODE_ATTENTION:
        return start_library(s, n, s->read, s->stream);
    default: return start_kernel(s, n);
    }
}

static CUresult start_each(const struct segments *s)
{
    CUresult error = CUDA_SUCCESS;

    for (int i = 0; i < s->count && error == CUDA_SUCCESS; i++)
        error = start(s, &s->nodes[i]);
    return error;
}

/* ---- copies and fills ---- */

/* How long a copy or a fill that is a node may be is not said anywhere. Long
 * ones are given at once. */
static CUresult add_moved(struct segments *s, const struct node *node)
{
    CUresult error;

    if (node->bytes == 0) return CUDA_SUCCESS;
    if (node->bytes <= NODE_BYTES) return add(s, node, NULL);
    error = segment_flush(s);
    return error == CUDA_SUCCESS ? start(s, node) : error;
}

CUresult segment_copy(struct segments *s, enum gpu_way way, void *to,
                      const void *from, size_t bytes)
{
    static const int kinds[] = {[GPU_TO_DEVICE] = NODE_TO_DEVICE,
                                [GPU_TO_HOST] = NODE_TO_HOST,
                                [GPU_INSIDE] = NODE_INSIDE};

    return add_moved(s, &(struct node){.kind = kinds[way], .to = (uintptr_t)to,
                                       .from = (uintptr_t)from,
                                       .bytes = bytes});
}

CUresult segment_fill(struct segments *s, void *to, int byte, size_t bytes)
{
    return add_moved(s, &(struct node){.kind = NODE_FILL, .byte = byte,
                                       .to = (uintptr_t)to, .bytes = bytes});
}

/* ---- graphs ---- */

/* FNV-1a over words. */
static uint64_t hash(uint64_t key, const void *at, size_t bytes)
{
    for (size_t i = 0; i < bytes / 8; i++) {
        uint64_t word;

        memcpy(&word, (const char *)at + 8 * i, sizeof word);
        key = (key ^ word) * 0x100000001b3u, key ^= key >> 29;
    }
    return key;
}

static uint64_t key_of(const struct segments *s)
{
    uint64_t key = hash(0xcbf29ce484222325u, s->nodes,
                        (size_t)s->count * sizeof *s->nodes);

    for (int i = 0; i < s->count; i++)
        if (is_library(&s->nodes[i]))
            key = hash(key, s->read + s->nodes[i].at, s->nodes[i].bytes);
    return key;
}

static CUresult add_kernel(const struct segments *s, struct graph *g, int i,
                           const CUgraphNode *before)
{
    const struct node *n = &g->nodes[i];
    size_t bytes = n->bytes;
    void *extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, g->read + n->at,
                     CU_LAUNCH_PARAM_BUFFER_SIZE, &bytes, CU_LAUNCH_PARAM_END};
    const CUDA_KERNEL_NODE_PARAMS kernel = {
        .func = function_of(s, n), .gridDimX = n->blocks, .gridDimY = 1,
        .gridDimZ = 1, .blockDimX = BLOCK_THREADS, .blockDimY = 1,
        .blockDimZ = 1, .extra = extra};

    return driver.cuGraphAddKernelNode_(&g->handles[i], g->graph, before,
                                        before != NULL, &kernel);
}

static CUresult add_copy(const struct segments *s, struct graph *g, int i,
                         const CUgraphNode *before)
{
    const struct node *n = &g->nodes[i];
    const bool up = n->kind == NODE_TO_DEVICE, down = n->kind == NODE_TO_HOST;
    const CUDA_MEMCPY3D copy = {
        .srcMemoryType = up ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE,
        .srcHost = up ? host_at(n->from) : NULL,
        .srcDevice = up ? 0 : n->from,
        .dstMemoryType = down ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE,
        .dstHost = down ? host_at(n->to) : NULL,
        .dstDevice = down ? 0 : n->to,
        .WidthInBytes = n->bytes, .Height = 1, .Depth = 1};

    return driver.cuGraphAddMemcpyNode_(&g->handles[i], g->graph, before,
                                        before != NULL, &copy,
                                        s->gpu->context);
}

static CUresult add_fill(const struct segments *s, struct graph *g, int i,
                         const CUgraphNode *before)
{
    const struct node *n = &g->nodes[i];
    const CUDA_MEMSET_NODE_PARAMS fill = {
        .dst = n->to, .value = (unsigned char)n->byte, .elementSize = 1,
        .width = n->bytes, .height = 1};

    return driver.cuGraphAddMemsetNode_(&g->handles[i], g->graph, before,
                                        before != NULL, &fill,
                                        s->gpu->context);
}

/* A graph inside the graph: all that the library gives a stream for it. The
 * recorder is this thread's alone, and no other stream is captured. */
static CUresult add_library(const struct segments *s, struct graph *g, int i,
                            const CUgraphNode *before)
{
    CUgraph inside = NULL;
    CUresult error = driver.cuStreamBeginCapture_(
        s->recorder, CU_STREAM_CAPTURE_MODE_RELAXED);

    if (error != CUDA_SUCCESS) return error;
    error = start_library(s, &g->nodes[i], g->read, s->recorder);
    const CUresult end = driver.cuStreamEndCapture_(s->recorder, &inside);

    if (error == CUDA_SUCCESS) error = end;
    if (error == CUDA_SUCCESS)
        error = driver.cuGraphAddChildGraphNode_(
            &g->handles[i], g->graph, before, before != NULL, inside);
    if (inside != NULL) driver.cuGraphDestroy_(inside);
    return error;
}

/* A chain: each node behind the one before it. */
static CUresult build(const struct segments *s, struct graph *g)
{
    CUresult error = driver.cuGraphCreate_(&g->graph, 0);

    for (int i = 0; i < g->count && error == CUDA_SUCCESS; i++) {
        const CUgraphNode *before = i > 0 ? &g->handles[i - 1] : NULL;

        switch (g->nodes[i].kind) {
        case NODE_KERNEL: error = add_kernel(s, g, i, before); break;
        case NODE_FILL: error = add_fill(s, g, i, before); break;
        case NODE_PRODUCT: case NODE_ATTENTION:
            error = add_library(s, g, i, before);
            break;
        default: error = add_copy(s, g, i, before);
        }
    }
    return error != CUDA_SUCCESS
               ? error
               : driver.cuGraphInstantiateWithFlags_(&g->exec, g->graph, 0);
}

static CUresult graph_make(const struct segments *s, struct graph *g,
                           uint64_t key)
{
    CUresult error;

    g->key = key;
    g->count = s->count;
    g->bytes = s->bytes;
    memcpy(g->nodes, s->nodes, (size_t)s->count * sizeof *s->nodes);
    memcpy(g->read, s->read, s->bytes);
    error = build(s, g);
    if (error != CUDA_SUCCESS) graph_free(g);
    return error;
}

/* Its kernels read what those of the segment do. */
static CUresult graph_tell(const struct segments *s, struct graph *g)
{
    CUresult error = CUDA_SUCCESS;

    for (int i = 0; i < g->count && error == CUDA_SUCCESS; i++) {
        const struct node *n = &g->nodes[i];
        size_t bytes = n->bytes;
        void *extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, g->read + n->at,
                         CU_LAUNCH_PARAM_BUFFER_SIZE, &bytes,
                         CU_LAUNCH_PARAM_END};
        const CUDA_KERNEL_NODE_PARAMS kernel = {
            .func = function_of(s, n),
            .gridDimX = n->blocks, .gridDimY = 1, .gridDimZ = 1,
            .blockDimX = BLOCK_THREADS, .blockDimY = 1, .blockDimZ = 1,
            .extra = extra};

        if (n->kind != NODE_KERNEL ||
            memcmp(g->read + n->at, s->read + n->at, bytes) == 0)
            continue;
        memcpy(g->read + n->at, s->read + n->at, bytes);
        error = driver.cuGraphExecKernelNodeSetParams_(g->exec, g->handles[i],
                                                       &kernel);
    }
    return error;
}

static bool libraries_are_same(const struct segments *s, const struct graph *g)
{
    for (int i = 0; i < s->count; i++) {
        const struct node *n = &s->nodes[i];

        if (is_library(n) &&
            memcmp(g->read + n->at, s->read + n->at, n->bytes) != 0)
            return false;
    }
    return true;
}

/* A graph may be told what its kernels read, and nothing else. */
static bool is_same(const struct segments *s, const struct graph *g,
                    uint64_t key)
{
    return g->key == key && g->count == s->count && g->bytes == s->bytes &&
           memcmp(g->nodes, s->nodes,
                  (size_t)s->count * sizeof *s->nodes) == 0 &&
           libraries_are_same(s, g);
}

/* The graph of the open segment; NULL: there is none. *oldest: the one that may
 * be told, if there are `same` ones. */
static struct graph *find(struct segments *s, uint64_t key, int *same,
                          struct graph **oldest)
{
    *same = 0;
    *oldest = NULL;
    for (int i = 0; i < s->graphs_count; i++) {
        struct graph *g = &s->graphs[i];

        if (!is_same(s, g, key)) continue;
        if (memcmp(g->read, s->read, s->bytes) == 0) return g;
        if (*oldest == NULL || g->used < (*oldest)->used) *oldest = g;
        ++*same;
    }
    return NULL;
}

/* A place for another graph: the one that was not used for longest goes. */
static struct graph *place(struct segments *s)
{
    struct graph *oldest = &s->graphs[0];

    if (s->graphs_count < GRAPHS_MOST) return &s->graphs[s->graphs_count++];
    for (int i = 1; i < GRAPHS_MOST; i++)
        if (s->graphs[i].used < oldest->used) oldest = &s->graphs[i];
    graph_free(oldest);
    return oldest;
}

static bool was_seen(struct segments *s, uint64_t key)
{
    for (int i = 0; i < SEEN_MOST; i++)
        if (s->seen[i] == key) return true;
    s->seen[s->next_seen] = key;
    s->next_seen = (s->next_seen + 1) % SEEN_MOST;
    return false;
}

/* Memory of the GPU that nobody has; 0: unknown. */
static size_t unused_bytes(void)
{
    size_t unused = 0, all;

    return driver.cuMemGetInfo_(&unused, &all) == CUDA_SUCCESS ? unused : 0;
}

/* The driver takes memory of its own for a graph, at the latest when it is
 * started first. */
static CUresult start_new(struct segments *s, uint64_t key)
{
    const size_t before = unused_bytes();
    struct graph *g = place(s);
    CUresult error = graph_make(s, g, key);

    if (error != CUDA_SUCCESS) return error;
    g->used = ++s->clock;
    error = driver.cuGraphLaunch_(g->exec, s->stream);
    const size_t after = unused_bytes();

    s->made.count++;
    s->made.nodes += g->count;
    if (after > 0 && before > after)
        s->made.bytes += (int64_t)(before - after);
    return error;
}

static CUresult start_graph(struct segments *s)
{
    const uint64_t key = key_of(s);
    struct graph *oldest;
    int same;
    struct graph *g = find(s, key, &same, &oldest);
    CUresult error = CUDA_SUCCESS;

    if (g == NULL && same == 0 && !was_seen(s, key)) return start_each(s);
    if (g == NULL && same < SAME_MOST) return start_new(s, key);
    if (g == NULL) error = graph_tell(s, g = oldest);
    if (error != CUDA_SUCCESS) return error;
    g->used = ++s->clock;
    return driver.cuGraphLaunch_(g->exec, s->stream);
}

CUresult segment_flush(struct segments *s)
{
    CUresult error = CUDA_SUCCESS;

    for (int i = 0; i < s->told_count && error == CUDA_SUCCESS; i++)
        error = driver.cuMemcpyHtoDAsync_((uintptr_t)s->told[i].there,
                                          s->told[i].host, s->told[i].bytes,
                                          s->stream);
    s->told_count = 0;
    if (error == CUDA_SUCCESS)
        error = s->count < LEAST ? start_each(s) : start_graph(s);
    s->count = 0;
    s->bytes = 0;
    return error;
}
