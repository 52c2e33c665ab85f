/* SPDX-License-Identifier: Apache-2.0 */
/* carry.c - parts of the state that no kernel writes apart. */
#include "optimizer/carry.h"

#include <string.h>

#include "base/range_sum.h"

/* Something is done with the bytes of a part. */
struct carrying {
    const struct update *update;
    unsigned kinds;
    int64_t distance;
    uint64_t sum;
    char *done; /* carry_rest: what is before it */
    void (*act)(struct carrying *c, char *at, size_t bytes);
};

/* A selection bias is frozen for optimizers, and moved by counts of tokens. */
static enum carry_part part_of(const struct update_item *item, bool average)
{
    if (average || writes_apart(item->rule)) return CARRY_WRITTEN;
    return item->rule->frozen &&
                   item->param->spec.role != ROLE_SELECTION_BIAS
               ? CARRY_STILL : CARRY_COPIED;
}

static void visit(struct carrying *c, enum carry_part part, void *at,
                  size_t bytes)
{
    if ((c->kinds >> part & 1) != 0 && bytes > 0) c->act(c, at, bytes);
}

static void visit_tensor(struct carrying *c, enum carry_part part,
                         const struct tensor *t)
{
    if (t->data != NULL) visit(c, part, t->data, (size_t)tensor_bytes(t));
}

static void visit_state(struct carrying *c, const struct update_item *item,
                        int state)
{
    const enum carry_part part = part_of(item, state == STATE_AVERAGE);
    const int64_t blocks =
        states_place(c->update->layout, item->index, state)->blocks;

    visit_tensor(c, part, &item->states[state]);
    if (item->scales[state] != NULL)
        visit(c, part, item->scales[state],
              (size_t)blocks * sizeof *item->scales[state]);
}

/* The weights, then each slot of states: as they lie. */
static void visit_all(struct carrying *c)
{
    const struct update_call call = {.factor = 1};

    for (int k = -1; k < OPTIMIZER_STATES; k++)
        for (int i = 0; i < c->update->params->count; i++) {
            const struct update_item item = update_item(c->update, i, &call);

            if (k < 0) visit_tensor(c, part_of(&item, false), &item.weight);
            else visit_state(c, &item, k);
        }
}

static void copy(struct carrying *c, char *at, size_t bytes)
{
    memcpy(at, at + c->distance, bytes);
}

void carry_copy(const struct update *update)
{
    struct carrying c = {update, 1u << CARRY_COPIED, update->from, 0, NULL,
                         copy};

    visit_all(&c);
}

static void add(struct carrying *c, char *at, size_t bytes)
{
    c->sum += range_sum_of(c->update->sum, at, at + c->distance, bytes);
}

uint64_t carry_sum(const struct update *update, unsigned kinds,
                   int64_t distance)
{
    struct carrying c = {update, kinds, distance, 0, NULL, add};

    visit_all(&c);
    return c.sum;
}

/* Copies what lies before a part, and leaves the part out; one that lies before
 * what was copied is copied already, which is as right. */
static void leave_out(struct carrying *c, char *at, size_t bytes)
{
    if (at < c->done) return;
    memcpy(c->done + c->distance, c->done, (size_t)(at - c->done));
    c->done = at + bytes;
}

void carry_rest(const struct update *update, char *data, size_t bytes)
{
    struct carrying c = {update, 1u << CARRY_WRITTEN, update->from, 0, data,
                         leave_out};

    visit_all(&c);
    memcpy(c.done + c.distance, c.done, (size_t)(data + bytes - c.done));
}
