/* SPDX-License-Identifier: Apache-2.0 */
/* session_parts.c - the parameters of a stage under the names and in the
 * shapes that they have outside. */
#include "train/session_parts.h"

#include <string.h>

#include "checkpoint/convert.h"
#include "checkpoint/identity.h"
#include "checkpoint/weights_write.h"

enum { CHUNK_BYTES = 1 << 20 }; /* of one transfer */

/* ---- the table ---- */

static status reserve(struct session_parts *parts, int more)
{
    const int needed = parts->count + more;
    void *memory;

    if (parts->arena.name == NULL) arena_init(&parts->arena, "parts", 0);
    if (needed <= parts->capacity) return OK;
    TRY(arena_take_array(&parts->arena, (size_t)needed, sizeof *parts->items,
                         &memory));
    if (parts->count > 0)
        memcpy(memory, parts->items,
               (size_t)parts->count * sizeof *parts->items);
    parts->items = memory;
    parts->capacity = needed;
    return OK;
}

/* Where the piece's elements lie: one run, whatever the turn. */
static status add_piece(struct session_parts *parts,
                        const struct param_outside *piece, const char *kind,
                        enum dtype dtype, void *data)
{
    struct saved_part *part = &parts->items[parts->count];
    struct saved_run *run;
    void *memory;
    char *name;

    TRY(arena_copy_text(&parts->arena, piece->name, &name));
    TRY(arena_take(&parts->arena, sizeof *run, &memory));
    run = memory;
    *part = (struct saved_part){.name = name, .kind = kind, .dtype = dtype,
                                .run_count = 1, .runs = run, .data = data};
    if (piece->vector) {
        part->dimensions = 1;
        part->shape[0] = piece->rows * piece->cols;
        *run = (struct saved_run){.length = part->shape[0], .repeats = 1,
                                  .whole_stride = part->shape[0]};
    } else if (piece->transposed) {
        part->dimensions = 2;
        part->shape[0] = piece->cols;
        part->shape[1] = piece->rows;
        *run = (struct saved_run){.length = piece->rows,
                                  .repeats = piece->cols,
                                  .whole_stride = piece->rows,
                                  .local_stride = 1,
                                  .local_step = piece->cols};
    } else {
        part->dimensions = 2;
        part->shape[0] = piece->rows;
        part->shape[1] = piece->cols;
        *run = (struct saved_run){.length = piece->rows * piece->cols,
                                  .repeats = 1,
                                  .whole_stride = piece->rows * piece->cols};
    }
    parts->count++;
    return part_check(part);
}

status session_parts_add(struct session_parts *parts,
                         const struct stage *stage, const char *kind,
                         void *flat)
{
    const struct param_table *table = &stage->program.params;
    const char *prefix = stage->request.model->kind->layer_prefix;
    const enum dtype dtype = stage->program.dtype;

    TRY(reserve(parts, table->count * PARAM_PIECES_MAX));
    for (int i = 0; i < table->count; i++) {
        const struct param *param = &table->items[i];
        struct param_outside piece;

        for (int j = 0; param_outside(param, prefix, j, &piece); j++) {
            /* Rows of a vector are its elements, and cols is 1. */
            const int64_t first =
                param->offset +
                piece.first_row * (piece.vector ? 1 : piece.cols);

            TRY(add_piece(parts, &piece, kind, dtype,
                          (char *)flat + first * dtype_bytes(dtype)));
        }
    }
    return OK;
}

void session_parts_free(struct session_parts *parts)
{
    arena_free(&parts->arena);
    *parts = (struct session_parts){0};
}

/* ---- from a checkpoint ---- */

status session_parts_load(const struct session_parts *parts,
                          struct checkpoint *checkpoint)
{
    if (parts->count > 0 && part_is_weight(&parts->items[0]))
        TRY(checkpoint_match_model(checkpoint, parts->items, parts->count,
                                   NULL));
    for (int i = 0; i < parts->count; i++)
        TRY(checkpoint_read_tensor(checkpoint, &parts->items[i]));
    return OK;
}

/* ---- from a Hugging Face directory ---- */

static bool is_dense(const struct saved_part *part)
{
    return part->runs->local_step <= 1;
}

/* Elements [first, first + count) of the whole, from a dense buffer into the
 * part (to_part) or back. */
static void move_elements(const struct saved_part *part, int64_t first,
                          int64_t count, void *buffer, bool to_part)
{
    const size_t bytes = (size_t)dtype_bytes(part->dtype);
    const struct spacing packed = {part->dtype, 1};
    struct saved_stretch piece;
    int64_t row = 0;

    while (run_next(part->runs, first, first + count, &row, &piece)) {
        char *dense = (char *)buffer + (size_t)(piece.whole - first) * bytes;
        char *local = (char *)part->data + (size_t)piece.local * bytes;
        const struct spacing spread = {part->dtype, piece.step};

        if (to_part)
            convert_elements(spread, local, packed, dense, piece.count);
        else
            convert_elements(packed, dense, spread, local, piece.count);
    }
}

static status read_part(const struct weights *weights, int index,
                        const struct saved_part *part, void *buffer)
{
    const int64_t chunk = CHUNK_BYTES / dtype_bytes(part->dtype);
    int64_t elements;

    TRY(part_elements(part->name, part->dimensions, part->shape, part->dtype,
                      &elements));
    if (is_dense(part))
        return weights_read(weights, index, 0, elements, part->dtype,
                            part->data);
    for (int64_t first = 0; first < elements; first += chunk) {
        const int64_t left = elements - first;
        const int64_t count = left < chunk ? left : chunk;

        TRY(weights_read(weights, index, first, count, part->dtype, buffer));
        move_elements(part, first, count, buffer, true);
    }
    return OK;
}

/* The first word of the family's names when the file leaves it out, else "":
 * such files come from the model without its head. */
static const char *missing_word(const struct session_parts *parts,
                                const struct model *model,
                                const struct weights *weights,
                                char word[PARAM_NAME_BYTES])
{
    const char *prefix = model->kind->layer_prefix;
    const char *dot = strchr(prefix, '.');

    CHECK(dot != NULL && dot + 1 - prefix < PARAM_NAME_BYTES);
    memcpy(word, prefix, (size_t)(dot + 1 - prefix));
    word[dot + 1 - prefix] = 0;
    for (int i = 0; i < parts->count; i++) {
        const char *name = parts->items[i].name;

        if (strncmp(name, word, strlen(word)) != 0) continue;
        if (weights_find(weights, name) >= 0) break;
        if (weights_find(weights, name + strlen(word)) >= 0) return word;
    }
    word[0] = 0;
    return word;
}

/* A tied model's file may carry the head again: only if it says the same. */
static status check_tied(struct weights *weights,
                         const struct saved_part *table, int index,
                         void *buffer)
{
    const int64_t chunk = CHUNK_BYTES / 2 / dtype_bytes(DTYPE_F64);
    double *one = buffer, *other = one + chunk;
    const int64_t elements = table->shape[0] * table->shape[1];
    int head;

    if (weights_find(weights, "lm_head.weight") < 0) return OK;
    TRY(weights_need(weights, "lm_head.weight", 2, table->shape, &head));
    for (int64_t first = 0; first < elements; first += chunk) {
        const int64_t left = elements - first;
        const int64_t count = left < chunk ? left : chunk;

        TRY(weights_read(weights, index, first, count, DTYPE_F64, one));
        TRY(weights_read(weights, head, first, count, DTYPE_F64, other));
        if (memcmp(one, other, (size_t)count * sizeof *one) != 0)
            FAIL(ERR_FORMAT, "%s: config.json ties the head to the embedding, "
                             "but lm_head.weight differs from %s; set "
                             "tie_word_embeddings to false",
                 weights->directory, table->name);
    }
    return OK;
}

static status import_all(const struct session_parts *parts,
                         const struct model *model, struct weights *weights,
                         void *buffer)
{
    /* Ends of names: GPT-2's causal masks, Llama's rotary frequencies. */
    static const char *const buffers[] = {
        ".attn.bias", ".attn.masked_bias", ".rotary_emb.inv_freq"};
    char storage[PARAM_NAME_BYTES];
    const char *word = missing_word(parts, model, weights, storage);
    const size_t skip = strlen(word);

    for (int i = 0; i < parts->count; i++) {
        const struct saved_part *part = &parts->items[i];
        const char *name = part->name;
        int index;

        if (!part_is_weight(part)) continue;
        if (skip > 0 && strncmp(name, word, skip) == 0) name += skip;
        TRY(weights_need(weights, name, part->dimensions, part->shape,
                         &index));
        TRY(read_part(weights, index, part, buffer));
        if (i == 0 && model->tied)
            TRY(check_tied(weights, part, index, buffer));
    }
    return weights_all_used(weights, buffers,
                            (int)(sizeof buffers / sizeof *buffers));
}

status session_parts_import(const struct session_parts *parts,
                            const struct model *model,
                            struct weights *weights)
{
    void *buffer = NULL;
    status result;

    TRY(memory_take(CHUNK_BYTES, 1, &buffer));
    result = import_all(parts, model, weights, buffer);
    memory_free(buffer);
    return result;
}

/* ---- to safetensors ---- */

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

static status put_all(const struct target *to,
                      const struct session_parts *parts, void *buffer)
{
    for (int i = 0; i < parts->count; i++) {
        const struct saved_part *part = &parts->items[i];
        const int64_t chunk = CHUNK_BYTES / dtype_bytes(part->dtype);
        int64_t elements;

        TRY(part_elements(part->name, part->dimensions, part->shape,
                          part->dtype, &elements));
        if (is_dense(part)) {
            TRY(put(to, i, 0, elements, part->data));
            continue;
        }
        for (int64_t first = 0; first < elements; first += chunk) {
            const int64_t left = elements - first;
            const int64_t count = left < chunk ? left : chunk;

            move_elements(part, first, count, buffer, false);
            TRY(put(to, i, first, count, buffer));
        }
    }
    return OK;
}

static status describe(const struct session_parts *parts,
                       struct safetensors_tensor **out)
{
    void *memory;

    TRY(memory_take((size_t)parts->count + 1, sizeof **out, &memory));
    *out = memory;
    for (int i = 0; i < parts->count; i++) {
        const struct saved_part *part = &parts->items[i];

        (*out)[i] = (struct safetensors_tensor){
            .name = part->name, .dtype = part->dtype,
            .dimensions = part->dimensions};
        memcpy((*out)[i].shape, part->shape, sizeof part->shape);
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

    TRY_GOTO(done, result, describe(parts, &tensors));
    TRY_GOTO(done, result, memory_take(CHUNK_BYTES, 1, &buffer));
    TRY_GOTO(done, result, weights_writer_open(&writer, directory, tensors,
                                               parts->count, 0));
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

    TRY_GOTO(done, result, describe(parts, &tensors));
    TRY_GOTO(done, result, memory_take(CHUNK_BYTES, 1, &buffer));
    TRY_GOTO(done, result, safetensors_writer_open(&writer, path, tensors,
                                                   parts->count));
    TRY_GOTO(done, result, put_all(&to, parts, buffer));
    TRY_GOTO(done, result, safetensors_writer_commit(&writer));
done:
    safetensors_writer_free(&writer);
    memory_free(buffer);
    memory_free(tensors);
    return result;
}
