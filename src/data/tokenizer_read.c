/* SPDX-License-Identifier: Apache-2.0 */
/* tokenizer_read.c - a tokenizer.json as tables.
 *
 * Nothing is ignored: a component or setting that would change ids and that
 * we do not have is refused by name. */
#include <string.h>
#include "base/file.h"
#include "data/tokenizer_build.h"
#include "data/word_cache.h"

static const size_t file_bytes_max = (size_t)512 << 20;

static status check_null(const struct json *root, const char *key,
                         const char *source)
{
    const struct json *value = json_get(root, key);

    if (value == NULL || value->kind == JSON_NULL) return OK;
    FAIL(ERR_FORMAT, "%s: %s is set; ids would be cut or padded, which is "
         "not supported: set it to null", source, key);
}

static status check_model(const struct json *model, const char *source)
{
    const char *text;
    double dropout;

    if (model == NULL || model->kind != JSON_OBJECT)
        FAIL(ERR_FORMAT, "%s: there is no object `model`", source);
    TRY(json_get_string_or(model, source, "type", "BPE", &text));
    if (strcmp(text, "BPE") != 0)
        FAIL(ERR_FORMAT, "%s: model %s is not supported; byte-level BPE is",
             source, text);
    TRY(json_get_real_or(model, source, "dropout", 0, &dropout));
    if (dropout != 0)
        FAIL(ERR_FORMAT, "%s: model.dropout is %g; merges that are left out "
             "by chance are not supported", source, dropout);
    TRY(json_get_string_or(model, source, "continuing_subword_prefix", "",
                           &text));
    if (text[0] != '\0')
        FAIL(ERR_FORMAT, "%s: model.continuing_subword_prefix \"%s\" is not "
             "supported", source, text);
    TRY(json_get_string_or(model, source, "end_of_word_suffix", "", &text));
    if (text[0] != '\0')
        FAIL(ERR_FORMAT, "%s: model.end_of_word_suffix \"%s\" is not "
             "supported", source, text);
    return OK;
}

static status check_decoder(const struct json *json, const char *source)
{
    const struct json *list;
    const char *type;

    if (json == NULL || json->kind == JSON_NULL) return OK;
    TRY(json_get_string(json, source, "type", &type));
    if (strcmp(type, "ByteLevel") == 0) return OK;
    if (strcmp(type, "Sequence") != 0)
        FAIL(ERR_FORMAT, "%s: decoder %s is not supported; ByteLevel is",
             source, type);
    list = json_get(json, "decoders");
    for (int i = 0; list != NULL && list->kind == JSON_ARRAY &&
                    i < list->count; i++) {
        TRY(json_get_string(&list->items[i], source, "type", &type));
        if (strcmp(type, "ByteLevel") != 0 && strcmp(type, "Fuse") != 0)
            FAIL(ERR_FORMAT, "%s: decoder %s is not supported; ByteLevel is",
                 source, type);
    }
    return OK;
}

/* The library drops bytes that are not in the vocabulary unless the model
 * says otherwise; with all 256 the question does not arise. */
static status check_bytes(const struct tokenizer *tokenizer,
                          const struct json *model)
{
    const char *unknown;
    bool fallback;

    TRY(json_get_string_or(model, tokenizer->source, "unk_token", "",
                           &unknown));
    TRY(json_get_bool_or(model, tokenizer->source, "byte_fallback", false,
                         &fallback));
    if (unknown[0] == '\0' && !fallback) return OK;
    for (int i = 0; i < 256; i++)
        if (tokenizer->byte_ids[i] < 0)
            FAIL(ERR_FORMAT, "%s: the vocabulary lacks byte %d, so the model "
                 "needs its %s, which is not supported", tokenizer->source, i,
                 fallback ? "byte_fallback" : "unk_token");
    return OK;
}

static status read_root(struct tokenizer *tokenizer, const struct json *root)
{
    const struct json *model = json_get(root, "model");
    const char *source = tokenizer->source;

    if (root->kind != JSON_OBJECT)
        FAIL(ERR_FORMAT, "%s: not a tokenizer.json: no object at its top",
             source);
    TRY(check_model(model, source));
    TRY(check_null(root, "truncation", source));
    TRY(check_null(root, "padding", source));
    TRY(check_decoder(json_get(root, "decoder"), source));
    TRY(normalizer_read(&tokenizer->normalizer, json_get(root, "normalizer"),
                        source));
    TRY(pretokenizer_read(&tokenizer->pretokenizer, &tokenizer->arena,
                          json_get(root, "pre_tokenizer"), source));
    TRY(tokenizer_read_added(tokenizer, root));
    TRY(tokenizer_read_vocab(tokenizer, model));
    TRY(check_bytes(tokenizer, model));
    TRY(json_get_bool_or(model, source, "ignore_merges", false,
                         &tokenizer->ignore_merges));
    TRY(tokenizer_read_merges(tokenizer, model));
    TRY(tokenizer_read_template(tokenizer, json_get(root, "post_processor")));
    return OK;
}

/* Added tokens that want normalized text are looked for in it, in their own
 * normal form. */
static status build_matchers(struct tokenizer *tokenizer)
{
    status result = OK;
    struct text work = {0};

    TRY(added_init(&tokenizer->raw, tokenizer->added));
    TRY(added_init(&tokenizer->normal, tokenizer->added));
    for (int32_t i = 0; i < tokenizer->added_count; i++) {
        const struct added_token *token = &tokenizer->added[i];
        const char *pattern;
        size_t length;

        if (!token->normalized) {
            TRY_GOTO(done, result, added_insert(&tokenizer->raw, i,
                                                token->content,
                                                token->length));
            continue;
        }
        TRY_GOTO(done, result,
                 normalizer_run(&tokenizer->normalizer, token->content,
                                token->length, &work, &pattern, &length));
        TRY_GOTO(done, result,
                 added_insert(&tokenizer->normal, i, pattern, length));
    }
done:
    text_free(&work);
    return result;
}

status tokenizer_read_text(struct tokenizer *tokenizer, const char *json,
                           size_t length, const char *source)
{
    const struct json *root;
    struct arena parse;
    char *name;
    void *copy;
    status result;

    *tokenizer = (struct tokenizer){0};
    arena_init(&tokenizer->arena, "tokenizer", 0);
    arena_init(&parse, "tokenizer.json", 0);
    TRY_GOTO(done, result, arena_copy_text(&tokenizer->arena, source, &name));
    tokenizer->source = name;
    TRY_GOTO(done, result, arena_take(&tokenizer->arena, length + 1, &copy));
    memcpy(copy, json, length);
    tokenizer->json = copy;
    tokenizer->json_length = length;
    sha256_hex(json, length, tokenizer->digest);
    TRY_GOTO(done, result, json_read(&root, &parse, json, length, source));
    TRY_GOTO(done, result, read_root(tokenizer, root));
    TRY_GOTO(done, result, build_matchers(tokenizer));
    TRY_GOTO(done, result, word_caches_build(&tokenizer->caches));
done:
    arena_free(&parse);
    if (result != OK) tokenizer_free(tokenizer);
    return result;
}

status tokenizer_read(struct tokenizer *tokenizer, const char *path)
{
    char file[PATH_BYTES];
    struct text text = {0};
    status result;

    *tokenizer = (struct tokenizer){0};
    if (path[0] == '\0')
        FAIL(ERR_CONFIG, "no tokenizer: tokenizer.from is empty; name a "
             "tokenizer.json or make one with `lockstep tokenizer train`");
    if (file_is_directory(path))
        TRY(path_join(file, sizeof file, path, "tokenizer.json"));
    else
        TRY(path_join(file, sizeof file, "", path));
    TRY_GOTO(done, result, file_read(file, file_bytes_max, &text));
    TRY_GOTO(done, result,
             tokenizer_read_text(tokenizer, text.bytes, text.length, file));
done:
    text_free(&text);
    return result;
}
