/* SPDX-License-Identifier: Apache-2.0 */
/* corpus_read.c - documents from files: what is in a file. */
#include <string.h>
#include "base/json.h"
#include "base/mapped_files.h"
#include "corpus/byte_source.h"
#include "corpus/chat.h"
#include "corpus/corpus.h"
#include "corpus/parquet.h"

static const char separator[] = "<|endoftext|>";
static const char mark[] = "\xEF\xBB\xBF"; /* byte order mark */

struct reading {
    const struct corpus_file *file;
    const struct corpus_format *format;
    corpus_take *take;
    void *context;
    int64_t *at;       /* of the caller; never NULL here */
    const struct file_map *map; /* NULL: the file is not mapped */
    const char *bytes; /* of a mapped file */
    size_t length;
    int64_t documents;
    struct chat_text chat; /* of a conversation */
    int32_t *ids;      /* owned, [id_capacity] of a document that is tokens */
    int64_t id_count, id_capacity;
    const char *source; /* of a line: file and number */
};

static size_t most_bytes(const struct reading *reading)
{
    const int64_t most = reading->format->document_bytes;

    return most > 0 ? (size_t)most : DOCUMENT_BYTES;
}

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
    if (line[length] != '\r') return 0;
    if (left == length + 1) return left; /* the file ends here */
    return line[length + 1] == '\n' ? length + 2 : 0;
}

static status take_text(struct reading *reading, const char *text,
                        size_t length)
{
    const struct corpus_document document = {.text = text, .length = length,
                                             .map = reading->map};

    if (length == 0) return OK;
    reading->documents++;
    TRY(reading->take(reading->context, &document));
    return OK;
}

enum { STRETCH_BYTES = 16 << 20 }; /* read before pages are given back */

/* Stretch by stretch, so that a file may be larger than memory. */
static status check_utf8(const struct reading *reading)
{
    size_t at = 0, bad;

    while (at < reading->length) {
        size_t stop = reading->length;

        if (stop - at > STRETCH_BYTES) {
            stop = at + STRETCH_BYTES;
            for (int i = 0; i < 3 && (reading->bytes[stop] & 0xC0) == 0x80;
                 i++)
                stop--; /* no character is cut */
        }
        if (text_utf8_invalid(reading->bytes + at, stop - at, &bad))
            FAIL(ERR_FORMAT, "%s: not UTF-8 text: byte %zu (line %lld) is "
                             "0x%02x", reading->file->path, at + bad,
                 (long long)line_of(reading, at + bad),
                 (unsigned char)reading->bytes[at + bad]);
        file_map_drop(reading->map);
        at = stop;
    }
    return OK;
}

static status read_text(struct reading *reading, size_t start)
{
    size_t line = start, dropped = start;

    TRY(check_utf8(reading));
    while (line < reading->length) {
        const size_t cut = separator_at(reading, line);
        const char *next;

        if (line - dropped > STRETCH_BYTES) {
            file_map_drop(reading->map);
            dropped = line;
        }
        if (cut > 0) {
            TRY(take_text(reading, reading->bytes + start, line - start));
            start = line += cut;
            *reading->at = (int64_t)start;
            continue;
        }
        next = memchr(reading->bytes + line, '\n', reading->length - line);
        line = next == NULL ? reading->length
                            : (size_t)(next - reading->bytes) + 1;
    }
    return take_text(reading, reading->bytes + start,
                     reading->length - start);
}

static status read_mapped(struct reading *reading)
{
    struct file_map map;
    status result;

    TRY(file_map_open(&map, reading->file->path));
    reading->map = &map;
    reading->bytes = (const char *)map.bytes;
    reading->length = map.length;
    result = read_text(reading, map.length >= 3 &&
                                memcmp(map.bytes, mark, 3) == 0 ? 3 : 0);
    reading->map = NULL;
    file_map_close(&map);
    return result;
}

/* ---- packed text ---- */

static status take_unpacked(struct reading *reading, struct text *text,
                            int64_t first_line)
{
    size_t bad, line_end;

    if (text_utf8_invalid(text->bytes, text->length, &bad)) {
        for (line_end = 0; line_end < bad; line_end++)
            first_line += text->bytes[line_end] == '\n';
        FAIL(ERR_FORMAT, "%s, line %lld: not UTF-8 text: a byte is 0x%02x",
             reading->file->path, (long long)first_line,
             (unsigned char)text->bytes[bad]);
    }
    TRY(take_text(reading, text->bytes, text->length));
    text->length = 0;
    return OK;
}

static bool is_separator(const struct text *line)
{
    const size_t length = sizeof separator - 1;

    return (line->length == length || (line->length == length + 1 &&
                                       line->bytes[length] == '\r')) &&
           memcmp(line->bytes, separator, length) == 0;
}

static void drop_mark(struct text *line)
{
    if (line->length < 3 || memcmp(line->bytes, mark, 3) != 0) return;
    memmove(line->bytes, line->bytes + 3, line->length - 3);
    line->length -= 3;
}

static status open_lines(const struct reading *reading,
                         struct line_reader *reader)
{
    TRY(line_reader_open(reader, reading->file->path));
    reader->most = most_bytes(reading);
    reader->most_of = DOCUMENT_BYTES_NAME;
    return OK;
}

static status gather(const struct reading *reading, const struct text *line,
                     int64_t first, struct text *document)
{
    if (line->length >= most_bytes(reading) - document->length)
        FAIL(ERR_FORMAT, "%s: the document from line %lld on has more than %zu "
             "bytes, the most of " DOCUMENT_BYTES_NAME "; lines of %s part "
             "documents", reading->file->path, (long long)first,
             most_bytes(reading), separator);
    return text_append(document, line->bytes, line->length);
}

/* A packed text cannot be mapped: a document is gathered line by line. */
static status read_packed(struct reading *reading)
{
    struct text line = {0}, document = {0};
    struct line_reader reader;
    int64_t first = 1;
    status result;
    bool there;

    TRY_GOTO(done, result, open_lines(reading, &reader));
    for (;;) {
        TRY_GOTO(done, result, line_reader_next(&reader, &line, &there));
        if (!there) break;
        if (reader.number == 1) drop_mark(&line);
        if (is_separator(&line)) {
            TRY_GOTO(done, result, take_unpacked(reading, &document, first));
            *reading->at = reader.source.consumed;
            first = reader.number + 1;
            continue;
        }
        TRY_GOTO(done, result, gather(reading, &line, first, &document));
        if (reader.cut) continue; /* the file ends without a line end */
        TRY_GOTO(done, result, text_append(&document, "\n", 1));
    }
    if (document.length > 0)
        TRY_GOTO(done, result, take_unpacked(reading, &document, first));
done:
    line_reader_close(&reader);
    text_free(&document);
    text_free(&line);
    return result;
}

/* ---- lines of JSON ---- */

static bool is_blank(const char *line, size_t length)
{
    for (size_t i = 0; i < length; i++)
        if (strchr(" \t\r", line[i]) == NULL || line[i] == '\0') return false;
    return true;
}

/* from: "FILE, line 3" or the like. */
static status check_id(const struct reading *reading, const char *from,
                       int64_t at, int64_t id)
{
    const int64_t vocab = reading->format->vocab;

    if (vocab > 0 && id >= vocab)
        FAIL(ERR_FORMAT, "%s: item %lld of \"%s\" is %lld, outside the "
             "vocabulary of %lld", from, (long long)at,
             reading->format->field, (long long)id, (long long)vocab);
    return OK;
}

/* A number of the array: the ids of a document. */
static status add_id(void *context, const struct json *item)
{
    struct reading *reading = context;
    const int64_t at = reading->id_count;

    if (item->kind != JSON_INTEGER || item->integer < 0 ||
        item->integer > INT32_MAX)
        FAIL(ERR_FORMAT, "%s: item %lld of \"%s\" is not a token id",
             reading->source, (long long)at, reading->format->field);
    TRY(check_id(reading, reading->source, at, item->integer));
    if ((size_t)at >= most_bytes(reading) / sizeof *reading->ids)
        FAIL(ERR_FORMAT, "%s: more than %lld ids of 4 bytes; the most of "
             DOCUMENT_BYTES_NAME " is %zu", reading->source, (long long)at,
             most_bytes(reading));
    if (at == reading->id_capacity) {
        const int64_t room = 2 * at + 1024;
        void *grown = reading->ids;

        TRY(memory_grow(&grown, (size_t)room, sizeof *reading->ids));
        reading->ids = grown;
        reading->id_capacity = room;
    }
    reading->ids[reading->id_count++] = (int32_t)item->integer;
    return OK;
}

static status take_ids(struct reading *reading)
{
    const struct corpus_document document = {.ids = reading->ids,
                                             .id_count = reading->id_count};

    if (document.id_count == 0) return OK;
    reading->documents++;
    TRY(reading->take(reading->context, &document));
    return OK;
}

static status take_chat(struct reading *reading)
{
    const struct chat_text *chat = &reading->chat;
    const struct corpus_document document = {
        .text = chat->text.bytes, .length = chat->text.length,
        .segments = chat->segments, .segment_count = chat->segment_count,
        .headed = chat->headed};

    if (document.length == 0) return OK;
    reading->documents++;
    return reading->take(reading->context, &document);
}

static bool is_text(const struct json *value)
{
    return value != NULL && value->kind == JSON_STRING;
}

enum { HEADS_MOST = 7, HEAD_BYTES = 128 };

/* "a" and "a.b" of the field "a.b.c": keys whose objects may hold it. */
struct heads {
    const char *names[HEADS_MOST];
    char room[HEADS_MOST][HEAD_BYTES];
    int count;
};

static void heads_of(struct heads *heads, const char *field)
{
    heads->count = 0;
    for (const char *dot = strchr(field, '.');
         dot != NULL && heads->count < HEADS_MOST;
         dot = strchr(dot + 1, '.')) {
        const size_t length = (size_t)(dot - field);
        char *name = heads->room[heads->count];

        if (length == 0 || length >= HEAD_BYTES) continue;
        memcpy(name, field, length);
        name[length] = '\0';
        heads->names[heads->count++] = name;
    }
}

/* The value of a key, or, where there is none, of a path of keys with dots
 * between them; NULL: of neither. */
static const struct json *find_field(const struct json *object,
                                     const char *field)
{
    const struct json *value = json_get(object, field);
    struct heads heads;

    if (value != NULL || strchr(field, '.') == NULL) return value;
    heads_of(&heads, field);
    for (int i = 0; i < heads.count && value == NULL; i++) {
        const struct json *inner = json_get(object, heads.names[i]);

        if (inner == NULL || inner->kind != JSON_OBJECT) continue;
        value = find_field(inner, field + strlen(heads.names[i]) + 1);
    }
    return value;
}

/* Reads the conversation of a record; *done: it had one. */
static status read_chat(struct reading *reading, const struct json *root,
                        const char *source, bool *done)
{
    const struct corpus_format *format = reading->format;
    const char *const keys[] = {format->field, "messages", "conversations"};
    const struct json *prompt = json_get(root, "prompt");
    const struct json *completion = json_get(root, "completion");

    *done = true;
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        const struct json *value = find_field(root, keys[i]);

        if (value == NULL || value->kind != JSON_ARRAY || value->count == 0 ||
            value->items[0].kind != JSON_OBJECT)
            continue;
        TRY(chat_render(&reading->chat, format->chat, value, source));
        return take_chat(reading);
    }
    if (is_text(prompt) && is_text(completion)) {
        TRY(chat_pair(&reading->chat, prompt, completion));
        return take_chat(reading);
    }
    *done = false;
    return OK;
}

enum { KEYS_MOST = 5, KEY_MOST = 32,
       KEYS_BYTES = KEYS_MOST * (2 * KEY_MOST + 5) + 1 };

/* Adds the keys under which there is text, those in objects with their path. */
static void list_keys(const struct json *object, const char *above,
                      char keys[KEYS_BYTES], int *count)
{
    for (int i = 0; i < object->count && *count < KEYS_MOST; i++) {
        const char *key = object->items[2 * i].string;
        const struct json *value = &object->items[2 * i + 1];
        const size_t used = strlen(keys);

        if (strlen(key) > KEY_MOST) continue;
        if (value->kind == JSON_OBJECT && above == NULL)
            list_keys(value, key, keys, count);
        if (!is_text(value)) continue;
        snprintf(keys + used, KEYS_BYTES - used, "%s\"%s%s%s\"",
                 (*count)++ > 0 ? ", " : "", above != NULL ? above : "",
                 above != NULL ? "." : "", key);
    }
}

/* Which keys the record has instead; of a long one that is not looked for. */
static status no_field(const struct text *line, const char *source,
                       const char *field, bool chat)
{
    enum { LINE_MOST = 1 << 16 };
    char keys[KEYS_BYTES] = "";
    const struct json *root = NULL;
    struct arena arena;
    bool talks = false;
    int count = 0;

    arena_init(&arena, "line", 0);
    if (line->length <= LINE_MOST &&
        json_read(&root, &arena, line->bytes, line->length, source) == OK &&
        root->kind == JSON_OBJECT) {
        talks = json_get(root, "messages") != NULL ||
                json_get(root, "conversations") != NULL;
        list_keys(root, NULL, keys, &count);
    }
    status_clear();
    arena_free(&arena);
    if (talks && !chat)
        FAIL(ERR_FORMAT, "%s: there is no key \"%s\"; it is a conversation: "
             "name its template with data.chat", source, field);
    if (keys[0] != '\0')
        FAIL(ERR_FORMAT, "%s: there is no key \"%s\", but text under %s; "
             "name one with data.field", source, field, keys);
    FAIL(ERR_FORMAT, "%s: there is no key \"%s\"; name another with "
         "data.field", source, field);
}

static status read_line(struct reading *reading, struct arena *arena,
                        const struct text *line, int64_t number)
{
    const char *field = reading->format->field;
    const char *keys[HEADS_MOST + 5] = {field};
    static const char *const chats[] = {"messages", "conversations", "prompt",
                                        "completion"};
    struct json_wanted wanted = {.keys = keys, .count = 1, .numbers = field,
                                 .take = add_id, .context = reading};
    struct heads heads;
    char source[PATH_BYTES + 32];
    const struct json *root, *value;

    if (is_blank(line->bytes, line->length)) return OK;
    heads_of(&heads, field);
    for (int i = 0; i < heads.count; i++)
        keys[wanted.count++] = heads.names[i];
    for (int i = 0; i < 4 && reading->format->chat != NULL; i++)
        keys[wanted.count++] = chats[i];
    snprintf(source, sizeof source, "%s, line %lld", reading->file->path,
             (long long)number);
    reading->source = source;
    reading->id_count = 0;
    TRY(json_read_record(&root, arena, line->bytes, line->length, source,
                         &wanted));
    if (reading->format->chat != NULL) {
        bool done;

        TRY(read_chat(reading, root, source, &done));
        if (done) return OK;
    }
    value = find_field(root, field);
    if (value == NULL)
        return no_field(line, source, field, reading->format->chat != NULL);
    /* Ids that were not taken while they were read are inside an object. */
    for (int i = 0; value->kind == JSON_ARRAY && i < value->count; i++)
        TRY(add_id(reading, &value->items[i]));
    if (value->kind == JSON_ARRAY) return take_ids(reading);
    if (value->kind == JSON_NULL) return OK; /* as a null row of Parquet */
    if (value->kind != JSON_STRING)
        FAIL(ERR_FORMAT, "%s: the value of \"%s\" is neither a string nor an "
             "array of ids", source, field);
    return take_text(reading, value->string, (size_t)value->string_length);
}

static status read_lines(struct reading *reading)
{
    struct line_reader reader;
    struct text line = {0};
    struct arena arena;
    status result;
    bool there;

    arena_init(&arena, "a line of JSON", 0);
    TRY_GOTO(done, result, open_lines(reading, &reader));
    for (;;) {
        *reading->at = reader.source.consumed;
        TRY_GOTO(done, result, line_reader_next(&reader, &line, &there));
        if (!there) break;
        if (reader.number == 1) drop_mark(&line);
        arena_reset(&arena);
        TRY_GOTO(done, result,
                 read_line(reading, &arena, &line, reader.number));
    }
done:
    line_reader_close(&reader);
    text_free(&line);
    arena_free(&arena);
    return result;
}

/* ---- Parquet ---- */

static status check_row(const struct reading *reading,
                        const struct parquet_row *row)
{
    char from[PATH_BYTES + 32];

    if (row->count == 0) return OK; /* text */
    snprintf(from, sizeof from, "%s, row %lld", reading->file->path,
             (long long)row->number);
    for (int64_t i = 0; i < row->count; i++)
        TRY(check_id(reading, from, i, row->ids[i]));
    return OK;
}

static status take_row(void *context, const struct parquet_row *row)
{
    struct reading *reading = context;
    const struct corpus_document document = {
        .text = row->text, .length = row->length, .ids = row->ids,
        .id_count = row->count};

    if (row->length == 0 && row->count == 0) return OK;
    if (row->length > most_bytes(reading) ||
        (size_t)row->count > most_bytes(reading) / sizeof *row->ids)
        FAIL(ERR_FORMAT, "%s: row %lld has %zu bytes, more than %zu, the most "
             "of " DOCUMENT_BYTES_NAME, reading->file->path,
             (long long)row->number,
             row->text != NULL ? row->length
                               : (size_t)row->count * sizeof *row->ids,
             most_bytes(reading));
    TRY(check_row(reading, row));
    reading->documents++;
    return reading->take(reading->context, &document);
}

static status read_parquet(struct reading *reading)
{
    const char *path = reading->file->path;
    struct file_map map;
    status result;

    TRY(file_map_open(&map, path));
    result = parquet_read(&(struct parquet_file){path, map.bytes, map.length},
                          reading->format->field, take_row, reading,
                          reading->at);
    file_map_close(&map);
    return result;
}

/* ---- any file ---- */

static status read_any(struct reading *reading)
{
    const char *path = reading->file->path;

    if (reading->file->bytes == 0)
        FAIL(ERR_FORMAT, "%s: the file is empty", path);
    if (reading->file->kind == CORPUS_JSONL)
        return read_lines(reading);
    if (reading->file->kind == CORPUS_PARQUET) return read_parquet(reading);
    if (text_ends_like(path, ".gz") || text_ends_like(path, ".zst"))
        return read_packed(reading);
    return read_mapped(reading);
}

status corpus_read(const struct corpus_file *file,
                   const struct corpus_format *format, corpus_take *take,
                   void *context, int64_t *at)
{
    int64_t unused;
    struct reading reading = {.file = file, .format = format, .take = take,
                              .context = context,
                              .at = at != NULL ? at : &unused};
    status result;

    *reading.at = 0;
    result = read_any(&reading);
    memory_free(reading.ids);
    chat_text_free(&reading.chat);
    TRY(mapped_check()); /* it is why the rest is wrong */
    TRY(result);
    if (reading.documents == 0)
        FAIL(ERR_FORMAT, "%s: there is no text in it", file->path);
    return OK;
}
