/* SPDX-License-Identifier: Apache-2.0 */
/* updates.c - one step of optimizers that see each weight alone.
 *
 * Threads take blocks of UPDATE_BLOCK elements. What is not float32, or not
 * adjacent, passes through a copy of its block in the first cache; the loops
 * over a block see arrays of float32 alone. */
#include <math.h>
#include <stdbool.h>
#include "kernels/code8.h"
#include "kernels/cpu/cpu.h"
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
    int64_t count;
    float tables[UPDATE_STATES][CODE8_COUNT];
    struct code8_bins bins[UPDATE_STATES];
};

/* A block: arrays that the loops walk. */
struct update_block {
    float *w, *a, *b;
    const float *g;
    int64_t count;
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

/* Where the block of a state is float32: itself, or a copy that is filled. */
static float *state_open(const struct update_job *job, int state,
                         int64_t first, int64_t count, float *copy)
{
    const struct element_state *from = &job->p->states[state];
    const struct tensor *values = &from->values;

    if (values->data == NULL) return NULL;
    if (values->dtype == DTYPE_F32) return (float *)values->data + first;
    if (values->dtype == DTYPE_U8)
        codes_read(job->tables[state],
                   (const unsigned char *)values->data + first,
                   from->scales[first / UPDATE_BLOCK], count, copy);
    else
        SIMD for (int64_t i = 0; i < count; i++)
            copy[i] = element_get(values->data, DTYPE_BF16, first + i);
    return copy;
}

static void state_close(const struct update_job *job, int state,
                        int64_t first, int64_t count, const float *copy)
{
    const struct tensor *values = &job->p->states[state].values;

    if (values->data == NULL || values->dtype == DTYPE_F32) return;
    if (values->dtype == DTYPE_U8)
        codes_write(job, state, first, copy, count);
    else
        SIMD for (int64_t i = 0; i < count; i++)
            element_set(values->data, DTYPE_BF16, first + i, copy[i]);
}

/* Copies elements [first, first + count) of a view to an array, or back. */
static void view_copy(const struct view *view, int64_t first, int64_t count,
                      float *array, bool back)
{
    int64_t row = first / view->width, column = first % view->width;

    while (count > 0) {
        const int64_t rest = view->width - column;
        const int64_t n = rest < count ? rest : count;
        float *at = (float *)view->data + row * view->stride + column;

        memcpy(back ? at : array, back ? array : at,
               (size_t)n * sizeof *array);
        array += n;
        count -= n;
        column = 0;
        row++;
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

static void block_step(const struct update_job *job, int64_t first,
                       int64_t count)
{
    float copies[2 + UPDATE_STATES][UPDATE_BLOCK];
    const bool flat = job->weight.stride == job->weight.width;
    struct update_block x = {
        (float *)job->weight.data + first,
        state_open(job, 0, first, count, copies[2]),
        state_open(job, 1, first, count, copies[3]),
        (float *)job->gradient.data + first, count};

    if (!flat) {
        view_copy(&job->weight, first, count, copies[0], false);
        x.w = copies[0];
    }
    if (job->gradient.stride != job->gradient.width) {
        view_copy(&job->gradient, first, count, copies[1], false);
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
    state_close(job, 0, first, count, x.a);
    state_close(job, 1, first, count, x.b);
    if (!flat) view_copy(&job->weight, first, count, x.w, true);
    if (job->copy.data == NULL) return;
    ELEMENT_CHOOSE(job->copy.dtype, round_copy, &job->copy, first, count, x.w);
}

static void update_body(void *argument, int index, int count)
{
    const struct update_job *job = argument;
    int64_t first, last;

    threads_split((job->count + UPDATE_BLOCK - 1) / UPDATE_BLOCK, 1, index,
                  count, &first, &last);
    for (int64_t i = first * UPDATE_BLOCK;
         i < last * UPDATE_BLOCK && i < job->count; i += UPDATE_BLOCK)
        block_step(job, i,
                   job->count - i < UPDATE_BLOCK ? job->count - i
                                                 : UPDATE_BLOCK);
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
