/* SPDX-License-Identifier: Apache-2.0 */
/* stacked_adapters_write.c - adapters of all experts into one tensor, as PEFT
 * keeps those of models whose experts share a parameter.
 *
 *   A    of expert e: rows of gate's A, then of up's
 *   B    [rows of gate and up, rank * experts]: gate has the first columns of
 *        the rank, up the others; elsewhere 0
 *
 * or turned (stacked_adapters.h). */
#include <stdio.h>
#include <string.h>

#include "checkpoint/convert.h"
#include "checkpoint/safetensors.h"
#include "checkpoint/safetensors_write.h"
#include "inference/stacked_adapters.h"
#include "models/decoder.h"
#include "models/lora.h"

enum { NAME_BYTES = sizeof ((struct stacked_place *)0)->name };

/* A matrix of the file of single experts, and the tensor that it comes into. */
struct source { struct stacked_place place; int tensor; };

struct joining {
    const struct model *model;
    struct safetensors file;             /* of single experts */
    struct source *sources;              /* owned [file.count] */
    struct safetensors_tensor *tensors;  /* [count] */
    char (*names)[NAME_BYTES];           /* [count] */
    int count;
};

/* The name of its tensor; returns the rank there, 0: a tensor by itself. */
static int name_joined(const struct joining *j, const char *name,
                       size_t before, struct stacked_place *place)
{
    const struct decoder *d = model_decoder(j->model);
    double alpha;
    const int up = lora_joint(j->model, place->layer, false, &alpha);
    const int down = lora_joint(j->model, place->layer, true, &alpha);
    const bool inner = !place->router && place->parts == 2 && down > 0;

    place->turned = !place->router && d->moe.joined_turned;
    snprintf(place->name, NAME_BYTES, "%.*s%s%s.lora_%c.weight", (int)before,
             name, place->router ? d->moe.joined_router : d->moe.joined,
             inner ? ".base_layer" : "",
             place->b != place->turned ? 'B' : 'A');
    if (place->router) return 0;
    return place->parts == 2 ? up : down;
}

static void describe(struct joining *j, int index)
{
    const struct safetensors_entry *entry = &j->file.entries[index];
    struct source *source = &j->sources[index];
    struct stacked_place *place = &source->place;
    struct safetensors_tensor tensor = {
        .dtype = entry->dtype, .dimensions = 2,
        .shape = {entry->shape[0], entry->shape[1]}};
    size_t before;
    int rank = 0;

    if (stacked_part(j->model, entry->name, place, &before))
        rank = name_joined(j, entry->name, before, place);
    else
        snprintf(place->name, NAME_BYTES, "%s", entry->name);
    if (rank == 0) place->parts = 0;
    if (rank > 0) stacked_shape(place, entry->shape, rank, tensor.shape);
    for (source->tensor = j->count - 1; source->tensor >= 0; source->tensor--)
        if (strcmp(j->names[source->tensor], place->name) == 0) return;
    source->tensor = j->count++;
    memcpy(j->names[source->tensor], place->name, NAME_BYTES);
    tensor.name = j->names[source->tensor];
    j->tensors[source->tensor] = tensor;
}

/* Where a row of a matrix lies in its tensor. */
static struct stacked_row place_row(const struct joining *j, int index,
                                    int64_t row)
{
    const struct safetensors_entry *entry = &j->file.entries[index];
    const struct stacked_place *place = &j->sources[index].place;
    const int64_t *whole = j->tensors[j->sources[index].tensor].shape;
    int64_t skip = 0; /* what gate has of the rank */

    if (place->parts == 0)
        return (struct stacked_row){row * entry->shape[1], 1};
    if (place->part == 1)
        skip = whole[place->b != place->turned] / place->experts -
               entry->shape[place->b];
    return stacked_row(place, whole, skip, row);
}

static status put_member(const struct joining *j, int index, void *all)
{
    const struct safetensors_entry *entry = &j->file.entries[index];
    const int64_t rows = entry->shape[0], cols = entry->shape[1];
    const size_t bytes = (size_t)dtype_bytes(entry->dtype);
    void *memory;

    TRY(memory_take((size_t)(rows * cols), bytes, &memory));
    const status result = safetensors_read(&j->file, entry, 0, rows * cols,
                                           entry->dtype, memory);

    for (int64_t row = 0; result == OK && row < rows; row++) {
        const struct stacked_row at = place_row(j, index, row);

        convert_elements((struct spacing){entry->dtype, at.step},
                         (char *)all + (size_t)at.first * bytes,
                         (struct spacing){entry->dtype, 1},
                         (char *)memory + (size_t)(row * cols) * bytes, cols);
    }
    memory_free(memory);
    return result;
}

static status put_tensor(const struct joining *j, int tensor,
                         const struct safetensors_writer *writer)
{
    const struct safetensors_tensor *to = &j->tensors[tensor];
    const int64_t elements = to->shape[0] * to->shape[1];
    const size_t bytes = (size_t)dtype_bytes(to->dtype);
    status result = OK;
    void *all;

    TRY(memory_take((size_t)elements, bytes, &all));
    memset(all, 0, (size_t)elements * bytes);
    for (int i = 0; result == OK && i < j->file.count; i++)
        if (j->sources[i].tensor == tensor) result = put_member(j, i, all);
    if (result == OK)
        result = safetensors_writer_put(writer, tensor, 0, elements, all);
    memory_free(all);
    return result;
}

static status joining_open(struct joining *j, const char *path)
{
    const size_t each = sizeof *j->sources + sizeof *j->tensors +
                        sizeof *j->names;
    void *memory;

    TRY(safetensors_open(&j->file, path, true));
    TRY(memory_take((size_t)j->file.count, each, &memory));
    j->tensors = memory;
    j->sources = (void *)(j->tensors + j->file.count);
    j->names = (void *)(j->sources + j->file.count);
    for (int i = 0; i < j->file.count; i++) describe(j, i);
    return OK;
}

status stacked_write(const struct model *model, const char *path, int *count)
{
    struct safetensors_writer writer = {0};
    struct joining j = {.model = model};
    status result;

    TRY_GOTO(done, result, joining_open(&j, path));
    TRY_GOTO(done, result,
             safetensors_writer_open(&writer, path, j.tensors, j.count));
    for (int i = 0; i < j.count; i++)
        TRY_GOTO(done, result, put_tensor(&j, i, &writer));
    TRY_GOTO(done, result, safetensors_writer_commit(&writer));
    *count = j.count;
done:
    safetensors_writer_free(&writer);
    safetensors_close(&j.file);
    memory_free(j.tensors);
    return result;
}
