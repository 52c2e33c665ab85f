/* SPDX-License-Identifier: Apache-2.0 */
/* component.h - the parts of a tokenizer.json: what all their readers need. */
#ifndef LOCKSTEP_TOKENIZER_COMPONENT_H
#define LOCKSTEP_TOKENIZER_COMPONENT_H

#include "base/arena.h"
#include "base/json.h"

/* The words of ERR_FORMAT. */
struct component {
    const char *source; /* file */
    const char *part;   /* "normalizer" */
    struct arena *arena;/* keeps the strings of a component */
};

/* Every key of `json` other than `type` is one of `fields` (names with a space
 * between them): a setting that is ignored changes ids without a word. */
status component_fields(const struct component *in, const struct json *json,
                        const char *fields);
/* *type = its type; of a Sequence *list = the list json[key], else NULL. */
status component_type(const struct component *in, const struct json *json,
                      const char *key, const char **type,
                      const struct json **list);
/* A string that must be there, copied; it may hold U+0000. */
status component_string(const struct component *in, const struct json *json,
                        const char *key, const char **out, size_t *length);
/* {"String": s}, copied, *regex NULL; or {"Regex": s}, in the parse. */
struct component_literal { const char *bytes; size_t length; };
status component_pattern(const struct component *in, const struct json *json,
                         struct component_literal *literal,
                         const char **regex);

#endif
