/* SPDX-License-Identifier: Apache-2.0 */
/* token_list.c - a growing list of token ids. */
#include "tokenizer/token_list.h"

#include <string.h>
#include "base/arena.h"

status token_list_reserve(struct token_list *list, int64_t more)
{
    int64_t capacity = list->capacity;
    void *grown = list->ids;

    if (more <= capacity - list->count) return OK;
    if (more > INT64_MAX / 4 - list->count)
        FAIL(ERR_MEMORY, "a list of %lld more tokens does not fit in memory",
             (long long)more);
    capacity = capacity < 64 ? 64 : capacity + capacity / 2;
    if (capacity < list->count + more) capacity = list->count + more;
    TRY(memory_grow(&grown, (size_t)capacity, sizeof *list->ids));
    list->ids = grown;
    list->capacity = capacity;
    return OK;
}

status token_list_append(struct token_list *list, const int32_t *ids,
                         int64_t count)
{
    TRY(token_list_reserve(list, count));
    if (count > 0)
        memcpy(list->ids + list->count, ids, (size_t)count * sizeof *ids);
    list->count += count;
    return OK;
}

void token_list_free(struct token_list *list)
{
    memory_free(list->ids);
    *list = (struct token_list){0};
}
