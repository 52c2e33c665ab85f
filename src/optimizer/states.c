/* SPDX-License-Identifier: Apache-2.0 */
/* states.c - where the optimizer's states of this rank lie. */
#include "optimizer/states.h"

#include <limits.h>
#include <string.h>

#include "base/sizes.h"
#include "kernels/kernels.h"
#include "optimizer/whole_tensors.h"

static const char *const many = "states of the optimizers";

/* ---- sizes ---- */

static int64_t blocks_of(const struct states_request *of, int index,
                         const struct shard_range *range)
{
    struct held_cursor c = {.param = &of->params->items[index],
                            .holding = of->holding, .range = range};
    int64_t blocks = 0, elements = 0;

    while (held_next(&c)) {
        elements = c.now.at + c.now.rows * c.now.count;
        blocks = c.now.blocks +
                 (c.now.rows * c.now.count + SHARD_BLOCK - 1) / SHARD_BLOCK;
    }
    CHECK(elements == range->last - range->first);
    return blocks;
}

/* Slots that several kinds use under different titles have a common one. */
static void name_slot(struct states *states, int slot, const char *title)
{
    if (states->bytes[slot] == 0)
        states->titles[slot] = title;
    else if (strcmp(states->titles[slot], title) != 0)
        states->titles[slot] = many;
}

static size_t rounded(int64_t bytes)
{
    if (bytes > STAGE_BYTES_MOST) return (size_t)INT64_MAX;
    return arena_aligned((size_t)bytes);
}

/* Ends at the largest size. */
static void add_bytes(struct states *states, int slot, size_t bytes)
{
    states->bytes[slot] = (size_t)size_sum((int64_t)states->bytes[slot],
                                           (int64_t)bytes);
}

static void place_one(struct states *states, const struct states_request *of,
                      int index, int slot)
{
    const struct optimizer_state *state =
        rule_state(&states->rules[index], slot);
    struct state_place *place =
        &states->places[index * OPTIMIZER_STATES + slot];
    struct shard_range range;
    size_t bytes;

    if (state == NULL || state->shape != STATE_ELEMENTS) return;
    name_slot(states, slot, state->title);
    shard_own(of->shards, of->params, index, &range);
    *place = (struct state_place){.elements = range.last - range.first,
                                  .at = states->bytes[slot]};
    if (state->narrow) place->type = of->choice->states;
    bytes = rounded(place->elements * dtype_bytes(of->real));
    if (place->type == STATE_BFLOAT16) bytes = rounded(2 * place->elements);
    if (place->type == STATE_INT8) {
        place->scales = place->at + rounded(place->elements);
        place->blocks = blocks_of(of, index, &range);
        bytes = rounded(place->elements) +
                rounded(place->blocks * (int64_t)sizeof(float));
    }
    add_bytes(states, slot, bytes);
}

/* ---- whole states ---- */

int64_t states_whole_at(const struct states *states,
                        const struct matrix *matrix, int slot)
{
    const struct matrices *m = &states->matrices;
    const struct optimizer_state *state =
        rule_state(&states->rules[matrix->param], slot);
    int64_t elements = 0;

    for (int i = matrices_first(m, matrix->param);
         i < m->count && m->items[i].param == matrix->param; i++) {
        const struct matrix *other = &m->items[i];

        if (other->owner == m->rank && other->tensor < matrix->tensor)
            elements = size_sum(elements,
                                state->elements(other->rows, other->cols));
    }
    return elements;
}

/* The number of elements of all tensors of a parameter that this rank owns. */
static int64_t whole_elements(const struct states *states, int index,
                              int slot)
{
    const struct matrix beyond = {.param = index, .tensor = INT_MAX};

    return states_whole_at(states, &beyond, slot);
}

static void place_whole(struct states *states, int index)
{
    for (int k = 0; k < OPTIMIZER_STATES; k++) {
        const struct optimizer_state *state =
            rule_state(&states->rules[index], k);
        struct state_place *place =
            &states->places[index * OPTIMIZER_STATES + k];

        if (state == NULL || state->shape != STATE_WHOLE) continue;
        name_slot(states, k, state->title);
        *place = (struct state_place){
            .elements = whole_elements(states, index, k),
            .at = states->bytes[k]};
        add_bytes(states, k, rounded(size_product(
                                 place->elements, dtype_bytes(states->real))));
    }
}

/* Gathers of the table of each place among the ranks that divide the experts:
 * groups of parameters may speak of some experts alone. */
static status find_gathers(const struct states *states,
                           const struct states_request *of, int *gathers)
{
    const int count = of->params->count;
    const struct holding *holding = of->holding;
    const int experts = mesh_expert_places(&holding->mesh);
    const int own = mesh_expert_place(&holding->mesh, &holding->place);
    void *rules = NULL;
    status result;

    TRY(memory_take((size_t)count + 1, sizeof *states->rules, &rules));
    result = OK;
    for (int e = 0; e < experts && result == OK; e++) {
        struct param_table table = {0};

        result = param_table_beside(of->params, e - own, &table);
        if (result == OK) result = rules_build(rules, &table, of->choice);
        if (result == OK) whole_gathers(rules, count, gathers + e * count);
        memory_free(table.items);
    }
    memory_free(rules);
    return result;
}

/* Determines the owner of each tensor, and the states of each owner. */
static status share(struct states *states, const struct states_request *of)
{
    const size_t experts = (size_t)mesh_expert_places(&of->holding->mesh);
    struct matrices_of tensors = {.table = of->params,
                                  .holding = of->holding,
                                  .division = of->division};
    void *memory = NULL;
    status result;

    TRY(memory_take(((size_t)of->params->count + 1) * experts,
                    sizeof *tensors.gathers, &memory));
    tensors.gathers = memory;
    result = find_gathers(states, of, memory);
    if (result == OK) result = matrices_build(&states->matrices, &tensors);
    memory_free(memory);
    for (int i = 0; result == OK && i < of->params->count; i++)
        place_whole(states, i);
    return result;
}

/* ---- all states ---- */

status states_plan(struct states *states, const struct states_request *of)
{
    const size_t count = (size_t)of->params->count + 1;
    void *rules = NULL, *places = NULL;

    *states = (struct states){.real = of->real};
    TRY(memory_take(count, sizeof *states->rules, &rules));
    states->rules = rules;
    TRY(memory_take(count, OPTIMIZER_STATES * sizeof *states->places,
                    &places));
    states->places = places;
    memset(places, 0, count * OPTIMIZER_STATES * sizeof *states->places);
    TRY(rules_build(states->rules, of->params, of->choice));
    for (int i = 0; i < of->params->count; i++)
        for (int k = 0; k < OPTIMIZER_STATES; k++)
            place_one(states, of, i, k);
    return share(states, of);
}

void states_free(struct states *states)
{
    matrices_free(&states->matrices);
    memory_free(states->rules);
    memory_free(states->places);
    *states = (struct states){0};
}

const struct state_place *states_place(const struct states *states, int param,
                                       int slot)
{
    return &states->places[param * OPTIMIZER_STATES + slot];
}

const char *states_title(const struct states *states, int slot)
{
    return states->titles[slot] != NULL ? states->titles[slot] : many;
}

/* ---- leaves ---- */

/* Cuts the leaf c->now.block to the range; false: they share nothing. */
static bool clip_leaf(struct held_cursor *c)
{
    const struct shard_range *range = c->range;
    struct held_leaf *now = &c->now;
    const bool vector = c->param->spec.vector;
    const int64_t width = vector ? 1 : c->param->cols;
    int64_t first = now->block.first * width;
    int64_t last = first + now->block.count * width;

    if (range->first == range->last) return false;
    if (now->block.columns && !vector) { /* whole rows of the range */
        CHECK(range->first % width == 0 && range->last % width == 0);
        CHECK(range->first / width * now->block.count % SHARD_BLOCK == 0);
        now->first = now->block.first;
        now->rows = (range->last - range->first) / width;
        now->count = now->block.count;
        return now->rows > 0;
    }
    if (first < range->first) first = range->first;
    if (last > range->last) last = range->last;
    if (first >= last) return false;
    CHECK((first - now->block.first * width) % SHARD_BLOCK == 0);
    now->first = first - range->first;
    now->rows = 1;
    now->count = last - first;
    return true;
}

bool held_next(struct held_cursor *c)
{
    const int leaves = param_leaf_count(c->param, c->holding);

    if (c->begun) {
        const int64_t elements = c->now.rows * c->now.count;

        c->now.at += elements;
        c->now.blocks += (elements + SHARD_BLOCK - 1) / SHARD_BLOCK;
        c->leaf++;
    }
    c->begun = true;
    for (; c->piece < param_pieces(c->param); c->piece++, c->leaf = 0)
        for (; c->leaf < leaves; c->leaf++)
            if (param_held_leaf(c->param, c->holding, c->leaf, c->piece,
                                &c->now.block) && clip_leaf(c))
                return true;
    c->now.rows = 0;
    return false;
}

struct tensor held_view(const struct held_cursor *c, struct tensor range)
{
    struct tensor view =
        tensor_2d((char *)range.data + c->now.first * dtype_bytes(range.dtype),
                  range.dtype, c->now.rows, c->now.count);

    if (c->now.rows > 1) view.stride[0] = c->param->cols;
    return view;
}
