/* SPDX-License-Identifier: Apache-2.0 */
/* corpus_read.c - documents from files: what is in a file. */
#include <string.h>
#include "base/json.h"
#include "data/corpus.h"

static const char separator[] = "<|endoftext|>";

struct reading {
    const struct corpus_file *file;
    const char *field;
    corpus_take *take;
    void *context;
    const char *bytes; /* of the file */
    size_t length;
    int64_t documents;
};

static int64_t line_of(const struct reading *reading, size_t at)
{
    int64_t line = 1;

    for (size_t i = 0; i < at; i++) line += reading->bytes[i] == '\n';
    return line;
}

/* A separator line at `at`, or 0: its length with the end of the line. */
static size_t separator_at(const struct reading *reading, size_t at)
{
    const size_t length = sizeof separator - 1;
    const char *line = reading->bytes + at;
    const size_t left = reading->length - at;

    if (left < length || memcmp(line, separator, length) != 0) return 0;
    if (left == length) return length;
    if (line[length] == '\n') return length + 1;
    if (left > length + 1 && line[length] == '\r' && line[length + 1] == '\n')
        return length + 2;
    return 0;
}

static status take_document(struct reading *reading, size_t start,
                            size_t stop)
{
    if (start == stop) return OK;
    reading->documents++;
    TRY(reading->take(reading->context, reading->bytes + start,
                      stop - start));
    return OK;
}

static status read_text(struct reading *reading, size_t start, int64_t *at)
{
    size_t bad, line = start;

    if (text_utf8_invalid(reading->bytes, reading->length, &bad))
        FAIL(ERR_FORMAT, "%s: not UTF-8 text: byte %zu (line %lld) is 0x%02x",
             reading->file->path, bad, (long long)line_of(reading, bad),
             (unsigned char)reading->bytes[bad]);
    while (line < reading->length) {
        const size_t cut = separator_at(reading, line);
        const char *next;

        if (cut > 0) {
            TRY(take_document(reading, start, line));
            start = line += cut;
            if (at != NULL) *at = (int64_t)start;
            continue;
        }
        next = memchr(reading->bytes + line, '\n', reading->length - line);
        line = next == NULL ? reading->length
                            : (size_t)(next - reading->bytes) + 1;
    }
    TRY(take_document(reading, start, reading->length));
    return OK;
}

static bool is_blank(const char *line, size_t length)
{
    for (size_t i = 0; i < length; i++)
        if (strchr(" \t\r", line[i]) == NULL || line[i] == '\0') return false;
    return true;
}

static status read_line(struct reading *reading, struct arena *arena,
                        size_t start, size_t stop, int64_t number)
{
    char source[PATH_BYTES + 32];
    const struct json *root, *text;

    if (is_blank(reading->bytes + start, stop - start)) return OK;
    snprintf(source, sizeof source, "%s, line %lld", reading->file->path,
             (long long)number);
    TRY(json_read(&root, arena, reading->bytes + start, stop - start,
                  source));
    text = json_get(root, reading->field);
    if (text == NULL)
        FAIL(ERR_FORMAT, "%s: there is no key \"%s\"; name another with "
             "data.field", source, reading->field);
    if (text->kind != JSON_STRING)
        FAIL(ERR_FORMAT, "%s: the value of \"%s\" is not a string", source,
             reading->field);
    if (text->string_length == 0) return OK;
    reading->documents++;
    TRY(reading->take(reading->context, text->string,
                      (size_t)text->string_length));
    return OK;
}

static status read_lines(struct reading *reading, size_t start, int64_t *at)
{
    struct arena arena;
    status result = OK;
    int64_t number = 1;

    arena_init(&arena, "a line of JSON", 0);
    for (; start < reading->length; number++) {
        const char *end = memchr(reading->bytes + start, '\n',
                                 reading->length - start);
        const size_t stop = end == NULL ? reading->length
                                        : (size_t)(end - reading->bytes);

        if (at != NULL) *at = (int64_t)start;
        arena_reset(&arena);
        TRY_GOTO(done, result,
                 read_line(reading, &arena, start, stop, number));
        start = stop + 1;
    }
done:
    arena_free(&arena);
    return result;
}

status corpus_read(const struct corpus_file *file, const char *field,
                   corpus_take *take, void *context, int64_t *at)
{
    struct reading reading = {.file = file, .field = field, .take = take,
                              .context = context};
    struct file_map map;
    size_t start = 0;
    status result;

    if (at != NULL) *at = 0;
    TRY(file_map_open(&map, file->path));
    reading.bytes = (const char *)map.bytes;
    reading.length = map.length;
    if (map.length == 0)
        FAIL_GOTO(done, result, ERR_FORMAT, "%s: the file is empty",
                  file->path);
    if (map.length >= 3 && memcmp(map.bytes, "\xEF\xBB\xBF", 3) == 0)
        start = 3;
    if (file->kind == CORPUS_JSONL)
        TRY_GOTO(done, result, read_lines(&reading, start, at));
    else
        TRY_GOTO(done, result, read_text(&reading, start, at));
    if (reading.documents == 0)
        FAIL_GOTO(done, result, ERR_FORMAT, "%s: there is no text in it",
                  file->path);
done:
    file_map_close(&map);
    return result;
}
