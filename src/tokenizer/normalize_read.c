/* SPDX-License-Identifier: Apache-2.0 */
/* normalize_read.c - the normalizer of tokenizer.json as steps. */
#include <string.h>
#include "tokenizer/base64.h"
#include "tokenizer/component.h"
#include "tokenizer/normalize.h"

static status read_strip(const struct component *in, const struct json *json,
                         struct normalize_step *step)
{
    step->kind = NORMALIZE_STRIP;
    TRY(component_fields(in, json, "strip_left strip_right"));
    TRY(json_get_bool_or(json, in->source, "strip_left", true, &step->left));
    TRY(json_get_bool_or(json, in->source, "strip_right", true,
                         &step->right));
    return OK;
}

static status read_charsmap(const struct component *in,
                            const struct json *json,
                            struct normalize_step *step)
{
    const struct json *map = json_get(json, "precompiled_charsmap");
    struct text bytes = {0};
    status result;

    step->kind = NORMALIZE_CHARSMAP;
    TRY(component_fields(in, json, "precompiled_charsmap"));
    if (map == NULL || map->kind != JSON_STRING)
        FAIL(ERR_FORMAT, "%s: %s Precompiled: there is no string "
             "`precompiled_charsmap`", in->source, in->part);
    TRY_GOTO(done, result,
             base64_read(&bytes, map->string, (size_t)map->string_length,
                         in->source));
    TRY_GOTO(done, result, charsmap_read(&step->map, in->arena, bytes.bytes,
                                         bytes.length, in->source));
done:
    text_free(&bytes);
    return result;
}

static status read_step(const struct component *in, const struct json *json,
                        const char *type, struct normalize_step *step)
{
    static const char *const forms[] = {"NFC", "NFD", "NFKC", "NFKD"};

    for (int i = 0; i < 4; i++) {
        if (strcmp(type, forms[i]) != 0) continue;
        step->kind = NORMALIZE_FORM;
        step->form = (enum normal_form)i;
        return component_fields(in, json, "");
    }
    if (strcmp(type, "Replace") == 0) {
        step->kind = NORMALIZE_REPLACE;
        return replacement_read(&step->replace, in, json);
    }
    if (strcmp(type, "Strip") == 0) return read_strip(in, json, step);
    if (strcmp(type, "Precompiled") == 0) return read_charsmap(in, json, step);
    if (strcmp(type, "Prepend") == 0) {
        step->kind = NORMALIZE_PREPEND;
        TRY(component_fields(in, json, "prepend"));
        return component_string(in, json, "prepend", &step->replace.content,
                                &step->replace.content_length);
    }
    FAIL(ERR_FORMAT,
         "%s: %s %s is not supported; NFC, NFD, NFKC, NFKD, Prepend, Replace, "
         "Strip, Precompiled and a Sequence of them are", in->source, in->part,
         type);
}

static status read_one(const struct component *in, const struct json *json,
                       struct normalizer *normalizer)
{
    const char *type;

    TRY(json_get_string(json, in->source, "type", &type));
    if (normalizer->count == NORMALIZE_STEPS_MAX)
        FAIL(ERR_FORMAT, "%s: %s: more than %d steps", in->source, in->part,
             NORMALIZE_STEPS_MAX);
    return read_step(in, json, type, &normalizer->steps[normalizer->count++]);
}

status normalizer_read(struct normalizer *normalizer, struct arena *arena,
                       const struct json *json, const char *source)
{
    const struct component in = {source, "normalizer", arena};
    const struct json *list;
    const char *type;

    *normalizer = (struct normalizer){0};
    if (json == NULL || json->kind == JSON_NULL) return OK;
    TRY(component_type(&in, json, "normalizers", &type, &list));
    if (list == NULL) TRY(read_one(&in, json, normalizer));
    for (int i = 0; list != NULL && i < list->count; i++)
        TRY(read_one(&in, &list->items[i], normalizer));
    return OK;
}
