/* SPDX-License-Identifier: Apache-2.0 */
/* companions.c - files beside a tokenizer, kept and handed on unchanged. */
#include "inference/companions.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/json.h"
#include "base/log.h"

const char *const companion_names[] = {
    "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json",
    "chat_template.jinja", "generation_config.json", NULL};

static const size_t companion_bytes_max = (size_t)16 << 20;

static bool is_there(char file[PATH_BYTES], const char *tokenizer,
                     const char *name)
{
    const char *slash = strrchr(tokenizer, '/');
    const int length = slash == NULL ? 0 : (int)(slash - tokenizer) + 1;
    const int needed = snprintf(file, PATH_BYTES, "%.*s%s", length, tokenizer,
                                name);

    return needed > 0 && needed < PATH_BYTES && file_exists(file);
}

/* A checkpoint has the tokenizer, its run has the others. */
static bool find(const char *tokenizer, const char *name,
                 char file[PATH_BYTES])
{
    char above[64];

    if (is_there(file, tokenizer, name)) return true;
    snprintf(above, sizeof above, "../../%s", name);
    return is_there(file, tokenizer, "manifest.json") &&
           is_there(file, tokenizer, above);
}

static status check_json(const struct text *text, const char *file)
{
    const struct json *root;
    struct arena arena;
    status result;

    arena_init(&arena, "a file beside a tokenizer", 0);
    TRY_GOTO(done, result,
             json_read(&root, &arena, text->bytes, text->length, file));
    if (root->kind != JSON_OBJECT)
        FAIL_GOTO(done, result, ERR_FORMAT, "%s: a JSON object was expected",
                  file);
    if (json_get(root, "auto_map") != NULL)
        FAIL_GOTO(done, result, ERR_FORMAT, "%s: names code (auto_map)", file);
done:
    arena_free(&arena);
    return result;
}

static status check(const struct text *text, const char *file)
{
    if (text_ends_with(file, ".json")) return check_json(text, file);
    if (memchr(text->bytes, 0, text->length) == NULL &&
        (strstr(text->bytes, "{{") != NULL ||
         strstr(text->bytes, "{%") != NULL))
        return OK;
    FAIL(ERR_FORMAT, "%s: is no template: it has neither {{ nor {%%", file);
}

status companion_read(const char *tokenizer, const char *name,
                      struct text *out)
{
    char file[PATH_BYTES];
    status result;

    text_free(out); /* of the one before; what is read takes its own memory */
    if (!find(tokenizer, name, file)) return OK;
    result = file_read_regular(file, companion_bytes_max, out);
    if (result == OK && out->length > 0) result = check(out, file);
    if (result == OK || result == ERR_MEMORY) return result;
    LOG(WARNING, "tokenizer", "%s is not handed on: %s", name,
        status_message());
    status_clear();
    out->length = 0;
    return OK;
}

/* ---- the longest text, where the context changed ---- */

/* The context of the model beside the tokenizer; -1: none says it. */
static status context_beside(const char *tokenizer, int64_t *context)
{
    static const char *const names[] = {
        "max_position_embeddings", "n_positions"};
    const struct json *root, *value;
    char file[PATH_BYTES];
    struct text text = {0};
    struct arena arena;
    status result;

    *context = -1;
    if (!find(tokenizer, "config.json", file)) return OK;
    arena_init(&arena, "the model beside a tokenizer", 0);
    result = file_read_regular(file, companion_bytes_max, &text);
    if (result == OK)
        result = json_read(&root, &arena, text.bytes, text.length, file);
    for (size_t i = 0; result == OK && *context < 0 &&
                       i < sizeof names / sizeof *names; i++) {
        value = json_get(root, names[i]);
        if (value != NULL && value->kind == JSON_INTEGER)
            *context = value->integer;
    }
    arena_free(&arena);
    text_free(&text);
    if (result == OK || result == ERR_MEMORY) return result;
    status_clear(); /* a tokenizer needs no model */
    return OK;
}

/* Where the value of a key of the outermost object begins in JSON that was
 * checked; NULL: it is not there. */
static const char *value_of(const char *json, const char *key)
{
    static const char *const spaces = " \t\r\n";
    const size_t length = strlen(key);
    int depth = 0;

    for (const char *at = json; *at != 0; at++) {
        const char *word = at + 1, *after;

        if (*at == '{' || *at == '[') depth++;
        if (*at == '}' || *at == ']') depth--;
        if (*at != '"') continue;
        for (at++; *at != '"'; at++)
            if (*at == '\\') at++;
        after = at + 1 + strspn(at + 1, spaces);
        if (depth == 1 && *after == ':' && (size_t)(at - word) == length &&
            memcmp(word, key, length) == 0)
            return after + 1 + strspn(after + 1, spaces);
    }
    return NULL;
}

/* The number of tokens at which tokenizers cut is the model's context, if it
 * was that of the model from which the tokenizer comes. */
static status follow_context(struct text *text, int64_t before,
                             int64_t context)
{
    const char *value = value_of(text->bytes, "model_max_length");
    struct text changed = {0};
    char *end;
    status result;

    if (value == NULL || before < 0 || strtoll(value, &end, 10) != before ||
        end == value || strspn(end, ", \t\r\n}") == 0)
        return OK;
    result = text_printf(&changed, "%.*s%lld%s", (int)(value - text->bytes),
                         text->bytes, (long long)context, end);
    if (result != OK) {
        text_free(&changed);
        return result;
    }
    text_free(text);
    *text = changed;
    return OK;
}

status companions_copy(const char *tokenizer, const char *run,
                       int64_t context)
{
    char path[PATH_BYTES];
    struct text text = {0};
    int64_t before;
    status result;

    TRY(context_beside(tokenizer, &before));
    result = OK;
    for (int i = 0; companion_names[i] != NULL && result == OK; i++) {
        result = companion_read(tokenizer, companion_names[i], &text);
        if (result != OK || text.length == 0) continue;
        if (strcmp(companion_names[i], "tokenizer_config.json") == 0)
            TRY_GOTO(done, result, follow_context(&text, before, context));
        TRY_GOTO(done, result,
                 path_join(path, sizeof path, run, companion_names[i]));
        result = file_write_atomic(path, text.bytes, text.length);
    }
done:
    text_free(&text);
    return result;
}
