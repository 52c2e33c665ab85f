/* SPDX-License-Identifier: Apache-2.0 */
/* states.c - where the optimizer's states of this rank lie. */
#include "optimizer/states.h"

#include <string.h>

static const char *const many = "states of the optimizers";

/* Elements of a state of a parameter, on this rank. */
static int64_t elements_of(const struct optimizer_state *state,
                           const struct param_table *table, int index,
                           const struct shards *shards)
{
    const struct param *param = &table->items[index];
    struct shard_range range;
    int64_t sum = 0;

    if (state->shape == STATE_ELEMENTS) {
        shard_range(shards, table, index, shards->rank, &range);
        return range.last - range.first;
    }
    for (int i = 0; i < param_pieces(param); i++)
        sum += state->elements(param->spec.piece_count > 0
                                   ? param->spec.pieces[i].rows
                                   : param->spec.rows, param->spec.cols);
    return sum;
}

/* Slots that several kinds use under different titles have a common one. */
static void name_slot(struct states *states, int slot, const char *title)
{
    if (states->bytes[slot] == 0)
        states->titles[slot] = title;
    else if (strcmp(states->titles[slot], title) != 0)
        states->titles[slot] = many;
}

static status place_all(struct states *states,
                        const struct param_table *table,
                        const struct shards *shards)
{
    for (int i = 0; i < table->count; i++)
        for (int k = 0; k < OPTIMIZER_STATES; k++) {
            const struct optimizer_state *state =
                rule_state(&states->rules[i], k);
            struct state_place *place =
                &states->places[i * OPTIMIZER_STATES + k];

            if (state == NULL) continue;
            name_slot(states, k, state->title);
            *place = (struct state_place){
                elements_of(state, table, i, shards), states->bytes[k]};
            states->bytes[k] += (size_t)(param_room(place->elements) *
                                         dtype_bytes(states->real));
        }
    return OK;
}

status states_plan(struct states *states, const struct param_table *table,
                   const struct shards *shards,
                   const struct optimizer_choice *choice, enum dtype real)
{
    void *rules = NULL, *places = NULL;

    *states = (struct states){.real = real};
    TRY(memory_take((size_t)table->count + 1, sizeof *states->rules, &rules));
    states->rules = rules;
    TRY(memory_take((size_t)table->count + 1,
                    OPTIMIZER_STATES * sizeof *states->places, &places));
    states->places = places;
    memset(places, 0, ((size_t)table->count + 1) * OPTIMIZER_STATES *
                          sizeof *states->places);
    TRY(rules_build(states->rules, table, choice));
    return place_all(states, table, shards);
}

void states_free(struct states *states)
{
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
