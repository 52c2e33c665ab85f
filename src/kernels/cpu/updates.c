/* SPDX-License-Identifier: Apache-2.0 */
/* updates.c - one step of optimizers that see each weight alone.
 *
 * Threads take blocks of UPDATE_BLOCK elements. What is not float32, or not
 * adjacent, or not to be written where it was read, passes through a copy of
 * its block in the first cache; the loops over a block see arrays of float32
 * alone. */
#include <math.h>
#include <stdbool.h>
#include "base/range_sum.h"
#include "kernels/code8.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/stream_out.h"
#include "kernels/element.h"
#include "kernels/view.h"

struct update_constants {
    float scale, beta1, beta2, rest1, rest2, epsilon, root, step, keep, decay,
          lr, share, push;
};

struct update_job {
    const struct element_update *p;
    struct update_constants c;
    struct view weight, gradient, copy;
    struct view old;     /* weights, before */
    int64_t states_from; /* bytes, as p->from */
    int64_t count;
    float tables[UPDATE_STATES][CODE8_COUNT];
    struct code8_bins bins[UPDATE_STATES];
};

/* A block: arrays that the loops walk. */
struct update_block {
    float *w, *a, *b;
    const float *g;
    int64_t count;
    uint32_t sum; /* of what was written */
};

/* ---- formulas: kernels/reference/updates.c has the sources ---- */

static void step_adamw(const struct update_constants *k,
                       const struct update_block *x)
{
    const struct update_constants c = *k;
    float *w = x->w, *a = x->a, *b = x->b;
    const float *grad = x->g;

    SIMD for (int64_t i = 0; i < x->count; i++) {
        const float g = grad[i] * c.scale;
        const float m = __builtin_fmaf(c.beta1, a[i], c.rest1 * g);
        const float v = __builtin_fmaf(c.beta2, b[i], c.rest2 * g * g);

        a[i] = m;
        b[i] = v;
        w[i] = __builtin_fmaf(
            c.step, m / __builtin_fmaf(__builtin_sqrtf(v), c.root, c.epsilon),
            w[i] * c.keep);
    }
}

static void step_lion(const struct update_constants *k,
                      const struct update_block *x)
{
    const struct update_constants c = *k;
    float *w = x->w, *a = x->a;
    const float *grad = x->g;

    SIMD for (int64_t i = 0; i < x->count; i++) {
        const float g = grad[i] * c.scale;
        const float u = __builtin_fmaf(c.beta1, a[i], c.rest1 * g);
        const float sign = u > 0 ? 1.0f : u < 0 ? -1.0f : 0.0f;

        w[i] = __builtin_fmaf(c.lr, sign, w[i] * c.keep);
        a[i] = __builtin_fmaf(c.beta2, a[i], c.rest2 * g);
    }
}

static void step_sgd(const struct update_constants *k,
                     const struct update_block *x)
{
    const struct update_constants c = *k;
    float *w = x->w, *a = x->a;
    const float *grad = x->g;

    SIMD for (int64_t i = 0; i < x->count; i++) {
        const float g = __builtin_fmaf(c.decay, w[i], grad[i] * c.scale);
        const float m = __builtin_fmaf(c.beta1, a[i], g);

        a[i] = m;
        w[i] = __builtin_fmaf(c.lr, __builtin_fmaf(c.beta1, m, g), w[i]);
    }
}

static void step_momentum(const struct update_constants *k,
                          const struct update_block *x)
{
    const struct update_constants c = *k;
    const bool ahead = c.share > 0;
    float *w = x->w, *a = x->a;
    const float *grad = x->g;

    SIMD for (int64_t i = 0; i < x->count; i++) {
        const float g = grad[i] * c.scale;
        const float m = __builtin_fmaf(c.beta1, a[i], c.rest1 * g);

        a[i] = m;
        w[i] = ahead ? __builtin_fmaf(c.beta1, m, c.rest1 * g) : m;
    }
}

static void step_free(const struct update_constants *k,
                      const struct update_block *x)
{
    const struct update_constants c = *k;
    float *w = x->w, *a = x->a, *b = x->b;
    const float *grad = x->g;

    SIMD for (int64_t i = 0; i < x->count; i++) {
        const float g = grad[i] * c.scale, z = a[i];
        const float v = __builtin_fmaf(c.beta2, b[i], c.rest2 * g * g);
        float y = w[i], u;

        u = g / __builtin_fmaf(__builtin_sqrtf(v), c.root, c.epsilon);
        u = __builtin_fmaf(c.decay, y, u);
        y = __builtin_fmaf(c.share, z - y, y);
        b[i] = v;
        w[i] = __builtin_fmaf(c.push, u, y);
        a[i] = __builtin_fmaf(c.lr, u, z);
    }
}

static void step_towards(const struct update_constants *k,
                         const struct update_block *x)
{
    const float share = k->share;
    float *w = x->w, *a = x->a;

    SIMD for (int64_t i = 0; i < x->count; i++)
        w[i] = __builtin_fmaf(share, a[i] - w[i], w[i]);
}

static void step_average(const struct update_constants *k,
                         const struct update_block *x)
{
    const float share = k->share;
    float *w = x->w, *a = x->a;

    SIMD for (int64_t i = 0; i < x->count; i++)
        w[i] = w[i] + share * (a[i] - w[i]);
}

/* ---- 8 bits ---- */

static void codes_read(const float *table, const unsigned char *codes,
                       float scale, int64_t count, float *out)
{
    SIMD for (int64_t i = 0; i < count; i++) out[i] = table[codes[i]] * scale;
}

/* A maximum is exact, so its order is free. */
static float largest_of(const float *x, int64_t count)
{
    float lanes[LANES] = {0}, largest = 0;
    int64_t i = 0;

    for (; i + LANES <= count; i += LANES) {
        SIMD for (int j = 0; j < LANES; j++) {
            const float size = __builtin_fabsf(x[i + j]);

            lanes[j] = size > lanes[j] ? size : lanes[j];
        }
    }
    for (; i < count; i++) {
        const float size = __builtin_fabsf(x[i]);

        largest = size > largest ? size : largest;
    }
    for (int j = 0; j < LANES; j++)
        largest = lanes[j] > largest ? lanes[j] : largest;
    return largest;
}

ELEMENTARY void codes_of(const struct code8_bins *bins, int bits,
                         const float *x, float inverse, int64_t count,
                         unsigned char *codes)
{
    const struct code8_bins own = *bins;

    SIMD for (int64_t i = 0; i < count; i++)
        codes[i] = (unsigned char)code8_of(&own, bits, x[i], inverse);
}

static void codes_write(const struct update_job *job, int state,
                        int64_t first, const float *x, int64_t count)
{
    const struct element_state *to = &job->p->states[state];
    const struct code8_bins *bins = &job->bins[state];
    const float largest = largest_of(x, count);
    const float inverse = code8_inverse(largest);
    unsigned char *codes = (unsigned char *)to->values.data + first;

    to->scales[first / UPDATE_BLOCK] = inverse > 0 ? largest : 0;
    if (bins->bits == CODE8_SIGNED_BITS)
        codes_of(bins, CODE8_SIGNED_BITS, x, inverse, count, codes);
    else
        codes_of(bins, CODE8_BITS_MAX, x, inverse, count, codes);
}

/* ---- blocks ---- */

/* New values, away from the old ones, which nothing reads in this step. */
static void put(const struct update_job *job, struct update_block *x, void *at,
                const float *values, int64_t count)
{
    const size_t bytes = (size_t)count * sizeof *values;

    stream_out(at, values, bytes);
    if (job->p->sum != NULL)
        x->sum += range_sum_of(job->p->sum, at, values, bytes);
}

/* Adds up what was written in place. */
static void count_in(const struct update_job *job, struct update_block *x,
                     const void *at, size_t bytes)
{
    if (job->p->sum != NULL)
        x->sum += range_sum_of(job->p->sum, at, at, bytes);
}

/* Where the block of a state is float32: itself, or a copy that is filled. */
static float *state_open(const struct update_job *job, int state,
                         int64_t first, int64_t count, float *copy)
{
    const struct element_state *from = &job->p->states[state];
    const struct tensor *values = &from->values;
    const char *old = values->data;

    if (old == NULL) return NULL;
    old += job->states_from;
    if (values->dtype == DTYPE_F32) {
        if (job->states_from == 0) return (float *)values->data + first;
        memcpy(copy, old + first * (int64_t)sizeof *copy,
               (size_t)count * sizeof *copy);
    } else if (values->dtype == DTYPE_U8) {
        const char *scale = (const char *)&from->scales[first / UPDATE_BLOCK];

        codes_read(job->tables[state], (const unsigned char *)old + first,
                   *(const float *)(const void *)(scale + job->states_from),
                   count, copy);
    } else {
        SIMD for (int64_t i = 0; i < count; i++)
            copy[i] = element_get(old, DTYPE_BF16, first + i);
    }
    return copy;
}

static void state_close(const struct update_job *job, int state,
                        int64_t first, struct update_block *x,
                        const float *copy)
{
    const struct element_state *to = &job->p->states[state];
    const struct tensor *values = &to->values;
    char *at = values->data;

    if (at == NULL) return;
    at += first * dtype_bytes(values->dtype);
    if (values->dtype == DTYPE_F32) {
        if (job->states_from != 0) put(job, x, at, copy, x->count);
        return;
    }
    if (values->dtype == DTYPE_U8)
        codes_write(job, state, first, copy, x->count);
    else
        SIMD for (int64_t i = 0; i < x->count; i++)
            element_set(values->data, DTYPE_BF16, first + i, copy[i]);
    if (job->states_from == 0) return;
    count_in(job, x, at, (size_t)(x->count * dtype_bytes(values->dtype)));
    if (values->dtype == DTYPE_U8)
        count_in(job, x, &to->scales[first / UPDATE_BLOCK], sizeof(float));
}

/* Elements [first, first + count) of a view, as an array. */
static void view_read(const struct view *view, int64_t first, int64_t count,
                      float *array)
{
    int64_t row = first / view->width, column = first % view->width;

    while (count > 0) {
        const int64_t rest = view->width - column;
        const int64_t n = rest < count ? rest : count;

        memcpy(array, (float *)view->data + row * view->stride + column,
               (size_t)n * sizeof *array);
        array += n;
        count -= n;
        column = 0;
        row++;
    }
}

/* Back from the array: the new weights of a block. */
static void weights_write(const struct update_job *job, int64_t first,
                          struct update_block *x)
{
    const struct view *view = &job->weight;
    const float *array = x->w;

    for (int64_t done = 0; done < x->count;) {
        const int64_t column = (first + done) % view->width;
        const int64_t row = (first + done) / view->width;
        const int64_t rest = view->width - column, left = x->count - done;
        const int64_t n = rest < left ? rest : left;
        float *at = (float *)view->data + row * view->stride + column;

        if (job->p->from != 0) put(job, x, at, array + done, n);
        else memcpy(at, array + done, (size_t)n * sizeof *array);
        done += n;
    }
}

ELEMENTARY void round_copy(enum dtype dtype, const struct view *copy,
                           int64_t first, int64_t count, const float *w)
{
    int64_t row = first / copy->width, column = first % copy->width;

    while (count > 0) {
        const int64_t rest = copy->width - column;
        const int64_t n = rest < count ? rest : count;
        void *at = element_at(copy->data, dtype, row * copy->stride + column);

        SIMD for (int64_t i = 0; i < n; i++) element_set(at, dtype, i, w[i]);
        w += n;
        count -= n;
        column = 0;
        row++;
    }
}

/* The sum of what it writes. */
static uint32_t block_step(const struct update_job *job, int64_t first,
                           int64_t count)
{
    float copies[2 + UPDATE_STATES][UPDATE_BLOCK];
    const bool stays = job->weight.stride == job->weight.width &&
                       job->p->from == 0;
    struct update_block x = {
        (float *)job->weight.data + first,
        state_open(job, 0, first, count, copies[2]),
        state_open(job, 1, first, count, copies[3]),
        (float *)job->gradient.data + first, count, 0};

    if (!stays) {
        view_read(&job->old, first, count, copies[0]);
        x.w = copies[0];
    }
    if (job->gradient.stride != job->gradient.width) {
        view_read(&job->gradient, first, count, copies[1]);
        x.g = copies[1];
    }
    switch (job->p->formula) {
    case UPDATE_ADAMW: step_adamw(&job->c, &x); break;
    case UPDATE_LION: step_lion(&job->c, &x); break;
    case UPDATE_SGD: step_sgd(&job->c, &x); break;
    case UPDATE_MOMENTUM: step_momentum(&job->c, &x); break;
    case UPDATE_FREE: step_free(&job->c, &x); break;
    case UPDATE_TOWARDS: step_towards(&job->c, &x); break;
    case UPDATE_AVERAGE: step_average(&job->c, &x); break;
    }
    state_close(job, 0, first, &x, x.a);
    state_close(job, 1, first, &x, x.b);
    if (!stays) weights_write(job, first, &x);
    if (job->copy.data == NULL) return x.sum;
    ELEMENT_CHOOSE(job->copy.dtype, round_copy, &job->copy, first, count, x.w);
    return x.sum;
}

static void update_body(void *argument, int index, int count)
{
    const struct update_job *job = argument;
    int64_t first, last;
    uint32_t sum = 0;

    threads_split((job->count + UPDATE_BLOCK - 1) / UPDATE_BLOCK, 1, index,
                  count, &first, &last);
    for (int64_t i = first * UPDATE_BLOCK;
         i < last * UPDATE_BLOCK && i < job->count; i += UPDATE_BLOCK)
        sum += block_step(job, i,
                          job->count - i < UPDATE_BLOCK ? job->count - i
                                                        : UPDATE_BLOCK);
    if (job->p->from == 0) return;
    if (job->p->sum != NULL) range_sum_add(job->p->sum, sum);
    stream_end();
}

static void states_check(struct update_job *job)
{
    for (int k = 0; k < UPDATE_STATES; k++) {
        const struct element_state *state = &job->p->states[k];
        const struct tensor *values = &state->values;
        const int bits = state->positive ? CODE8_BITS_MAX : CODE8_SIGNED_BITS;

        if (values->data == NULL) continue;
        CHECK(tensor_count(values) == job->count);
        CHECK(values->dtype == DTYPE_F32 || values->dtype == DTYPE_BF16 ||
              values->dtype == DTYPE_U8);
        if (values->dtype != DTYPE_U8) continue;
        code8_table(bits, job->tables[k]);
        code8_bins(bits, &job->bins[k]);
    }
}

status CPU(update_elements)(struct stream *stream,
                            const struct element_update *p)
{
    struct update_job job = {
        .p = p,
        .c = {(float)p->scale, (float)p->beta1, (float)p->beta2,
              (float)(1 - p->beta1), (float)(1 - p->beta2),
              (float)p->epsilon, (float)(1 / sqrt(p->correction2)),
              (float)(-p->lr / p->correction1),
              (float)(1 - p->lr * p->decay), (float)p->decay, (float)-p->lr,
              (float)p->share,
              (float)(p->lr * (p->beta1 * (1 - p->share) - 1))},
        .weight = view_of(p->weight, DTYPE_F32),
        .gradient = view_of(p->gradient, DTYPE_F32)};

    job.old = job.weight;
    job.old.data = (char *)job.old.data + p->from;
    /* The state of these two is read, and stays. */
    job.states_from = p->formula == UPDATE_TOWARDS ||
                              p->formula == UPDATE_AVERAGE ? 0 : p->from;
    job.count = job.weight.rows * job.weight.width;
    CHECK(view_same_shape(job.weight, job.gradient));
    if (p->copy.data != NULL) {
        job.copy = view_any(p->copy);
        CHECK(view_same_shape(job.weight, job.copy) &&
              dtype_is_narrow(job.copy.dtype));
    }
    states_check(&job);
    cpu_run(stream, job.count, update_body, &job);
    return OK;
}
