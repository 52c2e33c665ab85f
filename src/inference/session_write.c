/* SPDX-License-Identifier: Apache-2.0 */
/* session_write.c - the parameters of a stage as safetensors. */
#include <string.h>

#include "checkpoint/convert.h"
#include "checkpoint/weights_write.h"
#include "inference/expert_stack.h"
#include "inference/session_parts.h"

enum { TRANSFER_BYTES = 1 << 20 /* of one transfer */ };

static bool is_dense(const struct saved_part *part)
{
    return part->run_count == 1 && part->runs->repeats == 1 &&
           part->runs->local_step <= 1;
}

static enum dtype written_type(const struct session_parts *parts,
                               const struct saved_part *part)
{
    return parts->rounded ? parts->written : part->dtype;
}

/* buffer = elements [first, first + count) of the whole, of the type `to`. */
static void copy_elements(const struct saved_part *part, enum dtype to,
                          int64_t first, int64_t count, void *buffer)
{
    const size_t bytes = (size_t)dtype_bytes(part->dtype);
    const size_t wide = (size_t)dtype_bytes(to);

    for (int i = 0; i < part->run_count; i++) {
        struct saved_stretch piece;
        int64_t row = 0;

        while (run_next(&part->runs[i], first, first + count, &row, &piece))
            convert_elements(
                (struct spacing){to, 1},
                (char *)buffer + (size_t)(piece.whole - first) * wide,
                (struct spacing){part->dtype, piece.step},
                (const char *)part->data + (size_t)piece.local * bytes,
                piece.count);
    }
}

/* One file or several: the only difference between the two forms. */
struct target {
    const struct safetensors_writer *file; /* NULL: the shards */
    const struct weights_writer *shards;
};

static status put(const struct target *to, int index, int64_t first,
                  int64_t count, const void *elements)
{
    if (to->file != NULL)
        return safetensors_writer_put(to->file, index, first, count,
                                      elements);
    return weights_writer_put(to->shards, index, first, count, elements);
}

/* A part that is a tensor of the file by itself. */
static status put_part(const struct target *to, int index,
                       const struct saved_part *part, enum dtype type,
                       void *buffer)
{
    const int64_t most = TRANSFER_BYTES / dtype_bytes(type);
    int64_t elements;

    TRY(part_elements(part->name, part->dimensions, part->shape, part->dtype,
                      &elements));
    if (is_dense(part) && type == part->dtype)
        return put(to, index, 0, elements, part->data);
    for (int64_t first = 0; first < elements; first += most) {
        const int64_t left = elements - first;
        const int64_t count = left < most ? left : most;

        copy_elements(part, type, first, count, buffer);
        TRY(put(to, index, first, count, buffer));
    }
    return OK;
}

/* ---- tensors of all experts ---- */

/* A member of an expert's part of a stack, into its place there. */
static void place_member(const struct stack_place *place,
                         const struct saved_part *part, enum dtype type,
                         void *row_of, void *all)
{
    const int64_t cols = stack_cols(part);
    const size_t bytes = (size_t)dtype_bytes(type);

    for (int64_t row = 0; row < stack_rows(part); row++) {
        const struct stack_row at = stack_row(place, part, row);

        copy_elements(part, type, row * cols, cols, row_of);
        convert_elements((struct spacing){type, at.step},
                         (char *)all + (size_t)at.first * bytes,
                         (struct spacing){type, 1}, row_of, cols);
    }
}

/* The members of one expert, which follow each other, from `part` on. */
static status put_expert(const struct target *to, int index,
                         const struct stack_place *first,
                         const struct saved_part *part, enum dtype type)
{
    const int64_t each = stack_each(first, part);
    struct stack_place place = *first;
    void *memory;
    status result;

    TRY(memory_take((size_t)(each + stack_cols(part)),
                    (size_t)dtype_bytes(type), &memory));
    for (place.part = 0; place.part < place.parts; place.part++)
        place_member(&place, part + place.part, type,
                     (char *)memory + (size_t)each *
                                          (size_t)dtype_bytes(type),
                     memory);
    result = put(to, index, place.expert * each, each, memory);
    memory_free(memory);
    return result;
}

static status put_all(const struct target *to,
                      const struct session_parts *parts, void *buffer)
{
    int index = -1;

    for (int i = 0; i < parts->count; i++) {
        const struct saved_part *part = &parts->items[i];
        const enum dtype type = written_type(parts, part);
        struct stack_place place;

        if (parts->kind == NULL ||
            !stack_find(parts->kind, part->name, &place)) {
            TRY(put_part(to, ++index, part, type, buffer));
            continue;
        }
        index += place.expert == 0 && place.part == 0;
        if (place.part == 0)
            TRY(put_expert(to, index, &place, part, type));
    }
    return OK;
}

/* The tensors of the file; *count: how many. Members of a stack follow each
 * other, expert by expert. */
static status describe(const struct session_parts *parts,
                       struct safetensors_tensor **out, int *count)
{
    struct stack_place place;
    char *names;
    void *memory;

    TRY(memory_take((size_t)parts->count + 1,
                    sizeof **out + STACK_NAME_BYTES, &memory));
    *out = memory;
    names = (char *)(*out + parts->count + 1);
    *count = 0;
    for (int i = 0; i < parts->count; i++) {
        const struct saved_part *part = &parts->items[i];
        struct safetensors_tensor tensor = {
            .name = part->name, .dtype = written_type(parts, part),
            .dimensions = part->dimensions};

        memcpy(tensor.shape, part->shape, sizeof part->shape);
        if (parts->kind != NULL &&
            stack_find(parts->kind, part->name, &place)) {
            tensor.dimensions =
                stack_shape(&place, place.expert + 1, part, tensor.shape);
            if (place.expert > 0 || place.part > 0) --*count;
            tensor.name = memcpy(names + *count * STACK_NAME_BYTES,
                                 place.name, STACK_NAME_BYTES);
        }
        (*out)[(*count)++] = tensor;
    }
    return OK;
}

status session_parts_export(const struct session_parts *parts,
                            const char *directory)
{
    struct safetensors_tensor *tensors = NULL;
    struct weights_writer writer = {0};
    const struct target to = {.shards = &writer};
    void *buffer = NULL;
    status result;
    int count;

    TRY_GOTO(done, result, describe(parts, &tensors, &count));
    TRY_GOTO(done, result, memory_take(TRANSFER_BYTES, 1, &buffer));
    TRY_GOTO(done, result, weights_writer_open(&writer, directory, tensors,
                                               count, 0));
    TRY_GOTO(done, result, put_all(&to, parts, buffer));
    TRY_GOTO(done, result, weights_writer_commit(&writer));
done:
    weights_writer_free(&writer);
    memory_free(buffer);
    memory_free(tensors);
    return result;
}

status session_parts_write(const struct session_parts *parts,
                           const char *path)
{
    struct safetensors_tensor *tensors = NULL;
    struct safetensors_writer writer = {0};
    const struct target to = {.file = &writer};
    void *buffer = NULL;
    status result;
    int count;

    TRY_GOTO(done, result, describe(parts, &tensors, &count));
    TRY_GOTO(done, result, memory_take(TRANSFER_BYTES, 1, &buffer));
    TRY_GOTO(done, result, safetensors_writer_open_alone(&writer, path,
                                                         tensors, count));
    TRY_GOTO(done, result, put_all(&to, parts, buffer));
    TRY_GOTO(done, result, safetensors_writer_commit(&writer));
done:
    safetensors_writer_free(&writer);
    memory_free(buffer);
    memory_free(tensors);
    return result;
}
