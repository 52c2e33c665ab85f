/* SPDX-License-Identifier: Apache-2.0 */
/* token_list.h - a growing list of token ids. */
#ifndef LOCKSTEP_TOKENIZER_TOKEN_LIST_H
#define LOCKSTEP_TOKENIZER_TOKEN_LIST_H

#include <stdint.h>
#include "base/status.h"

struct token_list {
    int32_t *ids;     /* owned */
    int64_t count;    /* tokens */
    int64_t capacity; /* tokens */
};

/* Makes room for `more` tokens beyond `count`. */
status token_list_reserve(struct token_list *list, int64_t more);
status token_list_append(struct token_list *list, const int32_t *ids,
                         int64_t count);
void token_list_free(struct token_list *list);

#endif
