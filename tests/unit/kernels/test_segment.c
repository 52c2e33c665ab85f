/* SPDX-License-Identifier: Apache-2.0 */
/* test_segment.c - mirrors src/kernels/cuda/plugin/segment.c: whatever is
 * gathered, the driver does what was asked for, in order, whether pieces or
 * graphs are started. The driver is one that notes what it does. Needs cuda.h
 * (tests/golden/cuda.sh has it). */
#if !__has_include(<cuda.h>)
#include <stdio.h>

int main(void)
{
    puts("there is no cuda.h: tests/golden/cuda.sh runs this test");
    return 77;
}
#else
#include "kernels/cuda/plugin/segment.c"

#include "tests/test.h"

enum what { LAUNCH, TO_DEVICE, TO_HOST, INSIDE, FILL, PRODUCT, ATTENTION };
/* A piece of work, and what tells it from others. No gaps: it is compared as
 * bytes. */
struct piece {
    uint64_t what;
    uint64_t to, from, bytes, read; /* read: a sum of what a kernel is told */
};
enum { PIECES_MOST = 8192, INSIDE_MOST = 64 };

struct CUfunc_st { int number; };
struct CUgraphNode_st { struct piece piece; CUgraph of; };
struct CUgraph_st { struct CUgraphNode_st *nodes[NODES_MOST]; int count; };
struct CUgraphExec_st {
    struct piece pieces[NODES_MOST];
    int count;
    CUgraph of;
};
struct CUstream_st { CUgraph captured; };

struct driver driver;
static struct {
    struct piece done[PIECES_MOST], asked[PIECES_MOST];
    int done_count, asked_count;
    int made, started, told, gone; /* graphs; nodes that were told */
    bool fails;                    /* the library */
} seen;

static struct CUfunc_st entries[CUDA_KERNEL_COUNT];
static CUfunction numbered[CUDA_KERNEL_COUNT];
static struct CUstream_st kernels;
static struct gpu gpu = {.functions = numbered,
                         .streams = {[GPU_KERNELS] = &kernels}};

/* ---- a driver ---- */

static uint64_t sum_of(const void *at, size_t bytes)
{
    uint64_t sum = 1469598103934665603u;

    for (size_t i = 0; i < bytes; i++)
        sum = (sum ^ ((const unsigned char *)at)[i]) * 1099511628211u;
    return sum;
}

static CUgraphNode node_new(CUgraph graph, struct piece piece)
{
    CUgraphNode node = calloc(1, sizeof *node);

    CHECK(graph->count < NODES_MOST);
    *node = (struct CUgraphNode_st){piece, graph};
    graph->nodes[graph->count++] = node;
    return node;
}

static void done(struct piece piece)
{
    CHECK(seen.done_count < PIECES_MOST);
    seen.done[seen.done_count++] = piece;
}

static CUresult give(CUstream stream, struct piece piece)
{
    if (stream->captured != NULL) node_new(stream->captured, piece);
    else done(piece);
    return CUDA_SUCCESS;
}

static struct piece launch_of(CUfunction function, unsigned blocks,
                              void **extra)
{
    CHECK(extra[0] == CU_LAUNCH_PARAM_BUFFER_POINTER);
    CHECK(extra[2] == CU_LAUNCH_PARAM_BUFFER_SIZE);
    const size_t bytes = *(const size_t *)extra[3];

    return (struct piece){LAUNCH, (uint64_t)function->number, blocks, bytes,
                          sum_of(extra[1], bytes)};
}

static CUresult launch(CUfunction function, unsigned x, unsigned y, unsigned z,
                       unsigned threads, unsigned threads_y,
                       unsigned threads_z, unsigned shared, CUstream stream,
                       void **parameters, void **extra)
{
    CHECK(y == 1 && z == 1 && threads == BLOCK_THREADS && threads_y == 1 &&
          threads_z == 1 && shared == 0 && parameters == NULL);
    return give(stream, launch_of(function, x, extra));
}

static CUresult to_device(CUdeviceptr to, const void *from, size_t bytes,
                          CUstream stream)
{
    return give(stream, (struct piece){TO_DEVICE, to, (uintptr_t)from, bytes,
                                       0});
}

static CUresult to_host(void *to, CUdeviceptr from, size_t bytes,
                        CUstream stream)
{
    return give(stream, (struct piece){TO_HOST, (uintptr_t)to, from, bytes,
                                       0});
}

static CUresult inside(CUdeviceptr to, CUdeviceptr from, size_t bytes,
                       CUstream stream)
{
    return give(stream, (struct piece){INSIDE, to, from, bytes, 0});
}

static CUresult fill(CUdeviceptr to, unsigned char byte, size_t bytes,
                     CUstream stream)
{
    return give(stream, (struct piece){FILL, to, byte, bytes, 0});
}

const char *products_give(struct gpu *of, const struct product_told *told,
                          CUstream stream)
{
    CHECK(of == &gpu);
    if (seen.fails) return "the library fails";
    give(stream, (struct piece){PRODUCT, (uintptr_t)told->product.c, 0, 0,
                                sum_of(told, sizeof *told)});
    return NULL;
}

const char *attention_give(struct gpu *of, const struct attention_told *told,
                           CUstream stream)
{
    CHECK(of == &gpu);
    if (seen.fails) return "the library fails";
    give(stream, (struct piece){ATTENTION, (uintptr_t)told->call.q, 0, 0,
                                sum_of(told, sizeof *told)});
    return NULL;
}

static CUresult graph_create(CUgraph *out, unsigned flags)
{
    CHECK(flags == 0);
    *out = calloc(1, sizeof **out);
    return CUDA_SUCCESS;
}

static CUresult graph_destroy(CUgraph graph)
{
    for (int i = 0; i < graph->count; i++) free(graph->nodes[i]);
    free(graph);
    return CUDA_SUCCESS;
}

/* Nodes are a chain: behind the one that was made before. */
static CUresult chain(CUgraphNode *out, CUgraph graph,
                      const CUgraphNode *before, size_t count,
                      struct piece piece)
{
    CHECK(count == (graph->count > 0 ? 1 : 0));
    CHECK(count == 0 || before[0] == graph->nodes[graph->count - 1]);
    *out = node_new(graph, piece);
    return CUDA_SUCCESS;
}

static CUresult add_launch(CUgraphNode *out, CUgraph graph,
                           const CUgraphNode *before, size_t count,
                           const CUDA_KERNEL_NODE_PARAMS *p)
{
    return chain(out, graph, before, count,
                 launch_of(p->func, p->gridDimX, p->extra));
}

static CUresult add_copied(CUgraphNode *out, CUgraph graph,
                           const CUgraphNode *before, size_t count,
                           const CUDA_MEMCPY3D *p, CUcontext context)
{
    const bool up = p->srcMemoryType == CU_MEMORYTYPE_HOST;
    const bool down = p->dstMemoryType == CU_MEMORYTYPE_HOST;

    (void)context;
    return chain(out, graph, before, count, (struct piece){
        up ? TO_DEVICE : down ? TO_HOST : INSIDE,
        down ? (uintptr_t)p->dstHost : p->dstDevice,
        up ? (uintptr_t)p->srcHost : p->srcDevice, p->WidthInBytes, 0});
}

static CUresult add_filled(CUgraphNode *out, CUgraph graph,
                           const CUgraphNode *before, size_t count,
                           const CUDA_MEMSET_NODE_PARAMS *p, CUcontext context)
{
    (void)context;
    return chain(out, graph, before, count,
                 (struct piece){FILL, p->dst, p->value, p->width, 0});
}

/* A graph that was captured has one piece here. */
static CUresult add_inside(CUgraphNode *out, CUgraph graph,
                           const CUgraphNode *before, size_t count,
                           CUgraph captured)
{
    CHECK(captured->count == 1);
    return chain(out, graph, before, count, captured->nodes[0]->piece);
}

static CUresult capture_begin(CUstream stream, CUstreamCaptureMode mode)
{
    CHECK(stream != &kernels && stream->captured == NULL);
    CHECK(mode == CU_STREAM_CAPTURE_MODE_RELAXED);
    return graph_create(&stream->captured, 0);
}

static CUresult capture_end(CUstream stream, CUgraph *out)
{
    *out = stream->captured;
    stream->captured = NULL;
    return CUDA_SUCCESS;
}

static CUresult instantiate(CUgraphExec *out, CUgraph graph,
                            unsigned long long flags)
{
    CHECK(flags == 0);
    *out = calloc(1, sizeof **out);
    (*out)->of = graph;
    (*out)->count = graph->count;
    for (int i = 0; i < graph->count; i++)
        (*out)->pieces[i] = graph->nodes[i]->piece;
    seen.made++;
    return CUDA_SUCCESS;
}

static CUresult exec_destroy(CUgraphExec exec)
{
    seen.gone++;
    free(exec);
    return CUDA_SUCCESS;
}

static CUresult set_params(CUgraphExec exec, CUgraphNode node,
                           const CUDA_KERNEL_NODE_PARAMS *p)
{
    const struct piece piece = launch_of(p->func, p->gridDimX, p->extra);

    CHECK(node->of == exec->of);
    for (int i = 0; i < exec->count; i++) {
        if (exec->of->nodes[i] != node) continue;
        CHECK(exec->pieces[i].what == LAUNCH &&
              exec->pieces[i].to == piece.to);
        exec->pieces[i] = piece;
        seen.told++;
    }
    return CUDA_SUCCESS;
}

static CUresult start_exec(CUgraphExec exec, CUstream stream)
{
    CHECK(stream == &kernels);
    for (int i = 0; i < exec->count; i++) done(exec->pieces[i]);
    seen.started++;
    return CUDA_SUCCESS;
}

/* A graph that there is takes 1,000 bytes. */
static CUresult memory_info(size_t *unused, size_t *all)
{
    *all = 1 << 20;
    *unused = *all - 1000 * (size_t)(seen.made - seen.gone);
    return CUDA_SUCCESS;
}

static CUresult enter(CUcontext context)
{
    CHECK(context == gpu.context);
    return CUDA_SUCCESS;
}

static CUresult stream_create(CUstream *out, unsigned flags)
{
    (void)flags;
    *out = calloc(1, sizeof **out);
    return CUDA_SUCCESS;
}

static CUresult stream_destroy(CUstream stream)
{
    CHECK(stream->captured == NULL);
    free(stream);
    return CUDA_SUCCESS;
}

static struct segments *begin(void)
{
    struct segments *s;

    memset(&seen, 0, sizeof seen);
    driver = (struct driver){
        .cuLaunchKernel_ = launch, .cuMemcpyHtoDAsync_ = to_device,
        .cuMemcpyDtoHAsync_ = to_host, .cuMemcpyDtoDAsync_ = inside,
        .cuMemsetD8Async_ = fill, .cuGraphCreate_ = graph_create,
        .cuGraphDestroy_ = graph_destroy, .cuGraphAddKernelNode_ = add_launch,
        .cuGraphAddMemcpyNode_ = add_copied,
        .cuGraphAddMemsetNode_ = add_filled,
        .cuGraphAddChildGraphNode_ = add_inside,
        .cuStreamBeginCapture_ = capture_begin,
        .cuStreamEndCapture_ = capture_end,
        .cuGraphInstantiateWithFlags_ = instantiate,
        .cuGraphExecDestroy_ = exec_destroy,
        .cuGraphExecKernelNodeSetParams_ = set_params,
        .cuGraphLaunch_ = start_exec, .cuCtxSetCurrent_ = enter,
        .cuMemGetInfo_ = memory_info,
        .cuStreamCreate_ = stream_create, .cuStreamDestroy_ = stream_destroy};
    for (int i = 0; i < CUDA_KERNEL_COUNT; i++) {
        entries[i].number = i;
        numbered[i] = &entries[i];
    }
    s = segments_new(&gpu);
    CHECK(s != NULL);
    return s;
}

/* ---- what is asked for ---- */

static void asked(struct piece piece)
{
    CHECK(seen.asked_count < PIECES_MOST);
    seen.asked[seen.asked_count++] = piece;
}

static void ask_kernel(struct segments *s, int kernel, int blocks,
                       const void *call, size_t bytes)
{
    asked((struct piece){LAUNCH, (uint64_t)kernel, (uint64_t)blocks, bytes,
                         sum_of(call, bytes)});
    CHECK(segment_kernel(s, &(struct gpu_launch){
        kernel, blocks, BLOCK_THREADS, call, bytes}) == CUDA_SUCCESS);
}

static void ask_copy(struct segments *s, enum gpu_way way, uintptr_t to,
                     uintptr_t from, size_t bytes)
{
    static const enum what whats[] = {[GPU_TO_DEVICE] = TO_DEVICE,
                                      [GPU_TO_HOST] = TO_HOST,
                                      [GPU_INSIDE] = INSIDE};

    asked((struct piece){whats[way], to, from, bytes, 0});
    CHECK(segment_copy(s, way, (void *)to, (void *)from, bytes) ==
          CUDA_SUCCESS);
}

static void ask_fill(struct segments *s, uintptr_t to, int byte, size_t bytes)
{
    asked((struct piece){FILL, to, (uint64_t)byte, bytes, 0});
    CHECK(segment_fill(s, (void *)to, byte, bytes) == CUDA_SUCCESS);
}

static struct product_told product_of(uintptr_t c)
{
    struct product_told told;

    memset(&told, 0, sizeof told);
    told.product.c = (void *)c;
    told.product.m = told.product.n = 8;
    return told;
}

static void ask_product(struct segments *s, uintptr_t c)
{
    const struct product_told told = product_of(c);

    asked((struct piece){PRODUCT, c, 0, 0, sum_of(&told, sizeof told)});
    CHECK(segment_product(s, &told) == CUDA_SUCCESS);
}

static void ask_attention(struct segments *s, uintptr_t q, uintptr_t k)
{
    struct attention_told told;

    memset(&told, 0, sizeof told);
    told.call.q = (void *)q;
    told.call.k = (void *)k;
    asked((struct piece){ATTENTION, q, 0, 0, sum_of(&told, sizeof told)});
    CHECK(segment_attention(s, &told) == CUDA_SUCCESS);
}

/* The driver did that, and no more. */
static void ends(struct segments *s)
{
    CHECK(segment_flush(s) == CUDA_SUCCESS);
    CHECK(segment_count(s) == 0);
    EQUAL_INT(seen.done_count, seen.asked_count);
    for (int i = 0; i < seen.done_count; i++)
        EQUAL_BYTES(&seen.done[i], &seen.asked[i], sizeof seen.done[i]);
    seen.done_count = seen.asked_count = 0;
}

/* ---- tests ---- */

enum part { COPY_TO, COPY_FROM, COPY_BYTES, FILL_TO, FILL_BYTE, BLOCKS_OF,
            KERNEL, PRODUCT_C, KEYS, READ, PARTS };

/* All kinds of pieces; one of its parts is another if `part` is not PARTS. */
static void ask_all(struct segments *s, enum part part)
{
    const int call[] = {1, 2, part == READ ? 4 : 3};

    ask_kernel(s, part == KERNEL ? 5 : 3, part == BLOCKS_OF ? 9 : 7, call,
               sizeof call);
    ask_copy(s, GPU_INSIDE, part == COPY_TO ? 0x2000 : 0x1000,
             part == COPY_FROM ? 0x4000 : 0x3000,
             part == COPY_BYTES ? 128 : 64);
    ask_fill(s, part == FILL_TO ? 0x6000 : 0x5000, part == FILL_BYTE, 32);
    ask_product(s, part == PRODUCT_C ? 0x8000 : 0x7000);
    ask_attention(s, 0xd000, part == KEYS ? 0xe000 : 0xf000);
    ask_copy(s, GPU_TO_DEVICE, 0x9000, 0xa000, 16);
    ask_copy(s, GPU_TO_HOST, 0xb000, 0xc000, 16);
}

/* Whatever differs, an address alone, too: another graph, or pieces. */
TEST(a_graph_stands_for_its_own_work_alone)
{
    for (int part = 0; part < PARTS; part++) {
        struct segments *s = begin();

        for (int i = 0; i < 2; i++) {
            ask_all(s, PARTS);
            ends(s);
        }
        EQUAL_INT(seen.made, 1); /* the second time */
        EQUAL_INT(seen.started, 1);
        for (int i = 0; i < 3; i++) {
            ask_all(s, (enum part)part);
            ends(s);
        }
        ask_all(s, PARTS);
        ends(s);
        /* Where kernels read something else, it need not come twice. */
        EQUAL_INT(seen.made, 2);
        EQUAL_INT(seen.started, part == READ ? 5 : 4);
        EQUAL_INT(seen.told, 0);
        segments_free(s);
        EQUAL_INT(seen.gone, 2);
    }
}

/* Four graphs differ in what kernels read; then one of them is told, the one
 * that was not used for longest. */
TEST(the_fifth_of_a_kind_is_told)
{
    struct segments *s = begin();

    for (int round = 0; round < 3; round++)
        for (int call = 0; call < 6; call++) {
            for (int i = 0; i < 5; i++) ask_kernel(s, i, 1, &call, sizeof call);
            ask_product(s, 0x1000);
            ends(s);
        }
    struct gpu_graphs made;

    segment_graphs(s, &made);
    EQUAL_INT(seen.made, SAME_MOST);
    EQUAL_INT(made.count, SAME_MOST);
    EQUAL_INT(made.nodes, 6 * SAME_MOST);
    EQUAL_INT(made.bytes, 1000 * SAME_MOST);
    CHECK(seen.told > 0 && seen.told % 5 == 0);
    segments_free(s);
}

TEST(few_pieces_are_given_one_by_one)
{
    struct segments *s = begin();

    for (int i = 0; i < 4; i++) {
        ask_fill(s, 0x1000, 1, 8);
        ask_product(s, 0x2000);
        ends(s);
    }
    EQUAL_INT(seen.made, 0);
    segments_free(s);
}

/* Before them comes what is open; graphs are what lies between. */
TEST(long_copies_and_fills_are_no_nodes)
{
    struct segments *s = begin();

    for (int i = 0; i < 3; i++) {
        ask_all(s, PARTS);
        ask_copy(s, GPU_INSIDE, 0x1000, 0x3000, (size_t)NODE_BYTES + 1);
        ask_all(s, READ);
        ask_fill(s, 0x5000, 1, (size_t)3 << 30);
        ask_copy(s, GPU_TO_HOST, 0x1000, 0x3000, NODE_BYTES);
        ends(s);
    }
    EQUAL_INT(seen.made, 2);
    EQUAL_INT(seen.started, 5);
    segments_free(s);
}

/* Copies of what kernels are told come first; neighbours are one copy. */
TEST(kernels_are_told_first)
{
    static char there[512], host[512];
    struct segments *s = begin();

    CHECK(segment_fill(s, there, 1, 4) == CUDA_SUCCESS);
    CHECK(segment_tell(s, there, host, 100) == CUDA_SUCCESS);
    CHECK(segment_tell(s, there + 128, host + 128, 10) == CUDA_SUCCESS);
    CHECK(segment_tell(s, there + 256, host + 300, 10) == CUDA_SUCCESS);
    asked((struct piece){TO_DEVICE, (uintptr_t)there, (uintptr_t)host, 138,
                         0});
    asked((struct piece){TO_DEVICE, (uintptr_t)there + 256,
                         (uintptr_t)host + 300, 10, 0});
    asked((struct piece){FILL, (uintptr_t)there, 1, 4, 0});
    ends(s);
    segments_free(s);
}

TEST(more_than_there_is_room_for)
{
    struct segments *s = begin();

    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < 3 * NODES_MOST / 2; i++)
            ask_kernel(s, i % 7, 1, &i, sizeof i);
        ends(s);
    }
    EQUAL_INT(seen.made, 2); /* what fills the room, and the rest */
    for (int kind = 0; kind < GRAPHS_MOST + 20; kind++)
        for (int again = 0; again < 2; again++) {
            for (int i = 0; i < 5; i++) ask_fill(s, 0x1000, kind % 256, 8);
            ask_fill(s, 0x2000, kind / 256, 8);
            ends(s);
        }
    EQUAL_INT(seen.made - seen.gone, GRAPHS_MOST);
    segments_free(s);
    EQUAL_INT(seen.made, seen.gone);
}

/* Where the library fails, in a piece or while it is captured, that is said,
 * and what comes later is done. */
TEST(a_library_that_fails)
{
    struct segments *s = begin();

    for (int i = 0; i < 3; i++) {
        seen.fails = true;
        for (int j = 0; j < 5; j++) {
            const struct product_told told = product_of(0x1000);

            CHECK(segment_product(s, &told) == CUDA_SUCCESS);
        }
        CHECK(segment_flush(s) == (CUresult)DRIVER_SAID);
        EQUAL_INT(seen.made, 0);
    }
    seen.fails = false;
    for (int j = 0; j < 5; j++) ask_product(s, 0x1000);
    ends(s);
    EQUAL_INT(seen.made, 1);
    segments_free(s);
}

static uint32_t drawn;

static int draw(int many)
{
    drawn ^= drawn << 13, drawn ^= drawn >> 17, drawn ^= drawn << 5;
    return (int)(drawn % (uint32_t)many);
}

/* Pieces of a shape; what kernels read and addresses have a few values each. */
static void ask_drawn(struct segments *s, int shape, int address)
{
    const uint32_t later = drawn;
    int calls[16];

    for (int i = 0; i < ROWS(calls); i++) calls[i] = draw(3);
    const uint32_t after = drawn;

    drawn = 77 + (uint32_t)shape;
    for (int i = 0, count = 4 + draw(10); i < count; i++) {
        const uintptr_t at = 0x1000 * (uintptr_t)(1 + draw(5) + 8 * address);

        switch (draw(4)) {
        case 0: ask_fill(s, at, draw(2), 8); break;
        case 1: ask_copy(s, GPU_INSIDE, at, 0x100, 8); break;
        case 2: ask_product(s, at); break;
        default: ask_kernel(s, draw(3), 1 + draw(2), &calls[i],
                            sizeof calls[i]);
        }
    }
    drawn = after ^ later;
    if (drawn == 0) drawn = 1;
}

TEST(drawn_work_is_done_as_asked)
{
    struct segments *s = begin();

    drawn = 90001;
    for (int round = 0; round < 3000; round++) {
        ask_drawn(s, draw(8), draw(2));
        ends(s);
    }
    CHECK(seen.started > 2500 && seen.told > 100);
    segments_free(s);
    EQUAL_INT(seen.made, seen.gone);
}

TEST_MAIN(a_graph_stands_for_its_own_work_alone, the_fifth_of_a_kind_is_told,
          few_pieces_are_given_one_by_one,
          long_copies_and_fills_are_no_nodes, kernels_are_told_first,
          more_than_there_is_room_for, a_library_that_fails,
          drawn_work_is_done_as_asked)

#endif
