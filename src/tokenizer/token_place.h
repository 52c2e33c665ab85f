/* SPDX-License-Identifier: Apache-2.0 */
/* token_place.h - where in its text a token came from. */
#ifndef LOCKSTEP_TOKENIZER_TOKEN_PLACE_H
#define LOCKSTEP_TOKENIZER_TOKEN_PLACE_H

#include <stdint.h>
#include "base/status.h"

/* [start, stop) */
struct token_range { int64_t start, stop; };

/* A token that ends within a character has all of it: both ranges are the
 * same text. A token that nothing of the text became (first and last ones of a
 * template, a prefix) may be empty. */
struct token_place {
    struct token_range bytes;      /* of the text, on ends of characters */
    struct token_range characters; /* code points */
};

struct token_places {
    struct token_place *items; /* owned */
    int64_t count, capacity;   /* tokens */
};

status token_places_add(struct token_places *places,
                        const struct token_place *place);
void token_places_free(struct token_places *places);

#endif
