/* SPDX-License-Identifier: Apache-2.0 */
/* companions.c - files beside a tokenizer, kept and handed on unchanged. */
#include "inference/companions.h"

#include <stdio.h>
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

status companions_copy(const char *tokenizer, const char *run)
{
    char path[PATH_BYTES];
    struct text text = {0};
    status result = OK;

    for (int i = 0; companion_names[i] != NULL && result == OK; i++) {
        result = companion_read(tokenizer, companion_names[i], &text);
        if (result != OK || text.length == 0) continue;
        TRY_GOTO(done, result,
                 path_join(path, sizeof path, run, companion_names[i]));
        result = file_write_atomic(path, text.bytes, text.length);
    }
done:
    text_free(&text);
    return result;
}
