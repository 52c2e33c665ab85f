/* SPDX-License-Identifier: Apache-2.0 */
/* latent.c - steps of multi-head latent attention beside products and norms:
 * parts of rows, and heads put together for attention. Source: DeepSeek-V2,
 * arXiv:2405.04434, section 2.1.
 *
 *   part   columns [first, first + count) of each unit of a row
 *   keys   keys and values of each head [keys | values] and the rotary key of
 *          all heads -> keys [rotary | keys] of all heads, then their values
 *   join   queries [queries | rotary] and that -> the fused slot of attention
 *   turning  the same without keys and values: [rotary | queries] of all heads,
 *          the rotary key in a head of its own, and a head that is not used
 *
 * A fused head is as wide as a key; a value that is narrower ends with zeros.
 * Neighbours of a rotary part that turn together lie in two halves afterwards,
 * as rope turns them. The gradient of the rotary key is the sum over heads: in
 * a tensor leaf in order, leaves by the tree. */
#include <string.h>

#include "nn/layer.h"
#include "nn/overlap.h"

/* ---- rows ---- */

static char *row_of(struct tensor view, int64_t row)
{
    return (char *)view.data +
           row * view.stride[0] * dtype_bytes(view.dtype);
}

#define MOVE_PAIRS(type)                                                    \
    do {                                                                    \
        type *to = out;                                                     \
        const type *from = in;                                              \
        for (int64_t i = 0; i < half; i++)                                  \
            for (int second = 0; second < 2; second++) {                    \
                const int64_t apart = i + second * half;                    \
                const int64_t near = 2 * i + second;                        \
                to[apart_out ? apart : near] = from[apart_out ? near        \
                                                              : apart];     \
            }                                                               \
    } while (0)

/* Pairs of neighbours to two halves, or back. */
static void move_pairs(void *out, const void *in, int64_t half, int bytes,
                       bool apart_out)
{
    if (bytes == 2) MOVE_PAIRS(uint16_t);
    else if (bytes == 4) MOVE_PAIRS(uint32_t);
    else MOVE_PAIRS(uint64_t);
}

static struct step_cost copy_cost(const struct step *step,
                                  const struct program *p)
{
    const int64_t n = program_slot_rows(p, step->output) *
                      p->slots[step->output].width;

    return (struct step_cost){
        .bytes_moved = (double)(2 * n * dtype_bytes(p->dtype))};
}

/* ---- part ---- */

static status part_move(const struct step *step, struct tensor whole,
                        struct tensor part, bool back)
{
    const size_t bytes = (size_t)dtype_bytes(whole.dtype);
    const int64_t units = step->set.part.units;
    const int64_t all = whole.shape[1] / units, count = step->set.part.count;

    CHECK(part.dtype == whole.dtype && part.shape[1] == units * count);
    for (int64_t t = 0; t < part.shape[0]; t++)
        for (int64_t u = 0; u < units; u++) {
            char *out = row_of(whole, t) +
                        (size_t)(u * all + step->set.part.first) * bytes;
            char *in = row_of(part, t) + (size_t)(u * count) * bytes;

            memcpy(back ? out : in, back ? in : out, (size_t)count * bytes);
        }
    return OK;
}

static status part_forward(const struct step *step, struct run *run)
{
    return part_move(step, run_slot(run, step->input),
                     run_slot(run, step->output), false);
}

/* Others read other columns of the input: those are zeros here until then. */
static status part_backward(const struct step *step, struct run *run)
{
    const struct tensor dx = run_gradient(run, step->input);

    for (int64_t t = 0; t < dx.shape[0] && !run->event->adds; t++)
        memset(row_of(dx, t), 0,
               (size_t)(dx.shape[1] * dtype_bytes(dx.dtype)));
    return part_move(step, dx, run_gradient(run, step->output), true);
}

static const struct layer layer_part = {
    .name = "part", .kind = LAYER_ROPE, .forward = part_forward,
    .backward_input = part_backward, .cost = copy_cost};

slot nn_part(struct program *p, slot x, int units,
             const struct layout_span *columns)
{
    const int step = program_add_step(p, &layer_part, x);
    const slot output = program_add_slot(p, "part", units * columns->count,
                                         false);

    if (p->error != OK) return -1;
    p->steps[step].output = output;
    p->steps[step].set.part.units = units;
    p->steps[step].set.part.first = columns->first;
    p->steps[step].set.part.count = columns->count;
    program_lay_as(p, output, x);
    return output;
}

/* ---- keys ---- */

static int64_t fused_width(const struct latent_heads *h)
{
    return h->still + h->rotary;
}

static status keys_forward(const struct step *step, struct run *run)
{
    const struct latent_heads *h = &step->set.latent;
    const struct tensor out = run_slot(run, step->output);
    const struct tensor up = run_slot(run, step->input);
    const struct tensor turning = run_slot(run, step->second);
    const int bytes = dtype_bytes(out.dtype);
    const int64_t key = fused_width(h) * bytes, still = h->still * bytes;
    const int64_t rotary = h->rotary * bytes, value = h->value * bytes;

    TRY(overlap_wait_all(run, turning));
    for (int64_t t = 0; t < out.shape[0]; t++) {
        const char *from = row_of(up, t);
        char *keys = row_of(out, t), *values = keys + h->heads * key;

        for (int i = 0; i < h->heads; i++, from += still + value) {
            if (i == 0)
                move_pairs(keys, row_of(turning, t), h->rotary / 2, bytes,
                           true);
            else
                memcpy(keys + i * key, keys, (size_t)rotary);
            memcpy(keys + i * key + rotary, from, (size_t)still);
            memcpy(values + i * key, from + still, (size_t)value);
            memset(values + i * key + value, 0, (size_t)(key - value));
        }
    }
    return OK;
}

/* Scratch of B: a head's rows, the same as real numbers, sums of leaves, their
 * sum. */
struct keys_room { size_t wide, leaves, sum, all; };

static struct keys_room keys_room(const struct step *step,
                                  const struct program *p)
{
    const size_t n = (size_t)(p->tokens * step->set.latent.rotary);
    const size_t real = n * (size_t)dtype_bytes(program_real(p));
    struct keys_room room = {
        .wide = arena_aligned(n * (size_t)dtype_bytes(p->dtype))};

    room.leaves = room.wide + arena_aligned(real);
    room.sum = room.leaves +
               arena_aligned(real * (size_t)program_leaves(p).count);
    room.all = room.sum + arena_aligned(real);
    return room;
}

static size_t keys_scratch(const struct step *step, const struct program *p)
{
    return keys_room(step, p).all;
}

static struct tensor flat_at(struct run *run, size_t at, enum dtype dtype,
                             int64_t n)
{
    return tensor_1d((char *)run->scratch + at, dtype, n);
}

/* The rotary part of a head's gradient, as real numbers, in `out`. */
static status take_head(const struct step *step, struct run *run, int head,
                        struct tensor out)
{
    const struct latent_heads *h = &step->set.latent;
    const struct tensor dkeys = run_gradient(run, step->output);
    const int64_t n = tensor_count(&out);
    const struct tensor rows = out.dtype == dkeys.dtype
                                   ? out : flat_at(run, 0, dkeys.dtype, n);
    const size_t bytes = (size_t)dtype_bytes(dkeys.dtype);
    const size_t row = (size_t)h->rotary * bytes;

    for (int64_t t = 0; t < dkeys.shape[0]; t++)
        memcpy((char *)rows.data + (size_t)t * row,
               row_of(dkeys, t) + (size_t)(head * fused_width(h)) * bytes,
               row);
    return out.dtype == dkeys.dtype
               ? OK : run->kernels->scale(run->stream, out, rows, 1.0);
}

/* The sum over heads, [tokens, rotary] real. */
static status sum_heads(const struct step *step, struct run *run,
                        struct tensor *sum)
{
    const struct program *p = run->program;
    const struct keys_room room = keys_room(step, p);
    const enum dtype real = program_real(p);
    const int leaves = (int)program_leaves(p).count;
    const int each = step->set.latent.heads / leaves;
    const int64_t rows = run_gradient(run, step->output).shape[0];
    const int64_t n = rows * step->set.latent.rotary;
    const struct tensor one = flat_at(run, room.wide, real, n);

    for (int i = 0; i < leaves; i++) {
        const struct tensor leaf =
            flat_at(run, room.leaves + (size_t)(i * n) *
                                           (size_t)dtype_bytes(real), real, n);

        TRY(take_head(step, run, i * each, leaf));
        for (int j = 1; j < each; j++) {
            TRY(take_head(step, run, i * each + j, one));
            TRY(run->real->add(run->stream, leaf, leaf, one));
        }
    }
    *sum = flat_at(run, leaves > 1 ? room.sum : room.leaves, real, n);
    if (leaves == 1) return OK;
    return run->kernels->fold(
        run->stream, *sum,
        tensor_2d((char *)run->scratch + room.leaves, real, leaves, n), leaves,
        1);
}

/* Sums that other ranks are yet to be added to stay real. */
static status keys_turning(const struct step *step, struct run *run)
{
    const struct tensor dturning = run_gradient(run, step->second);
    struct tensor sum;

    TRY(sum_heads(step, run, &sum));
    if (dturning.dtype != sum.dtype) {
        const struct tensor wide = sum;

        sum = flat_at(run, 0, dturning.dtype, tensor_count(&wide));
        TRY(run->kernels->scale(run->stream, sum, wide, 1.0));
    }
    const int bytes = dtype_bytes(sum.dtype);
    const int64_t row = step->set.latent.rotary * bytes;

    for (int64_t t = 0; t < dturning.shape[0]; t++)
        move_pairs(row_of(dturning, t), (char *)sum.data + t * row,
                   step->set.latent.rotary / 2, bytes, false);
    return OK;
}

static status keys_backward(const struct step *step, struct run *run)
{
    const struct latent_heads *h = &step->set.latent;
    const struct tensor dout = run_gradient(run, step->output);
    const struct tensor dup = run_gradient(run, step->input);
    const int bytes = dtype_bytes(dout.dtype);
    const int64_t key = fused_width(h) * bytes, still = h->still * bytes;
    const int64_t rotary = h->rotary * bytes, value = h->value * bytes;

    CHECK(!run->event->adds && !run->event->adds_second);
    for (int64_t t = 0; t < dup.shape[0]; t++) {
        char *to = row_of(dup, t);
        const char *keys = row_of(dout, t), *values = keys + h->heads * key;

        for (int i = 0; i < h->heads; i++, to += still + value) {
            memcpy(to, keys + i * key + rotary, (size_t)still);
            memcpy(to + still, values + i * key, (size_t)value);
        }
    }
    return keys_turning(step, run);
}

static const struct layer layer_keys = {
    .name = "keys", .kind = LAYER_ROPE, .forward = keys_forward,
    .backward_input = keys_backward, .cost = copy_cost,
    .scratch = keys_scratch, .second_gradient = true, .forgets_second = true};

/* Heads of this rank. */
static struct latent_heads own_heads(const struct program *p,
                                     const struct latent_heads *all)
{
    struct latent_heads own = *all;

    own.heads = all->heads / program_tensor_ranks(p);
    return own;
}

/* A step of these heads that makes `output` of two slots, laid out as the first
 * one; -1: program->error. */
static slot add_step_of(struct program *p, const struct layer *layer,
                        const struct latent_heads *heads, slot input,
                        slot second, int output_heads)
{
    const int step = program_add_step(p, layer, input);
    const slot output = program_add_slot(
        p, layer->name, output_heads * fused_width(heads), false);

    if (p->error != OK) return -1;
    p->steps[step].second = second;
    p->steps[step].output = output;
    p->steps[step].set.latent = *heads;
    program_lay_as(p, output, input);
    return output;
}

slot nn_latent_keys(struct program *p, slot up, slot turning,
                    const struct latent_heads *heads)
{
    turning = relayout_whole(p, turning, true);
    const struct latent_heads own = own_heads(p, heads);

    return add_step_of(p, &layer_keys, &own, up, turning, 2 * own.heads);
}

/* ---- join ---- */

/* Puts the queries of token t, rotary parts first, at the beginning of its row
 * of `out`; returns the place behind them. */
static char *fuse_queries(const struct latent_heads *h, struct tensor out,
                          struct tensor queries, int64_t t)
{
    const int bytes = dtype_bytes(out.dtype);
    const int64_t key = fused_width(h) * bytes, still = h->still * bytes;
    const char *from = row_of(queries, t);
    char *to = row_of(out, t);

    for (int i = 0; i < h->heads; i++, from += key, to += key) {
        move_pairs(to, from + still, h->rotary / 2, bytes, true);
        memcpy(to + h->rotary * bytes, from, (size_t)still);
    }
    return to;
}

static status join_forward(const struct step *step, struct run *run)
{
    const struct latent_heads *h = &step->set.latent;
    const struct tensor out = run_slot(run, step->output);
    const struct tensor queries = run_slot(run, step->input);
    const struct tensor keys = run_slot(run, step->second);
    const int64_t key = fused_width(h) * dtype_bytes(out.dtype);

    for (int64_t t = 0; t < out.shape[0]; t++)
        memcpy(fuse_queries(h, out, queries, t), row_of(keys, t),
               (size_t)(2 * h->heads * key));
    return OK;
}

static status join_backward(const struct step *step, struct run *run)
{
    const struct latent_heads *h = &step->set.latent;
    const struct tensor dout = run_gradient(run, step->output);
    const struct tensor dqueries = run_gradient(run, step->input);
    const struct tensor dkeys = run_gradient(run, step->second);
    const int bytes = dtype_bytes(dout.dtype);
    const int64_t key = fused_width(h) * bytes, still = h->still * bytes;

    CHECK(!run->event->adds && !run->event->adds_second);
    for (int64_t t = 0; t < dout.shape[0]; t++) {
        const char *from = row_of(dout, t);
        char *to = row_of(dqueries, t);

        for (int i = 0; i < h->heads; i++, from += key, to += key) {
            move_pairs(to + still, from, h->rotary / 2, bytes, false);
            memcpy(to, from + h->rotary * bytes, (size_t)still);
        }
        memcpy(row_of(dkeys, t), from, (size_t)(2 * h->heads * key));
    }
    return OK;
}

static const struct layer layer_join = {
    .name = "join", .kind = LAYER_ROPE, .forward = join_forward,
    .backward_input = join_backward, .cost = copy_cost,
    .second_gradient = true, .forgets_second = true};

slot nn_latent_join(struct program *p, slot queries, slot keys,
                    const struct latent_heads *heads)
{
    const struct latent_heads own = own_heads(p, heads);

    return add_step_of(p, &layer_join, &own, queries, keys, 3 * own.heads);
}

/* ---- turning: F alone ---- */

static status turning_forward(const struct step *step, struct run *run)
{
    const struct latent_heads *h = &step->set.latent;
    const struct tensor out = run_slot(run, step->output);
    const struct tensor queries = run_slot(run, step->input);
    const struct tensor turning = run_slot(run, step->second);
    const int bytes = dtype_bytes(out.dtype);
    const int64_t key = fused_width(h) * bytes;

    for (int64_t t = 0; t < out.shape[0]; t++) {
        char *to = fuse_queries(h, out, queries, t);

        memset(to, 0, (size_t)(2 * key));
        move_pairs(to, row_of(turning, t), h->rotary / 2, bytes, true);
    }
    return OK;
}

static const struct layer layer_turning = {
    .name = "turning", .kind = LAYER_ROPE, .forward = turning_forward,
    .cost = copy_cost};

slot nn_latent_turning(struct program *p, slot queries, slot turning,
                       const struct latent_heads *heads)
{
    CHECK(p->error != OK || program_tensor_ranks(p) == 1);
    return add_step_of(p, &layer_turning, heads, queries, turning,
                       heads->heads + 2);
}
