/* SPDX-License-Identifier: Apache-2.0 */
/* tokenizer_vocab.c - reading a tokenizer.json: added tokens, vocabulary. */
#include <string.h>
#include "data/tokenizer_build.h"

/* Ids may have gaps, but tables must not be large for a small file. */
enum { SPARE_IDS = 1 << 14 };

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

/* Tables that are filled while the vocabulary is read. */
struct vocab {
    const char **names;    /* [vocab] */
    size_t *lengths;       /* [vocab] bytes of the names; parse arena */
    unsigned char *kinds;  /* [vocab] */
    unsigned char *bytes;
    uint32_t *starts;      /* [vocab + 1] */
};

static status id_check(const struct tokenizer *tokenizer,
                       const struct json *key, const struct json *value)
{
    if (value->kind != JSON_INTEGER || value->integer < 0 ||
        value->integer >= TOKENIZER_VOCAB_MAX)
        FAIL(ERR_FORMAT, "%s: model.vocab: the id of \"%.40s\" is not a "
             "whole number from 0 to %d", tokenizer->source, key->string,
             TOKENIZER_VOCAB_MAX - 1);
    return OK;
}

static status count_ids(struct tokenizer *tokenizer, const struct json *list)
{
    int64_t largest = -1;

    for (int i = 0; i < list->count; i++) {
        const struct json *pair = &list->items[2 * i];

        TRY(id_check(tokenizer, pair, pair + 1));
        if (pair[1].integer > largest) largest = pair[1].integer;
    }
    for (int32_t i = 0; i < tokenizer->added_count; i++)
        if (tokenizer->added[i].id > largest) largest = tokenizer->added[i].id;
    if (largest < 0)
        FAIL(ERR_FORMAT, "%s: the vocabulary is empty", tokenizer->source);
    if (largest / 4 > list->count + tokenizer->added_count + SPARE_IDS)
        FAIL(ERR_FORMAT, "%s: the largest id is %lld, but there are only %d "
             "tokens", tokenizer->source, (long long)largest, list->count);
    tokenizer->vocab = largest + 1;
    return OK;
}

static status vocab_take(struct tokenizer *tokenizer, struct vocab *vocab,
                         struct arena *scratch)
{
    const size_t count = (size_t)tokenizer->vocab;
    struct arena *arena = &tokenizer->arena;
    void *memory;

    TRY(arena_take_array(arena, count, sizeof *vocab->names, &memory));
    tokenizer->names = vocab->names = memory;
    TRY(arena_take_array(arena, count, 1, &memory));
    tokenizer->kinds = vocab->kinds = memory;
    TRY(arena_take_array(arena, count + 1, sizeof *vocab->starts, &memory));
    tokenizer->starts = vocab->starts = memory;
    TRY(arena_take_array(scratch, count, sizeof *vocab->lengths, &memory));
    vocab->lengths = memory;
    return OK;
}

static status name_vocab(struct tokenizer *tokenizer, struct vocab *vocab,
                         const struct json *list)
{
    for (int i = 0; i < list->count; i++) {
        const struct json *key = &list->items[2 * i];
        const int64_t id = key[1].integer;

        if (vocab->kinds[id] != TOKEN_MISSING)
            FAIL(ERR_FORMAT, "%s: model.vocab: \"%.40s\" and \"%.40s\" have "
                 "the same id %lld", tokenizer->source, vocab->names[id],
                 key->string, (long long)id);
        vocab->names[id] = key->string; /* of the parse; copied later */
        vocab->lengths[id] = (size_t)key->string_length;
        vocab->kinds[id] = TOKEN_LEARNED;
    }
    return OK;
}

static status name_added(struct tokenizer *tokenizer, struct vocab *vocab)
{
    for (int32_t i = 0; i < tokenizer->added_count; i++) {
        const struct added_token *token = &tokenizer->added[i];
        const int32_t id = token->id;

        if (vocab->kinds[id] != TOKEN_MISSING &&
            (vocab->lengths[id] != token->length ||
             memcmp(vocab->names[id], token->content, token->length) != 0))
            FAIL(ERR_FORMAT, "%s: added_tokens: \"%.40s\" has id %d, which "
                 "\"%.40s\" has", tokenizer->source, token->content, id,
                 vocab->names[id]);
        vocab->names[id] = token->content;
        vocab->lengths[id] = token->length;
        vocab->kinds[id] = token->special ? TOKEN_SPECIAL : TOKEN_ADDED;
    }
    return OK;
}

/* Names move into the tokenizer's arena, and behind each other the bytes
 * that they stand for (never more than the name has). */
static status copy_names(struct tokenizer *tokenizer, struct vocab *vocab)
{
    struct byte_level alphabet;
    uint64_t total = 0;
    uint32_t at = 0;
    char *names;
    void *memory;

    for (int64_t i = 0; i < tokenizer->vocab; i++)
        total += vocab->lengths[i];
    if (total > UINT32_MAX)
        FAIL(ERR_FORMAT, "%s: the vocabulary's names have more than 4 GiB",
             tokenizer->source);
    byte_level_init(&alphabet);
    TRY(arena_take(&tokenizer->arena, (size_t)total + 1, &memory));
    tokenizer->bytes = vocab->bytes = memory;
    TRY(arena_take(&tokenizer->arena, (size_t)total + (size_t)tokenizer->vocab,
                   &memory));
    names = memory;
    for (int64_t i = 0; i < tokenizer->vocab; i++) {
        const size_t length = vocab->lengths[i];
        size_t count = 0;

        vocab->starts[i] = at;
        if (vocab->kinds[i] == TOKEN_MISSING) continue;
        if (vocab->kinds[i] != TOKEN_LEARNED ||
            !byte_level_read(&alphabet, vocab->names[i], length,
                             vocab->bytes + at, &count)) {
            memcpy(vocab->bytes + at, vocab->names[i], length);
            count = length;
        }
        at += (uint32_t)count;
        memcpy(names, vocab->names[i], length);
        vocab->names[i] = names; /* the arena's zeros end it */
        names += length + 1;
    }
    vocab->starts[tokenizer->vocab] = at;
    return OK;
}

static void table_insert(int32_t *table, uint64_t mask, uint64_t hash,
                         int32_t id)
{
    uint64_t place = hash & mask;

    while (table[place] >= 0) place = (place + 1) & mask;
    table[place] = id;
}

static status fill_tables(struct tokenizer *tokenizer,
                          const struct vocab *vocab, const struct json *list)
{
    uint64_t places = 16;
    int32_t *names, *words;
    void *memory;

    while (places < 2 * (uint64_t)tokenizer->vocab) places *= 2;
    TRY(arena_take_array(&tokenizer->arena, places, sizeof *names, &memory));
    tokenizer->name_table = names = memory;
    TRY(arena_take_array(&tokenizer->arena, places, sizeof *words, &memory));
    tokenizer->word_table = words = memory;
    tokenizer->name_places = places;
    memset(names, 0xFF, places * sizeof *names); /* -1 */
    memset(words, 0xFF, places * sizeof *words);
    for (int64_t i = 0; i < tokenizer->vocab; i++)
        if (vocab->kinds[i] != TOKEN_MISSING)
            table_insert(names, places - 1,
                         tokenizer_hash(vocab->names[i], vocab->lengths[i]),
                         (int32_t)i);
    for (int i = 0; i < list->count; i++) {
        const int32_t id = (int32_t)list->items[2 * i + 1].integer;
        size_t length;
        const unsigned char *bytes = tokenizer_bytes(tokenizer, id, &length);

        table_insert(words, places - 1, tokenizer_hash(bytes, length), id);
    }
    for (int i = 0; i < 256; i++) {
        const unsigned char byte = (unsigned char)i;

        tokenizer->byte_ids[i] = tokenizer_word(tokenizer, &byte, 1);
    }
    return OK;
}

status tokenizer_read_vocab(struct tokenizer *tokenizer,
                            const struct json *model)
{
    const struct json *list = json_get(model, "vocab");
    struct arena scratch;
    struct vocab vocab;
    status result;

    if (list == NULL || list->kind != JSON_OBJECT)
        FAIL(ERR_FORMAT, "%s: there is no object model.vocab",
             tokenizer->source);
    arena_init(&scratch, "vocabulary", 0);
    TRY_GOTO(done, result, count_ids(tokenizer, list));
    TRY_GOTO(done, result, vocab_take(tokenizer, &vocab, &scratch));
    TRY_GOTO(done, result, name_vocab(tokenizer, &vocab, list));
    TRY_GOTO(done, result, name_added(tokenizer, &vocab));
    TRY_GOTO(done, result, copy_names(tokenizer, &vocab));
    TRY_GOTO(done, result, fill_tables(tokenizer, &vocab, list));
done:
    arena_free(&scratch);
    return result;
}
