/* SPDX-License-Identifier: Apache-2.0 */
/* cudnn.c - a libcudnn.so.9 for GPUs of the driver for tests: descriptors,
 * three engines, and plans that compute a graph in a stream of that driver,
 * later (cudnn_run.c). One engine says that its sums have no order, one needs
 * room, one none. They have different bits, and so has each without the knob
 * that it is offered with. The order of offers depends on the strides of the
 * graph.
 *
 * It refuses what the library refuses: descriptors that are not finished, or
 * are changed afterwards; attributes of another type; shapes that do not go
 * together; memory that is not as aligned as was said, or not the GPU's; ids
 * that nobody gave memory; streams of another GPU.
 *
 *   DNN_VERSION       what it says of itself (91900)
 *   DNN_NONE=T        it has no engine for sequences of T tokens
 *   DNN_COUNTS=FILE   calls, and plans that were made, are added to the file
 *   DNN_DENSE=1       no engine takes heads with something between their rows
 *   DNN_FAILS=N       call N, from 1, fails
 *   DNN_CREATES=0     it does not work with any GPU
 *   DNN_KNOBS=N       the engine that needs room has N knobs (1)
 *   DNN_HOST=1        there is no GPU: memory is the host's, calls are done at
 *                     once */
#include "cudnn.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXPORTED __attribute__((visibility("default")))
enum { VERSION = 91900, ATTRIBUTES = 16, ROOM_ALIGNED = 256,
       BAD = DNN_BAD_PARAM, ENGINES = 3, KNOB_VALUE = 4 };
static const int64_t engines[ENGINES] = {9, 6, 1};

struct attribute {
    int name, type;
    int64_t count;
    char *values; /* owned */
};

struct descriptor {
    int kind;
    bool finished;
    struct attribute attributes[ATTRIBUTES];
    int count;
    int engine;               /* of an engine, its configuration, a plan */
    int knob;                 /* of a configuration, its knob, a plan */
    struct dnn_graph *graph;  /* owned, of a graph; borrowed by others */
};

static atomic_long calls, plans;

static struct {
    int (*give)(void *, void (*)(void *), const void *, size_t);
    void *(*place)(int, const void *, size_t);
    int (*now)(void);
    int (*of_stream)(void *);
} gpu;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void find(void)
{
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);

    if (library == NULL) return;
    *(void **)&gpu.give = dlsym(library, "lockstep_driver_do");
    *(void **)&gpu.place = dlsym(library, "lockstep_driver_place");
    *(void **)&gpu.now = dlsym(library, "lockstep_driver_now");
    *(void **)&gpu.of_stream = dlsym(library, "lockstep_driver_of_stream");
}

static long number(const char *name, long otherwise)
{
    const char *text = getenv(name);

    return text != NULL ? strtol(text, NULL, 10) : otherwise;
}

EXPORTED size_t cudnnGetVersion(void)
{
    return (size_t)number("DNN_VERSION", VERSION);
}

EXPORTED const char *cudnnGetErrorString(int answer)
{
    switch (answer) {
    case DNN_SUCCESS: return "CUDNN_STATUS_SUCCESS";
    case DNN_NOT_INITIALIZED: return "CUDNN_STATUS_NOT_INITIALIZED";
    case BAD: return "CUDNN_STATUS_BAD_PARAM";
    case DNN_NOT_SUPPORTED: return "CUDNN_STATUS_NOT_SUPPORTED";
    default: return "CUDNN_STATUS_EXECUTION_FAILED";
    }
}

struct handle { int device; void *stream; };

EXPORTED int cudnnCreate(void **out)
{
    struct handle *handle;

    pthread_once(&once, find);
    if (number("DNN_CREATES", 1) == 0) return DNN_NOT_INITIALIZED;
    if (number("DNN_HOST", 0) == 0 && (gpu.now == NULL || gpu.now() < 0))
        return DNN_NOT_INITIALIZED;
    handle = calloc(1, sizeof *handle);
    handle->device = number("DNN_HOST", 0) != 0 ? -1 : gpu.now();
    *out = handle;
    return DNN_SUCCESS;
}

EXPORTED int cudnnDestroy(void *handle)
{
    free(handle);
    return DNN_SUCCESS;
}

EXPORTED int cudnnSetStream(void *of, void *stream)
{
    struct handle *handle = of;

    if (handle->device >= 0 && gpu.of_stream(stream) != handle->device)
        return BAD;
    handle->stream = stream;
    return DNN_SUCCESS;
}

/* ---- descriptors ---- */

EXPORTED int cudnnBackendCreateDescriptor(int kind, dnn_descriptor *out)
{
    struct descriptor *d = calloc(1, sizeof *d);

    d->kind = kind;
    *out = d;
    return DNN_SUCCESS;
}

EXPORTED int cudnnBackendDestroyDescriptor(dnn_descriptor of)
{
    struct descriptor *d = of;

    for (int i = 0; i < d->count; i++) free(d->attributes[i].values);
    if (d->kind == DNN_GRAPH) free(d->graph);
    free(d);
    return DNN_SUCCESS;
}

static size_t bytes_of(int type)
{
    switch (type) {
    case DNN_OF_BOOLEAN: case DNN_OF_CHARACTER: return 1;
    case DNN_OF_NUMBERS: case DNN_OF_HEURISTIC: case DNN_OF_NOTE:
    case DNN_OF_POINTWISE: case DNN_OF_REDUCTION: return 4;
    default: return 8;
    }
}

static const struct { int name, type; } types[] = {
    {DNN_POINTWISE_MODE, DNN_OF_POINTWISE},
    {DNN_POINTWISE_COMPUTE, DNN_OF_NUMBERS},
    {DNN_POINTWISE_AXIS, DNN_OF_INT64},
    {DNN_HEURISTICS_MODE, DNN_OF_HEURISTIC},
    {DNN_HEURISTICS_GRAPH, DNN_OF_DESCRIPTOR},
    {DNN_HEURISTICS_PROPERTIES, DNN_OF_DESCRIPTOR},
    {DNN_ENGINE_GRAPH, DNN_OF_DESCRIPTOR}, {DNN_ENGINE_INDEX, DNN_OF_INT64},
    {DNN_CONFIG_ENGINE, DNN_OF_DESCRIPTOR},
    {DNN_CONFIG_KNOBS, DNN_OF_DESCRIPTOR},
    {DNN_PLAN_HANDLE, DNN_OF_HANDLE}, {DNN_PLAN_CONFIG, DNN_OF_DESCRIPTOR},
    {DNN_PLAN_PROPERTIES, DNN_OF_DESCRIPTOR},
    {DNN_POINTWISE_OF, DNN_OF_DESCRIPTOR},
    {DNN_POINTWISE_X, DNN_OF_DESCRIPTOR},
    {DNN_POINTWISE_B, DNN_OF_DESCRIPTOR},
    {DNN_POINTWISE_Y, DNN_OF_DESCRIPTOR},
    {DNN_POINTWISE_T, DNN_OF_DESCRIPTOR}, {DNN_GRAPH_HANDLE, DNN_OF_HANDLE},
    {DNN_GRAPH_OPERATIONS, DNN_OF_DESCRIPTOR},
    {DNN_TENSOR_ALIGNMENT, DNN_OF_INT64},
    {DNN_TENSOR_NUMBERS, DNN_OF_NUMBERS},
    {DNN_TENSOR_DIMENSIONS, DNN_OF_INT64},
    {DNN_TENSOR_STRIDES, DNN_OF_INT64}, {DNN_TENSOR_ID, DNN_OF_INT64},
    {DNN_TENSOR_VIRTUAL, DNN_OF_BOOLEAN},
    {DNN_TENSOR_BY_VALUE, DNN_OF_BOOLEAN}, {DNN_PACK_IDS, DNN_OF_INT64},
    {DNN_PACK_POINTERS, DNN_OF_POINTER}, {DNN_PACK_ROOM, DNN_OF_POINTER},
    {DNN_MATMUL_COMPUTE, DNN_OF_NUMBERS}, {DNN_MATMUL_A, DNN_OF_DESCRIPTOR},
    {DNN_MATMUL_B, DNN_OF_DESCRIPTOR}, {DNN_MATMUL_C, DNN_OF_DESCRIPTOR},
    {DNN_MATMUL_OF, DNN_OF_DESCRIPTOR},
    {DNN_REDUCTION_MODE, DNN_OF_REDUCTION},
    {DNN_REDUCTION_COMPUTE, DNN_OF_NUMBERS},
    {DNN_REDUCTION_X, DNN_OF_DESCRIPTOR},
    {DNN_REDUCTION_Y, DNN_OF_DESCRIPTOR},
    {DNN_REDUCTION_OF, DNN_OF_DESCRIPTOR}, {DNN_RESHAPE_X, DNN_OF_DESCRIPTOR},
    {DNN_RESHAPE_Y, DNN_OF_DESCRIPTOR}};

static bool is_typed(int name, int type)
{
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (types[i].name == name) return types[i].type == type;
    return false;
}

EXPORTED int cudnnBackendSetAttribute(dnn_descriptor at, int name, int type,
                                      int64_t count, const void *values)
{
    struct descriptor *d = at;
    struct attribute *a;
    const size_t bytes = (size_t)count * bytes_of(type);

    if (d->finished || count < 1 || values == NULL || !is_typed(name, type) ||
        d->count == ATTRIBUTES)
        return BAD;
    for (int64_t i = 0; type == DNN_OF_DESCRIPTOR && i < count; i++)
        if (!(*(struct descriptor *const *)((const char *)values + 8 * i))
                 ->finished)
            return BAD;
    a = &d->attributes[d->count++];
    *a = (struct attribute){name, type, count, malloc(bytes)};
    memcpy(a->values, values, bytes);
    return DNN_SUCCESS;
}

static const struct attribute *attribute(const struct descriptor *d, int name)
{
    for (int i = 0; i < d->count; i++)
        if (d->attributes[i].name == name) return &d->attributes[i];
    return NULL;
}

/* Whether it has `count` values, which are copied. */
static bool get(const struct descriptor *d, int name, int64_t count, void *out)
{
    const struct attribute *a = attribute(d, name);

    if (a == NULL || a->count != count) return false;
    memcpy(out, a->values, (size_t)count * bytes_of(a->type));
    return true;
}

static struct descriptor *part(const struct descriptor *d, int name, int kind)
{
    struct descriptor *of = NULL;

    return get(d, name, 1, &of) && of->kind == kind ? of : NULL;
}

static bool read_tensor(const struct descriptor *d, struct dnn_tensor *t)
{
    char is_virtual = 0, by_value = 0;

    if (!get(d, DNN_TENSOR_NUMBERS, 1, &t->numbers) ||
        !get(d, DNN_TENSOR_DIMENSIONS, DIMENSIONS, t->of) ||
        !get(d, DNN_TENSOR_STRIDES, DIMENSIONS, t->stride) ||
        !get(d, DNN_TENSOR_ID, 1, &t->id) ||
        !get(d, DNN_TENSOR_ALIGNMENT, 1, &t->aligned))
        return false;
    (void)get(d, DNN_TENSOR_VIRTUAL, 1, &is_virtual);
    (void)get(d, DNN_TENSOR_BY_VALUE, 1, &by_value);
    t->is_virtual = is_virtual != 0;
    t->by_value = by_value != 0;
    for (int i = 0; i < DIMENSIONS; i++)
        if (t->of[i] < 1 || t->stride[i] < 1) return false;
    return !t->by_value || dnn_elements(t) == 1;
}

/* ---- graphs ---- */

/* Its number in the graph; -2: the id is that of another tensor, or there is no
 * room. */
static int tensor_of(struct dnn_graph *g, const struct descriptor *d, int name)
{
    const struct descriptor *of = part(d, name, DNN_TENSOR);
    struct dnn_tensor t;

    if (of == NULL) return -1;
    memset(&t, 0, sizeof t);
    if (!read_tensor(of, &t)) return -2;
    for (int i = 0; i < g->tensors_count; i++)
        if (g->tensors[i].id == t.id)
            return memcmp(&g->tensors[i], &t, sizeof t) == 0 ? i : -2;
    if (g->tensors_count == TENSORS) return -2;
    g->tensors[g->tensors_count] = t;
    return g->tensors_count++;
}

/* How an operation is done; and the names of its tensors, in the order x, b, t,
 * y. */
static const struct about {
    int kind, of, of_kind, mode, compute, tensors[4];
} abouts[] = {
    {DNN_OPERATION_MATMUL, DNN_MATMUL_OF, DNN_MATMUL, -1, DNN_MATMUL_COMPUTE,
     {DNN_MATMUL_A, DNN_MATMUL_B, -1, DNN_MATMUL_C}},
    {DNN_OPERATION_POINTWISE, DNN_POINTWISE_OF, DNN_POINTWISE,
     DNN_POINTWISE_MODE, DNN_POINTWISE_COMPUTE,
     {DNN_POINTWISE_X, DNN_POINTWISE_B, DNN_POINTWISE_T, DNN_POINTWISE_Y}},
    {DNN_OPERATION_REDUCTION, DNN_REDUCTION_OF, DNN_REDUCTION,
     DNN_REDUCTION_MODE, DNN_REDUCTION_COMPUTE,
     {DNN_REDUCTION_X, -1, -1, DNN_REDUCTION_Y}},
    {DNN_OPERATION_RESHAPE, -1, -1, -1, -1,
     {DNN_RESHAPE_X, -1, -1, DNN_RESHAPE_Y}}};

static bool read_operation(struct dnn_graph *g, const struct descriptor *d,
                           struct dnn_operation *o)
{
    const struct about *about = NULL;

    for (size_t i = 0; i < sizeof abouts / sizeof *abouts; i++)
        if (abouts[i].kind == d->kind) about = &abouts[i];
    if (about == NULL) return false;
    o->kind = d->kind;
    if (about->of >= 0) {
        const struct descriptor *of = part(d, about->of, about->of_kind);

        if (of == NULL || !get(of, about->compute, 1, &o->compute) ||
            (about->mode >= 0 && !get(of, about->mode, 1, &o->mode)))
            return false;
        (void)get(of, DNN_POINTWISE_AXIS, 1, &o->axis);
    }
    o->x = tensor_of(g, d, about->tensors[0]);
    o->b = tensor_of(g, d, about->tensors[1]);
    o->t = tensor_of(g, d, about->tensors[2]);
    o->y = tensor_of(g, d, about->tensors[3]);
    return o->x >= 0 && o->b >= -1 && o->t >= -1 && o->y >= 0;
}

static int finish_graph(struct descriptor *d)
{
    const struct attribute *a = attribute(d, DNN_GRAPH_OPERATIONS);
    struct dnn_graph *g = calloc(1, sizeof *g);

    d->graph = g;
    if (a == NULL || a->count > OPERATIONS) return BAD;
    for (int64_t i = 0; i < a->count; i++) {
        const struct descriptor *of;

        memcpy(&of, a->values + 8 * i, sizeof of);
        if (!read_operation(g, of, &g->operations[g->count++])) return BAD;
    }
    return dnn_graph_fits(g) ? DNN_SUCCESS : BAD;
}

static bool is_product_of_memory(const struct dnn_graph *g,
                                 const struct dnn_operation *o)
{
    return o->kind == DNN_OPERATION_MATMUL && !g->tensors[o->x].is_virtual;
}

/* Whether the library has products of such heads. */
static bool is_supported(const struct dnn_graph *g)
{
    const long none = number("DNN_NONE", -1);

    for (int i = 0; i < g->count; i++) {
        const struct dnn_operation *o = &g->operations[i];
        const struct dnn_tensor *a = &g->tensors[o->x];

        if (!is_product_of_memory(g, o)) continue;
        if (a->of[3] % 8 != 0 || a->of[3] > 256 || a->of[2] == none)
            return false;
    }
    return true;
}

/* How much longer rows of queries are than their heads. */
static int64_t spread(const struct dnn_graph *g)
{
    for (int i = 0; i < g->count; i++) {
        const struct dnn_tensor *a = &g->tensors[g->operations[i].x];

        if (is_product_of_memory(g, &g->operations[i]))
            return a->stride[2] / (a->of[1] * a->of[3]);
    }
    return 1;
}

/* Bytes of room of an engine: for scores, if a head's dq are summed. */
static int64_t room_of(const struct dnn_graph *g, int engine)
{
    int64_t most = 0;

    if (engine != 1) return 0;
    for (int i = 0; i < g->tensors_count; i++)
        if (g->tensors[i].is_virtual && g->tensors[i].numbers == DNN_BFLOAT16 &&
            2 * dnn_elements(&g->tensors[i]) > most)
            most = 2 * dnn_elements(&g->tensors[i]);
    return most;
}

static int finish_plan(struct descriptor *d)
{
    const struct descriptor *config = part(d, DNN_PLAN_CONFIG,
                                           DNN_ENGINE_CONFIG);
    void *handle;

    if (config == NULL || config->graph == NULL) return BAD;
    if (!get(d, DNN_PLAN_HANDLE, 1, &handle)) return BAD;
    d->graph = config->graph;
    d->engine = config->engine;
    d->knob = config->knob;
    atomic_fetch_add(&plans, 1);
    return DNN_SUCCESS;
}

static int finish_engine(struct descriptor *d)
{
    const struct descriptor *of = part(d, DNN_ENGINE_GRAPH, DNN_GRAPH);
    int64_t asked;

    if (of == NULL || !get(d, DNN_ENGINE_INDEX, 1, &asked)) return BAD;
    d->graph = of->graph;
    for (d->engine = 0; engines[d->engine] != asked; d->engine++)
        if (d->engine == ENGINES - 1) return BAD;
    return is_supported(d->graph) ? DNN_SUCCESS : DNN_NOT_SUPPORTED;
}

static int finish_config(struct descriptor *d)
{
    const struct descriptor *engine = part(d, DNN_CONFIG_ENGINE, DNN_ENGINE);
    const struct descriptor *knob = part(d, DNN_CONFIG_KNOBS, DNN_KNOB);

    if (engine == NULL) return BAD;
    d->graph = engine->graph;
    d->engine = engine->engine;
    d->knob = knob != NULL ? knob->knob : 0;
    return spread(d->graph) > 1 && number("DNN_DENSE", 0) != 0
               ? DNN_NOT_SUPPORTED : DNN_SUCCESS;
}

static int finish_pack(const struct descriptor *d)
{
    const struct attribute *ids = attribute(d, DNN_PACK_IDS);
    const struct attribute *at = attribute(d, DNN_PACK_POINTERS);

    return ids != NULL && at != NULL && ids->count == at->count &&
                   attribute(d, DNN_PACK_ROOM) != NULL ? DNN_SUCCESS : BAD;
}

static int finish(struct descriptor *d)
{
    struct dnn_tensor t;
    int mode = 0;

    switch (d->kind) {
    case DNN_TENSOR: return read_tensor(d, &t) ? DNN_SUCCESS : BAD;
    case DNN_GRAPH: return finish_graph(d);
    case DNN_HEURISTICS:
        return part(d, DNN_HEURISTICS_GRAPH, DNN_GRAPH) != NULL &&
                       get(d, DNN_HEURISTICS_MODE, 1, &mode) &&
                       mode == DNN_HEURISTIC_A ? DNN_SUCCESS : BAD;
    case DNN_PLAN: return finish_plan(d);
    case DNN_ENGINE: return finish_engine(d);
    case DNN_ENGINE_CONFIG: return finish_config(d);
    case DNN_PACK: return finish_pack(d);
    default: return DNN_SUCCESS;
    }
}

EXPORTED int cudnnBackendFinalize(dnn_descriptor of)
{
    struct descriptor *d = of;
    const int answer = d->finished ? BAD : finish(d);

    d->finished = answer == DNN_SUCCESS;
    return answer;
}

static int get_results(const struct descriptor *d, int64_t most,
                       int64_t *count, dnn_descriptor *out)
{
    const struct descriptor *of = part(d, DNN_HEURISTICS_GRAPH, DNN_GRAPH);

    *count = 0;
    if (!is_supported(of->graph)) return DNN_SUCCESS;
    for (int i = 0; i < ENGINES && i < most; i++) {
        struct descriptor *config = out[i];

        if (config->kind != DNN_ENGINE_CONFIG) return BAD;
        config->graph = of->graph;
        config->engine = i > 0 && spread(of->graph) > 3 ? ENGINES - i : i;
        config->knob = KNOB_VALUE;
        config->finished = true;
        ++*count;
    }
    return DNN_SUCCESS;
}

static int get_engine(const struct descriptor *d, int64_t *count,
                      dnn_descriptor *out)
{
    struct descriptor *engine = *out;

    if (engine->kind != DNN_ENGINE) return BAD;
    engine->engine = d->engine;
    engine->finished = true;
    *count = 1;
    return DNN_SUCCESS;
}

/* All say the same; as many as were asked for are written, and there may be
 * more. */
static int get_knobs(const struct descriptor *d, int64_t most, int64_t *count,
                     dnn_descriptor *out)
{
    *count = d->engine == 1 ? number("DNN_KNOBS", 1) : 1;
    for (int64_t i = 0; i < *count && i < most; i++) {
        struct descriptor *knob = out[i];

        if (knob->kind != DNN_KNOB) return BAD;
        knob->knob = d->knob;
        knob->finished = true;
    }
    return DNN_SUCCESS;
}

EXPORTED int cudnnBackendGetAttribute(dnn_descriptor of, int name, int type,
                                      int64_t most, int64_t *count, void *out)
{
    const struct descriptor *d = of;
    int64_t one;

    if (!d->finished || most < 1) return BAD;
    if (d->kind == DNN_HEURISTICS && name == DNN_HEURISTICS_RESULTS &&
        type == DNN_OF_DESCRIPTOR)
        return get_results(d, most, count, out);
    if (d->kind == DNN_ENGINE_CONFIG && name == DNN_CONFIG_ENGINE &&
        type == DNN_OF_DESCRIPTOR)
        return get_engine(d, count, out);
    if (d->kind == DNN_ENGINE_CONFIG && name == DNN_CONFIG_KNOBS &&
        type == DNN_OF_DESCRIPTOR)
        return get_knobs(d, most, count, out);
    if (d->kind == DNN_ENGINE && name == DNN_ENGINE_NOTES &&
        type == DNN_OF_NOTE) {
        const int note = DNN_NOTE_UNORDERED;

        *count = d->engine == 0;
        memcpy(out, &note, sizeof note);
        return DNN_SUCCESS;
    }
    *count = 1;
    if (d->kind == DNN_ENGINE && name == DNN_ENGINE_INDEX)
        one = engines[d->engine];
    else if ((d->kind == DNN_PLAN && name == DNN_PLAN_ROOM) ||
             (d->kind == DNN_ENGINE_CONFIG && name == DNN_CONFIG_ROOM))
        one = room_of(d->graph, d->engine);
    else return BAD;
    memcpy(out, &one, sizeof one);
    return type == DNN_OF_INT64 ? DNN_SUCCESS : BAD;
}

/* ---- calls ---- */

/* Scalars are kept; all else is where kernels find it. */
struct call {
    const struct dnn_graph *graph;
    int block;               /* products that are added at once */
    void *at[TENSORS];
    float scalars[TENSORS];
    char *room;
    int64_t room_bytes;
};

static void run(void *argument)
{
    struct call *call = argument;

    for (int i = 0; i < call->graph->tensors_count; i++)
        if (call->graph->tensors[i].by_value) call->at[i] = &call->scalars[i];
    if (call->room_bytes > 0)
        memset(call->room, 0xff, (size_t)call->room_bytes);
    dnn_graph_run(call->graph, call->at, call->block);
}

static size_t span(const struct dnn_tensor *t)
{
    int64_t last = 0;

    for (int i = 0; i < DIMENSIONS; i++) last += (t->of[i] - 1) * t->stride[i];
    return (size_t)(last + 1) * (t->numbers == DNN_BFLOAT16 ? 2 : 4);
}

static void *pointer_of(const struct descriptor *pack, int64_t id)
{
    const struct attribute *ids = attribute(pack, DNN_PACK_IDS);
    const struct attribute *at = attribute(pack, DNN_PACK_POINTERS);
    int64_t one;
    void *found;

    for (int64_t i = 0; i < ids->count; i++) {
        memcpy(&one, ids->values + 8 * i, sizeof one);
        memcpy(&found, at->values + 8 * i, sizeof found);
        if (one == id) return found;
    }
    return NULL;
}

static void *placed(const struct handle *handle, void *at, size_t bytes)
{
    return handle->device < 0 ? at : gpu.place(handle->device, at, bytes);
}

static bool find_memory(const struct handle *handle,
                        const struct descriptor *pack, struct call *call)
{
    for (int i = 0; i < call->graph->tensors_count; i++) {
        const struct dnn_tensor *t = &call->graph->tensors[i];
        void *at = t->is_virtual ? NULL : pointer_of(pack, t->id);

        if (t->is_virtual) continue;
        if (at == NULL || (uintptr_t)at % (size_t)t->aligned != 0) return false;
        if (t->by_value) memcpy(&call->scalars[i], at, sizeof(float));
        else call->at[i] = placed(handle, at, span(t));
        if (!t->by_value && call->at[i] == NULL) return false;
    }
    return true;
}

EXPORTED int cudnnBackendExecute(void *of, dnn_descriptor of_plan,
                                 dnn_descriptor of_pack)
{
    const struct handle *handle = of;
    const struct descriptor *plan = of_plan, *pack = of_pack;
    struct call call = {.graph = plan->graph,
                        .block = 2 + plan->engine + plan->knob};
    void *room = NULL;

    if (plan->kind != DNN_PLAN || !plan->finished || pack->kind != DNN_PACK ||
        !pack->finished)
        return BAD;
    if (atomic_fetch_add(&calls, 1) + 1 == number("DNN_FAILS", -1))
        return DNN_FAILED;
    if (!find_memory(handle, pack, &call)) return BAD;
    call.room_bytes = room_of(plan->graph, plan->engine);
    (void)get(pack, DNN_PACK_ROOM, 1, &room);
    if (call.room_bytes > 0) {
        call.room = placed(handle, room, (size_t)call.room_bytes);
        if (call.room == NULL || (uintptr_t)room % ROOM_ALIGNED != 0)
            return BAD;
    }
    if (handle->device < 0) run(&call);
    else if (gpu.give(handle->stream, run, &call, sizeof call) != 0)
        return DNN_FAILED;
    return DNN_SUCCESS;
}

__attribute__((destructor)) static void say_counts(void)
{
    const char *path = getenv("DNN_COUNTS");
    FILE *file = path != NULL ? fopen(path, "a") : NULL;

    if (file == NULL) return;
    fprintf(file, "calls %ld plans %ld\n", atomic_load(&calls),
            atomic_load(&plans));
    fclose(file);
}
