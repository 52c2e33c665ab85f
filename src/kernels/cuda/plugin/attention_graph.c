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

enum { ALIGNED = 16, OPERATIONS = 40 };

/* The operations so far. */
struct graph {
    struct dnn_builder *builder;
    const struct attended_form *form;
    dnn_descriptor operations[OPERATIONS];
    int count;
    int64_t next;               /* id of a virtual tensor */
};

/* ---- descriptors ---- */

dnn_descriptor dnn_make(struct dnn_builder *b, int kind)
{
    dnn_descriptor made = NULL;

    if (b->answer != DNN_SUCCESS) return NULL;
    if (b->count == DNN_MADE) {
        b->answer = DNN_BAD_PARAM;
        return NULL;
    }
    b->answer = b->dnn->cudnnBackendCreateDescriptor_(kind, &made);
    if (b->answer != DNN_SUCCESS) return NULL;
    return b->made[b->count++] = made;
}

void dnn_set(struct dnn_builder *b, dnn_descriptor at, int attribute, int type,
             const void *value)
{
    dnn_set_all(b, at, attribute, &(struct dnn_values){type, 1, value});
}

void dnn_set_all(struct dnn_builder *b, dnn_descriptor at, int attribute,
                 const struct dnn_values *values)
{
    if (b->answer == DNN_SUCCESS)
        b->answer = b->dnn->cudnnBackendSetAttribute_(
            at, attribute, values->type, values->count, values->of);
}

void dnn_set_number(struct dnn_builder *b, dnn_descriptor at, int attribute,
                    int type, int number)
{
    dnn_set(b, at, attribute, type, &number);
}

void dnn_set_part(struct dnn_builder *b, dnn_descriptor at, int attribute,
                  dnn_descriptor part)
{
    if (part != NULL) dnn_set(b, at, attribute, DNN_OF_DESCRIPTOR, &part);
}

void dnn_finish(struct dnn_builder *b, dnn_descriptor at)
{
    if (b->answer == DNN_SUCCESS)
        b->answer = b->dnn->cudnnBackendFinalize_(at);
}

void dnn_free(struct dnn_builder *b)
{
    while (b->count > 0)
        b->dnn->cudnnBackendDestroyDescriptor_(b->made[--b->count]);
}

static dnn_descriptor make(struct graph *g, int kind)
{
    return dnn_make(g->builder, kind);
}

static void set(struct graph *g, dnn_descriptor at, int attribute, int type,
                const void *value)
{
    dnn_set(g->builder, at, attribute, type, value);
}

static void set_all(struct graph *g, dnn_descriptor at, int attribute,
                    int count, const int64_t *values)
{
    dnn_set_all(g->builder, at, attribute,
                &(struct dnn_values){DNN_OF_INT64, count, values});
}

static void set_number(struct graph *g, dnn_descriptor at, int attribute,
                       int type, int number)
{
    dnn_set_number(g->builder, at, attribute, type, number);
}

static void set_part(struct graph *g, dnn_descriptor at, int attribute,
                     dnn_descriptor part)
{
    dnn_set_part(g->builder, at, attribute, part);
}

static void finish(struct graph *g, dnn_descriptor at)
{
    dnn_finish(g->builder, at);
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

static dnn_descriptor heads(struct graph *g, enum attention_id id,
                            int count, int64_t row)
{
    const struct shape shape = heads_of(g, count, row);

    return tensor(g, id, IN_MEMORY, DNN_BFLOAT16, &shape);
}

static dnn_descriptor heads_turned(struct graph *g, enum attention_id id,
                                   int count, int64_t row)
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
    struct dnn_builder *const b = g->builder;

    finish(g, operation);
    if (b->answer == DNN_SUCCESS && g->count == OPERATIONS)
        b->answer = DNN_BAD_PARAM;
    if (b->answer == DNN_SUCCESS) g->operations[g->count++] = operation;
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
                          enum attention_id id)
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

dnn_descriptor attention_graph(struct dnn_builder *builder,
                               const struct attended_form *form,
                               const struct dnn_target *on, int *operations)
{
    struct graph g = {.builder = builder, .form = form, .next = ID_VIRTUAL};

    if (form->backward != 0) backward(&g);
    else forward(&g);
    const dnn_descriptor all = make(&g, DNN_GRAPH);

    if (on->handle != NULL)
        set(&g, all, DNN_GRAPH_HANDLE, DNN_OF_HANDLE, &on->handle);
    dnn_set_all(builder, all, DNN_GRAPH_OPERATIONS,
                &(struct dnn_values){DNN_OF_DESCRIPTOR, g.count,
                                     g.operations});
    finish(&g, all);
    *operations = g.count;
    return all;
}
