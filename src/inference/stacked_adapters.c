/* SPDX-License-Identifier: Apache-2.0 */
/* stacked_adapters.c - adapters of all experts in one tensor. */
#include "inference/stacked_adapters.h"

#include <stdio.h>
#include <string.h>

#include "checkpoint/convert.h"
#include "inference/expert_stack.h"

static const char outer[] = "base_model.model.";

/* The name of a module's matrix, if the file has it. `own`: what stands before
 * it, with the block's number. */
static bool is_there(const struct weights *weights, const char *name,
                     size_t before, const char *module, bool b,
                     struct stacked_place *out)
{
    snprintf(out->name, sizeof out->name, "%.*s%s.lora_%c.weight", (int)before,
             name, module, b ? 'B' : 'A');
    return weights_find(weights, out->name) >= 0;
}

static bool find_router(const struct weights *weights, const char *name,
                        size_t before, struct stacked_place *out)
{
    static const char *const modules[] = {"mlp.gate", "mlp.router",
                                          "block_sparse_moe.router"};

    for (int i = 0; i < 3; i++)
        if (is_there(weights, name, before, modules[i], out->b, out))
            return true;
    return false;
}

/* Tensors of gate and up, which come first, or of down, whatever the module is
 * called. */
static bool find_experts(const struct weights *weights, const char *name,
                         size_t before, struct stacked_place *out)
{
    static const char *const modules[][2] = {
        {"mlp.experts.base_layer", "mlp.experts"},
        {"block_sparse_moe.experts.base_layer", "block_sparse_moe.experts"},
        {"feed_forward.experts.base_layer", "feed_forward.experts"}};

    for (int i = 0; i < 3; i++) {
        const bool both =
            is_there(weights, name, before, modules[i][0], out->b, out);

        if (out->parts == 2 && both) return true;
        if (is_there(weights, name, before, modules[i][1], out->b, out))
            return true;
    }
    return false;
}

/* Do rows of gate and up alternate? */
static bool alternate(const struct decoder *d)
{
    return d->moe.stacks[0].name != NULL && d->moe.stacks[0].pairs;
}

bool stacked_part(const struct model *model, const char *name,
                  struct stacked_place *out, size_t *before)
{
    const struct decoder *d = model_decoder(model);
    const struct outside *const parts[] = {&d->moe.gate, &d->moe.up,
                                           &d->moe.down};
    const char *own = name + sizeof outer - 1;

    *out = (struct stacked_place){.experts = model->moe.experts,
                                 .pairs = alternate(d)};
    if (model->moe.experts == 0 ||
        strncmp(name, outer, sizeof outer - 1) != 0 ||
        !stack_skip(&own, model->kind->layer_prefix, &out->layer))
        return false;
    *before = (size_t)(own - name);
    for (int i = 0; i < 6 && parts[i / 2]->lora_a != NULL; i++) {
        const struct outside *part = parts[i / 2];
        const char *rest = own;

        out->b = i % 2 == 1;
        out->part = i / 2 % 2;
        out->parts = i / 2 < 2 ? 2 : 1;
        if (stack_skip(&rest, out->b ? part->lora_b : part->lora_a,
                       &out->expert) && *rest == 0)
            return true;
    }
    if (d->moe.router.lora_a == NULL) return false;
    out->b = strcmp(own, d->moe.router.lora_b) == 0;
    out->router = out->b || strcmp(own, d->moe.router.lora_a) == 0;
    return out->router;
}

/* A dimension of the tensor that is A, or B; -1: it is not there. */
static int64_t dimension(const struct weights *weights, char *name, bool b)
{
    name[strlen(name) - sizeof ".weight"] = b ? 'B' : 'A';
    const int index = weights_find(weights, name);

    return index < 0 ? -1 : weights->entries[index].tensor->shape[!b];
}

/* The other side of a matrix of adapters than its rank. */
static int64_t width_of(const struct stacked_place *place,
                        const int64_t *member)
{
    return place->b ? member[0] * place->parts : member[1];
}

static void turn(const struct model *model, const struct weights *weights,
                 const struct saved_part *member, struct stacked_place *place)
{
    const int64_t width = width_of(place, member->shape);
    const bool turned = dimension(weights, place->name, !place->b) == width;
    const bool plain = dimension(weights, place->name, place->b) == width;

    place->turned = turned == plain ? model_decoder(model)->moe.joined_turned
                                    : turned;
    dimension(weights, place->name, place->b != place->turned);
}

bool stacked_find(const struct model *model, const struct weights *weights,
                  const struct saved_part *member, struct stacked_place *out)
{
    const char *name = member->name;
    size_t before;

    if (weights_find(weights, name) >= 0 ||
        !stacked_part(model, name, out, &before))
        return false;
    if (out->router) return find_router(weights, name, before, out);
    if (!find_experts(weights, name, before, out)) return false;
    turn(model, weights, member, out);
    return true;
}

void stacked_shape(const struct stacked_place *place, const int64_t *member,
                   int64_t rank, int64_t shape[2])
{
    const bool b = place->b != place->turned;

    shape[b] = rank * place->experts;
    shape[!b] = width_of(place, member);
}

struct stacked_row stacked_row(const struct stacked_place *place,
                               const int64_t shape[2], int64_t skip,
                               int64_t row)
{
    const bool b = place->b != place->turned;
    const int64_t rank = shape[b] / place->experts, width = shape[!b];
    const int64_t next = b ? place->experts : width; /* of the rank */
    const int64_t beside = b ? shape[1] : 1;         /* of the width */
    const int64_t first =
        place->expert * (b ? 1 : rank * width) + skip * next;

    if (!place->b)
        return (struct stacked_row){first + row * next, beside};
    const int64_t at = place->pairs && place->parts == 2
                           ? row * 2 + place->part
                           : width / place->parts * place->part + row;

    return (struct stacked_row){first + at * beside, next};
}

status stacked_need(struct weights *weights, const struct stacked_place *place,
                    const struct saved_part *member)
{
    int64_t shape[2] = {member->shape[0], member->shape[1]};
    int index;

    if (!place->router && (place->expert > 0 || place->part > 0)) return OK;
    if (!place->router)
        stacked_shape(place, member->shape, member->shape[place->b], shape);
    return weights_need(weights, place->name, 2, shape, &index);
}

void stacked_room_free(struct stacked_room *room)
{
    for (int i = 0; i < 4; i++) memory_free(room->of[i].data);
    *room = (struct stacked_room){.next = 0};
}

/* All of a tensor; experts come one after the other, and each wants parts of
 * the same four. */
static status read_whole(const struct weights *weights, int index,
                         int64_t elements, enum dtype dtype,
                         struct stacked_room *room, const void **out)
{
    const int at = room->next;

    for (int i = 0; i < 4; i++) {
        *out = room->of[i].data;
        if (*out != NULL && room->of[i].index == index) return OK;
    }
    memory_free(room->of[at].data);
    room->of[at].data = NULL;
    TRY(memory_take((size_t)elements, (size_t)dtype_bytes(dtype),
                    &room->of[at].data));
    room->of[at].index = index;
    room->next = (at + 1) % 4;
    *out = room->of[at].data;
    return weights_read_finite(weights, index, 0, elements, dtype,
                               room->of[at].data);
}

status stacked_read(const struct weights *weights,
                    const struct stacked_place *place,
                    const struct saved_part *member, struct stacked_room *room,
                    void *out)
{
    const int64_t rows = member->shape[0], cols = member->shape[1];
    const size_t bytes = (size_t)dtype_bytes(member->dtype);
    const int index = weights_find(weights, place->name);
    const void *all = NULL;
    int64_t shape[2];

    if (place->router || (!place->b && !place->turned))
        return weights_read_finite(weights, index,
                                   place->router ? 0
                                                 : place->expert * rows * cols,
                                   rows * cols, member->dtype, out);
    stacked_shape(place, member->shape, member->shape[place->b], shape);
    TRY(read_whole(weights, index, shape[0] * shape[1], member->dtype, room,
                   &all));
    for (int64_t row = 0; row < rows; row++) {
        const struct stacked_row at = stacked_row(place, shape, 0, row);

        convert_elements((struct spacing){member->dtype, 1},
                         (char *)out + (size_t)(row * cols) * bytes,
                         (struct spacing){member->dtype, at.step},
                         (const char *)all + (size_t)at.first * bytes, cols);
    }
    return OK;
}
