/* SPDX-License-Identifier: Apache-2.0 */
/* stack.c - tensors of Hugging Face files that hold one matrix (or vector) of
 * every expert of a block. */
#include "inference/stack.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "checkpoint/convert.h"

/* Whether *text begins as `pattern`, whose one %d is a number; *text is behind
 * it then. */
static bool skip(const char **text, const char *pattern, int *number)
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

bool stack_find(const struct model_kind *kind, const char *name,
                struct stack_place *out)
{
    const struct decoder *d = kind->decoder;
    const char *own = name;
    int layer = 0;

    if (d == NULL || d->stacks[0].name == NULL ||
        !skip(&own, kind->layer_prefix, &layer))
        return false;
    for (int i = 0; i < STACKS_MAX && d->stacks[i].name != NULL; i++)
        for (int j = 0; j < 2 && d->stacks[i].members[j] != NULL; j++) {
            const struct outside_stack *stack = &d->stacks[i];
            const char *rest = own;
            const int prefix = (int)(own - name);

            if (!skip(&rest, stack->members[j], &out->expert) || *rest != 0)
                continue;
            out->stack = stack;
            out->part = j;
            out->parts = stack->members[1] != NULL ? 2 : 1;
            snprintf(out->name, sizeof out->name, "%.*s%s", prefix, name,
                     stack->name);
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
