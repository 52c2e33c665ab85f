/* SPDX-License-Identifier: Apache-2.0 */
/* tokenizer_model.c - tokenizer.json: the model, BPE or Unigram. */
#include <math.h>
#include <string.h>
#include "tokenizer/component.h"
#include "tokenizer/tokenizer_build.h"

enum { TOKEN_NAME_MAX = 1 << 16 }; /* bytes */

/* Both spellings: ["a", "b"] and "a b", in which neither half holds a space. */
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

static status read_merge(struct tokenizer *tokenizer, const struct json *item,
                         int rank, struct text halves[2])
{
    struct merge merge = {.rank = rank};
    int32_t left, right;

    TRY(read_halves(tokenizer, item, rank, halves));
    TRY(find_half(tokenizer, &halves[0], rank, &left));
    TRY(find_half(tokenizer, &halves[1], rank, &right));
    TRY(text_append(&halves[0], halves[1].bytes, halves[1].length));
    TRY(find_half(tokenizer, &halves[0], rank, &merge.id));
    tokenizer_merges_add(tokenizer, &merge, left, right);
    return OK;
}

static status read_merges(struct tokenizer *tokenizer,
                          const struct json *model)
{
    const struct json *list = json_get(model, "merges");
    struct text halves[2] = {{0}, {0}};
    status result = OK;

    if (list == NULL || list->kind != JSON_ARRAY)
        FAIL(ERR_FORMAT, "%s: there is no list model.merges",
             tokenizer->source);
    TRY(tokenizer_merges_init(tokenizer, list->count));
    for (int i = 0; i < list->count; i++)
        TRY_GOTO(done, result,
                 read_merge(tokenizer, &list->items[i], i, halves));
done:
    text_free(&halves[0]);
    text_free(&halves[1]);
    return result;
}

/* Settings that would change ids and that we do not have. */
static status check_bpe(const struct component *in, const struct json *model)
{
    const char *text;
    double dropout;

    TRY(component_fields(in, model, "dropout unk_token fuse_unk "
                         "continuing_subword_prefix end_of_word_suffix "
                         "byte_fallback ignore_merges vocab merges"));
    TRY(json_get_real_or(model, in->source, "dropout", 0, &dropout));
    if (dropout != 0)
        FAIL(ERR_FORMAT, "%s: model.dropout is %g; merges that are left out "
             "by chance are not supported", in->source, dropout);
    TRY(json_get_string_or(model, in->source, "continuing_subword_prefix", "",
                           &text));
    if (text[0] != '\0')
        FAIL(ERR_FORMAT, "%s: model.continuing_subword_prefix \"%s\" is not "
             "supported", in->source, text);
    TRY(json_get_string_or(model, in->source, "end_of_word_suffix", "",
                           &text));
    if (text[0] != '\0')
        FAIL(ERR_FORMAT, "%s: model.end_of_word_suffix \"%s\" is not "
             "supported", in->source, text);
    return OK;
}

static status read_entry(const struct tokenizer *tokenizer,
                         const struct json *key, struct vocab_entry *entry)
{
    const struct json *id = key + 1;

    if (id->kind != JSON_INTEGER || id->integer < 0 ||
        id->integer >= TOKENIZER_VOCAB_MAX)
        FAIL(ERR_FORMAT, "%s: model.vocab: the id of \"%.40s\" is not a "
             "whole number from 0 to %d", tokenizer->source, key->string,
             TOKENIZER_VOCAB_MAX - 1);
    *entry = (struct vocab_entry){.name = key->string,
                                  .length = (size_t)key->string_length,
                                  .id = (int32_t)id->integer,
                                  .kind = TOKEN_LEARNED,
                                  .spelled = true};
    return OK;
}

static status read_vocab(struct tokenizer *tokenizer, const struct json *model)
{
    const struct json *list = json_get(model, "vocab");
    struct vocab_entry *entries;
    void *memory = NULL;
    status result = OK;

    if (list == NULL || list->kind != JSON_OBJECT)
        FAIL(ERR_FORMAT, "%s: there is no object model.vocab",
             tokenizer->source);
    TRY(memory_take((size_t)list->count + 1, sizeof *entries, &memory));
    entries = memory;
    for (int i = 0; i < list->count; i++)
        TRY_GOTO(done, result,
                 read_entry(tokenizer, &list->items[2 * i], &entries[i]));
    TRY_GOTO(done, result,
             tokenizer_build_vocab(tokenizer, entries, list->count));
done:
    memory_free(memory);
    return result;
}

/* Reads the treatment of characters that no token spells. */
static status read_unknown(struct tokenizer *tokenizer,
                           const struct json *model)
{
    const char *source = tokenizer->source, *name;
    bool fallback;

    TRY(json_get_string_or(model, source, "unk_token", "", &name));
    TRY(json_get_bool_or(model, source, "byte_fallback", false, &fallback));
    TRY(json_get_bool_or(model, source, "fuse_unk", false,
                         &tokenizer->fuse_unknown));
    tokenizer->unknown = -1;
    if (tokenizer->model == MODEL_BYTES) {
        /* The library drops bytes that are not in the vocabulary unless the
         * model says otherwise; with all 256 the question does not arise. */
        for (int i = 0; i < 256 && (name[0] != '\0' || fallback); i++)
            if (tokenizer->byte_ids[i] < 0)
                FAIL(ERR_FORMAT, "%s: the vocabulary lacks byte %d, so the "
                     "model needs its %s, which is not supported", source, i,
                     fallback ? "byte_fallback" : "unk_token");
        return OK;
    }
    if (fallback) tokenizer_find_fallback(tokenizer);
    if (name[0] != '\0' &&
        !tokenizer_find(tokenizer, name, &tokenizer->unknown))
        FAIL(ERR_FORMAT, "%s: model.unk_token \"%s\" is not in the vocabulary",
             source, name);
    return OK;
}

static status read_bpe(struct tokenizer *tokenizer,
                       const struct component *in, const struct json *model)
{
    const bool bytes = tokenizer->pretokenizer.byte_level;

    TRY(check_bpe(in, model));
    if (tokenizer->decoder.byte_level ? !bytes
                                      : bytes && !tokenizer->decoder.spaced)
        FAIL(ERR_FORMAT, "%s: of pre_tokenizer and decoder only one is "
             "ByteLevel", in->source);
    tokenizer->model = bytes ? MODEL_BYTES : MODEL_CHARACTERS;
    if (bytes) tokenizer->decoder.spaced = false;
    TRY(read_vocab(tokenizer, model));
    TRY(json_get_bool_or(model, in->source, "ignore_merges", false,
                         &tokenizer->ignore_merges));
    TRY(read_unknown(tokenizer, model));
    TRY(read_merges(tokenizer, model));
    if (!bytes) TRY(tokenizer_build_cuts(tokenizer));
    return OK;
}

/* One of the list vocab: [name, score]. */
static status read_scored(const struct tokenizer *tokenizer,
                          const struct json *item, int id,
                          struct vocab_entry *entry, double *score)
{
    if (item->kind != JSON_ARRAY || item->count != 2 ||
        item->items[0].kind != JSON_STRING ||
        (item->items[1].kind != JSON_REAL &&
         item->items[1].kind != JSON_INTEGER))
        FAIL(ERR_FORMAT, "%s: model.vocab[%d] is not [name, score]",
             tokenizer->source, id);
    *entry = (struct vocab_entry){
        .name = item->items[0].string,
        .length = (size_t)item->items[0].string_length,
        .id = id,
        .kind = TOKEN_LEARNED,
        .spelled = true};
    *score = item->items[1].real;
    return OK;
}

static status read_unigram_vocab(struct tokenizer *tokenizer,
                                 const struct json *list)
{
    struct vocab_entry *entries;
    void *memory = NULL, *kept;
    double *scores, least = INFINITY;
    status result = OK;

    if (list == NULL || list->kind != JSON_ARRAY ||
        list->count >= TOKENIZER_VOCAB_MAX)
        FAIL(ERR_FORMAT, "%s: there is no list model.vocab of at most %d "
             "tokens", tokenizer->source, TOKENIZER_VOCAB_MAX - 1);
    TRY(arena_take_array(&tokenizer->arena, (size_t)list->count + 1,
                         sizeof *scores, &kept));
    scores = kept;
    TRY(memory_take((size_t)list->count + 1, sizeof *entries, &memory));
    entries = memory;
    for (int i = 0; i < list->count; i++) {
        TRY_GOTO(done, result, read_scored(tokenizer, &list->items[i], i,
                                           &entries[i], &scores[i]));
        if (scores[i] < least) least = scores[i];
    }
    TRY_GOTO(done, result,
             tokenizer_build_vocab(tokenizer, entries, list->count));
    tokenizer->unigram.unknown_score = least - UNIGRAM_PENALTY;
    TRY_GOTO(done, result, tokenizer_build_unigram(tokenizer, scores));
done:
    memory_free(memory);
    return result;
}

static status read_unigram(struct tokenizer *tokenizer,
                           const struct component *in,
                           const struct json *model)
{
    int64_t unknown;
    bool fallback;

    TRY(component_fields(in, model, "unk_id vocab byte_fallback"));
    if (tokenizer->pretokenizer.byte_level || tokenizer->decoder.byte_level)
        FAIL(ERR_FORMAT, "%s: ByteLevel with a Unigram model is not supported",
             in->source);
    tokenizer->model = MODEL_UNIGRAM;
    TRY(read_unigram_vocab(tokenizer, json_get(model, "vocab")));
    TRY(json_get_integer_or(model, in->source, "unk_id", -1, &unknown));
    if (unknown < -1 || unknown >= tokenizer->vocab ||
        (unknown >= 0 && tokenizer->kinds[unknown] == TOKEN_MISSING))
        FAIL(ERR_FORMAT, "%s: model.unk_id %lld is outside the vocabulary",
             in->source, (long long)unknown);
    tokenizer->unknown = (int32_t)unknown;
    TRY(json_get_bool_or(model, in->source, "byte_fallback", false,
                         &fallback));
    if (fallback) tokenizer_find_fallback(tokenizer);
    return OK;
}

status tokenizer_read_model(struct tokenizer *tokenizer,
                            const struct json *model)
{
    const struct component in = {tokenizer->source, "model",
                                 &tokenizer->arena};
    const char *type;

    TRY(json_get_string_or(model, in.source, "type", "BPE", &type));
    if (strcmp(type, "Unigram") == 0)
        return read_unigram(tokenizer, &in, model);
    return read_bpe(tokenizer, &in, model);
}
