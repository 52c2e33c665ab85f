/* SPDX-License-Identifier: Apache-2.0 */
/* session_import.c - weights from a Hugging Face directory, as far as this
 * rank holds them. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "checkpoint/convert.h"
#include "inference/expert_stack.h"
#include "inference/session_parts.h"
#include "inference/stacked_adapters.h"
#include "inference/upcycle.h"
#include "models/decoder.h"

enum {
    TRANSFER_BYTES = 1 << 20, /* of one transfer */
    NAME_BYTES = 2 * PARAM_NAME_BYTES + 32 /* outside, with a word more */
};

/* The hull of what the part has of elements [*first, *last). False: nothing.
 */
static bool narrow(const struct saved_part *part, int64_t *first,
                   int64_t *last)
{
    int64_t low = *last, high = *first;

    for (int i = 0; i < part->run_count; i++) {
        struct saved_stretch piece;
        int64_t row = 0;

        while (run_next(&part->runs[i], *first, *last, &row, &piece)) {
            if (piece.whole < low) low = piece.whole;
            if (piece.whole + piece.count > high)
                high = piece.whole + piece.count;
        }
    }
    *first = low;
    *last = high;
    return low < high;
}

/* Elements [first, last) of the whole, from a dense buffer into the part. */
static void move_elements(const struct saved_part *part, int64_t first,
                          int64_t last, const void *buffer)
{
    const size_t bytes = (size_t)dtype_bytes(part->dtype);

    for (int i = 0; i < part->run_count; i++) {
        struct saved_stretch piece;
        int64_t row = 0;

        while (run_next(&part->runs[i], first, last, &row, &piece))
            convert_elements(
                (struct spacing){part->dtype, piece.step},
                (char *)part->data + (size_t)piece.local * bytes,
                (struct spacing){part->dtype, 1},
                (const char *)buffer + (size_t)(piece.whole - first) * bytes,
                piece.count);
    }
}

/* One stretch that lies as it does in the file. */
static bool is_dense(const struct saved_part *part)
{
    return part->run_count == 1 && part->runs->repeats == 1 &&
           part->runs->local_step <= 1;
}

static status read_part(const struct weights *weights, int index,
                        const struct saved_part *part, void *buffer)
{
    const int64_t most = TRANSFER_BYTES / dtype_bytes(part->dtype);
    const struct saved_run *run = part->runs;
    int64_t elements;

    TRY(part_elements(part->name, part->dimensions, part->shape, part->dtype,
                      &elements));
    if (is_dense(part))
        return weights_read_finite(
            weights, index, run->whole_first, run->length, part->dtype,
            (char *)part->data + run->local_first * dtype_bytes(part->dtype));
    for (int64_t at = 0; at < elements; at += most) {
        int64_t first = at;
        int64_t last = elements - at < most ? elements : at + most;

        if (!narrow(part, &first, &last)) continue;
        TRY(weights_read_finite(weights, index, first, last - first,
                                part->dtype, buffer));
        move_elements(part, first, last, buffer);
    }
    return OK;
}

/* A member of a tensor of all experts. */
static status read_member(const struct weights *weights, const char *name,
                          const struct stack_place *place,
                          const struct saved_part *part)
{
    const int64_t elements = stack_rows(part) * stack_cols(part);
    void *whole = NULL;
    status result;

    TRY(memory_take((size_t)elements, (size_t)dtype_bytes(part->dtype),
                    &whole));
    result = place->packed
                 ? stack_read_packed(weights, name, place, part, whole)
                 : stack_read(weights, weights_find(weights, name), place,
                              part, whole);
    if (result == OK) move_elements(part, 0, elements, whole);
    memory_free(whole);
    return result;
}

/* An adapter in a tensor of those of all experts. */
static status read_joined(const struct weights *weights,
                          const struct stacked_place *place,
                          const struct saved_part *part,
                          struct stacked_room *room)
{
    const int64_t elements = part->shape[0] * part->shape[1];
    void *whole = NULL;
    status result;

    TRY(memory_take((size_t)elements, (size_t)dtype_bytes(part->dtype),
                    &whole));
    result = stacked_read(weights, place, part, room, whole);
    if (result == OK) move_elements(part, 0, elements, whole);
    memory_free(whole);
    return result;
}

/* The words that a file may use for the first word of the family's names. An
 * empty word: the file comes from the model without its head. language_model:
 * the file comes from a model that sees images, as transformers 5 and 4 name
 * it; `head` is the beginning of its head's name there. */
static const struct instead { const char *word, *head; bool images; }
    insteads[] = {{"", "", false},
                  {"model.language_model.", "", true},
                  {"language_model.model.", "language_model.", true}};
enum { INSTEADS = sizeof insteads / sizeof *insteads };

struct naming {
    char word[NAME_BYTES]; /* of the family */
    const struct instead *instead; /* NULL: the same word */
    const char *table, *head; /* a tied table that has its head's name there;
                               * NULL: its own */
    const char *head_before;  /* the family's name of a head that the file
                               * calls lm_head; NULL: the same name */
    const struct model *model;
    const struct model_kind *dense; /* the file's; NULL: the model's own */
    const struct weights *weights;  /* of the file */
};

/* As transformers 5 calls every head, GPT-NeoX's too. */
static const char usual_head[] = "lm_head.weight";

/* The tensor's name in this file. */
static const char *file_name(const struct naming *naming, const char *name,
                             char out[NAME_BYTES])
{
    const size_t skip = strlen(naming->word);

    if (naming->table != NULL && strcmp(name, naming->table) == 0)
        name = naming->head;
    if (naming->head_before != NULL && strcmp(name, naming->head_before) == 0)
        name = usual_head;
    if (naming->instead == NULL) return name;
    if (strncmp(name, naming->word, skip) == 0)
        snprintf(out, NAME_BYTES, "%s%s", naming->instead->word,
                 name + skip);
    else
        snprintf(out, NAME_BYTES, "%s%s", naming->instead->head, name);
    return out;
}

static void find_naming(const struct session_parts *parts,
                        const struct model *model,
                        const struct weights *weights, struct naming *naming)
{
    const char *prefix = model->kind->layer_prefix;
    const char *dot = strchr(prefix, '.');

    CHECK(dot != NULL && dot + 1 - prefix < NAME_BYTES);
    *naming = (struct naming){.instead = NULL};
    memcpy(naming->word, prefix, (size_t)(dot + 1 - prefix));
    for (int i = 0; i < parts->count; i++) {
        const char *name = parts->items[i].name;
        char other[NAME_BYTES];

        if (strncmp(name, naming->word, strlen(naming->word)) != 0) continue;
        if (weights_find(weights, name) >= 0) return;
        for (int j = 0; j < INSTEADS; j++) {
            naming->instead = &insteads[j];
            if (weights_find(weights, file_name(naming, name, other)) >= 0)
                return;
        }
        naming->instead = NULL;
    }
}

static const char *head_of(const struct model *model)
{
    const struct decoder *decoder = model->kind->decoder;

    return decoder != NULL ? decoder->head : usual_head;
}

/* A head under its usual name, where the family's own is not in the file. */
static void find_head(const struct model *model, const struct weights *weights,
                      struct naming *naming)
{
    char name[NAME_BYTES];

    if (weights_find(weights, file_name(naming, head_of(model), name)) >= 0)
        return;
    naming->head_before = head_of(model);
    if (weights_find(weights, file_name(naming, head_of(model), name)) < 0)
        naming->head_before = NULL;
}

/* Some writers keep the head instead of the tied table. */
static void find_table(const struct session_parts *parts,
                       const struct model *model,
                       const struct weights *weights, struct naming *naming)
{
    const char *table = parts->count > 0 ? parts->items[0].name : NULL;
    char name[NAME_BYTES];

    if (!model->tied || table == NULL ||
        weights_find(weights, file_name(naming, table, name)) >= 0 ||
        weights_find(weights, file_name(naming, head_of(model), name)) < 0)
        return;
    naming->table = table;
    naming->head = head_of(model);
}

/* Skips tensors whose names begin so, and returns how many there are. */
static int skip_beginning(struct weights *weights, const char *with)
{
    int skipped = 0;

    for (int i = 0; i < weights->count; i++) {
        if (strncmp(weights->entries[i].tensor->name, with, strlen(with)) != 0)
            continue;
        weights->entries[i].uses = 1;
        skipped++;
    }
    return skipped;
}

/* Skips the parts that see images. */
static void skip_images(struct weights *weights)
{
    static const char *const parts[] = {
        "vision_tower.", "multi_modal_projector.", "model.vision_tower.",
        "model.multi_modal_projector."};

    for (int i = 0; i < 4; i++) (void)skip_beginning(weights, parts[i]);
}

/* Modules for later tokens in a form that no library reads. */
static void skip_left_out(const struct model *model, struct weights *weights)
{
    const char *with = model->kind->files.left_out;
    const int skipped = with == NULL ? 0 : skip_beginning(weights, with);

    if (skipped > 0)
        LOG(INFO, "model", "%s: %d tensors %s*, which predict later tokens, "
            "are left out", weights->directory, skipped, with);
}

/* Skips the blocks behind the last one, which predict later tokens. */
static void skip_blocks(const struct model *model, struct weights *weights)
{
    const char *prefix = model->kind->layer_prefix;
    const char *mark = strstr(prefix, "%d");
    int skipped = 0;

    CHECK(mark != NULL);
    for (int i = 0; i < weights->count; i++) {
        const char *name = weights->entries[i].tensor->name;
        const size_t before = (size_t)(mark - prefix);

        if (strncmp(name, prefix, before) != 0 ||
            atoll(name + before) < model->layers)
            continue;
        skipped += weights->entries[i].uses == 0;
        weights->entries[i].uses = 1;
    }
    if (skipped > 0)
        LOG(INFO, "model", "%s: %d tensors of blocks behind the last one, "
            "which predict later tokens, are left out", weights->directory,
            skipped);
}

/* A tied model's file may carry the head again: only if it says the same. */
static status check_tied(const struct model *model, struct weights *weights,
                         const struct saved_part *table,
                         const struct naming *naming, void *buffer)
{
    const int64_t most = TRANSFER_BYTES / 2 / dtype_bytes(DTYPE_F64);
    double *one = buffer, *other = one + most;
    const int64_t elements = table->shape[0] * table->shape[1];
    const char *name = head_of(model);
    char one_name[NAME_BYTES], other_name[NAME_BYTES];
    const int index = weights_find(weights, file_name(naming, table->name,
                                                      one_name));
    int head;

    name = file_name(naming, name, other_name);
    if (naming->table != NULL || weights_find(weights, name) < 0) return OK;
    TRY(weights_need(weights, name, 2, table->shape, &head));
    for (int64_t first = 0; first < elements; first += most) {
        const int64_t left = elements - first;
        const int64_t count = left < most ? left : most;

        TRY(weights_read(weights, index, first, count, DTYPE_F64, one));
        TRY(weights_read(weights, head, first, count, DTYPE_F64, other));
        if (memcmp(one, other, (size_t)count * sizeof *one) != 0)
            FAIL(ERR_FORMAT, "%s: config.json ties the head to the embedding, "
                             "but %s differs from %s; set "
                             "tie_word_embeddings to false",
                 weights->directory, name, table->name);
    }
    return OK;
}

/* The tensor's name where the file is dense and the model a mixture. NULL: it
 * is not in the file. */
static const char *source_name(const struct naming *naming, const char *name,
                               char out[NAME_BYTES], bool *copy)
{
    char dense[NAME_BYTES], held[STACK_NAME_BYTES], other[NAME_BYTES];
    const char *found;

    *copy = false;
    if (naming->dense != NULL)
        name = upcycle_name(naming->model, naming->dense, name, dense,
                            sizeof dense, copy);
    if (name == NULL) return NULL;
    found = file_name(naming, name, out);
    if (found != out) snprintf(out, NAME_BYTES, "%s", found);
    if (weights_find(naming->weights, out) < 0 &&
        stack_router_held(naming->model->kind, name, held) &&
        weights_find(naming->weights, file_name(naming, held, other)) >= 0)
        snprintf(out, NAME_BYTES, "%s", file_name(naming, held, other));
    return out;
}

/* The name of the stack in the file comes into `out`; is it there? */
static bool has_stack(const struct naming *naming,
                      const struct weights *weights,
                      struct stack_place *place, char out[NAME_BYTES])
{
    const char *found = file_name(naming, place->name, out);

    if (found != out) snprintf(out, NAME_BYTES, "%s", found);
    place->packed = naming->model->kind->moe.mxfp4 &&
                    stack_is_packed(weights, out);
    return place->packed || weights_find(weights, out) >= 0;
}

/* Has the file the like of the tensor of another expert, by itself? */
static bool has_neighbour(const struct naming *naming,
                          const struct weights *weights, const char *name,
                          const struct stack_place *place)
{
    const char *member = place->stack->members[place->part];
    const size_t before = strlen(place->name) - strlen(place->stack->name) +
                          (size_t)(strstr(member, "%d") - member);
    const char *rest = name + before + strspn(name + before, "0123456789");
    char other[NAME_BYTES], out[NAME_BYTES];

    snprintf(other, sizeof other, "%.*s%d%s", (int)before, name,
             place->expert == 0, rest);
    return weights_find(weights, file_name(naming, other, out)) >= 0;
}

/* Whether the tensor lies with those of other experts in one of the file, whose
 * name comes into `out`. Files that have it by itself are read, too. */
static bool is_stacked(const struct naming *naming,
                       const struct weights *weights, const char *name,
                       struct stack_place *place, char out[NAME_BYTES])
{
    const struct model_kind *kind = naming->model->kind;

    if (naming->dense != NULL ||
        weights_find(weights, file_name(naming, name, out)) >= 0)
        return false;
    if (stack_find(kind, name, place) &&
        has_stack(naming, weights, place, out))
        return true;
    if (stack_find_held(kind, name, place) &&
        has_stack(naming, weights, place, out))
        return true;
    if (!stack_find(kind, name, place) ||
        has_neighbour(naming, weights, name, place))
        return false;
    (void)has_stack(naming, weights, place, out); /* the one that is missing */
    return true;
}

/* The tensor of all experts, once. */
static status need_stack(struct weights *weights,
                         const struct stack_place *place, const char *name,
                         const struct saved_part *member, int experts)
{
    int64_t shape[TENSOR_DIMENSIONS_MAX];
    const int dimensions = stack_shape(place, experts, member, shape);
    int index;

    if (place->expert > 0 || place->part > 0) return OK;
    if (place->packed)
        return stack_need_packed(weights, name, place, experts, member);
    return weights_need(weights, name, dimensions, shape, &index);
}

/* Every tensor of the model must be there, on whichever rank. */
static status need_all(const struct session_parts *parts,
                       const struct model *model, struct weights *weights,
                       const struct naming *naming, void *buffer)
{
    /* Ends of names: causal masks of GPT-2 and GPT-NeoX, Llama's rotary
     * frequencies. */
    static const char *const buffers[] = {
        ".attn.bias", ".attn.masked_bias", ".attention.bias",
        ".attention.masked_bias", ".rotary_emb.inv_freq"};

    for (int i = 0; i < parts->count; i++) {
        const struct saved_part *part = &parts->items[i];
        char buffer_of_name[NAME_BYTES];
        struct stacked_place joined;
        struct stack_place place;
        const char *name;
        bool copy;
        int index;

        if (!part_is_weight(part)) continue;
        if (stacked_find(model, weights, part, &joined)) {
            TRY(stacked_need(weights, &joined, part));
            continue;
        }
        if (is_stacked(naming, weights, part->name, &place, buffer_of_name)) {
            TRY(need_stack(weights, &place, buffer_of_name, part,
                           model->moe.experts));
            continue;
        }
        name = source_name(naming, part->name, buffer_of_name, &copy);
        if (name == NULL || copy) continue;
        TRY(weights_need(weights, name, part->dimensions, part->shape, &index));
        if (i == 0 && model->tied)
            TRY(check_tied(model, weights, part, naming, buffer));
    }
    if (naming->instead != NULL && naming->instead->images)
        skip_images(weights);
    if (model->kind->files.more_blocks) skip_blocks(model, weights);
    skip_left_out(model, weights);
    return weights_all_used(weights, buffers,
                            (int)(sizeof buffers / sizeof *buffers));
}

struct import_rooms {
    struct stacked_room stacked;
    struct parts_room coded;
};

static status import_all(const struct session_parts *parts,
                         const struct model *model,
                         const struct model_kind *dense,
                         struct weights *weights, void *buffer,
                         struct import_rooms *rooms)
{
    char name[NAME_BYTES];
    struct stacked_place joined;
    struct naming naming;
    int count;
    const struct saved_part *held = session_parts_held(parts, &count);

    find_naming(parts, model, weights, &naming);
    naming.model = model;
    naming.dense = dense;
    naming.weights = weights;
    find_head(model, weights, &naming);
    find_table(parts, model, weights, &naming);
    TRY(need_all(parts, model, weights, &naming, buffer));
    for (int i = 0; i < count; i++) {
        struct stack_place place;
        struct saved_part part;
        const char *source;
        bool copy;
        int index;

        if (!part_is_weight(&held[i])) continue;
        TRY(parts_room_open(&rooms->coded, &held[i], &part));
        if (stacked_find(model, weights, &part, &joined)) {
            TRY(read_joined(weights, &joined, &part, &rooms->stacked));
            continue;
        }
        if (is_stacked(&naming, weights, part.name, &place, name)) {
            TRY(read_member(weights, name, &place, &part));
            continue;
        }
        source = source_name(&naming, part.name, name, &copy);
        if (source == NULL) continue;
        index = weights_find(weights, source);
        CHECK(index >= 0);
        TRY(read_part(weights, index, &part, buffer));
    }
    parts_room_store(&rooms->coded);
    return OK;
}

status session_parts_import(const struct session_parts *parts,
                            const struct model *model,
                            const struct model_kind *dense,
                            struct weights *weights)
{
    struct import_rooms rooms = {.stacked.next = 0};
    void *buffer = NULL;
    status result;

    TRY(memory_take(TRANSFER_BYTES, 1, &buffer));
    result = import_all(parts, model, dense, weights, buffer, &rooms);
    stacked_room_free(&rooms.stacked);
    parts_room_free(&rooms.coded);
    memory_free(buffer);
    return result;
}
