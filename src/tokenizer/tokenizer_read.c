/* SPDX-License-Identifier: Apache-2.0 */
/* tokenizer_read.c - a tokenizer file as tables.
 *
 * Nothing is ignored: a component or setting that would change ids and that
 * we do not have is refused by name. */
#include <string.h>
#include "base/file.h"
#include "tokenizer/component.h"
#include "tokenizer/tokenizer_build.h"
#include "tokenizer/word_cache.h"

static const size_t file_bytes_max = (size_t)512 << 20;

static status check_null(const struct json *root, const char *key,
                         const char *source)
{
    const struct json *value = json_get(root, key);

    if (value == NULL || value->kind == JSON_NULL) return OK;
    FAIL(ERR_FORMAT, "%s: %s is set; ids would be cut or padded, which is "
         "not supported: set it to null", source, key);
}

/* One text alone is padded only to a length that is stated. */
static status check_padding(const struct json *root, const char *source)
{
    const struct json *padding = json_get(root, "padding");
    const struct json *multiple = json_get(padding, "pad_to_multiple_of");
    const char *strategy;

    if (padding == NULL || padding->kind == JSON_NULL) return OK;
    if (json_get(padding, "strategy") != NULL &&
        json_get(padding, "strategy")->kind == JSON_STRING &&
        (multiple == NULL || multiple->kind == JSON_NULL)) {
        TRY(json_get_string(padding, source, "strategy", &strategy));
        if (strcmp(strategy, "BatchLongest") == 0) return OK;
    }
    return check_null(root, "padding", source);
}

/* First of all: a file of another model has parts of its own everywhere. */
static status check_model(const struct json *model, const char *source)
{
    const char *type;

    TRY(json_get_string_or(model, source, "type", "BPE", &type));
    if (strcmp(type, "BPE") == 0 || strcmp(type, "Unigram") == 0) return OK;
    FAIL(ERR_FORMAT, "%s: model %s is not supported; BPE and Unigram are, and "
         "`lockstep tokenizer train` learns a BPE from your text", source,
         type);
}

static status read_root(struct tokenizer *tokenizer,
                           const struct json *root)
{
    const struct component in = {tokenizer->source, "tokenizer.json",
                                 &tokenizer->arena};
    const struct json *model = json_get(root, "model");
    const char *source = tokenizer->source;

    if (root->kind != JSON_OBJECT)
        FAIL(ERR_FORMAT, "%s: not a tokenizer.json: no object at its top",
             source);
    if (model == NULL || model->kind != JSON_OBJECT)
        FAIL(ERR_FORMAT, "%s: there is no object `model`", source);
    TRY(component_fields(&in, root, "version truncation padding added_tokens "
                         "normalizer pre_tokenizer post_processor decoder "
                         "model"));
    TRY(check_model(model, source));
    TRY(check_null(root, "truncation", source));
    TRY(check_padding(root, source));
    TRY(decoder_read(&tokenizer->decoder, &tokenizer->arena,
                     json_get(root, "decoder"), source));
    TRY(normalizer_read(&tokenizer->normalizer, &tokenizer->arena,
                        json_get(root, "normalizer"), source));
    TRY(pretokenizer_read(&tokenizer->pretokenizer, &tokenizer->arena,
                          json_get(root, "pre_tokenizer"), source));
    TRY(tokenizer_read_added(tokenizer, root));
    TRY(tokenizer_read_model(tokenizer, model));
    TRY(tokenizer_read_template(tokenizer, json_get(root, "post_processor")));
    return tokenizer_build_matchers(tokenizer);
}

/* A .model begins with 0x0A and the length of its first piece, then 0x0A, the
 * length of its name and the name. The first length may look like white space;
 * then both must fit together. */
static bool is_model(const char *text, size_t length, size_t blank)
{
    return length > 3 && text[0] == '\n' && text[2] == '\n' &&
           (blank < 2 || text[3] + 2 <= text[1]);
}

/* A tiktoken file begins with a token in base64; a space is before its rank. */
static bool is_ranks(const char *text)
{
    const size_t token = strspn(text, "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                      "abcdefghijklmnopqrstuvwxyz"
                                      "0123456789+/=");

    return token > 0 && strchr(" \r\n", text[token]) != NULL &&
           strchr(text, ' ') != NULL;
}

/* The first byte tells: JSON has a brace, a .model the key of its first piece,
 * a tiktoken file base64. */
static status read_any(struct tokenizer *tokenizer, struct arena *parse)
{
    const struct json *root;
    const char *text = tokenizer->json;
    const size_t length = tokenizer->json_length;
    const size_t blank = strspn(text, " \t\r\n");

    if (length > blank && strchr("{[", text[blank]) == NULL) {
        if (is_model(text, length, blank))
            return tokenizer_read_pieces(tokenizer);
        if (is_ranks(text + blank)) return tokenizer_read_ranks(tokenizer);
        FAIL(ERR_FORMAT, "%s: neither a tokenizer.json, a tekken.json, a "
             "SentencePiece .model nor a tiktoken file", tokenizer->source);
    }
    TRY(json_read(&root, parse, text, length, tokenizer->source));
    if (json_get(root, "config") != NULL && json_get(root, "model") == NULL)
        return tokenizer_read_tekken(tokenizer, root);
    tokenizer->file_name = "tokenizer.json";
    return read_root(tokenizer, root);
}

status tokenizer_read_text(struct tokenizer *tokenizer, const char *json,
                           size_t length, const char *source)
{
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
    TRY_GOTO(done, result, read_any(tokenizer, &parse));
    TRY_GOTO(done, result, word_caches_build(&tokenizer->caches));
done:
    arena_free(&parse);
    if (result != OK) tokenizer_free(tokenizer);
    return result;
}

bool tokenizer_file(const char *directory, char file[PATH_BYTES])
{
    static const char *const names[] = {
        "tokenizer.json",       "tokenizer.model",     "tekken.json",
        "r50k_base.tiktoken",   "p50k_base.tiktoken",  "cl100k_base.tiktoken",
        "o200k_base.tiktoken",  "llama3.tiktoken",     "qwen.tiktoken"};

    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (path_join(file, PATH_BYTES, directory, names[i]) == OK &&
            file_exists(file)) return true;
    return false;
}

/* Names of model hubs: gpt2, org/name. A path that was meant as one has an
 * ending of its own, begins with . or /, or has more parts. */
static bool looks_like_hub_name(const char *path)
{
    const char *slash = strchr(path, '/');

    return strchr("./~", path[0]) == NULL && !text_ends_with(path, ".json") &&
           !text_ends_with(path, ".model") &&
           !text_ends_with(path, ".tiktoken") &&
           (slash == NULL || (slash[1] != 0 && strchr(slash + 1, '/') == NULL));
}

static status no_such_tokenizer(const char *path)
{
    if (looks_like_hub_name(path))
        FAIL(ERR_MISSING, "tokenizer: there is no file or directory %s, and "
             "nothing is downloaded by name; put the Hugging Face directory "
             "of %s on this machine and give its path, or make a tokenizer "
             "with `lockstep tokenizer train`", path, path);
    FAIL(ERR_MISSING, "%s: there is no such file or directory; a tokenizer is "
         "a tokenizer.json, .model or .tiktoken file or the directory that "
         "holds it", path);
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
    if (file_is_gone(path)) return no_such_tokenizer(path);
    if (!file_is_directory(path))
        TRY(path_join(file, sizeof file, "", path));
    else if (!tokenizer_file(path, file))
        FAIL(ERR_MISSING, "%s: no tokenizer.json, tokenizer.model, "
             "tekken.json or .tiktoken file is in it", path);
    TRY_GOTO(done, result, file_read_regular(file, file_bytes_max, &text));
    TRY_GOTO(done, result,
             tokenizer_read_text(tokenizer, text.bytes, text.length, file));
done:
    text_free(&text);
    return result;
}
