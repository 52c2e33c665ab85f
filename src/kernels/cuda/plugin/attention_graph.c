/* SPDX-License-Identifier: Apache-2.0 */
/* attention_graph.c - builds the graphs of attention.
 *
 * Forward, 14 operations, and 3 more where a query sees a window, and where it
 * sees its document alone:
 *
 *   scores = q kT scale          pairs that a query does not see: NEVER
 *   statistics = m + log(sum(exp(scores - m))), m the largest of a row
 *   out = (exp(scores - m) / sum) v
 *
 * Backward, 21 operations, and 2 more where query heads share a key-value head:
 *
 *   sums = sum(dout out)         of a row; the only one in memory
 *   p = exp(q kT scale - statistics)
 *   dv = pT dout                 ds = p (dout vT - sums) scale
 *   dk = dsT q                   dq = ds k
 *
 * Since the product writes dq itself, the library adds it up in one order; a
 * graph that adds dq in float32 first would be faster, and its bits chance. */
#include "kernels/cuda/plugin/attention_graph.h"

#include <string.h>

enum { NOTES = 16, ALIGNED = 16 };
static const float never = -0x1p30f, one = 1; /* never: exp of it is 0 */

enum id { ID_Q = 1, ID_K, ID_V, ID_OUT, ID_STATISTICS, ID_DOUT, ID_DQ, ID_DK,
          ID_DV, ID_SUMS, ID_SCALE, ID_NEVER, ID_ONE, ID_WINDOW, ID_DOCUMENTS,
          ID_VIRTUAL = 100 };

struct graph {
    const struct dnn *dnn;
    const struct attended_form *form;
    struct attention_plan *out; /* owns what is made */
    dnn_descriptor operations[ATTENTION_OPERATIONS];
    int count;
    int64_t next;               /* id of a virtual tensor */
    int answer;                 /* the first that is no success */
};

/* ---- descriptors; after the first error nothing happens ---- */

static dnn_descriptor make(struct graph *g, int kind)
{
    dnn_descriptor made = NULL;

    if (g->answer != DNN_SUCCESS) return NULL;
    if (g->out->count == ATTENTION_MADE) {
        g->answer = DNN_BAD_PARAM;
        return NULL;
    }
    g->answer = g->dnn->cudnnBackendCreateDescriptor_(kind, &made);
    if (g->answer != DNN_SUCCESS) return NULL;
    return g->out->made[g->out->count++] = made;
}

static void set(struct graph *g, dnn_descriptor at,
                int attribute, int type,
                const void *value)
{
    if (g->answer == DNN_SUCCESS)
        g->answer = g->dnn->cudnnBackendSetAttribute_(at, attribute, type, 1,
                                                      value);
}

static void set_all(struct graph *g, dnn_descriptor at,
                    int attribute, int count,
                    const int64_t *values)
{
    if (g->answer == DNN_SUCCESS)
        g->answer = g->dnn->cudnnBackendSetAttribute_(
            at, attribute, DNN_OF_INT64, count, values);
}

static void set_number(struct graph *g, dnn_descriptor at,
                       int attribute, int type,
                       int number)
{
    set(g, at, attribute, type, &number);
}

static void set_part(struct graph *g, dnn_descriptor at,
                     int attribute, dnn_descriptor part)
{
    if (part != NULL) set(g, at, attribute, DNN_OF_DESCRIPTOR, &part);
}

static void finish(struct graph *g, dnn_descriptor at)
{
    if (g->answer == DNN_SUCCESS)
        g->answer = g->dnn->cudnnBackendFinalize_(at);
}

/* ---- tensors, [1, heads, rows, columns] ---- */

enum lies { IN_MEMORY, VIRTUAL, BY_VALUE };

struct shape {
    int64_t of[4], stride[4];
};

static dnn_descriptor tensor(struct graph *g, int64_t id, enum lies lies,
                             int numbers,
                             const struct shape *shape)
{
    const dnn_descriptor t = make(g, DNN_TENSOR);
    const int64_t aligned = numbers == DNN_BFLOAT16 ? ALIGNED : 4;
    const char is_virtual = lies == VIRTUAL, by_value = lies == BY_VALUE;

    set_number(g, t, DNN_TENSOR_NUMBERS, DNN_OF_NUMBERS, numbers);
    set_all(g, t, DNN_TENSOR_DIMENSIONS, 4, shape->of);
    set_all(g, t, DNN_TENSOR_STRIDES, 4, shape->stride);
    set_all(g, t, DNN_TENSOR_ID, 1, &id);
    set_all(g, t, DNN_TENSOR_ALIGNMENT, 1, &aligned);
    set(g, t, DNN_TENSOR_VIRTUAL, DNN_OF_BOOLEAN, &is_virtual);
    set(g, t, DNN_TENSOR_BY_VALUE, DNN_OF_BOOLEAN, &by_value);
    finish(g, t);
    return t;
}

/* One row behind another. */
static struct shape dense(int64_t heads, int64_t rows, int64_t columns)
{
    return (struct shape){{1, heads, rows, columns},
                          {heads * rows * columns, rows * columns, columns,
                           1}};
}

static struct shape turned(struct shape s)
{
    return (struct shape){{s.of[0], s.of[1], s.of[3], s.of[2]},
                          {s.stride[0], s.stride[1], s.stride[3],
                           s.stride[2]}};
}

static dnn_descriptor value(struct graph *g, int64_t id,
                            int numbers)
{
    const struct shape shape = dense(1, 1, 1);

    return tensor(g, id, BY_VALUE, numbers, &shape);
}

static dnn_descriptor virtual_of(struct graph *g, int numbers,
                                 struct shape shape)
{
    return tensor(g, g->next++, VIRTUAL, numbers, &shape);
}

/* Heads of bfloat16 in memory: rows of a sequence, so many elements apart. */
static struct shape heads_of(const struct graph *g, int heads, int64_t row)
{
    const int64_t width = g->form->width, length = g->form->length;

    return (struct shape){{1, heads, length, width},
                          {length * row, width, row, 1}};
}

static dnn_descriptor heads(struct graph *g, enum id id, int count,
                            int64_t row)
{
    const struct shape shape = heads_of(g, count, row);

    return tensor(g, id, IN_MEMORY, DNN_BFLOAT16, &shape);
}

static dnn_descriptor heads_turned(struct graph *g, enum id id, int count,
                                   int64_t row)
{
    const struct shape shape = turned(heads_of(g, count, row));

    return tensor(g, id, IN_MEMORY, DNN_BFLOAT16, &shape);
}

static struct shape scores_shape(const struct graph *g)
{
    return dense(g->form->heads, g->form->length, g->form->length);
}

static struct shape rows_shape(const struct graph *g)
{
    return dense(g->form->heads, g->form->length, 1);
}

static dnn_descriptor statistics(struct graph *g)
{
    const int64_t row = g->form->statistics_row, length = g->form->length;
    const struct shape shape = {{1, g->form->heads, length, 1},
                                {length * row, 1, row, 1}};

    return tensor(g, ID_STATISTICS, IN_MEMORY, DNN_FLOAT32, &shape);
}

/* ---- operations ---- */

static void add(struct graph *g, dnn_descriptor operation)
{
    finish(g, operation);
    if (g->answer == DNN_SUCCESS && g->count == ATTENTION_OPERATIONS)
        g->answer = DNN_BAD_PARAM;
    if (g->answer == DNN_SUCCESS) g->operations[g->count++] = operation;
}

static void multiply(struct graph *g, dnn_descriptor a, dnn_descriptor b,
                     dnn_descriptor c)
{
    const dnn_descriptor how = make(g, DNN_MATMUL);

    set_number(g, how, DNN_MATMUL_COMPUTE, DNN_OF_NUMBERS, DNN_FLOAT32);
    finish(g, how);
    const dnn_descriptor operation = make(g, DNN_OPERATION_MATMUL);

    set_part(g, operation, DNN_MATMUL_A, a);
    set_part(g, operation, DNN_MATMUL_B, b);
    set_part(g, operation, DNN_MATMUL_C, c);
    set_part(g, operation, DNN_MATMUL_OF, how);
    add(g, operation);
}

struct pointwise {
    int mode;                /* enum dnn_pointwise */
    int compute;
    int64_t axis;            /* DNN_INDEX */
    dnn_descriptor x, b, t, y; /* b, t: NULL where there are fewer */
};

static void pointwise(struct graph *g, const struct pointwise *p)
{
    const dnn_descriptor how = make(g, DNN_POINTWISE);

    set_number(g, how, DNN_POINTWISE_MODE, DNN_OF_POINTWISE, p->mode);
    set_number(g, how, DNN_POINTWISE_COMPUTE, DNN_OF_NUMBERS, p->compute);
    if (p->mode == DNN_INDEX) set_all(g, how, DNN_POINTWISE_AXIS, 1, &p->axis);
    finish(g, how);
    const dnn_descriptor operation = make(g, DNN_OPERATION_POINTWISE);

    set_part(g, operation, DNN_POINTWISE_OF, how);
    set_part(g, operation, DNN_POINTWISE_X, p->x);
    set_part(g, operation, DNN_POINTWISE_B, p->b);
    set_part(g, operation, DNN_POINTWISE_T, p->t);
    set_part(g, operation, DNN_POINTWISE_Y, p->y);
    add(g, operation);
}

/* y = mode(x, b) in float32. */
static dnn_descriptor compute_to(struct graph *g, int mode,
                                 dnn_descriptor x, dnn_descriptor b,
                                 dnn_descriptor y)
{
    pointwise(g, &(struct pointwise){.mode = mode, .compute = DNN_FLOAT32,
                                     .x = x, .b = b, .y = y});
    return y;
}

static dnn_descriptor compute(struct graph *g, int mode,
                              dnn_descriptor x, dnn_descriptor b,
                              struct shape shape)
{
    return compute_to(g, mode, x, b, virtual_of(g, DNN_FLOAT32, shape));
}

/* Over columns; or over the query heads of a key-value head, whose results have
 * the shape of y. */
static dnn_descriptor reduce(struct graph *g, int mode,
                             dnn_descriptor x, dnn_descriptor y)
{
    const dnn_descriptor how = make(g, DNN_REDUCTION);

    set_number(g, how, DNN_REDUCTION_MODE, DNN_OF_REDUCTION, mode);
    set_number(g, how, DNN_REDUCTION_COMPUTE, DNN_OF_NUMBERS, DNN_FLOAT32);
    finish(g, how);
    const dnn_descriptor operation = make(g, DNN_OPERATION_REDUCTION);

    set_part(g, operation, DNN_REDUCTION_OF, how);
    set_part(g, operation, DNN_REDUCTION_X, x);
    set_part(g, operation, DNN_REDUCTION_Y, y);
    add(g, operation);
    return y;
}

static dnn_descriptor reduce_rows(struct graph *g, int mode,
                                  dnn_descriptor x)
{
    return reduce(g, mode, x, virtual_of(g, DNN_FLOAT32, rows_shape(g)));
}

static dnn_descriptor reshape(struct graph *g, dnn_descriptor x,
                              struct shape shape)
{
    const dnn_descriptor y = virtual_of(g, DNN_BFLOAT16, shape);
    const dnn_descriptor operation = make(g, DNN_OPERATION_RESHAPE);

    set_part(g, operation, DNN_RESHAPE_X, x);
    set_part(g, operation, DNN_RESHAPE_Y, y);
    add(g, operation);
    return y;
}

/* ---- what a query sees ---- */

static dnn_descriptor position(struct graph *g, dnn_descriptor scores,
                               int64_t axis)
{
    const dnn_descriptor y = virtual_of(g, DNN_INT32, scores_shape(g));

    pointwise(g, &(struct pointwise){.mode = DNN_INDEX, .compute = DNN_INT32,
                                     .axis = axis, .x = scores, .y = y});
    return y;
}

/* Scores where mode(a, b), elsewhere NEVER. */
static dnn_descriptor keep(struct graph *g, dnn_descriptor scores,
                           int mode, dnn_descriptor a,
                           dnn_descriptor b)
{
    const dnn_descriptor seen = virtual_of(g, DNN_BOOLEAN, scores_shape(g));
    const dnn_descriptor y = virtual_of(g, DNN_FLOAT32, scores_shape(g));

    pointwise(g, &(struct pointwise){.mode = mode, .compute = DNN_BOOLEAN,
                                     .x = a, .b = b, .y = seen});
    pointwise(g, &(struct pointwise){
        .mode = DNN_SELECT, .compute = DNN_FLOAT32, .x = scores,
        .b = value(g, ID_NEVER, DNN_FLOAT32), .t = seen, .y = y});
    return y;
}

static dnn_descriptor mask(struct graph *g, dnn_descriptor scores)
{
    const dnn_descriptor row = position(g, scores, 2);
    const dnn_descriptor column = position(g, scores, 3);

    scores = keep(g, scores, DNN_IS_NOT_LESS, row, column);
    if (g->form->window == 0) return scores;
    const dnn_descriptor past = virtual_of(g, DNN_INT32, scores_shape(g));

    pointwise(g, &(struct pointwise){
        .mode = DNN_ADD, .compute = DNN_INT32, .x = column,
        .b = value(g, ID_WINDOW, DNN_INT32), .y = past});
    return keep(g, scores, DNN_IS_GREATER, past, row);
}

/* Keys from the first position of the query's document on. */
static dnn_descriptor mask_documents(struct graph *g, dnn_descriptor scores)
{
    const struct shape rows = dense(1, g->form->length, 1);

    if (g->form->documents == 0) return scores;
    const dnn_descriptor column = position(g, scores, 3);

    return keep(g, scores, DNN_IS_NOT_LESS, column,
                tensor(g, ID_DOCUMENTS, IN_MEMORY, DNN_INT32, &rows));
}

/* ---- the two graphs ---- */

static dnn_descriptor scaled_scores(struct graph *g, dnn_descriptor q,
                                    dnn_descriptor k, dnn_descriptor scale)
{
    const dnn_descriptor scores = virtual_of(g, DNN_FLOAT32, scores_shape(g));

    multiply(g, q, k, scores);
    return mask_documents(g, compute(g, DNN_MULTIPLY, scores, scale,
                                     scores_shape(g)));
}

static void forward(struct graph *g)
{
    const struct attended_form *f = g->form;
    const dnn_descriptor q = heads(g, ID_Q, f->heads, f->q_row);
    const dnn_descriptor k = heads_turned(g, ID_K, f->kv_heads, f->k_row);
    const dnn_descriptor scale = value(g, ID_SCALE, DNN_FLOAT32);
    const dnn_descriptor scores = mask(g, scaled_scores(g, q, k, scale));
    const dnn_descriptor most = reduce_rows(g, DNN_MAXIMUM, scores);
    const dnn_descriptor less =
        compute(g, DNN_SUBTRACT, scores, most, scores_shape(g));
    const dnn_descriptor powers =
        compute(g, DNN_EXP, less, NULL, scores_shape(g));
    const dnn_descriptor sum = reduce_rows(g, DNN_SUM, powers);
    const dnn_descriptor log = compute(g, DNN_LOG, sum, NULL, rows_shape(g));

    compute_to(g, DNN_ADD, most, log, statistics(g));
    const dnn_descriptor p = compute_to(
        g, DNN_DIVIDE, powers, sum,
        virtual_of(g, DNN_BFLOAT16, scores_shape(g)));

    multiply(g, p, heads(g, ID_V, f->kv_heads, f->k_row),
             heads(g, ID_OUT, f->heads, f->out_row));
}

/* Rows of dout . out. */
static dnn_descriptor sums(struct graph *g, dnn_descriptor dout)
{
    const struct attended_form *f = g->form;
    const struct shape rows = rows_shape(g);
    const dnn_descriptor out = heads(g, ID_OUT, f->heads, f->out_row);
    const dnn_descriptor pairs = compute(g, DNN_MULTIPLY, dout, out,
                                         dense(f->heads, f->length, f->width));

    return compute_to(g, DNN_MULTIPLY, reduce_rows(g, DNN_SUM, pairs),
                      value(g, ID_ONE, DNN_FLOAT32),
                      tensor(g, ID_SUMS, IN_MEMORY, DNN_FLOAT32, &rows));
}

/* a, which is turned, times b: for each key of a key-value head. */
static void keys_gradient(struct graph *g, dnn_descriptor a, dnn_descriptor b,
                          enum id id)
{
    const struct attended_form *f = g->form;
    const dnn_descriptor to = heads(g, id, f->kv_heads, f->dk_row);

    if (f->heads == f->kv_heads) {
        multiply(g, a, b, to);
        return;
    }
    const dnn_descriptor each = virtual_of(
        g, DNN_BFLOAT16, dense(f->heads, f->length, f->width));

    multiply(g, a, b, each);
    reduce(g, DNN_SUM, each, to);
}

/* Keys that are turned back: as they lie in memory, rows outside of heads, but
 * with nothing between them. */
static struct shape turned_back(const struct graph *g)
{
    const int64_t heads = g->form->kv_heads, width = g->form->width;

    return (struct shape){{1, heads, g->form->length, width},
                          {g->form->length * heads * width, width,
                           heads * width, 1}};
}

/* dout vT: v lies turned. */
static dnn_descriptor weights_gradient(struct graph *g, dnn_descriptor dout)
{
    const struct attended_form *f = g->form;
    const dnn_descriptor scores = virtual_of(g, DNN_FLOAT32, scores_shape(g));

    multiply(g, dout, heads_turned(g, ID_V, f->kv_heads, f->k_row), scores);
    return scores;
}

static void backward(struct graph *g)
{
    const struct attended_form *f = g->form;
    const struct shape all = scores_shape(g), across = turned(all);
    const dnn_descriptor dout = heads(g, ID_DOUT, f->heads, f->dout_row);
    const dnn_descriptor row_sums = sums(g, dout);
    const dnn_descriptor q = heads(g, ID_Q, f->heads, f->q_row);
    const dnn_descriptor k = heads_turned(g, ID_K, f->kv_heads, f->k_row);
    const dnn_descriptor scale = value(g, ID_SCALE, DNN_FLOAT32);
    const dnn_descriptor scores = scaled_scores(g, q, k, scale);
    const dnn_descriptor less =
        compute(g, DNN_SUBTRACT, scores, statistics(g), all);
    const dnn_descriptor p = compute(g, DNN_EXP, mask(g, less), NULL, all);

    keys_gradient(g, reshape(g, p, across), dout, ID_DV);
    const dnn_descriptor dp = compute(
        g, DNN_SUBTRACT, weights_gradient(g, dout), row_sums, all);
    const dnn_descriptor ds = compute_to(
        g, DNN_MULTIPLY, compute(g, DNN_MULTIPLY, dp, p, all), scale,
        virtual_of(g, DNN_BFLOAT16, all));

    keys_gradient(g, reshape(g, ds, across), q, ID_DK);
    multiply(g, ds, reshape(g, k, turned_back(g)),
             heads(g, ID_DQ, f->heads, f->dq_row));
}

/* ---- plans ---- */

static dnn_descriptor graph_of(struct graph *g, const struct dnn_target *on)
{
    if (g->form->backward != 0) backward(g);
    else forward(g);
    const dnn_descriptor all = make(g, DNN_GRAPH);

    if (on->handle != NULL)
        set(g, all, DNN_GRAPH_HANDLE, DNN_OF_HANDLE, &on->handle);
    if (g->answer == DNN_SUCCESS)
        g->answer = g->dnn->cudnnBackendSetAttribute_(
            all, DNN_GRAPH_OPERATIONS, DNN_OF_DESCRIPTOR, g->count,
            g->operations);
    finish(g, all);
    g->out->operations = g->count;
    return all;
}

/* Configurations of engines, the best first. */
static int64_t offers(struct graph *g, const struct dnn_target *on,
                      dnn_descriptor configs[ATTENTION_OFFERS])
{
    const dnn_descriptor all = graph_of(g, on);
    const dnn_descriptor asked = make(g, DNN_HEURISTICS);
    int64_t count = 0;

    set_part(g, asked, DNN_HEURISTICS_GRAPH, all);
    set_number(g, asked, DNN_HEURISTICS_MODE, DNN_OF_HEURISTIC,
               DNN_HEURISTIC_A);
    if (on->handle == NULL)
        set_part(g, asked, DNN_HEURISTICS_PROPERTIES, on->properties);
    finish(g, asked);
    for (int i = 0; i < ATTENTION_OFFERS; i++)
        configs[i] = make(g, DNN_ENGINE_CONFIG);
    if (g->answer == DNN_SUCCESS)
        g->answer = g->dnn->cudnnBackendGetAttribute_(
            asked, DNN_HEURISTICS_RESULTS, DNN_OF_DESCRIPTOR,
            ATTENTION_OFFERS, &count, configs);
    if (g->answer != DNN_SUCCESS) return 0;
    return count < ATTENTION_OFFERS ? count : ATTENTION_OFFERS;
}

static int get(struct graph *g, dnn_descriptor of, int attribute,
               int type, void *out)
{
    int64_t count = 0;

    return g->dnn->cudnnBackendGetAttribute_(of, attribute, type, 1, &count,
                                             out);
}

/* Whether the library says that it adds in one order. */
static bool is_ordered(struct graph *g, dnn_descriptor engine)
{
    int notes[NOTES];
    int64_t count = 0;

    if (g->dnn->cudnnBackendGetAttribute_(engine, DNN_ENGINE_NOTES,
                                          DNN_OF_NOTE, NOTES, &count,
                                          notes) != DNN_SUCCESS)
        return false;
    for (int64_t i = 0; i < count && i < NOTES; i++)
        if (notes[i] == DNN_NOTE_UNORDERED) return false;
    return true;
}

static bool about_config(struct graph *g, dnn_descriptor config,
                         struct attention_offer *offer)
{
    dnn_descriptor engine = make(g, DNN_ENGINE);
    int64_t bytes = 0;

    *offer = (struct attention_offer){.answer = DNN_NOT_SUPPORTED};
    if (g->answer != DNN_SUCCESS ||
        get(g, config, DNN_CONFIG_ENGINE, DNN_OF_DESCRIPTOR, &engine) !=
            DNN_SUCCESS ||
        get(g, engine, DNN_ENGINE_INDEX, DNN_OF_INT64, &offer->engine) !=
            DNN_SUCCESS ||
        get(g, config, DNN_CONFIG_ROOM, DNN_OF_INT64, &bytes) !=
            DNN_SUCCESS || bytes < 0)
        return false;
    offer->room = (size_t)bytes;
    offer->is_ordered = is_ordered(g, engine);
    return true;
}

/* An error of the GPU, which another plan would have, too. */
static bool is_broken(int answer)
{
    return answer / 1000 == DNN_FAILED / 1000;
}

/* A plan of the configuration; one that the library cannot make is none. */
static void try_config(struct graph *g, const struct dnn_target *on,
                       dnn_descriptor config, size_t room)
{
    struct attention_offer *offer = &g->out->offers[g->out->offered];
    int64_t bytes = 0;

    if (!about_config(g, config, offer)) return;
    g->out->offered++;
    if (!offer->is_ordered || offer->room > room) return;
    const dnn_descriptor plan = make(g, DNN_PLAN);

    set_part(g, plan, DNN_PLAN_CONFIG, config);
    if (on->handle != NULL)
        set(g, plan, DNN_PLAN_HANDLE, DNN_OF_HANDLE, &on->handle);
    else set_part(g, plan, DNN_PLAN_PROPERTIES, on->properties);
    if (g->answer != DNN_SUCCESS) return;
    offer->answer = g->dnn->cudnnBackendFinalize_(plan);
    if (is_broken(offer->answer)) g->answer = offer->answer;
    if (offer->answer != DNN_SUCCESS) return;
    offer->answer = get(g, plan, DNN_PLAN_ROOM, DNN_OF_INT64, &bytes);
    if (offer->answer != DNN_SUCCESS || bytes < 0 || (uint64_t)bytes > room)
        return;
    offer->room = (size_t)bytes;
    g->out->plan = plan;
}

static bool is_unsupported(int answer)
{
    return answer / 1000 == DNN_NOT_SUPPORTED / 1000;
}

int attention_plan_make(const struct dnn *dnn, const struct dnn_target *on,
                        const struct attended_form *form, size_t room,
                        struct attention_plan *out)
{
    struct graph g = {.dnn = dnn, .form = form, .out = out,
                      .next = ID_VIRTUAL};
    dnn_descriptor configs[ATTENTION_OFFERS];

    *out = (struct attention_plan){.plan = NULL};
    const int64_t count = offers(&g, on, configs);

    for (int64_t i = 0;
         i < count && out->plan == NULL && g.answer == DNN_SUCCESS; i++)
        try_config(&g, on, configs[i], room);
    return is_unsupported(g.answer) ? DNN_SUCCESS : g.answer;
}

void attention_plan_free(const struct dnn *dnn, struct attention_plan *plan)
{
    while (plan->count > 0)
        dnn->cudnnBackendDestroyDescriptor_(plan->made[--plan->count]);
    plan->plan = NULL;
}

/* ---- a call ---- */

struct pack {
    int64_t ids[ID_VIRTUAL];
    void *at[ID_VIRTUAL];
    int count;
    int32_t window;
};

static void put(struct pack *pack, enum id id, const void *at)
{
    pack->ids[pack->count] = id;
    pack->at[pack->count++] = (void *)(uintptr_t)at;
}

static void put_all(struct pack *pack, const struct gpu_attended *call,
                    void *room)
{
    put(pack, ID_Q, call->q);
    put(pack, ID_K, call->k);
    put(pack, ID_V, call->v);
    put(pack, ID_OUT, call->out);
    put(pack, ID_STATISTICS, call->statistics);
    put(pack, ID_SCALE, &call->scale);
    put(pack, ID_NEVER, &never);
    pack->window = (int32_t)call->form.window;
    if (call->form.window > 0) put(pack, ID_WINDOW, &pack->window);
    if (call->form.documents != 0)
        put(pack, ID_DOCUMENTS, call->of_document);
    if (call->form.backward == 0) return;
    put(pack, ID_DOUT, call->dout);
    put(pack, ID_DQ, call->dq);
    put(pack, ID_DK, call->dk);
    put(pack, ID_DV, call->dv);
    put(pack, ID_SUMS, room);
    put(pack, ID_ONE, &one);
}

static int pack_make(const struct dnn *dnn, dnn_descriptor at,
                     const struct pack *pack, void *room)
{
    int answer = dnn->cudnnBackendSetAttribute_(
        at, DNN_PACK_IDS, DNN_OF_INT64, pack->count, pack->ids);

    if (answer == DNN_SUCCESS)
        answer = dnn->cudnnBackendSetAttribute_(
            at, DNN_PACK_POINTERS, DNN_OF_POINTER, pack->count, pack->at);
    if (answer == DNN_SUCCESS)
        answer = dnn->cudnnBackendSetAttribute_(at, DNN_PACK_ROOM,
                                                DNN_OF_POINTER, 1, &room);
    return answer == DNN_SUCCESS ? dnn->cudnnBackendFinalize_(at) : answer;
}

int attention_plan_run(const struct dnn *dnn, void *handle,
                       const struct attention_plan *plan,
                       const struct gpu_attended *call, void *room)
{
    struct pack pack = {.count = 0};
    dnn_descriptor at = NULL;
    int answer = dnn->cudnnBackendCreateDescriptor_(DNN_PACK, &at);

    if (answer != DNN_SUCCESS) return answer;
    put_all(&pack, call, room);
    answer = pack_make(dnn, at, &pack,
                       (char *)room + attended_sums(&call->form));
    if (answer == DNN_SUCCESS)
        answer = dnn->cudnnBackendExecute_(handle, plan->plan, at);
    dnn->cudnnBackendDestroyDescriptor_(at);
    return answer;
}
