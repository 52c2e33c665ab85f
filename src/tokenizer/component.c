/* SPDX-License-Identifier: Apache-2.0 */
/* component.c - the parts of a tokenizer.json: what all their readers need. */
#include "tokenizer/component.h"

#include <string.h>

static bool has_word(const char *words, const char *word)
{
    const size_t length = strlen(word);

    for (const char *at = words; length > 0; at++) {
        at = strstr(at, word);
        if (at == NULL) return false;
        if ((at == words || at[-1] == ' ') &&
            (at[length] == ' ' || at[length] == '\0'))
            return true;
    }
    return false;
}

status component_fields(const struct component *in, const struct json *json,
                        const char *fields)
{
    const char *type;

    TRY(json_get_string_or(json, in->source, "type", "", &type));
    for (int i = 0; i < json->count; i++) {
        const char *key = json->items[2 * i].string;

        if (strcmp(key, "type") == 0 || has_word(fields, key)) continue;
        FAIL(ERR_FORMAT, "%s: %s %s has a field `%.40s`, which is not known; "
             "the known ones are: %s", in->source, in->part, type, key,
             fields[0] == '\0' ? "none" : fields);
    }
    return OK;
}

status component_type(const struct component *in, const struct json *json,
                      const char *key, const char **type,
                      const struct json **list)
{
    *list = NULL;
    TRY(json_get_string(json, in->source, "type", type));
    if (strcmp(*type, "Sequence") != 0) return OK;
    TRY(component_fields(in, json, key));
    *list = json_get(json, key);
    if (*list == NULL || (*list)->kind != JSON_ARRAY)
        FAIL(ERR_FORMAT, "%s: %s Sequence has no list `%s`", in->source,
             in->part, key);
    return OK;
}

status component_string(const struct component *in, const struct json *json,
                        const char *key, const char **out, size_t *length)
{
    const struct json *value = json_get(json, key);
    void *copy;

    if (value == NULL || value->kind != JSON_STRING)
        FAIL(ERR_FORMAT, "%s: %s: there is no string `%s`", in->source,
             in->part, key);
    *length = (size_t)value->string_length;
    TRY(arena_take(in->arena, *length + 1, &copy));
    memcpy(copy, value->string, *length);
    *out = copy;
    return OK;
}

status component_pattern(const struct component *in, const struct json *json,
                         struct component_literal *literal,
                         const char **regex)
{
    const struct json *pattern = json_get(json, "pattern");
    const struct json *value = json_get(pattern, "Regex");
    const struct json *string = json_get(pattern, "String");

    *regex = NULL;
    if (string != NULL && string->kind == JSON_STRING)
        return component_string(in, pattern, "String", &literal->bytes,
                                &literal->length);
    if (value == NULL || value->kind != JSON_STRING)
        FAIL(ERR_FORMAT, "%s: %s: the pattern must be {\"Regex\": ...} or "
             "{\"String\": ...}", in->source, in->part);
    if (strlen(value->string) != (size_t)value->string_length)
        FAIL(ERR_FORMAT, "%s: %s: U+0000 in a pattern", in->source, in->part);
    *regex = value->string;
    return OK;
}
