/* SPDX-License-Identifier: Apache-2.0 */
/* tokenizer_added.c - added tokens: reading them, and what finds them. */
#include <string.h>
#include "tokenizer/component.h"
#include "tokenizer/tokenizer_build.h"

static status read_one_added(struct tokenizer *tokenizer,
                             const struct json *json,
                             struct added_token *token)
{
    const char *source = tokenizer->source;
    const struct json *content = json_get(json, "content");
    int64_t id;
    void *copy;

    TRY(json_get_integer(json, source, "id", &id));
    if (id < 0 || id >= TOKENIZER_VOCAB_MAX)
        FAIL(ERR_FORMAT, "%s: added_tokens: id %lld is outside 0 to %d",
             source, (long long)id, TOKENIZER_VOCAB_MAX - 1);
    if (content == NULL || content->kind != JSON_STRING)
        FAIL(ERR_FORMAT, "%s: added_tokens: id %lld has no content", source,
             (long long)id);
    token->id = (int32_t)id;
    token->length = (size_t)content->string_length;
    TRY(arena_take(&tokenizer->arena, token->length + 1, &copy));
    memcpy(copy, content->string, token->length);
    token->content = copy;
    TRY(json_get_bool_or(json, source, "single_word", false,
                         &token->single_word));
    TRY(json_get_bool_or(json, source, "lstrip", false, &token->lstrip));
    TRY(json_get_bool_or(json, source, "rstrip", false, &token->rstrip));
    TRY(json_get_bool_or(json, source, "special", false, &token->special));
    TRY(json_get_bool_or(json, source, "normalized", !token->special,
                         &token->normalized));
    return OK;
}

status tokenizer_read_added(struct tokenizer *tokenizer,
                            const struct json *root)
{
    const struct json *list = json_get(root, "added_tokens");
    struct added_token *tokens;
    void *memory;

    if (list == NULL || list->kind == JSON_NULL) return OK;
    if (list->kind != JSON_ARRAY)
        FAIL(ERR_FORMAT, "%s: added_tokens is not a list", tokenizer->source);
    TRY(arena_take_array(&tokenizer->arena, (size_t)list->count,
                         sizeof *tokens, &memory));
    tokenizer->added = tokens = memory;
    tokenizer->added_count = list->count;
    for (int i = 0; i < list->count; i++)
        TRY(read_one_added(tokenizer, &list->items[i], &tokens[i]));
    return OK;
}

/* One token into the matcher of its kind; `in` is work space. */
static status insert(struct tokenizer *tokenizer, int32_t index,
                     struct normalized *in)
{
    const struct added_token *token = &tokenizer->added[index];

    if (!token->normalized)
        return added_insert(&tokenizer->raw, index, token->content,
                            token->length);
    TRY(normalizer_run(&tokenizer->normalizer, token->content, token->length,
                       in));
    if (in->length == 0 && token->length > 0)
        FAIL(ERR_FORMAT, "%s: added_tokens: the normalizer makes the text of "
             "id %d empty, and an empty text would match everywhere; its "
             "`normalized` must be false", tokenizer->source,
             token->id);
    return added_insert(&tokenizer->normal, index, in->text, in->length);
}

/* Added tokens that want normalized text are looked for in it, in their own
 * normal form. Where two have the same, special tokens go first, then those
 * that stand first: so `tokenizers` up to 0.22; 0.23 keeps them in a hash table
 * and takes one by chance. */
status tokenizer_build_matchers(struct tokenizer *tokenizer)
{
    struct normalized in = {0};
    status result = OK;

    TRY(added_init(&tokenizer->raw, tokenizer->added));
    TRY(added_init(&tokenizer->normal, tokenizer->added));
    for (int special = 1; special >= 0; special--)
        for (int32_t i = 0; i < tokenizer->added_count; i++)
            if (tokenizer->added[i].special == (special == 1))
                TRY_GOTO(done, result, insert(tokenizer, i, &in));
done:
    normalized_free(&in);
    return result;
}
