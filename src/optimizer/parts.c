/* SPDX-License-Identifier: Apache-2.0 */
/* parts.c - parts of what an optimizer sees of a parameter, and split masters
 * as numbers. */
#include "optimizer/update.h"

static void cut(struct tensor *all, int64_t first, int64_t count)
{
    if (all->data == NULL) return;
    *all = tensor_1d((char *)all->data + first * dtype_bytes(all->dtype),
                     all->dtype, count);
}

struct update_item update_part(const struct update_item *item, int64_t first,
                               int64_t count)
{
    struct update_item part = *item;

    part.range.first += first;
    part.range.last = part.range.first + count;
    part.range.at += first;
    part.range.shard_at += first;
    part.range.gradient_at += first;
    cut(&part.weight, first, count);
    cut(&part.gradient, first, count);
    cut(&part.copy, first, count);
    if (item->masters.weights.data != NULL)
        part.masters = masters_part(&item->masters, first, count);
    for (int k = 0; k < OPTIMIZER_STATES; k++) {
        const struct optimizer_state *state = rule_state(item->rule, k);

        if (state == NULL || state->shape == STATE_WHOLE ||
            item->scales[k] != NULL)
            continue;
        cut(&part.states[k], first, count);
    }
    return part;
}

status update_in_parts(const struct update *update,
                       const struct update_item *item, enum weight_use use,
                       update_work *work, const void *argument)
{
    const int64_t all = item->range.last - item->range.first;
    const int64_t most = tensor_count(&update->split.room);

    if (update->split.ties == NULL) return work(update, item, argument);
    for (int k = 0; k < OPTIMIZER_STATES; k++) CHECK(item->scales[k] == NULL);
    for (int64_t at = 0; at < all; at += most) {
        struct update_item part =
            update_part(item, at, all - at < most ? all - at : most);

        part.weight = update->split.room;
        part.weight.shape[0] = part.range.last - part.range.first;
        part.masters.values = part.weight;
        if (use & WEIGHT_READ)
            TRY(update->kernels->masters_join(update->stream, &part.masters));
        TRY(work(update, &part, argument));
        if (use & WEIGHT_WRITTEN)
            TRY(update->kernels->masters_split(update->stream, &part.masters));
    }
    return OK;
}
