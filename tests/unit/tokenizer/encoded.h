/* SPDX-License-Identifier: Apache-2.0 */
/* encoded.h - data shared by the tests of tokenizers: the ids of a text, from a
 * row of a table or a golden file. */
#ifndef LOCKSTEP_TESTS_DATA_ENCODED_H
#define LOCKSTEP_TESTS_DATA_ENCODED_H

#include "base/json.h"
#include "tokenizer/tokenizer.h"
#include "tests/test.h"

struct encoded {
    const char *text;
    int32_t ids[5];
    int count;
};

static inline void encodes_row(const struct tokenizer *tokenizer,
                               const struct encoded *row)
{
    struct token_list list = {0};

    IS_OK(tokenizer_encode(tokenizer, row->text, strlen(row->text), true,
                           &list));
    EQUAL_INT(list.count, row->count);
    EQUAL_BYTES(list.ids, row->ids, (size_t)row->count * sizeof *list.ids);
    token_list_free(&list);
}

static inline bool same_ids(const struct token_list *list,
                            const struct json *ids)
{
    if (ids == NULL || list->count != ids->count) return false;
    for (int64_t i = 0; i < list->count; i++)
        if (list->ids[i] != ids->items[i].integer) return false;
    return true;
}

/* name: of the tokenizer, for the error. */
static inline void encodes_json(const struct tokenizer *tokenizer,
                                const char *name, const struct json *text,
                                const struct json *ids, bool special)
{
    struct token_list list = {0};

    IS_OK(tokenizer_encode(tokenizer, text->string,
                           (size_t)text->string_length, special, &list));
    if (!same_ids(&list, ids))
        print_error("%s: ids of \"%s\"\n", name, text->string);
    CHECK(same_ids(&list, ids));
    token_list_free(&list);
}

#endif
