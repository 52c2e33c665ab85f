/* SPDX-License-Identifier: Apache-2.0 */
/* tokenizer_template.c - tokenizer.json: what stands around each text. */
#include <string.h>
#include "tokenizer/component.h"
#include "tokenizer/tokenizer_build.h"

static bool known_id(const struct tokenizer *tokenizer, const struct json *id)
{
    return id->kind == JSON_INTEGER && id->integer >= 0 &&
           id->integer < tokenizer->vocab &&
           tokenizer->kinds[id->integer] != TOKEN_MISSING;
}

/* ids of special_tokens[name]. */
static status template_ids(struct tokenizer *tokenizer,
                           const struct json *json, const char *name,
                           int32_t *list, int *count)
{
    const struct json *ids =
        json_get(json_get(json_get(json, "special_tokens"), name), "ids");

    if (ids == NULL || ids->kind != JSON_ARRAY)
        FAIL(ERR_FORMAT, "%s: post_processor TemplateProcessing: no ids for "
             "%s", tokenizer->source, name);
    for (int i = 0; i < ids->count; i++) {
        const struct json *id = &ids->items[i];

        if (*count == TOKENIZER_TEMPLATE_MAX)
            FAIL(ERR_FORMAT, "%s: post_processor TemplateProcessing: more "
                 "than %d tokens around a text", tokenizer->source,
                 TOKENIZER_TEMPLATE_MAX);
        if (!known_id(tokenizer, id))
            FAIL(ERR_FORMAT, "%s: post_processor TemplateProcessing: an id "
                 "of %s is outside the vocabulary", tokenizer->source, name);
        list[(*count)++] = (int32_t)id->integer;
    }
    return OK;
}

static status read_single(struct tokenizer *tokenizer,
                          const struct json *json)
{
    const struct json *list = json_get(json, "single");
    bool text_seen = false;

    if (list == NULL || list->kind != JSON_ARRAY)
        FAIL(ERR_FORMAT, "%s: post_processor TemplateProcessing has no list "
             "`single`", tokenizer->source);
    for (int i = 0; i < list->count; i++) {
        const struct json *special =
            json_get(&list->items[i], "SpecialToken");
        const char *name;

        if (special == NULL) {
            if (json_get(&list->items[i], "Sequence") == NULL || text_seen)
                FAIL(ERR_FORMAT, "%s: post_processor TemplateProcessing: "
                     "`single` must hold one Sequence and SpecialTokens",
                     tokenizer->source);
            text_seen = true;
            continue;
        }
        TRY(json_get_string(special, tokenizer->source, "id", &name));
        if (text_seen)
            TRY(template_ids(tokenizer, json, name, tokenizer->last,
                             &tokenizer->last_count));
        else
            TRY(template_ids(tokenizer, json, name, tokenizer->first,
                             &tokenizer->first_count));
    }
    return OK;
}

/* [name, id] under `key`. */
static status read_named(const struct tokenizer *tokenizer,
                         const struct component *in, const struct json *json,
                         const char *key, int32_t *out)
{
    const struct json *pair = json_get(json, key);

    if (pair == NULL || pair->kind != JSON_ARRAY || pair->count != 2 ||
        !known_id(tokenizer, &pair->items[1]))
        FAIL(ERR_FORMAT, "%s: %s: `%s` is not a token and its id", in->source,
             in->part, key);
    *out = (int32_t)pair->items[1].integer;
    return OK;
}

/* add_prefix_space and trim_offsets are true when they are not there. */
static status read_trim(struct tokenizer *tokenizer,
                        const struct component *in, const struct json *json)
{
    struct tokenizer_trim rule = {.behind = tokenizer->paired};
    bool wanted;

    TRY(json_get_bool_or(json, in->source, "trim_offsets", true, &wanted));
    TRY(json_get_bool_or(json, in->source, "add_prefix_space", true,
                         &rule.prefix));
    if (!wanted) return OK;
    if (tokenizer->trim_count == TOKENIZER_TRIMS_MAX)
        FAIL(ERR_FORMAT, "%s: %s: more than %d processors with trim_offsets",
             in->source, in->part, TOKENIZER_TRIMS_MAX);
    tokenizer->trims[tokenizer->trim_count++] = rule;
    return OK;
}

static status read_byte_level(struct tokenizer *tokenizer,
                              const struct component *in,
                              const struct json *json)
{
    TRY(component_fields(in, json,
                         "add_prefix_space trim_offsets use_regex"));
    return read_trim(tokenizer, in, json);
}

/* The library treats the tokens that the first of two templates puts around a
 * text as text. */
static status check_first(const struct tokenizer *tokenizer,
                          const struct component *in, const char *type)
{
    if (tokenizer->first_count + tokenizer->last_count == 0) return OK;
    FAIL(ERR_FORMAT, "%s: %s: %s comes after another that puts tokens around "
         "a text; one of them is supported", in->source, in->part, type);
}

/* cls, the text, sep. */
static status read_pair(struct tokenizer *tokenizer,
                        const struct component *in, const struct json *json)
{
    TRY(component_fields(in, json, "sep cls trim_offsets add_prefix_space"));
    TRY(check_first(tokenizer, in, "BertProcessing or RobertaProcessing"));
    tokenizer->paired = true;
    TRY(read_named(tokenizer, in, json, "cls",
                   &tokenizer->first[tokenizer->first_count++]));
    return read_named(tokenizer, in, json, "sep",
                      &tokenizer->last[tokenizer->last_count++]);
}

static status read_processor(struct tokenizer *tokenizer,
                             const struct component *in,
                             const struct json *json)
{
    const char *type;

    TRY(json_get_string(json, tokenizer->source, "type", &type));
    if (strcmp(type, "ByteLevel") == 0) /* places only */
        return read_byte_level(tokenizer, in, json);
    if (strcmp(type, "RobertaProcessing") == 0)
        TRY(read_trim(tokenizer, in, json));
    if (strcmp(type, "RobertaProcessing") == 0 ||
        strcmp(type, "BertProcessing") == 0)
        return read_pair(tokenizer, in, json);
    if (strcmp(type, "TemplateProcessing") != 0)
        FAIL(ERR_FORMAT, "%s: %s %s is not supported; ByteLevel, "
             "TemplateProcessing, BertProcessing, RobertaProcessing and a "
             "Sequence of them are", in->source, in->part, type);
    TRY(component_fields(in, json, "single pair special_tokens"));
    TRY(check_first(tokenizer, in, type));
    return read_single(tokenizer, json);
}

status tokenizer_read_template(struct tokenizer *tokenizer,
                               const struct json *json)
{
    const struct component in = {tokenizer->source, "post_processor",
                                 &tokenizer->arena};
    const struct json *list;
    const char *type;

    if (json == NULL || json->kind == JSON_NULL) return OK;
    TRY(component_type(&in, json, "processors", &type, &list));
    if (list == NULL) return read_processor(tokenizer, &in, json);
    for (int i = 0; i < list->count; i++)
        TRY(read_processor(tokenizer, &in, &list->items[i]));
    return OK;
}
