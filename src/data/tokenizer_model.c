/* SPDX-License-Identifier: Apache-2.0 */
/* tokenizer_model.c - reading a tokenizer.json: merges, template. */
#include <string.h>
#include "data/tokenizer_build.h"

enum { TOKEN_NAME_MAX = 1 << 16 }; /* bytes */

/* Both spellings: ["a", "b"] and "a b". Neither half holds a space, because
 * the byte alphabet writes it differently. */
static status read_halves(const struct tokenizer *tokenizer,
                          const struct json *item, int rank,
                          struct text halves[2])
{
    halves[0].length = halves[1].length = 0;
    if (item->kind == JSON_ARRAY && item->count == 2 &&
        item->items[0].kind == JSON_STRING &&
        item->items[1].kind == JSON_STRING) {
        for (int i = 0; i < 2; i++)
            TRY(text_append(&halves[i], item->items[i].string,
                            (size_t)item->items[i].string_length));
        return OK;
    }
    if (item->kind == JSON_STRING) {
        const char *space = memchr(item->string, ' ',
                                   (size_t)item->string_length);
        const size_t left = space == NULL ? 0 : (size_t)(space - item->string);

        if (space != NULL) {
            TRY(text_append(&halves[0], item->string, left));
            TRY(text_append(&halves[1], space + 1,
                            (size_t)item->string_length - left - 1));
            return OK;
        }
    }
    FAIL(ERR_FORMAT, "%s: model.merges[%d] is neither [\"a\", \"b\"] nor "
         "\"a b\"", tokenizer->source, rank);
}

static status find_half(const struct tokenizer *tokenizer,
                        const struct text *name, int rank, int32_t *id)
{
    if (name->length > TOKEN_NAME_MAX)
        FAIL(ERR_FORMAT, "%s: model.merges[%d] names a token of more than %d "
             "bytes", tokenizer->source, rank, TOKEN_NAME_MAX);
    if (name->length > 0 && tokenizer_find(tokenizer, name->bytes, id))
        return OK;
    FAIL(ERR_FORMAT, "%s: model.merges[%d]: \"%.40s\" is not in the "
         "vocabulary", tokenizer->source, rank,
         name->length > 0 ? name->bytes : "");
}

/* Of two merges of one pair the later one counts, as in the library. */
static void insert(struct tokenizer *tokenizer, struct merge *table,
                   const struct merge *merge)
{
    table[tokenizer_merge_place(tokenizer, merge->pair)] = *merge;
}

static status read_merge(struct tokenizer *tokenizer, struct merge *table,
                         const struct json *item, int rank,
                         struct text halves[2])
{
    struct merge merge = {.rank = rank};
    int32_t left, right;

    TRY(read_halves(tokenizer, item, rank, halves));
    TRY(find_half(tokenizer, &halves[0], rank, &left));
    TRY(find_half(tokenizer, &halves[1], rank, &right));
    TRY(text_append(&halves[0], halves[1].bytes, halves[1].length));
    TRY(find_half(tokenizer, &halves[0], rank, &merge.id));
    merge.pair = (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
    insert(tokenizer, table, &merge);
    return OK;
}

status tokenizer_read_merges(struct tokenizer *tokenizer,
                             const struct json *model)
{
    const struct json *list = json_get(model, "merges");
    struct text halves[2] = {{0}, {0}};
    struct merge *table;
    uint64_t places = 16;
    status result = OK;
    void *memory;

    if (list == NULL || list->kind != JSON_ARRAY)
        FAIL(ERR_FORMAT, "%s: there is no list model.merges",
             tokenizer->source);
    while (places < 2 * (uint64_t)list->count) places *= 2;
    TRY(arena_take_array(&tokenizer->arena, places, sizeof *table, &memory));
    tokenizer->merges = table = memory;
    tokenizer->merge_places = places;
    for (uint64_t i = 0; i < places; i++) table[i].pair = UINT64_MAX;
    for (int i = 0; i < list->count; i++)
        TRY_GOTO(done, result,
                 read_merge(tokenizer, table, &list->items[i], i, halves));
done:
    text_free(&halves[0]);
    text_free(&halves[1]);
    return result;
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
        if (id->kind != JSON_INTEGER || id->integer < 0 ||
            id->integer >= tokenizer->vocab)
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

static status read_processor(struct tokenizer *tokenizer,
                             const struct json *json)
{
    const char *type;

    TRY(json_get_string(json, tokenizer->source, "type", &type));
    if (strcmp(type, "ByteLevel") == 0) return OK; /* offsets only */
    if (strcmp(type, "TemplateProcessing") != 0)
        FAIL(ERR_FORMAT, "%s: post_processor %s is not supported; ByteLevel, "
             "TemplateProcessing and a Sequence of them are",
             tokenizer->source, type);
    TRY(read_single(tokenizer, json));
    return OK;
}

status tokenizer_read_template(struct tokenizer *tokenizer,
                               const struct json *json)
{
    const struct json *list;
    const char *type;

    if (json == NULL || json->kind == JSON_NULL) return OK;
    TRY(json_get_string(json, tokenizer->source, "type", &type));
    if (strcmp(type, "Sequence") != 0) {
        TRY(read_processor(tokenizer, json));
        return OK;
    }
    list = json_get(json, "processors");
    if (list == NULL || list->kind != JSON_ARRAY)
        FAIL(ERR_FORMAT, "%s: post_processor Sequence has no list "
             "`processors`", tokenizer->source);
    for (int i = 0; i < list->count; i++)
        TRY(read_processor(tokenizer, &list->items[i]));
    return OK;
}
