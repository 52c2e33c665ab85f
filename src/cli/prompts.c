/* SPDX-License-Identifier: Apache-2.0 */
/* prompts.c - the prompts of a command line and of a file. */
#include "cli/prompts.h"

#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/json.h"

static const char mark[] = "\xEF\xBB\xBF"; /* byte order mark */
static const size_t file_bytes_max = (size_t)256 << 20;

status prompts_given(struct arguments *arguments, const char *flag,
                     const char *const **values, int64_t *count)
{
    const char **kept;
    void *memory;

    TRY(arena_take_array(&arguments->arena, (size_t)arguments->given_count + 1,
                         sizeof *kept, &memory));
    kept = memory;
    *count = 0;
    for (int i = 0; i < arguments->given_count; i++)
        if (strcmp(arguments->given[i].flag->name, flag) == 0)
            kept[(*count)++] = arguments->given[i].value;
    *values = kept;
    return OK;
}

static status read_object(struct arena *arena, const char *path, int64_t line,
                          const char *bytes, size_t length, const char **out)
{
    const struct json *root;
    char source[256];

    snprintf(source, sizeof source, "%.200s, line %lld", path,
             (long long)line);
    TRY(json_read(&root, arena, bytes, length, source));
    if (root->kind != JSON_OBJECT)
        FAIL(ERR_FORMAT, "%s: is no object with \"prompt\"", source);
    return json_get_string(root, source, "prompt", out);
}

static status keep_line(struct arena *arena, const char *bytes, size_t length,
                        const char **out)
{
    void *memory;

    TRY(arena_take(arena, length + 1, &memory));
    memcpy(memory, bytes, length);
    ((char *)memory)[length] = '\0';
    *out = memory;
    return OK;
}

static status read_lines(struct arena *arena, const char *path,
                         const struct text *text, const char **prompts,
                         int64_t *lines, int64_t *count)
{
    const char *at = text->bytes, *end = at + text->length;
    const bool objects = text_ends_with(path, ".jsonl");
    size_t bad;

    if (text->length >= 3 && memcmp(at, mark, 3) == 0) at += 3;

    for (int64_t line = 1; at < end; line++) {
        const char *stop = memchr(at, '\n', (size_t)(end - at));
        const size_t whole = (size_t)((stop != NULL ? stop : end) - at);
        size_t length = whole;

        if (length > 0 && at[length - 1] == '\r') length--;
        if (memchr(at, '\0', length) != NULL)
            FAIL(ERR_FORMAT, "%s: line %lld has a zero byte, which is no text",
                 path, (long long)line);
        if (!objects && text_utf8_invalid(at, length, &bad))
            FAIL(ERR_FORMAT, "%s, line %lld: this is not UTF-8 at byte %zu",
                 path, (long long)line, bad + 1);
        lines[*count] = line;
        if (length > 0 && objects)
            TRY(read_object(arena, path, line, at, length, &prompts[*count]));
        else if (length > 0)
            TRY(keep_line(arena, at, length, &prompts[*count]));
        *count += length > 0;
        at += whole + 1;
    }
    return OK;
}

status prompts_read(struct arena *arena, const char *path,
                    const char *const **prompts, const int64_t **lines,
                    int64_t *count)
{
    struct text text = {0};
    int64_t most = 2; /* the last may have no end; one more is looked at */
    void *memory, *numbers;
    status result;

    *count = 0;
    TRY_GOTO(done, result, file_read(path, file_bytes_max, &text));
    for (size_t i = 0; i < text.length; i++) most += text.bytes[i] == '\n';
    TRY_GOTO(done, result, arena_take_array(arena, (size_t)most,
                                            sizeof **prompts, &memory));
    TRY_GOTO(done, result, arena_take_array(arena, (size_t)most,
                                            sizeof **lines, &numbers));
    *prompts = memory;
    *lines = numbers;
    TRY_GOTO(done, result, read_lines(arena, path, &text, memory, numbers,
                                      count));
    if (*count == 0)
        result = status_fail(ERR_FORMAT, __FILE__, __LINE__,
                             "%s: has no prompt", path);
done:
    text_free(&text);
    return result;
}
