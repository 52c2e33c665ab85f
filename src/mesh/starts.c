/* SPDX-License-Identifier: Apache-2.0 */
/* starts.c - where leaves and pieces begin among the gradients of a unit. */
#include "mesh/starts.h"

#include "mesh/layout.h"

struct list { int64_t *items; int64_t count, room; };

/* A start that is there already is not added again. */
static status add(struct list *list, int64_t from, int64_t at)
{
    if (list->count > from && list->items[list->count - 1] >= at) return OK;
    if (list->count == list->room) {
        void *items = list->items;

        list->room = list->room > 0 ? 2 * list->room : 64;
        TRY(memory_grow(&items, (size_t)list->room, sizeof *list->items));
        list->items = items;
    }
    list->items[list->count++] = at;
    return OK;
}

/* The rows (a vector: elements) of a piece and of each leaf that this rank has
 * of it. Leaves that are columns are no runs, and no rank has copies of one. */
static status add_piece(struct list *list, int64_t from, int64_t base,
                        const struct param *param,
                        const struct holding *holding, int piece)
{
    const int64_t width = param->spec.vector ? 1 : param->cols;
    struct leaf_block block;
    int64_t row = 0;

    for (int i = 0; i < piece; i++)
        row += layout_held(&param->spec, &holding->mesh, &holding->place,
                           i).count;
    TRY(add(list, from, base + row * width));
    if (!param->spec.vector && param->spec.split_cols != AXIS_NONE) return OK;
    for (int leaf = 0; leaf < param_leaf_count(param, holding); leaf++)
        if (param_held_leaf(param, holding, leaf, piece, &block))
            TRY(add(list, from, base + block.first * width));
    return OK;
}

static status add_unit(struct list *list, const struct shard_unit *unit,
                       const struct param_table *table,
                       const struct holding *holding)
{
    const int64_t from = list->count;

    for (int i = unit->first_param; i < unit->first_param + unit->params;
         i++) {
        const struct param *param = &table->items[i];

        if (param_gradient_room(param) == 0) continue;
        for (int piece = 0; piece < param_pieces(param); piece++)
            TRY(add_piece(list, from, param->gradient - unit->gradient, param,
                          holding, piece));
    }
    return OK;
}

status shard_starts_build(struct shard_starts *starts,
                          const struct shards *shards,
                          const struct param_table *table,
                          const struct holding *holding)
{
    struct list list = {0};
    void *memory = NULL;
    status result = OK;

    TRY(memory_take((size_t)shards->count + 1, sizeof *starts->first,
                    &memory));
    starts->first = memory;
    for (int i = 0; i <= shards->count && result == OK; i++) {
        starts->first[i] = list.count;
        if (i < shards->count)
            result = add_unit(&list, &shards->units[i], table, holding);
    }
    starts->items = list.items;
    return result;
}

void shard_starts_free(struct shard_starts *starts)
{
    memory_free(starts->items);
    memory_free(starts->first);
    *starts = (struct shard_starts){0};
}
