/* SPDX-License-Identifier: Apache-2.0 */
/* update.c - from summed gradients to new weights. */
#include "optimizer/update.h"

#include <math.h>

#include "kernels/math.h"
#include "mesh/grid.h"

/* ---- where things lie ---- */

/* Elements [range->first, range->last) of a parameter, as they lie. */
static struct tensor arena_view(const struct update_arena *arena,
                                const struct param *param,
                                const struct shard_range *range,
                                enum dtype dtype)
{
    const int64_t at = shard_place(range, arena->level, param);

    return tensor_1d((char *)arena->data + at * dtype_bytes(dtype), dtype,
                     range->last - range->first);
}

static struct tensor weight_view(const struct update *u,
                                 const struct param *param,
                                 const struct shard_range *range)
{
    return arena_view(&u->weights, param, range,
                      dtype_real(u->kernels->dtype));
}

/* Empty where there is none. */
static struct tensor gradient_view(const struct update *u,
                                   const struct param *param,
                                   const struct shard_range *range)
{
    const enum dtype real = dtype_real(u->kernels->dtype);
    const int64_t at = u->gradients.level != SHARD_WHOLE
                           ? range->gradient_at
                           : param->gradient + range->first;

    if (!param_has_gradient(param)) return (struct tensor){0};
    return tensor_1d((char *)u->gradients.data + at * dtype_bytes(real), real,
                     range->last - range->first);
}

/* The copy; data NULL: there is none of this parameter. */
static struct tensor copy_view(const struct update *u,
                               const struct param *param,
                               const struct shard_range *range)
{
    const int64_t gone =
        u->gone == NULL ? 0 : u->gone[param - u->params->items];
    struct tensor view;

    if (u->copy.data == NULL || gone < 0) return (struct tensor){0};
    view = arena_view(&u->copy, param, range, u->kernels->dtype);
    view.data = (char *)view.data - gone * dtype_bytes(view.dtype);
    return view;
}

static struct masters masters_view(const struct update *u,
                                   const struct param *param,
                                   const struct shard_range *range)
{
    const struct master_arenas all = {u->copy.data, u->weights.data,
                                      u->split.ties};

    return masters_at(&all, shard_place(range, u->copy.level, param),
                      shard_place(range, u->weights.level, param),
                      range->last - range->first);
}

static struct shard_range own_range(const struct update *u, int param)
{
    struct shard_range range;

    shard_own(u->shards, u->params, param, &range);
    return range;
}

/* ---- the norm ---- */

_Static_assert((int)SQUARES_BLOCK == (int)SHARD_BLOCK, "one kind of block");

/* The part of a leaf that lies in the range: a view, and the number of its
 * first block. Legal cuts make both begin at the beginning of a block. False:
 * they share nothing. */
static bool leaf_view(const struct update *u, const struct param *param,
                      const struct shard_range *range,
                      const struct leaf_block *leaf, struct tensor *out,
                      int64_t *block)
{
    const struct tensor held = gradient_view(u, param, range);
    const int64_t width = param->spec.vector ? 1 : param->cols;
    int64_t first = leaf->first * width;
    int64_t last = first + leaf->count * width;

    if (leaf->columns && !param->spec.vector) { /* whole rows of the range */
        const int64_t row = range->first / width;
        const int64_t rows = (range->last - range->first) / width;

        CHECK(range->first % width == 0 && range->last % width == 0);
        CHECK(row * leaf->count % SQUARES_BLOCK == 0);
        *block = row * leaf->count / SQUARES_BLOCK;
        *out = tensor_cols(tensor_2d(held.data, held.dtype, rows, width),
                           leaf->first, leaf->count);
        return rows > 0;
    }
    if (first < range->first) first = range->first;
    if (last > range->last) last = range->last;
    if (first >= last) return false;
    CHECK((first - leaf->first * width) % SQUARES_BLOCK == 0);
    *block = (first - leaf->first * width) / SQUARES_BLOCK;
    *out = tensor_2d((char *)held.data + (first - range->first) *
                                             dtype_bytes(held.dtype),
                     held.dtype, 1, last - first);
    return true;
}

/* Is all that this rank has of a parameter in its own leaves? Not where several
 * ranks have the rows of one key-value head. */
static bool is_all_own(const struct update *u, int index)
{
    const struct param *param = &u->params->items[index];
    struct leaf_cursor c = {.params = u->params, .holding = u->holding,
                            .param = index};
    int64_t elements = 0;

    while (leaf_next(&c) && c.param == index)
        elements += c.block.count * (param->spec.vector ? 1
                                     : c.block.columns  ? param->rows
                                                        : param->cols);
    return elements == param->elements;
}

/* The mean of a parameter that the blocks do not cover. */
static status average(const struct update *u, int index, double factor)
{
    const struct shard_range range = own_range(u, index);
    const struct tensor view = gradient_view(u, &u->params->items[index],
                                             &range);

    if (range.first == range.last) return OK;
    return u->kernels->scale(u->stream, view, view, factor);
}

status update_blocks(const struct update *u, int64_t targets)
{
    const double scale = u->loss_scale > 0 ? u->loss_scale : 1;
    const double mean = 1.0 / ((double)targets * scale);
    struct leaf_cursor c = {.params = u->params, .holding = u->holding};
    double factor = mean;
    int before = -1;

    while (leaf_next(&c)) {
        const struct param *param = &u->params->items[c.param];
        const struct shard_range range = own_range(u, c.param);
        const int64_t count = leaf_blocks(param, &c.block);
        struct tensor view;
        int64_t first;

        if (u->layout->rules[c.param].frozen) continue; /* zeros stay zeros */
        if (c.param != before) {
            factor = is_all_own(u, c.param) ? mean : 1;
            if (factor == 1) TRY(average(u, c.param, mean));
            before = c.param;
        }
        for (int64_t i = 0; i < count; i++) u->blocks[c.at + i] = 0;
        if (range.first == range.last ||
            !leaf_view(u, param, &range, &c.block, &view, &first))
            continue;
        TRY(u->kernels->sum_squares(u->stream, u->blocks + c.at + first, view,
                                    factor));
    }
    return device_finish(u->stream);
}

/* The binary tree over absolute block numbers; a node without right sibling
 * moves up. Destroys block [count]. */
static double block_tree(double *block, int64_t count)
{
    for (int64_t width = 1; width < count; width *= 2)
        for (int64_t i = 0; i + width < count; i += 2 * width)
            block[i] = block[i] + block[i + width];
    return block[0];
}

void update_squares(const struct update *u, double *sums)
{
    const int leaves = shard_leaves(u->params, u->holding);
    struct leaf_cursor c = {.params = u->params, .holding = u->holding};

    while (leaf_next(&c)) {
        const struct param *param = &u->params->items[c.param];
        double *sum = &sums[param->order * leaves + c.leaf];
        const struct optimizer_rule *rule = &u->layout->rules[c.param];

        if (param->copy) continue; /* counted by another stage */
        if (!param_counts(param, u->holding) || rule->frozen) continue;
        *sum += rule->gradient * rule->gradient *
                block_tree(u->blocks + c.at, leaf_blocks(param, &c.block));
    }
}

/* A table need not hold all parameters of the model, but the name helps. */
static status fail_norm(const struct update *u, int order)
{
    for (int i = 0; i < u->params->count; i++)
        if (u->params->items[i].order == order)
            FAIL(ERR_NUMERIC, "the gradient of %s is not finite",
                 u->params->items[i].name);
    FAIL(ERR_PEER, "the gradient of parameter %d of the model is not finite; "
                   "another rank holds it", order);
}

status update_norm(const struct update *update, double *sums, int orders,
                   struct update_result *out)
{
    const int leaves = shard_leaves(update->params, update->holding);
    double total = 0;

    for (int i = 0; i < orders; i++) {
        /* One that is not cut has its sum in leaf 0; adding +0 changes
         * nothing. */
        const double sum = grid_tree(&sums[i * leaves], leaves);

        out->fails = !isfinite(sum) && !update->skips;
        if (out->fails) return fail_norm(update, i);
        total += sum;
    }
    out->finite = isfinite(total);
    out->norm = sqrt(total);
    out->factor = 1;
    if (update->clip > 0 && update->clip / (out->norm + 1e-6) < 1)
        out->factor = update->clip / (out->norm + 1e-6);
    return OK;
}

/* ---- the update ---- */

static struct tensor state_view(const struct update *u, int index, int slot)
{
    static const enum dtype types[] = {[STATE_BFLOAT16] = DTYPE_BF16,
                                       [STATE_INT8] = DTYPE_U8};
    const struct state_place *place = states_place(u->layout, index, slot);

    if (place->elements == 0) return (struct tensor){0};
    return tensor_1d((char *)u->states[slot] + place->at,
                     place->type == STATE_REAL ? u->layout->real
                                               : types[place->type],
                     place->elements);
}

static float *scales_of(const struct update *u, int index, int slot)
{
    const struct state_place *place = states_place(u->layout, index, slot);

    if (place->type != STATE_INT8) return NULL;
    return (float *)(void *)((char *)u->states[slot] + place->scales);
}

static double or_else(double rule, double run)
{
    return rule >= 0 ? rule : run;
}

struct update_item update_item(const struct update *u, int index,
                               const struct update_call *call)
{
    const struct param *param = &u->params->items[index];
    const struct optimizer_rule *rule = &u->layout->rules[index];
    struct update_item item = {
        .index = index, .param = param, .rule = rule,
        .range = own_range(u, index), .factor = call->factor,
        .lr = call->lr * rule->lr, .beta1 = or_else(rule->beta1, u->beta1),
        .beta2 = or_else(rule->beta2, u->beta2),
        .epsilon = u->epsilon / rule->gradient,
        .decay = or_else(rule->weight_decay,
                         param->spec.decay ? u->weight_decay : 0),
        .t = call->t, .from = writes_apart(rule) ? u->from : 0,
        .sum = writes_apart(rule) ? u->sum : NULL};

    item.gradient = gradient_view(u, param, &item.range);
    if (u->split.ties != NULL) {
        item.masters = masters_view(u, param, &item.range);
        item.weight = tensor_1d(NULL, DTYPE_F32,
                                item.range.last - item.range.first);
    } else {
        item.weight = weight_view(u, param, &item.range);
        item.copy = copy_view(u, param, &item.range);
    }
    for (int k = 0; k < OPTIMIZER_STATES; k++) {
        item.states[k] = state_view(u, index, k);
        item.scales[k] = scales_of(u, index, k);
    }
    return item;
}

status update_copy(const struct update *update)
{
    if (update->split.ties != NULL) return OK; /* masters have it */
    for (int i = 0; i < update->params->count; i++) {
        const struct param *param = &update->params->items[i];
        const struct shard_range range = own_range(update, i);
        const struct tensor copy = copy_view(update, param, &range);

        if (copy.data == NULL || range.first == range.last) continue;
        TRY(update->kernels->scale(
            update->stream, copy,
            weight_view(update, param, &range), 1.0));
    }
    return OK;
}
