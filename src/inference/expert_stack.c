/* SPDX-License-Identifier: Apache-2.0 */
/* expert_stack.c - tensors of Hugging Face files that hold one matrix (or
 * vector) of every expert of a block. */
#include "inference/expert_stack.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "checkpoint/convert.h"

bool stack_skip(const char **text, const char *pattern, int *number)
{
    const char *mark = strstr(pattern, "%d");
    const size_t before = (size_t)(mark - pattern);
    const char *at = *text;
    char *end;

    if (mark == NULL || strncmp(at, pattern, before) != 0) return false;
    at += before;
    if (*at < '0' || *at > '9') return false;
    const long found = strtol(at, &end, 10);

    if (found < 0 || found > EXPERTS_MAX + BLOCKS_MOST) return false;
    *number = (int)found;
    mark += 2;
    if (strncmp(end, mark, strlen(mark)) != 0) return false;
    *text = end + strlen(mark);
    return true;
}

enum { PACKED_BLOCK = 32, PACKED_BYTES = 16, SCALE_ONE = 127,
       SCALE_MOST = 252 /* 6 times it is a float32 */ };

/* own: the name behind the layer's prefix. */
static bool is_member(const struct outside_stack *stack, const char *name,
                      const char *own, struct stack_place *out)
{
    for (int i = 0; i < 2 && stack->members[i] != NULL; i++) {
        const char *rest = own;

        if (!stack_skip(&rest, stack->members[i], &out->expert) || *rest != 0)
            continue;
        out->packed = false;
        out->part = i;
        out->parts = stack->members[1] != NULL ? 2 : 1;
        snprintf(out->name, sizeof out->name, "%.*s%s", (int)(own - name),
                 name, stack->name);
        return true;
    }
    return false;
}

bool stack_find(const struct model_kind *kind, const char *name,
                struct stack_place *out)
{
    const struct decoder *d = kind->decoder;
    const char *own = name;
    int layer = 0;

    if (d == NULL || d->moe.stacks[0].name == NULL ||
        !stack_skip(&own, kind->layer_prefix, &layer))
        return false;
    for (int i = 0; i < STACKS_MAX && d->moe.stacks[i].name != NULL; i++)
        if (is_member(&d->moe.stacks[i], name, own, out)) {
            out->stack = &d->moe.stacks[i];
            return true;
        }
    return false;
}

bool stack_find_held(const struct model_kind *kind, const char *name,
                     struct stack_place *out)
{
    const struct decoder *d = kind->decoder;
    const char *own = name;
    char stem[PARAM_NAME_BYTES];
    int layer = 0;

    if (d == NULL || d->moe.gate.weight == NULL ||
        !stack_skip(&own, kind->layer_prefix, &layer))
        return false;
    for (int down = 0; down < 2; down++) {
        snprintf(stem, sizeof stem, "%s.%s",
                 d->moe.joined != NULL ? d->moe.joined : "mlp.experts",
                 down ? "down_proj" : "gate_up_proj");
        out->own = (struct outside_stack){
            .name = stem,
            .members = {down ? d->moe.down.weight : d->moe.gate.weight,
                        down ? NULL : d->moe.up.weight}};
        out->stack = &out->own;
        if (is_member(&out->own, name, own, out)) return true;
    }
    return false;
}

bool stack_router_held(const struct model_kind *kind, const char *name,
                       char out[STACK_NAME_BYTES])
{
    static const char *const others[][2] = {
        {"block_sparse_moe.", "mlp."},
        {"mlp.moe_statics.", "mlp.gate.moe_statics."}};
    const struct decoder *d = kind->decoder;
    const char *own = name;
    int layer = 0;

    if (d == NULL || d->moe.router.weight == NULL ||
        !stack_skip(&own, kind->layer_prefix, &layer))
        return false;
    const int prefix = (int)(own - name);

    if (d->moe.joined_router != NULL &&
        strcmp(own, d->moe.router.weight) == 0) {
        snprintf(out, STACK_NAME_BYTES, "%.*s%s.weight", prefix, name,
                 d->moe.joined_router);
        return true;
    }
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        const size_t before = strlen(others[i][0]);

        if (strncmp(own, others[i][0], before) != 0) continue;
        snprintf(out, STACK_NAME_BYTES, "%.*s%s%s", prefix, name, others[i][1],
                 own + before);
        return true;
    }
    return false;
}

int64_t stack_rows(const struct saved_part *member) { return member->shape[0]; }

int64_t stack_cols(const struct saved_part *member)
{
    return member->dimensions > 1 ? member->shape[1] : 1;
}

int64_t stack_each(const struct stack_place *place,
                   const struct saved_part *member)
{
    return place->parts * stack_rows(member) * stack_cols(member);
}

int stack_shape(const struct stack_place *place, int experts,
                const struct saved_part *member,
                int64_t shape[TENSOR_DIMENSIONS_MAX])
{
    const bool turned = place->stack->transposed;
    const int64_t rows = place->parts * stack_rows(member);

    shape[0] = experts;
    shape[1] = rows;
    if (member->dimensions == 1) return 2;
    shape[turned ? 2 : 1] = rows;
    shape[turned ? 1 : 2] = stack_cols(member);
    return 3;
}

struct stack_row stack_row(const struct stack_place *place,
                           const struct saved_part *member, int64_t row)
{
    const int64_t rows = stack_rows(member), cols = stack_cols(member);
    const int64_t at = place->stack->pairs ? row * place->parts + place->part
                                           : place->part * rows + row;

    if (place->stack->transposed)
        return (struct stack_row){at, place->parts * rows};
    return (struct stack_row){at * cols, 1};
}

status stack_read(const struct weights *weights, int index,
                  const struct stack_place *place,
                  const struct saved_part *member, void *out)
{
    const int64_t each = stack_each(place, member);
    const int64_t rows = stack_rows(member), cols = stack_cols(member);
    const size_t bytes = (size_t)dtype_bytes(member->dtype);
    void *memory;
    status result;

    TRY(memory_take((size_t)each, bytes, &memory));
    result = weights_read_finite(weights, index, place->expert * each, each,
                                 member->dtype, memory);
    for (int64_t row = 0; result == OK && row < rows; row++) {
        const struct stack_row at = stack_row(place, member, row);

        convert_elements((struct spacing){member->dtype, 1},
                         (char *)out + (size_t)(row * cols) * bytes,
                         (struct spacing){member->dtype, at.step},
                         (char *)memory + (size_t)at.first * bytes, cols);
    }
    memory_free(memory);
    return result;
}

/* ---- MXFP4 ---- */

/* Index of the tensor of bytes with that end of its name, or -1. */
static int find_bytes(const struct weights *weights, const char *name,
                      const char *end)
{
    char full[STACK_NAME_BYTES + 32];
    int index;

    snprintf(full, sizeof full, "%s_%s", name, end);
    index = weights_find(weights, full);
    return index >= 0 && weights->entries[index].tensor->dtype == DTYPE_U8
               ? index : -1;
}

bool stack_is_packed(const struct weights *weights, const char *name)
{
    return find_bytes(weights, name, "blocks") >= 0;
}

status stack_need_packed(struct weights *weights, const char *name,
                         const struct stack_place *place, int experts,
                         const struct saved_part *member)
{
    const int64_t cols = stack_cols(member);
    const int64_t shape[] = {experts, place->parts * stack_rows(member),
                             cols / PACKED_BLOCK, PACKED_BYTES};
    char full[STACK_NAME_BYTES + 32];
    int index;

    if (cols % PACKED_BLOCK != 0)
        FAIL(ERR_FORMAT, "%s: %s: rows of %lld elements are no whole blocks of "
                         "%d", weights->directory, name, (long long)cols,
             PACKED_BLOCK);
    snprintf(full, sizeof full, "%s_blocks", name);
    TRY(weights_need(weights, full, 4, shape, &index));
    snprintf(full, sizeof full, "%s_scales", name);
    TRY(weights_need(weights, full, 3, shape, &index));
    if (find_bytes(weights, name, "scales") < 0)
        FAIL(ERR_FORMAT, "%s: %s: its elements are no bytes",
             weights->directory, full);
    return OK;
}

/* 2^(scale - 127), from the bits of a float64. */
static double scale_of(int scale)
{
    const uint64_t bits = (uint64_t)(1023 - SCALE_ONE + scale) << 52;
    double value;

    memcpy(&value, &bits, sizeof value);
    return value;
}

/* One row of `cols` elements. False: a scale that no float32 follows. */
static bool unpack(const uint8_t *blocks, const uint8_t *scales, int64_t cols,
                   double *out)
{
    static const double values[] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};

    for (int64_t i = 0; i < cols; i++) {
        const int code = blocks[i / 2] >> (i % 2 ? 4 : 0) & 15;
        const int scale = scales[i / PACKED_BLOCK];

        if (scale > SCALE_MOST) return false;
        out[i] = values[code & 7] * scale_of(scale);
        if (code & 8) out[i] = -out[i];
    }
    return true;
}

static status unpack_rows(const struct weights *weights, const char *name,
                          const struct stack_place *place,
                          const struct saved_part *member, const uint8_t *from,
                          void *out)
{
    const int64_t rows = stack_rows(member), cols = stack_cols(member);
    const uint8_t *scales = from + place->parts * rows * (cols / 2);
    void *memory;
    bool good = true;

    TRY(memory_take((size_t)cols, sizeof(double), &memory));
    for (int64_t row = 0; good && row < rows; row++) {
        const int64_t at = place->stack->pairs
                               ? row * place->parts + place->part
                               : place->part * rows + row;

        good = unpack(from + at * (cols / 2),
                      scales + at * (cols / PACKED_BLOCK), cols, memory);
        convert_elements((struct spacing){member->dtype, 1},
                         (char *)out + (size_t)(row * cols) *
                                           (size_t)dtype_bytes(member->dtype),
                         (struct spacing){DTYPE_F64, 1}, memory, cols);
    }
    memory_free(memory);
    if (!good)
        FAIL(ERR_FORMAT, "%s: %s_scales: a scale above %d (2^%d), which no "
                         "model can compute with", weights->directory, name,
             SCALE_MOST, SCALE_MOST - SCALE_ONE);
    return OK;
}

status stack_read_packed(const struct weights *weights, const char *name,
                         const struct stack_place *place,
                         const struct saved_part *member, void *out)
{
    const int64_t each = stack_each(place, member);
    const int64_t bytes = each / 2, blocks = each / PACKED_BLOCK;
    uint8_t *from;
    void *memory;
    status result;

    TRY(memory_take((size_t)(bytes + blocks), 1, &memory));
    from = memory;
    TRY_GOTO(done, result,
             weights_read(weights, find_bytes(weights, name, "blocks"),
                          place->expert * bytes, bytes, DTYPE_U8, from));
    TRY_GOTO(done, result,
             weights_read(weights, find_bytes(weights, name, "scales"),
                          place->expert * blocks, blocks, DTYPE_U8,
                          from + bytes));
    result = unpack_rows(weights, name, place, member, from, out);
done:
    memory_free(memory);
    return result;
}
