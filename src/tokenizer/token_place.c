/* SPDX-License-Identifier: Apache-2.0 */
/* token_place.c - where in its text a token came from. */
#include "tokenizer/token_place.h"

#include "base/arena.h"

status token_places_add(struct token_places *places,
                        const struct token_place *place)
{
    if (places->count == places->capacity) {
        const int64_t capacity = places->capacity * 2 + 64;
        void *grown = places->items;

        TRY(memory_grow(&grown, (size_t)capacity, sizeof *places->items));
        places->items = grown;
        places->capacity = capacity;
    }
    places->items[places->count++] = *place;
    return OK;
}

void token_places_free(struct token_places *places)
{
    memory_free(places->items);
    *places = (struct token_places){0};
}
