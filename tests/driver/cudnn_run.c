/* SPDX-License-Identifier: Apache-2.0 */
/* cudnn_run.c - computes a graph of cuDNN's operations as their documentation
 * says it: one operation after the other, each result rounded to the numbers of
 * its tensor. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "cudnn.h"
#include "kernels/element.h"

typedef int64_t place[DIMENSIONS];

/* ---- what goes together ---- */

static bool is_same(const struct dnn_tensor *a, const struct dnn_tensor *b)
{
    return memcmp(a->of, b->of, sizeof a->of) == 0;
}

/* Each dimension of y, or 1. */
static bool is_spread(const struct dnn_tensor *x, const struct dnn_tensor *y)
{
    for (int i = 0; i < DIMENSIONS; i++)
        if (x->of[i] != y->of[i] && x->of[i] != 1) return false;
    return true;
}

static bool divides(int64_t part, int64_t all)
{
    return part > 0 && all % part == 0;
}

/* Heads of b that several heads of a read. */
static bool matmul_fits(const struct dnn_tensor *a, const struct dnn_tensor *b,
                        const struct dnn_tensor *c)
{
    return a->numbers == DNN_BFLOAT16 && b->numbers == DNN_BFLOAT16 &&
           (c->numbers == DNN_BFLOAT16 || c->numbers == DNN_FLOAT32) &&
           a->of[0] == c->of[0] && b->of[0] == c->of[0] &&
           divides(a->of[1], c->of[1]) && divides(b->of[1], c->of[1]) &&
           a->of[2] == c->of[2] && b->of[3] == c->of[3] &&
           a->of[3] == b->of[2];
}

static bool reduction_fits(const struct dnn_tensor *x,
                           const struct dnn_tensor *y)
{
    for (int i = 0; i < DIMENSIONS; i++)
        if (x->of[i] != y->of[i] && y->of[i] != 1 &&
            (i != 1 || !divides(y->of[i], x->of[i])))
            return false;
    return !is_same(x, y);
}

static bool pointwise_fits(const struct dnn_graph *g,
                           const struct dnn_operation *o)
{
    const struct dnn_tensor *x = &g->tensors[o->x], *y = &g->tensors[o->y];
    const struct dnn_tensor *b = o->b < 0 ? x : &g->tensors[o->b];
    const struct dnn_tensor *t = o->t < 0 ? x : &g->tensors[o->t];
    const bool says = y->numbers == DNN_BOOLEAN;

    if (!is_spread(x, y) || !is_spread(b, y) || !is_spread(t, y)) return false;
    switch (o->mode) {
    case DNN_EXP: case DNN_LOG: return o->b < 0 && o->t < 0 && !says;
    case DNN_INDEX:
        return o->b < 0 && y->numbers == DNN_INT32 && o->axis >= 0 &&
               o->axis < DIMENSIONS && o->compute == DNN_INT32;
    case DNN_SELECT: return o->b >= 0 && t->numbers == DNN_BOOLEAN && !says;
    case DNN_IS_GREATER: case DNN_IS_NOT_LESS:
        return o->b >= 0 && says && x->numbers == b->numbers;
    case DNN_ADD: case DNN_MULTIPLY: case DNN_DIVIDE: case DNN_SUBTRACT:
        return o->b >= 0 && o->t < 0 && !says;
    default: return false;
    }
}

static bool operation_fits(const struct dnn_graph *g,
                           const struct dnn_operation *o)
{
    if (o->x < 0 || o->y < 0) return false;
    const struct dnn_tensor *x = &g->tensors[o->x], *y = &g->tensors[o->y];

    switch (o->kind) {
    case DNN_OPERATION_MATMUL:
        return o->b >= 0 && matmul_fits(x, &g->tensors[o->b], y);
    case DNN_OPERATION_POINTWISE: return pointwise_fits(g, o);
    case DNN_OPERATION_REDUCTION:
        return (o->mode == DNN_SUM || o->mode == DNN_MAXIMUM) &&
               reduction_fits(x, y);
    case DNN_OPERATION_RESHAPE: return dnn_elements(x) == dnn_elements(y);
    default: return false;
    }
}

/* A virtual tensor is written before it is read, and once. */
bool dnn_graph_fits(const struct dnn_graph *g)
{
    bool is_set[TENSORS] = {false};

    for (int i = 0; i < g->count; i++) {
        const struct dnn_operation *o = &g->operations[i];
        const int reads[] = {o->x, o->b, o->t};

        for (int j = 0; j < 3; j++)
            if (reads[j] >= 0 && g->tensors[reads[j]].is_virtual &&
                !is_set[reads[j]])
                return false;
        if (!operation_fits(g, o) || is_set[o->y] ||
            g->tensors[o->y].by_value)
            return false;
        is_set[o->y] = true;
    }
    return g->count > 0;
}

/* ---- elements; a tensor's values lie densely in the order of its
 * dimensions ---- */

static int64_t dense_at(const struct dnn_tensor *t, const place at)
{
    int64_t index = 0;

    for (int i = 0; i < DIMENSIONS; i++)
        index = index * t->of[i] + (t->of[i] == 1 ? 0 : at[i]);
    return index;
}

static void place_of(const struct dnn_tensor *t, int64_t index, place at)
{
    for (int i = DIMENSIONS - 1; i >= 0; i--) {
        at[i] = index % t->of[i];
        index /= t->of[i];
    }
}

static int64_t memory_at(const struct dnn_tensor *t, const place at)
{
    int64_t index = 0;

    for (int i = 0; i < DIMENSIONS; i++) index += at[i] * t->stride[i];
    return index;
}

static float rounded(double value, int numbers)
{
    uint16_t half;

    switch (numbers) {
    case DNN_BFLOAT16:
        element_set(&half, DTYPE_BF16, 0, (float)value);
        return element_get(&half, DTYPE_BF16, 0);
    case DNN_BOOLEAN: return value != 0;
    default: return (float)value;
    }
}

static float load(const struct dnn_tensor *t, const void *memory, int64_t at)
{
    int32_t whole;

    switch (t->numbers) {
    case DNN_BFLOAT16: return element_get(memory, DTYPE_BF16, at);
    case DNN_INT32:
        memcpy(&whole, (const char *)memory + at * 4, sizeof whole);
        return (float)whole;
    default: return element_get(memory, DTYPE_F32, at);
    }
}

static void store(const struct dnn_tensor *t, void *memory, int64_t at,
                  float value)
{
    element_set(memory, t->numbers == DNN_BFLOAT16 ? DTYPE_BF16 : DTYPE_F32,
                at, value);
}

struct values { float *of[TENSORS]; };

static float *values_of(const struct dnn_graph *g, struct values *v,
                        void *const *memory, int tensor)
{
    const struct dnn_tensor *t = &g->tensors[tensor];
    const int64_t count = dnn_elements(t);
    place at;

    if (v->of[tensor] != NULL) return v->of[tensor];
    v->of[tensor] = malloc((size_t)count * sizeof(float));
    for (int64_t i = 0; i < count && !t->is_virtual; i++) {
        place_of(t, i, at);
        v->of[tensor][i] = load(t, memory[tensor], memory_at(t, at));
    }
    return v->of[tensor];
}

/* ---- operations ---- */

struct work {
    const struct dnn_tensor *x, *b, *t, *y;
    const float *of_x, *of_b, *of_t;
    int block;
};

static void head_of(const struct dnn_tensor *part, const struct dnn_tensor *all,
                    place at)
{
    at[1] = at[1] / (all->of[1] / part->of[1]);
}

/* To 14 bits, so that the order of a sum shows in bfloat16. */
static float coarse(double x)
{
    return f32_of_bits((bits_of_f32((float)x) + 0x200u) & ~UINT32_C(0x3ff));
}

/* In blocks, which are longer where a call has more heads: whoever gives it
 * heads that depend on the layout has bits that do. */
static double product(const struct work *w, const place at)
{
    const int64_t block = w->block + w->y->of[1];
    place a = {at[0], at[1], at[2], 0}, b = {at[0], at[1], 0, at[3]};
    float sum = 0;
    double part = 0;

    head_of(w->x, w->y, a);
    head_of(w->b, w->y, b);
    for (int64_t k = 0; k < w->x->of[3]; k++) {
        a[3] = b[2] = k;
        part += (double)w->of_x[dense_at(w->x, a)] *
                (double)w->of_b[dense_at(w->b, b)];
        if (k % block != block - 1) continue;
        sum = coarse((double)sum + part);
        part = 0;
    }
    return (double)coarse((double)sum + part);
}

static double reduction(const struct work *w, int mode, const place at)
{
    place first, count, from;
    double sum = mode == DNN_SUM ? 0 : -INFINITY;

    for (int i = 0; i < DIMENSIONS; i++) {
        count[i] = w->x->of[i] / w->y->of[i];
        first[i] = at[i] * count[i];
    }
    const struct dnn_tensor part = {
        .of = {count[0], count[1], count[2], count[3]}};

    for (int64_t i = 0; i < dnn_elements(&part); i++) {
        place_of(&part, i, from);
        for (int j = 0; j < DIMENSIONS; j++) from[j] += first[j];
        const double one = (double)w->of_x[dense_at(w->x, from)];

        sum = mode == DNN_SUM ? sum + one : one > sum ? one : sum;
    }
    return sum;
}

static double pointwise(const struct work *w, const struct dnn_operation *o,
                        const place at)
{
    const double x = (double)w->of_x[dense_at(w->x, at)];
    const double b = w->b ? (double)w->of_b[dense_at(w->b, at)] : 0;

    switch (o->mode) {
    case DNN_ADD: return x + b;
    case DNN_MULTIPLY: return x * b;
    case DNN_DIVIDE: return x / b;
    case DNN_SUBTRACT: return x - b;
    case DNN_EXP: return exp(x);
    case DNN_LOG: return log(x);
    case DNN_IS_GREATER: return x > b;
    case DNN_IS_NOT_LESS: return x >= b;
    case DNN_INDEX: return (double)at[o->axis];
    default: return w->of_t[dense_at(w->t, at)] != 0 ? x : b; /* select */
    }
}

/* Where an element would lie if nothing lay between elements, in the order of
 * the strides. */
static int64_t packed_at(const struct dnn_tensor *t, const place at)
{
    int64_t index = 0, each = 1;
    bool done[DIMENSIONS] = {false};

    for (int n = 0; n < DIMENSIONS; n++) {
        int least = -1;

        for (int i = DIMENSIONS - 1; i >= 0; i--)
            if (!done[i] && (least < 0 || t->stride[i] < t->stride[least]))
                least = i;
        done[least] = true;
        index += at[least] * each;
        each *= t->of[least];
    }
    return index;
}

static void reshape(const struct work *w, float *y)
{
    const int64_t count = dnn_elements(w->x);
    float *packed = malloc((size_t)count * sizeof *packed);
    place at;

    for (int64_t i = 0; i < count; i++) {
        place_of(w->x, i, at);
        packed[packed_at(w->x, at)] = w->of_x[i];
    }
    for (int64_t i = 0; i < count; i++) {
        place_of(w->y, i, at);
        y[i] = rounded((double)packed[packed_at(w->y, at)], w->y->numbers);
    }
    free(packed);
}

static void run_operation(const struct dnn_graph *g,
                          const struct dnn_operation *o, struct values *v,
                          void *const *memory, int block)
{
    float *y = values_of(g, v, memory, o->y);
    const struct work w = {
        .x = &g->tensors[o->x], .y = &g->tensors[o->y], .block = block,
        .b = o->b < 0 ? NULL : &g->tensors[o->b],
        .t = o->t < 0 ? NULL : &g->tensors[o->t],
        .of_x = values_of(g, v, memory, o->x),
        .of_b = o->b < 0 ? NULL : values_of(g, v, memory, o->b),
        .of_t = o->t < 0 ? NULL : values_of(g, v, memory, o->t)};
    place at;

    if (o->kind == DNN_OPERATION_RESHAPE) reshape(&w, y);
    for (int64_t i = 0; i < dnn_elements(w.y); i++) {
        place_of(w.y, i, at);
        if (o->kind == DNN_OPERATION_MATMUL)
            y[i] = rounded(product(&w, at), w.y->numbers);
        else if (o->kind == DNN_OPERATION_REDUCTION)
            y[i] = rounded(reduction(&w, o->mode, at), w.y->numbers);
        else if (o->kind == DNN_OPERATION_POINTWISE)
            y[i] = rounded(pointwise(&w, o, at), w.y->numbers);
        if (!w.y->is_virtual)
            store(w.y, memory[o->y], memory_at(w.y, at), y[i]);
    }
}

void dnn_graph_run(const struct dnn_graph *g, void *const *memory, int block)
{
    struct values v = {{NULL}};

    for (int i = 0; i < g->count; i++)
        run_operation(g, &g->operations[i], &v, memory, block);
    for (int i = 0; i < g->tensors_count; i++) free(v.of[i]);
}
