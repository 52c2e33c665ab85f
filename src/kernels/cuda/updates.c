/* SPDX-License-Identifier: Apache-2.0 */
/* updates.c - starts the kernels of updates.cu. */
#include <math.h>
#include "kernels/cuda/launch.h"
#include "kernels/cuda/rows.h"

/* The data of `count` float32 numbers without gaps. */
static float *vector_of(const struct tensor *tensor, int64_t count)
{
    CHECK(tensor->dtype == DTYPE_F32 && tensor_count(tensor) == count);
    return tensor->data;
}

static void copy_check(const struct tensor *copy, int64_t count)
{
    CHECK(!copy->data ||
          (dtype_is_narrow(copy->dtype) && tensor_count(copy) == count));
}

status cuda_adamw(struct stream *stream, const struct adamw *p)
{
    const int64_t count = tensor_count(&p->weight);
    const struct adamw_call call = {
        vector_of(&p->weight, count), vector_of(&p->m, count),
        vector_of(&p->v, count), vector_of(&p->gradient, count),
        p->copy.data, p->copy.dtype, count,
        (float)p->scale, (float)p->beta1, (float)p->beta2,
        (float)(1 - p->beta1), (float)(1 - p->beta2), (float)p->epsilon,
        (float)(1 / sqrt(p->correction2)), (float)(-p->lr / p->correction1),
        (float)(1 - p->lr * p->decay)};

    copy_check(&p->copy, count);
    LAUNCH(stream, adamw, blocks_of(count), &call);
    return OK;
}

status cuda_descend(struct stream *stream, const struct descent *p)
{
    const int64_t count = tensor_count(&p->weight);
    const struct descend_call call = {
        vector_of(&p->weight, count), vector_of(&p->step, count),
        p->copy.data, p->copy.dtype, count, (float)-p->rate, (float)p->keep};

    copy_check(&p->copy, count);
    LAUNCH(stream, descend, blocks_of(count), &call);
    return OK;
}

status cuda_turned(struct stream *stream, const struct turned *p)
{
    const int64_t count = tensor_count(&p->x);
    const struct turned_step_call step = {
        vector_of(&p->x, count), vector_of(&p->v, count), count,
        p->correction1, p->correction2, p->epsilon};

    if (p->gradient.data == NULL) {
        LAUNCH(stream, turned_step, blocks_of(count), &step);
        return OK;
    }
    const struct turned_moments_call moments = {
        step.x, vector_of(&p->gradient, count), vector_of(&p->m, count),
        vector_of(&p->v, count), count, p->beta1, p->beta2};

    LAUNCH(stream, turned_moments, blocks_of(count), &moments);
    return OK;
}

/* values: NULL where nothing reads or writes them. */
static struct masters_call masters_of(const struct masters *m, float *values)
{
    const int64_t count = masters_check(m);

    return (struct masters_call){values, m->weights.data, m->lower.data,
                                 m->ties.data, m->first, count};
}

/* A thread has the masters whose bits are in a byte. */
static int64_t ties_blocks(const struct masters_call *call)
{
    return call->count == 0
               ? 0 : blocks_of((call->first + call->count + 7) / 8);
}

status cuda_masters_join(struct stream *stream, const struct masters *m)
{
    const struct masters_join_call call = {
        masters_of(m, vector_of(&m->values, masters_check(m)))};

    LAUNCH(stream, masters_join, ties_blocks(&call.of), &call);
    return OK;
}

status cuda_masters_split(struct stream *stream, const struct masters *m)
{
    const struct masters_split_call call = {
        masters_of(m, vector_of(&m->values, masters_check(m)))};

    LAUNCH(stream, masters_split, ties_blocks(&call.of), &call);
    return OK;
}

status cuda_fixed_add(struct stream *stream, struct tensor sums,
                      struct tensor x, struct fixed fixed)
{
    const bool integers = x.dtype == DTYPE_I64;
    const struct fixed_add_call call = {
        sums.data, integers ? x.data : NULL, integers ? NULL : x.data,
        tensor_count(&sums), fixed.scale, fixed.spare, fixed.first};

    CHECK(sums.dtype == DTYPE_I64 && tensor_count(&x) == call.count);
    CHECK(integers || x.dtype == DTYPE_F32);
    LAUNCH(stream, fixed_add, blocks_of(call.count), &call);
    return OK;
}

/* As kernels/cpu/fixed_point.c: where both begin at one place, a run of
 * elements covers sums that the launch before has read. */
status cuda_fixed_read(struct stream *stream, struct tensor y,
                       struct tensor sums, struct fixed fixed)
{
    const int64_t count = tensor_count(&y);
    struct fixed_read_call call = {
        y.data, sums.data, 0, count, fixed.scale, fixed.spare,
        (float)(1 / fixed.scale)};

    CHECK(sums.dtype == DTYPE_I64 && tensor_count(&sums) == count);
    vector_of(&y, count);
    for (int64_t end = y.data == sums.data ? 1 : count; call.start < count;
         end *= 2) {
        call.count = (end < count ? end : count) - call.start;
        LAUNCH(stream, fixed_read, blocks_of(call.count), &call);
        call.start += call.count;
    }
    return OK;
}

/* State `k`, and what its codes are worth. */
static struct update_state state_of(const struct element_update *p, int k,
                                    struct update_codes *codes, int64_t count)
{
    const struct element_state *state = &p->states[k];
    const int bits = state->positive ? CODE8_BITS_MAX : CODE8_SIGNED_BITS;
    const enum dtype dtype = state->values.dtype;

    CHECK(!state->values.data || tensor_count(&state->values) == count);
    CHECK(!state->values.data || dtype == DTYPE_F32 || dtype == DTYPE_BF16 ||
          dtype == DTYPE_U8);
    code8_table(bits, codes->tables[k]);
    code8_bins(bits, &codes->bins[k]);
    return (struct update_state){state->values.data, dtype, state->scales};
}

/* all: numbers that all elements share, and views. */
static status step_masters(struct stream *stream,
                           const struct element_update *p,
                           const struct update_elements_call *all)
{
    struct update_masters_call call = {*all, masters_of(&p->masters, NULL)};

    CHECK(p->masters.first == 0 && call.masters.count == all->count);
    CHECK(!p->copy.data && all->gradient.stride == all->gradient.width);
    for (int k = 0; k < UPDATE_STATES; k++) {
        const struct tensor *values = &p->states[k].values;

        if (!values->data) continue;
        CHECK(tensor_count(values) == all->count);
        CHECK(values->dtype == DTYPE_F32 || values->dtype == DTYPE_BF16);
        call.of.states[k] =
            (struct update_state){values->data, values->dtype, NULL};
    }
    LAUNCH(stream, update_masters, blocks_of(all->count), &call);
    return OK;
}

status cuda_update_elements(struct stream *stream,
                            const struct element_update *p)
{
    struct update_codes codes;
    struct update_elements_call call = {
        .formula = p->formula, .weight = view_of(p->weight, DTYPE_F32),
        .gradient = view_of(p->gradient, DTYPE_F32),
        .count = tensor_count(&p->weight), .scale = (float)p->scale,
        .beta1 = (float)p->beta1, .beta2 = (float)p->beta2,
        .rest1 = (float)(1 - p->beta1), .rest2 = (float)(1 - p->beta2),
        .epsilon = (float)p->epsilon,
        .root = (float)(1 / sqrt(p->correction2)),
        .step = (float)(-p->lr / p->correction1),
        .keep = (float)(1 - p->lr * p->decay), .decay = (float)p->decay,
        .lr = (float)-p->lr, .share = (float)p->share,
        .push = (float)(p->lr * (p->beta1 * (1 - p->share) - 1))};

    CHECK(p->from == 0); /* of the host */
    if (p->masters.weights.data) return step_masters(stream, p, &call);
    CHECK(view_same_shape(call.weight, call.gradient));
    copy_check(&p->copy, call.count);
    if (p->copy.data) call.copy = view_any(p->copy);
    for (int k = 0; k < UPDATE_STATES; k++)
        call.states[k] = state_of(p, k, &codes, call.count);
    TRY(cuda_copy(stream, &codes, sizeof codes, (const void **)&call.codes));
    LAUNCH(stream, update_elements, parts_of(call.count, UPDATE_BLOCK),
           &call);
    return OK;
}
