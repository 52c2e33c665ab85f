/* SPDX-License-Identifier: Apache-2.0 */
/* zero_norm.c - the blocks of the gradient's norm, from the ranks that divide
 * each class of parameters. */
#include "step/zero.h"

#include <string.h>

/* Blocks of the class: from where they are in the table to one row, or back.
 * Returns how many. */
static int64_t move_blocks(const struct zero *z, int class, double *blocks,
                           double *row, bool back)
{
    const struct stage *stage = z->stage;
    struct leaf_cursor c = {.params = &stage->program.params,
                            .holding = &stage->holding};
    int64_t used = 0;

    while (leaf_next(&c)) {
        const int unit = shard_unit_of(&stage->shards, c.param);
        const int64_t count =
            leaf_blocks(&stage->program.params.items[c.param], &c.block);
        double *lie = blocks + c.at, *pack = row + used;

        if (stage->shards.units[unit].class != class) continue;
        memcpy(back ? lie : pack, back ? pack : lie,
               (size_t)count * sizeof *row);
        used += count;
    }
    return used;
}

static status share_class(struct zero *z, int class, struct group *group,
                          double *blocks, double *row)
{
    const int64_t count = move_blocks(z, class, blocks, row, false);
    const struct tensor all = tensor_1d(row, DTYPE_F64, count);

    if (count == 0) return OK;
    TRY(comm_all_reduce(group, all, all, REDUCE_SUM));
    move_blocks(z, class, blocks, row, true);
    return OK;
}

status zero_share(struct zero *z, const struct instruction *i,
                  double *blocks)
{
    const struct shards *s = &z->stage->shards;
    const int class = s->units[i->unit].class;
    struct group *group = i->resource == RESOURCE_COPIES
                              ? z->classes[class].copies
                              : z->classes[class].shard;
    const struct tensor all =
        tensor_1d(blocks, DTYPE_F64, shard_blocks(&z->stage->program.params,
                                                  &z->stage->holding));

    if (s->class_count > 1)
        return share_class(z, class, group, blocks,
                           stage_norm_room(z->stage));
    return comm_all_reduce(group, all, all, REDUCE_SUM);
}
