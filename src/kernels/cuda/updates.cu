/* SPDX-License-Identifier: Apache-2.0 */
/* updates.cu - one step of optimizers that see each weight alone, and its copy
 * in 16 bits. reference/updates.c has the sources of the formulas. */
#include "kernels/cuda/words.h"
#include "kernels/element.h"
#include "kernels/fixed_point.h"
#include "kernels/turned.h"

CUDA_KERNEL(adamw)
{
    const int64_t i = BLOCK * BLOCK_THREADS + THREAD;

    if (i >= p->count) return;
    const float g = p->gradient[i] * p->scale;
    const float m = __builtin_fmaf(p->beta1, p->m[i], p->rest1 * g);
    const float v = __builtin_fmaf(p->beta2, p->v[i], p->rest2 * g * g);
    const float w = __builtin_fmaf(
        p->step, m / __builtin_fmaf(__builtin_sqrtf(v), p->root, p->epsilon),
        p->weight[i] * p->keep);

    p->m[i] = m;
    p->v[i] = v;
    p->weight[i] = w;
    if (p->copy) element_set(p->copy, p->copy_type, i, w);
}

CUDA_KERNEL(descend)
{
    const int64_t i = BLOCK * BLOCK_THREADS + THREAD;

    if (i >= p->count) return;
    const float w =
        __builtin_fmaf(p->rate, p->step[i], p->weight[i] * p->keep);

    p->weight[i] = w;
    if (p->copy) element_set(p->copy, p->copy_type, i, w);
}

CUDA_KERNEL(turned_moments)
{
    const int64_t i = BLOCK * BLOCK_THREADS + THREAD;

    if (i >= p->count) return;
    p->m[i] = (float)turned_first((double)p->m[i], (double)p->gradient[i],
                                  p->beta1);
    p->v[i] = (float)turned_second((double)p->v[i], (double)p->x[i],
                                   p->beta2);
}

CUDA_KERNEL(turned_step)
{
    const int64_t i = BLOCK * BLOCK_THREADS + THREAD;

    if (i >= p->count) return;
    p->x[i] = (float)turned_step((double)p->x[i], (double)p->v[i],
                                 p->correction1, p->correction2, p->epsilon);
}

/* Masters whose bits are in byte `at`. */
DEVICE void masters_of_byte(const struct masters_call *m, int64_t at,
                            int64_t *from, int64_t *to)
{
    *from = at * 8 - m->first;
    *to = *from + 8;
    if (*from < 0) *from = 0;
    if (*to > m->count) *to = m->count;
}

CUDA_KERNEL(masters_join)
{
    const struct masters_call *const m = &p->of;
    const int64_t at = BLOCK * BLOCK_THREADS + THREAD;
    int64_t from, to;

    masters_of_byte(m, at, &from, &to);
    const uint32_t ties = from < to ? m->ties[at] : 0;

    for (int64_t i = from; i < to; i++)
        m->values[i] = f32_of_bits(master_join(
            m->weights[i], m->lower[i], ties >> (m->first + i) % 8 & 1));
}

CUDA_KERNEL(masters_split)
{
    const struct masters_call *const m = &p->of;
    const int64_t at = BLOCK * BLOCK_THREADS + THREAD;
    uint32_t ties, own = 0, made = 0;
    int64_t from, to;

    masters_of_byte(m, at, &from, &to);
    for (int64_t i = from; i < to; i++) {
        const uint32_t bits = bits_of_f32(m->values[i]);
        const uint32_t weight = element_to_bf16(m->values[i]);
        const int bit = (int)((m->first + i) % 8);

        m->weights[i] = (uint16_t)weight;
        m->lower[i] = (uint16_t)bits;
        own |= 1u << bit;
        made |= master_tie(bits, weight) << bit;
    }
    if (from >= to) return;
    ties = own == 0xFFu ? 0 : m->ties[at];
    m->ties[at] = (unsigned char)((ties & ~own) | made);
}

CUDA_KERNEL(fixed_add)
{
    const int64_t i = BLOCK * BLOCK_THREADS + THREAD;
    const struct fixed_limits limits = fixed_limits_of(p->scale, p->spare);

    if (i >= p->count) return;
    const int64_t q = p->integers ? p->integers[i]
                                  : fixed_of(p->numbers[i], &limits);

    p->sums[i] = p->first ? q : fixed_sum(p->sums[i], q);
}

CUDA_KERNEL(fixed_read)
{
    const int64_t i = BLOCK * BLOCK_THREADS + THREAD;
    const struct fixed_limits limits = fixed_limits_of(p->scale, p->spare);

    if (i >= p->count) return;
    p->out[p->start + i] = fixed_back(p->sums[p->start + i], p->back, &limits);
}

/* The weight and states of one element. */
struct stepped { float w, a, b; };

DEVICE void step_element(const struct update_elements_call *c, float g,
                         struct stepped *x)
{
    float u;

    g = g * c->scale;
    switch (c->formula) {
    case UPDATE_ADAMW:
        x->a = __builtin_fmaf(c->beta1, x->a, c->rest1 * g);
        x->b = __builtin_fmaf(c->beta2, x->b, c->rest2 * g * g);
        u = __builtin_fmaf(__builtin_sqrtf(x->b), c->root, c->epsilon);
        x->w = __builtin_fmaf(c->step, x->a / u, x->w * c->keep);
        break;
    case UPDATE_LION:
        u = __builtin_fmaf(c->beta1, x->a, c->rest1 * g);
        u = u > 0 ? 1.0f : u < 0 ? -1.0f : 0.0f;
        x->w = __builtin_fmaf(c->lr, u, x->w * c->keep);
        x->a = __builtin_fmaf(c->beta2, x->a, c->rest2 * g);
        break;
    case UPDATE_SGD:
        g = __builtin_fmaf(c->decay, x->w, g);
        x->a = __builtin_fmaf(c->beta1, x->a, g);
        x->w = __builtin_fmaf(c->lr, __builtin_fmaf(c->beta1, x->a, g), x->w);
        break;
    case UPDATE_MOMENTUM:
        x->a = __builtin_fmaf(c->beta1, x->a, c->rest1 * g);
        x->w = c->share > 0 ? __builtin_fmaf(c->beta1, x->a, c->rest1 * g)
                            : x->a;
        break;
    case UPDATE_FREE:
        x->b = __builtin_fmaf(c->beta2, x->b, c->rest2 * g * g);
        u = g / __builtin_fmaf(__builtin_sqrtf(x->b), c->root, c->epsilon);
        u = __builtin_fmaf(c->decay, x->w, u);
        x->w = __builtin_fmaf(c->share, x->a - x->w, x->w);
        x->w = __builtin_fmaf(c->push, u, x->w);
        x->a = __builtin_fmaf(c->lr, u, x->a);
        break;
    case UPDATE_TOWARDS:
        x->w = __builtin_fmaf(c->share, x->a - x->w, x->w);
        break;
    case UPDATE_AVERAGE:
        u = c->share * (x->a - x->w);
        x->w = x->w + u;
        break;
    }
}

enum { OF_THREAD = UPDATE_BLOCK / BLOCK_THREADS };
struct update_shared { float largest[BLOCK_THREADS]; };

DEVICE float state_get(const struct update_elements_call *p, int state,
                       int64_t i)
{
    const struct update_state *from = &p->states[state];

    if (!from->data) return 0;
    if (from->dtype == DTYPE_U8)
        return p->codes->tables[state][((const unsigned char *)from->data)[i]] *
               from->scales[i / UPDATE_BLOCK];
    return element_get(from->data, from->dtype, i);
}

/* The largest of all threads. It is exact, so its order is free. */
DEVICE float largest_of(struct update_shared *s, float own)
{
    BARRIER; /* the maximum before was read */
    s->largest[THREAD] = own;
    for (int half = BLOCK_THREADS / 2; half > 0; half /= 2) {
        BARRIER;
        if (THREAD < half && s->largest[THREAD + half] > s->largest[THREAD])
            s->largest[THREAD] = s->largest[THREAD + half];
    }
    BARRIER;
    return s->largest[0];
}

/* values: those of this thread, BLOCK_THREADS apart from `first` on. */
DEVICE void state_put(const struct update_elements_call *p, int state,
                      struct update_shared *s, int64_t first,
                      const float *values)
{
    const struct update_state *to = &p->states[state];
    float largest = 0, inverse;

    if (!to->data) return;
    for (int k = 0; k < OF_THREAD && to->dtype != DTYPE_U8; k++) {
        const int64_t i = first + THREAD + k * BLOCK_THREADS;

        if (i < p->count) element_set(to->data, to->dtype, i, values[k]);
    }
    if (to->dtype != DTYPE_U8) return;
    for (int k = 0; k < OF_THREAD; k++) {
        const float size = values[k] < 0 ? -values[k] : values[k];

        largest = size > largest ? size : largest;
    }
    largest = largest_of(s, largest);
    inverse = code8_inverse(largest);
    if (THREAD == 0)
        to->scales[first / UPDATE_BLOCK] = inverse > 0 ? largest : 0;
    for (int k = 0; k < OF_THREAD; k++) {
        const int64_t i = first + THREAD + k * BLOCK_THREADS;
        const struct code8_bins *bins = &p->codes->bins[state];

        if (i < p->count)
            ((unsigned char *)to->data)[i] = (unsigned char)code8_of(
                bins, bins->bits, values[k], inverse);
    }
}

/* A block of threads has a block of elements. */
CUDA_KERNEL(update_elements)
{
    const int64_t first = BLOCK * UPDATE_BLOCK;
    float a[OF_THREAD], b[OF_THREAD];
    SHARED(struct update_shared, s);

    UNROLLED for (int k = 0; k < OF_THREAD; k++) {
        const int64_t i = first + THREAD + k * BLOCK_THREADS;
        const int64_t row = i / p->weight.width, column = i % p->weight.width;
        struct stepped x;

        a[k] = b[k] = 0;
        if (i >= p->count) continue;
        x.w = *view_at(p->weight, row, column);
        x.a = state_get(p, 0, i);
        x.b = state_get(p, 1, i);
        step_element(p, *view_at(p->gradient, row, column), &x);
        *view_at(p->weight, row, column) = x.w;
        a[k] = x.a;
        b[k] = x.b;
        if (p->copy.data)
            element_set(p->copy.data, p->copy.dtype,
                        row * p->copy.stride + column, x.w);
    }
    BARRIER; /* scales were read */
    state_put(p, 0, s, first, a);
    state_put(p, 1, s, first, b);
}

struct ties_shared { unsigned char ties[BLOCK_THREADS]; };

DEVICE float number_get(const struct update_state *state, int64_t i)
{
    return state->data ? element_get(state->data, state->dtype, i) : 0;
}

DEVICE void number_put(const struct update_state *state, int64_t i, float x)
{
    if (state->data) element_set(state->data, state->dtype, i, x);
}

/* update_elements of split masters, whose bits begin with a byte. */
CUDA_KERNEL(update_masters)
{
    const struct update_elements_call *const c = &p->of;
    const struct masters_call *const m = &p->masters;
    const int64_t i = BLOCK * BLOCK_THREADS + THREAD;
    const int64_t at = BLOCK * (BLOCK_THREADS / 8) + THREAD;
    uint32_t own = 0, made = 0;
    SHARED(struct ties_shared, s);

    if (i < c->count) {
        struct stepped x = {f32_of_bits(master_join(
                                m->weights[i], m->lower[i],
                                (uint32_t)m->ties[i / 8] >> i % 8 & 1)),
                            number_get(&c->states[0], i),
                            number_get(&c->states[1], i)};

        step_element(c, *view_at(c->gradient, 0, i), &x);
        const uint32_t bits = bits_of_f32(x.w);
        const uint32_t weight = element_to_bf16(x.w);

        m->weights[i] = (uint16_t)weight;
        m->lower[i] = (uint16_t)bits;
        s->ties[THREAD] = (unsigned char)master_tie(bits, weight);
        number_put(&c->states[0], i, x.a);
        number_put(&c->states[1], i, x.b);
    }
    BARRIER; /* the old bits were read */
    if (THREAD >= BLOCK_THREADS / 8 || at * 8 >= c->count) return;
    for (int bit = 0; bit < 8 && at * 8 + bit < c->count; bit++) {
        own |= 1u << bit;
        made |= (uint32_t)s->ties[THREAD * 8 + bit] << bit;
    }
    if (own != 0xFFu) made |= m->ties[at] & ~own;
    m->ties[at] = (unsigned char)made;
}
