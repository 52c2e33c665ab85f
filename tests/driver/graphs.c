/* SPDX-License-Identifier: Apache-2.0 */
/* graphs.c - graphs of the driver for tests. A node begins when those that it
 * depends on are done, and of those that may begin a drawn one does. */
#include "work.h"

#include <stdlib.h>
#include <string.h>

/* GRAPH_BYTES, NODE_BYTES: a graph that can be started takes that of a GPU. */
enum { EDGES_MOST = 8, GRAPH_BYTES = 64 << 10, NODE_BYTES = 256 };

/* Belongs to the graph, and to what was made of it. */
struct CUgraphNode_st {
    CUgraph graph;
    int number;
    struct work work;
    CUgraph inside;     /* owned: its nodes are done instead; or NULL */
    int edges[EDGES_MOST], edge_count; /* numbers of what it depends on */
};
struct CUgraph_st {
    CUgraphNode *nodes; /* owned, and each of them */
    int count;
};
struct CUgraphExec_st {
    CUgraph of;         /* only compared */
    CUgraph graph;      /* owned: a copy */
    int device;
};

static uint64_t drawn = 0x2545f4914f6cdd1du;

static uint64_t draw(void)
{
    drawn ^= drawn << 13, drawn ^= drawn >> 7, drawn ^= drawn << 17;
    return drawn;
}

EXPORTED CUresult cuGraphCreate(CUgraph *out, unsigned flags)
{
    if (driver_ready() != CUDA_SUCCESS) return driver_ready();
    if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
    *out = calloc(1, sizeof **out);
    driver_count(COUNT_TAKEN);
    return CUDA_SUCCESS;
}

static CUresult add(CUgraphNode *out, CUgraph graph, const CUgraphNode *before,
                    size_t count, const struct work *work)
{
    CUgraphNode node;

    if (driver_ready() != CUDA_SUCCESS) return driver_ready();
    if (graph == NULL || count > EDGES_MOST) return CUDA_ERROR_INVALID_VALUE;
    node = calloc(1, sizeof *node);
    node->graph = graph;
    node->number = graph->count;
    node->work = *work;
    node->work.inside = true;
    for (size_t i = 0; i < count; i++) {
        if (before[i] == NULL || before[i]->graph != graph)
            return CUDA_ERROR_INVALID_VALUE;
        node->edges[node->edge_count++] = before[i]->number;
    }
    graph->nodes = realloc(graph->nodes,
                           (size_t)(graph->count + 1) * sizeof *graph->nodes);
    graph->nodes[graph->count++] = *out = node;
    return CUDA_SUCCESS;
}

static CUresult kernel_work(const CUDA_KERNEL_NODE_PARAMS *p, struct work *w)
{
    const unsigned grid[] = {p->gridDimX, p->gridDimY, p->gridDimZ};
    const unsigned block[] = {p->blockDimX, p->blockDimY, p->blockDimZ};
    const void *call;
    const CUresult result = launch_read(&(struct started){
        p->func, grid, block, p->sharedMemBytes, p->kernelParams, p->extra},
        &call);

    if (result != CUDA_SUCCESS) return result;
    *w = (struct work){.what = LAUNCH, .function = p->func,
                       .blocks = p->gridDimX, .inside = true,
                       .call = driver_keep(call, p->func->bytes),
                       .call_bytes = p->func->bytes};
    return CUDA_SUCCESS;
}

EXPORTED CUresult cuGraphAddKernelNode_v2(CUgraphNode *out, CUgraph graph,
                                          const CUgraphNode *before,
                                          size_t count,
                                          const CUDA_KERNEL_NODE_PARAMS *p)
{
    struct work work;
    const CUresult result = kernel_work(p, &work);

    return result != CUDA_SUCCESS ? result
                                  : add(out, graph, before, count, &work);
}

/* A row, whose side on the host is pinned: what is not would be read when the
 * graph is started, and nobody here wants that. */
EXPORTED CUresult cuGraphAddMemcpyNode(CUgraphNode *out, CUgraph graph,
                                       const CUgraphNode *before, size_t count,
                                       const CUDA_MEMCPY3D *p,
                                       CUcontext context)
{
    const bool up = p->srcMemoryType == CU_MEMORYTYPE_HOST;
    const bool down = p->dstMemoryType == CU_MEMORYTYPE_HOST;
    const struct work work = {
        .what = COPY, .bytes = p->WidthInBytes, .rows = 1,
        .to = {.host = down,
               .at = down ? (uintptr_t)p->dstHost : p->dstDevice},
        .from = {.host = up, .at = up ? (uintptr_t)p->srcHost : p->srcDevice}};

    if (context == NULL) return CUDA_ERROR_INVALID_CONTEXT;
    if (p->Height != 1 || p->Depth != 1 || p->WidthInBytes == 0 ||
        (up && !memory_is_pinned(p->srcHost)) ||
        (down && !memory_is_pinned(p->dstHost)))
        return CUDA_ERROR_INVALID_VALUE;
    return add(out, graph, before, count, &work);
}

EXPORTED CUresult cuGraphAddMemsetNode(CUgraphNode *out, CUgraph graph,
                                       const CUgraphNode *before, size_t count,
                                       const CUDA_MEMSET_NODE_PARAMS *p,
                                       CUcontext context)
{
    if (context == NULL) return CUDA_ERROR_INVALID_CONTEXT;
    if (p->elementSize != 1 || p->height != 1 || p->width == 0 ||
        p->value > 255)
        return CUDA_ERROR_INVALID_VALUE;
    return add(out, graph, before, count, &(struct work){
        .what = FILL, .to = {.at = p->dst}, .byte = (int)p->value,
        .bytes = p->width});
}

static void copy_call(struct work *w)
{
    if (w->call != NULL) w->call = driver_keep(w->call, w->call_bytes);
}

static CUgraph graph_copy(const struct CUgraph_st *of)
{
    CUgraph copy = calloc(1, sizeof *copy);

    copy->count = of->count;
    copy->nodes = calloc((size_t)of->count + 1, sizeof *copy->nodes);
    for (int i = 0; i < of->count; i++) {
        CUgraphNode node = driver_keep(of->nodes[i], sizeof *node);

        copy_call(&node->work);
        if (node->inside != NULL) node->inside = graph_copy(node->inside);
        copy->nodes[i] = node;
    }
    return copy;
}

CUresult graph_capture(CUgraph graph, const struct work *work)
{
    const bool first = graph->count == 0;
    const CUgraphNode before = first ? NULL : graph->nodes[graph->count - 1];
    CUgraphNode node;

    if (work->from.kept != NULL || (work->what != LAUNCH &&
                                    work->what != CALL))
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    return add(&node, graph, first ? NULL : &before, !first, work);
}

/* The graph inside is a copy; nothing is a node too few. */
EXPORTED CUresult cuGraphAddChildGraphNode(CUgraphNode *out, CUgraph graph,
                                           const CUgraphNode *before,
                                           size_t count, CUgraph inside)
{
    CUresult result;

    if (inside == NULL || inside->count == 0) return CUDA_ERROR_INVALID_VALUE;
    result = add(out, graph, before, count, &(struct work){.what = CALL});
    if (result == CUDA_SUCCESS) (*out)->inside = graph_copy(inside);
    return result;
}

EXPORTED CUresult cuGraphInstantiateWithFlags(CUgraphExec *out, CUgraph graph,
                                              unsigned long long flags)
{
    CUgraphExec exec;

    if (driver_ready() != CUDA_SUCCESS) return driver_ready();
    if (graph == NULL || flags != 0) return CUDA_ERROR_INVALID_VALUE;
    driver_count(COUNT_TAKEN);
    *out = exec = calloc(1, sizeof *exec);
    exec->of = graph;
    exec->device = driver_device();
    exec->graph = graph_copy(graph);
    memory_foreign(exec->device, GRAPH_BYTES + graph->count * NODE_BYTES);
    return CUDA_SUCCESS;
}

/* The next start has it, and no start before. */
EXPORTED CUresult cuGraphExecKernelNodeSetParams_v2(
    CUgraphExec exec, CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS *p)
{
    struct work work, *old;
    CUresult result = driver_ready();

    if (result != CUDA_SUCCESS) return result;
    if (exec == NULL || node == NULL || node->graph != exec->of)
        return CUDA_ERROR_INVALID_VALUE;
    old = &exec->graph->nodes[node->number]->work;
    if (old->what != LAUNCH || p->func != old->function)
        return CUDA_ERROR_INVALID_VALUE;
    result = kernel_work(p, &work);
    if (result != CUDA_SUCCESS) return result;
    driver_count(COUNT_TOLD);
    free(old->call);
    *old = work;
    return CUDA_SUCCESS;
}

static bool may_begin(const struct CUgraphNode_st *node, const bool *given)
{
    if (given[node->number]) return false;
    for (int i = 0; i < node->edge_count; i++)
        if (!given[node->edges[i]]) return false;
    return true;
}

static CUresult graph_give(const struct CUgraph_st *graph, CUstream s)
{
    bool *given = calloc((size_t)graph->count + 1, sizeof *given);
    CUresult result = CUDA_SUCCESS;

    for (int left = graph->count; left > 0 && result == CUDA_SUCCESS; left--) {
        int at = (int)(draw() % (uint64_t)graph->count);

        while (!may_begin(graph->nodes[at], given))
            at = (at + 1) % graph->count;
        given[at] = true;
        struct work work = graph->nodes[at]->work;

        if (graph->nodes[at]->inside != NULL) {
            result = graph_give(graph->nodes[at]->inside, s);
            continue;
        }
        copy_call(&work);
        result = stream_give(s, &work, false);
    }
    free(given);
    return result;
}

EXPORTED CUresult cuGraphLaunch(CUgraphExec exec, CUstream s)
{
    const CUresult result = stream_usable(s);

    if (result != CUDA_SUCCESS) return result;
    if (exec == NULL || exec->device != driver_device())
        return CUDA_ERROR_INVALID_VALUE;
    driver_count(COUNT_CALLS);
    driver_count(COUNT_GRAPHS);
    return graph_give(exec->graph, s);
}

static void nodes_free(CUgraph graph)
{
    for (int i = 0; i < graph->count; i++) {
        free(graph->nodes[i]->work.call);
        if (graph->nodes[i]->inside != NULL)
            nodes_free(graph->nodes[i]->inside);
        free(graph->nodes[i]);
    }
    free(graph->nodes);
    free(graph);
}

EXPORTED CUresult cuGraphExecDestroy(CUgraphExec exec)
{
    memory_foreign(exec->device,
                   -(GRAPH_BYTES + exec->graph->count * NODE_BYTES));
    nodes_free(exec->graph);
    free(exec);
    return CUDA_SUCCESS;
}

EXPORTED CUresult cuGraphDestroy(CUgraph graph)
{
    nodes_free(graph);
    return CUDA_SUCCESS;
}
