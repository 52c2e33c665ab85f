/* SPDX-License-Identifier: Apache-2.0 */
/* latent.c - steps of multi-head latent attention beside products and norms:
 * parts of rows, and heads put together for attention. Source: DeepSeek-V2,
 * arXiv:2405.04434, section 2.1.
 *
 *   part   columns [first, first + count) of each run of a row
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
#include "device/parts.h"
#include "nn/layer.h"
#include "nn/overlap.h"

/* ---- rows ---- */

/* Columns [col, ...) of the rows of a slot, whose parts lie so many elements
 * apart; all in elements. view.data NULL: zeros. */
struct columns { struct tensor view; int64_t col, apart; };

/* `parts` of `count` elements of each row. */
static status move(struct run *run, struct columns to, struct columns from,
                   int64_t parts, int64_t count, enum device_turn turn)
{
    const int bytes = dtype_bytes(to.view.dtype);
    struct device_parts copy = {
        .to = {(char *)to.view.data + to.col * bytes,
               to.view.stride[0] * bytes},
        .rows = to.view.shape[0], .parts = parts, .to_part = to.apart * bytes,
        .from_part = from.apart * bytes, .bytes = (size_t)(count * bytes),
        .turn = turn, .element = bytes};

    if (from.view.data != NULL)
        copy.from = (struct device_rows){
            (char *)from.view.data + from.col * bytes,
            from.view.stride[0] * bytes};
    return device_copy_parts(run->stream, &copy);
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

static struct columns whole_of(const struct step *step, struct tensor whole)
{
    return (struct columns){whole, step->set.part.first,
                            whole.shape[1] / step->set.part.runs};
}

static struct columns part_of(const struct step *step, struct tensor part)
{
    CHECK(part.shape[1] == step->set.part.runs * step->set.part.count);
    return (struct columns){part, 0, step->set.part.count};
}

static status part_forward(const struct step *step, struct run *run)
{
    return move(run, part_of(step, run_slot(run, step->output)),
                whole_of(step, run_slot(run, step->input)),
                step->set.part.runs, step->set.part.count, TURN_NONE);
}

/* Others read other columns of the input: those are zeros here until then. */
static status part_backward(const struct step *step, struct run *run)
{
    const struct tensor dx = run_gradient(run, step->input);

    if (!run->event->adds)
        TRY(move(run, (struct columns){dx, 0, 0}, (struct columns){0}, 1,
                 dx.shape[1], TURN_NONE));
    return move(run, whole_of(step, dx),
                part_of(step, run_gradient(run, step->output)),
                step->set.part.runs, step->set.part.count, TURN_NONE);
}

static const struct layer layer_part = {
    .name = "part", .kind = LAYER_ROPE, .forward = part_forward,
    .backward_input = part_backward, .cost = copy_cost};

slot nn_part(struct program *p, slot x, int runs,
             const struct layout_span *columns)
{
    const int step = program_add_step(p, &layer_part, x);
    const slot output = program_add_slot(p, "part", runs * columns->count,
                                         false);

    if (p->error != OK) return -1;
    p->steps[step].output = output;
    p->steps[step].set.part.runs = runs;
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

/* The head of keys and values of the input, the keys and the values of the
 * output. */
static struct columns up_of(const struct latent_heads *h, struct tensor up)
{
    return (struct columns){up, 0, h->still + h->value};
}

static struct columns keys_of(const struct latent_heads *h, struct tensor keys)
{
    return (struct columns){keys, h->rotary, fused_width(h)};
}

static struct columns values_of(const struct latent_heads *h,
                                struct tensor keys)
{
    return (struct columns){keys, h->heads * fused_width(h), fused_width(h)};
}

static struct columns after(struct columns of, int64_t count)
{
    of.col += count;
    return of;
}

static status keys_forward(const struct step *step, struct run *run)
{
    const struct latent_heads *h = &step->set.latent;
    const struct tensor out = run_slot(run, step->output);
    const struct columns up = up_of(h, run_slot(run, step->input));
    const struct columns values = values_of(h, out);
    const struct tensor turning = run_slot(run, step->second);
    const int64_t left = fused_width(h) - h->value;

    TRY(overlap_wait_all(run, turning));
    TRY(move(run, (struct columns){out, 0, fused_width(h)},
             (struct columns){turning, 0, 0}, h->heads, h->rotary,
             TURN_APART));
    TRY(move(run, keys_of(h, out), up, h->heads, h->still, TURN_NONE));
    TRY(move(run, values, after(up, h->still), h->heads, h->value, TURN_NONE));
    return move(run, after(values, h->value), (struct columns){0}, h->heads,
                left, TURN_NONE);
}

/* Scratch of B: a head's rows, the same as real numbers, sums of leaves, their
 * sum. */
struct keys_room { size_t wide, leaves, sum, all; };

static struct keys_room keys_room(const struct step *step,
                                  const struct program *p)
{
    const size_t n = (size_t)(p->size.tokens * step->set.latent.rotary);
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

    TRY(move(run,
             (struct columns){tensor_2d(rows.data, rows.dtype, dkeys.shape[0],
                                        h->rotary), 0, 0},
             (struct columns){dkeys, head * fused_width(h), 0}, 1, h->rotary,
             TURN_NONE));
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
    const int64_t rotary = step->set.latent.rotary;

    return move(run, (struct columns){dturning, 0, 0},
                (struct columns){tensor_2d(sum.data, sum.dtype,
                                           dturning.shape[0], rotary), 0, 0},
                1, rotary, TURN_NEAR);
}

static status keys_backward(const struct step *step, struct run *run)
{
    const struct latent_heads *h = &step->set.latent;
    const struct tensor dout = run_gradient(run, step->output);
    const struct columns dup = up_of(h, run_gradient(run, step->input));

    CHECK(!run->event->adds && !run->event->adds_second);
    TRY(move(run, dup, keys_of(h, dout), h->heads, h->still, TURN_NONE));
    TRY(move(run, after(dup, h->still), values_of(h, dout), h->heads, h->value,
             TURN_NONE));
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

/* Heads of queries [queries | rotary], and as attention reads them. */
static struct columns queries_of(const struct latent_heads *h,
                                 struct tensor view)
{
    return (struct columns){view, 0, fused_width(h)};
}

/* The queries, rotary parts first, at the beginning of the rows of `out`. */
static status fuse_queries(const struct latent_heads *h, struct run *run,
                           struct tensor out, struct tensor queries)
{
    const struct columns to = queries_of(h, out);
    const struct columns from = queries_of(h, queries);

    TRY(move(run, to, after(from, h->still), h->heads, h->rotary,
             TURN_APART));
    return move(run, after(to, h->rotary), from, h->heads, h->still,
                TURN_NONE);
}

static status join_forward(const struct step *step, struct run *run)
{
    const struct latent_heads *h = &step->set.latent;
    const struct tensor out = run_slot(run, step->output);
    const int64_t key = fused_width(h);

    TRY(fuse_queries(h, run, out, run_slot(run, step->input)));
    return move(run, (struct columns){out, h->heads * key, 0},
                (struct columns){run_slot(run, step->second), 0, 0}, 1,
                2 * h->heads * key, TURN_NONE);
}

static status join_backward(const struct step *step, struct run *run)
{
    const struct latent_heads *h = &step->set.latent;
    const struct tensor dout = run_gradient(run, step->output);
    const struct columns to = queries_of(h, run_gradient(run, step->input));
    const struct columns from = queries_of(h, dout);
    const int64_t key = fused_width(h);

    CHECK(!run->event->adds && !run->event->adds_second);
    TRY(move(run, after(to, h->still), from, h->heads, h->rotary, TURN_NEAR));
    TRY(move(run, to, after(from, h->rotary), h->heads, h->still, TURN_NONE));
    return move(run, (struct columns){run_gradient(run, step->second), 0, 0},
                (struct columns){dout, h->heads * key, 0}, 1,
                2 * h->heads * key, TURN_NONE);
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
    const struct columns behind = {out, h->heads * fused_width(h), 0};

    TRY(fuse_queries(h, run, out, run_slot(run, step->input)));
    TRY(move(run, behind, (struct columns){0}, 1, 2 * fused_width(h),
             TURN_NONE));
    return move(run, behind,
                (struct columns){run_slot(run, step->second), 0, 0}, 1,
                h->rotary, TURN_APART);
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
