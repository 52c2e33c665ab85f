/* SPDX-License-Identifier: Apache-2.0 */
/* json.c - one strict JSON reader.
 *
 * One pass and no recursion: values are pushed on a stack; when an array or
 * object closes, its items move from the stack to the arena in one piece. All
 * strings share one buffer as long as the text, which is enough because
 * unescaping never lengthens and the NUL takes the place of a quote.
 * Source: RFC 8259. */
#include "base/json.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/clock.h"
#include "base/file.h"
#include "base/json_index.h"

enum {
    ITEMS_AT_ONCE = 1024, /* small containers share pieces of the arena */
    NUMBER_BYTES_MAX = 400,
    KEPT_MAX = 1 << 20 /* values of a record */
};

struct reader {
    const char *text;
    size_t length;
    size_t at;
    const char *source;
    struct arena *arena;
    char *strings;      /* where the next string goes */
    struct json *stack; /* owned */
    size_t count, capacity;
    struct json *room; /* items left of a shared piece of the arena */
    size_t room_count;
    uint64_t seed;
    const struct json_wanted *wanted; /* NULL: everything is */
    bool dropping;      /* the value of a key that is not wanted */
    size_t kept;        /* values of a record that were pushed to be kept */
    int depth;
    size_t first[JSON_DEPTH_MAX]; /* first item of each open container */
    bool object[JSON_DEPTH_MAX];
};

/* Line and column (in code points) of a byte, both from 1. */
static void position(const struct reader *r, size_t at, long *line,
                     long *column)
{
    *line = 1;
    *column = 1;
    for (size_t i = 0; i < at && i < r->length; i++) {
        if (r->text[i] == '\n') {
            ++*line;
            *column = 1;
        } else if (((unsigned char)r->text[i] & 0xC0) != 0x80) {
            ++*column;
        }
    }
}

static status fail_at(const struct reader *r, size_t at, const char *what)
{
    long line, column;

    position(r, at, &line, &column);
    if (r->wanted != NULL && line == 1) /* the source names the record's line */
        FAIL(ERR_FORMAT, "%s, column %ld: %s", r->source, column, what);
    FAIL(ERR_FORMAT, "%s:%ld:%ld: %s", r->source, line, column, what);
}

static status unexpected(const struct reader *r, const char *expected)
{
    const unsigned char c =
        r->at < r->length ? (unsigned char)r->text[r->at] : 0;
    char what[96], found[16];

    if (r->at >= r->length)
        snprintf(found, sizeof found, "the end");
    else if (c > 0x20 && c < 0x7F)
        snprintf(found, sizeof found, "'%c'", c);
    else
        snprintf(found, sizeof found, "byte 0x%02x", c);
    snprintf(what, sizeof what, "expected %s, found %s", expected, found);
    TRY(fail_at(r, r->at, what));
    return OK;
}

static void skip_space(struct reader *r)
{
    while (r->at < r->length) {
        const char c = r->text[r->at];

        if (c != ' ' && c != '\n' && c != '\t' && c != '\r') return;
        r->at++;
    }
}

static status push(struct reader *r, struct json value)
{
    if (r->wanted != NULL && !r->dropping && ++r->kept > KEPT_MAX)
        TRY(fail_at(r, r->at, "more than 1048576 values in one record"));
    if (r->count == r->capacity) {
        void *grown = r->stack;

        r->capacity = r->capacity == 0 ? 256 : r->capacity * 2;
        TRY(memory_grow(&grown, r->capacity, sizeof *r->stack));
        r->stack = grown;
    }
    r->stack[r->count++] = value;
    return OK;
}

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return -1;
}

/* The four digits of \uXXXX at text[at]; -1 when they are not. */
static int32_t hex_four(const struct reader *r, size_t at)
{
    int32_t code = 0;

    if (r->length - at < 4) return -1;
    for (size_t i = 0; i < 4; i++) {
        const int digit = hex_digit(r->text[at + i]);

        if (digit < 0) return -1;
        code = code * 16 + digit;
    }
    return code;
}

/* An escape whose 'u' is at r->at: one unit, or a pair of surrogates. */
static status read_unicode(struct reader *r, char **out)
{
    int32_t code = hex_four(r, r->at + 1), low = 0;

    if (code < 0)
        TRY(fail_at(r, r->at - 1, "\\u needs four hexadecimal digits"));
    r->at += 5;
    if (code >= 0xD800 && code < 0xDC00) {
        if (r->length - r->at > 6 && r->text[r->at] == '\\' &&
            r->text[r->at + 1] == 'u')
            low = hex_four(r, r->at + 2);
        if (low < 0xDC00 || low > 0xDFFF)
            TRY(fail_at(r, r->at - 6, "a high surrogate without a low "
                        "surrogate"));
        r->at += 6;
        code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
    } else if (code >= 0xDC00 && code < 0xE000) {
        TRY(fail_at(r, r->at - 6, "a low surrogate without a high surrogate"));
    }
    *out += text_utf8_encode((uint32_t)code, *out);
    return OK;
}

/* The escape at r->at, which is just behind the backslash. */
static status read_escape(struct reader *r, char **out)
{
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    const char c = r->at < r->length ? r->text[r->at] : '\0';
    const char *found = c != '\0' ? strchr(from, c) : NULL;

    if (c == 'u') {
        TRY(read_unicode(r, out));
        return OK;
    }
    if (found == NULL)
        TRY(unexpected(r, "one of \" \\ / b f n r t u after a backslash"));
    *(*out)++ = to[found - from];
    r->at++;
    return OK;
}

/* Bytes from `at` on that stand for themselves in a string. */
static size_t plain_length(const char *at, size_t length)
{
    size_t i = 0;

    while (i < length && at[i] != '"' && at[i] != '\\' &&
           (unsigned char)at[i] >= 0x20)
        i++;
    return i;
}

/* Pushes the string whose opening quote is at r->at; its offset is kept in
 * `integer` until the object closes. */
static status read_string(struct reader *r)
{
    const size_t start = r->at++;
    char *const first = r->strings;
    char *out = first;

    for (;;) {
        const size_t run = plain_length(r->text + r->at, r->length - r->at);

        memcpy(out, r->text + r->at, run);
        out += run;
        r->at += run;
        if (r->at >= r->length)
            TRY(fail_at(r, start, "this string does not end"));
        if (r->text[r->at] == '"') break;
        if (r->text[r->at] != '\\')
            TRY(unexpected(r, "no raw control character in a string"));
        r->at++;
        TRY(read_escape(r, &out));
    }
    r->at++;
    *out = '\0';
    r->strings = out + 1;
    TRY(push(r, (struct json){.kind = JSON_STRING,
                              .integer = (int64_t)start,
                              .string = first,
                              .string_length = out - first}));
    return OK;
}

static bool is_digit(const struct reader *r)
{
    return r->at < r->length && r->text[r->at] >= '0' && r->text[r->at] <= '9';
}

static status skip_digits(struct reader *r)
{
    if (!is_digit(r)) TRY(unexpected(r, "a digit"));
    while (is_digit(r)) r->at++;
    return OK;
}

static status read_real(struct reader *r, size_t start, struct json *value)
{
    char copy[NUMBER_BYTES_MAX + 1]; /* strtod wants a NUL */
    const size_t length = r->at - start;

    if (length > NUMBER_BYTES_MAX)
        TRY(fail_at(r, start, "a number of more than 400 characters"));
    memcpy(copy, r->text + start, length);
    copy[length] = '\0';
    value->kind = JSON_REAL;
    value->real = strtod(copy, NULL);
    if (!isfinite(value->real))
        TRY(fail_at(r, start, "a number too large for float64"));
    return OK;
}

static status read_number(struct reader *r)
{
    const size_t start = r->at;
    const bool negative = r->text[r->at] == '-';
    struct json value = {.kind = JSON_INTEGER};
    bool integer = true;
    int64_t sum = 0; /* negative or zero: it reaches -2^63 */

    if (negative) r->at++;
    if (r->at < r->length && r->text[r->at] == '0') {
        r->at++;
        if (is_digit(r)) TRY(fail_at(r, start, "a number with a leading 0"));
    } else {
        if (!is_digit(r)) TRY(unexpected(r, "a digit"));
        for (; is_digit(r); r->at++)
            integer = integer && !__builtin_mul_overflow(sum, 10, &sum) &&
                      !__builtin_sub_overflow(sum, r->text[r->at] - '0', &sum);
    }
    if (r->at < r->length && r->text[r->at] == '.') {
        integer = false;
        r->at++;
        TRY(skip_digits(r));
    }
    if (r->at < r->length && (r->text[r->at] | 0x20) == 'e') {
        integer = false;
        r->at++;
        if (r->at < r->length && strchr("+-", r->text[r->at]) != NULL &&
            r->text[r->at] != '\0')
            r->at++;
        TRY(skip_digits(r));
    }
    if (!negative && sum == INT64_MIN) integer = false;
    if (integer) {
        value.integer = negative ? sum : -sum;
        value.real = negative && sum == 0 ? -0.0 : (double)value.integer;
    } else {
        TRY(read_real(r, start, &value));
    }
    TRY(push(r, value));
    return OK;
}

static status read_word(struct reader *r, const char *word,
                        enum json_kind kind)
{
    const size_t length = strlen(word);

    if (r->length - r->at < length ||
        memcmp(r->text + r->at, word, length) != 0)
        TRY(unexpected(r, "a value"));
    r->at += length;
    TRY(push(r, (struct json){.kind = kind}));
    return OK;
}

static status refuse_duplicates(struct reader *r, struct json *object)
{
    const struct json *twice;
    char what[120];

    TRY(json_index_build(object, r->arena, r->seed, &twice));
    if (twice == NULL) return OK;
    snprintf(what, sizeof what, "the key \"%.64s\" occurs twice in this object",
             twice->string);
    TRY(fail_at(r, (size_t)twice->integer, what));
    return OK;
}

/* Items for one container, from a shared piece when there are few. */
static status take_items(struct reader *r, size_t count, struct json **out)
{
    const size_t bytes = sizeof **out;
    void *piece;

    if (count > ITEMS_AT_ONCE / 4) {
        TRY(arena_take_array(r->arena, count, bytes, &piece));
        *out = piece;
        return OK;
    }
    if (count > r->room_count) {
        TRY(arena_take_array(r->arena, ITEMS_AT_ONCE, bytes, &piece));
        r->room = piece;
        r->room_count = ITEMS_AT_ONCE;
    }
    *out = r->room;
    r->room += count;
    r->room_count -= count;
    return OK;
}

static status open_container(struct reader *r, bool object)
{
    char what[64];

    if (r->depth == JSON_DEPTH_MAX) {
        snprintf(what, sizeof what, "nested deeper than %d", JSON_DEPTH_MAX);
        TRY(fail_at(r, r->at, what));
    }
    r->at++;
    r->first[r->depth] = r->count;
    r->object[r->depth] = object;
    r->depth++;
    return OK;
}

static status close_container(struct reader *r)
{
    const size_t first = r->first[--r->depth], count = r->count - first;
    struct json value = {.kind = JSON_ARRAY};
    struct json *items = NULL;

    if (count > INT32_MAX)
        TRY(fail_at(r, r->at, "more than 2147483647 items"));
    r->at++;
    if (count > 0 && !r->dropping) {
        TRY(take_items(r, count, &items));
        memcpy(items, r->stack + first, count * sizeof *items);
    }
    r->count = first;
    value.items = items;
    value.count = items != NULL ? (int32_t)count : 0;
    if (r->object[r->depth]) {
        value.kind = JSON_OBJECT;
        value.count = (int32_t)(count / 2);
        TRY(refuse_duplicates(r, &value));
    }
    TRY(push(r, value));
    return OK;
}

/* Is the value of the key that was just read wanted? */
static bool is_wanted(const struct reader *r)
{
    const char *key = r->stack[r->count - 1].string;

    if (r->wanted == NULL || r->wanted->keys == NULL || r->depth > 1)
        return !r->dropping;
    for (int i = 0; i < r->wanted->count; i++)
        if (strcmp(r->wanted->keys[i], key) == 0) return true;
    return false;
}

static status read_key(struct reader *r)
{
    skip_space(r);
    if (r->at >= r->length || r->text[r->at] != '"')
        TRY(unexpected(r, "a key in quotes"));
    TRY(read_string(r));
    skip_space(r);
    if (r->at >= r->length || r->text[r->at] != ':')
        TRY(unexpected(r, "':' after a key"));
    r->at++;
    r->dropping = !is_wanted(r);
    return OK;
}

/* A value that is not wanted has ended; what was pushed of it goes. */
static void drop_value(struct reader *r)
{
    const bool record = r->depth == 1;

    if (!r->dropping) return;
    if (record) r->count -= 2; /* with its key */
    else if (r->depth > 1) r->count = r->first[r->depth - 1];
    if (record) r->dropping = false;
}

static status read_scalar(struct reader *r)
{
    const char c = r->at < r->length ? r->text[r->at] : '\0';

    if (c == '"')
        TRY(read_string(r));
    else if (c == '-' || (c >= '0' && c <= '9'))
        TRY(read_number(r));
    else if (c == 't')
        TRY(read_word(r, "true", JSON_TRUE));
    else if (c == 'f')
        TRY(read_word(r, "false", JSON_FALSE));
    else if (c == 'n')
        TRY(read_word(r, "null", JSON_NULL));
    else
        TRY(unexpected(r, "a value"));
    return OK;
}

static bool at_closer(struct reader *r)
{
    skip_space(r);
    return r->at < r->length &&
           r->text[r->at] == (r->object[r->depth - 1] ? '}' : ']');
}

/* A value is complete: closes what closes behind it, up to the next comma or
 * the end of the document (*done). */
static status leave_value(struct reader *r, bool *done)
{
    while (r->depth > 0) {
        const bool object = r->object[r->depth - 1];

        drop_value(r);
        if (at_closer(r)) {
            TRY(close_container(r));
            continue;
        }
        if (r->at >= r->length || r->text[r->at] != ',')
            TRY(unexpected(r, object ? "',' or '}'" : "',' or ']'"));
        r->at++;
        if (object) TRY(read_key(r));
        return OK;
    }
    *done = true;
    return OK;
}

/* Does an array of numbers come, and does the caller take numbers? */
static bool takes_numbers(const struct reader *r)
{
    const struct json_wanted *w = r->wanted;
    size_t at = r->at + 1;

    if (w == NULL || w->numbers == NULL || r->depth != 1 || !r->object[0] ||
        r->dropping || strcmp(r->stack[r->count - 1].string, w->numbers) != 0)
        return false;
    while (at < r->length && strchr(" \t\r\n", r->text[at]) != NULL &&
           r->text[at] != '\0')
        at++;
    return at < r->length && strchr("-0123456789", r->text[at]) != NULL &&
           r->text[at] != '\0';
}

static status read_numbers(struct reader *r)
{
    const struct json_wanted *w = r->wanted;
    const struct json other = {.kind = JSON_ARRAY};

    for (bool more = true; more; r->at++) {
        r->at++; /* the bracket or comma */
        skip_space(r);
        if (r->at < r->length && strchr("[{", r->text[r->at]) != NULL &&
            r->text[r->at] != '\0')
            TRY(w->take(w->context, &other));
        TRY(read_scalar(r));
        r->kept--;
        TRY(w->take(w->context, &r->stack[--r->count]));
        skip_space(r);
        more = r->at < r->length && r->text[r->at] == ',';
        if (more) r->at--; /* stays at the comma */
        else if (r->at >= r->length || r->text[r->at] != ']')
            TRY(unexpected(r, "',' or ']'"));
    }
    return push(r, other);
}

static status read_document(struct reader *r)
{
    bool done = false;

    while (!done) {
        skip_space(r);
        const char c = r->at < r->length ? r->text[r->at] : '\0';

        if (c == '[' && takes_numbers(r)) {
            TRY(read_numbers(r));
        } else if (c == '{' || c == '[') {
            TRY(open_container(r, c == '{'));
            if (!at_closer(r)) {
                if (c == '{') TRY(read_key(r));
                continue;
            }
        } else {
            TRY(read_scalar(r));
        }
        TRY(leave_value(r, &done));
    }
    skip_space(r);
    if (r->at < r->length) TRY(unexpected(r, "nothing after the value"));
    return OK;
}

status json_read(const struct json **root, struct arena *arena,
                 const char *text, size_t length, const char *source)
{
    return json_read_record(root, arena, text, length, source, NULL);
}

status json_read_record(const struct json **root, struct arena *arena,
                        const char *text, size_t length, const char *source,
                        const struct json_wanted *wanted)
{
    static const char mark[] = "\xEF\xBB\xBF"; /* of the byte order */
    const bool marked = length >= 3 && memcmp(text, mark, 3) == 0;
    struct reader r = {.text = text, .length = length, .source = source,
                       .at = marked ? 3 : 0, .arena = arena, .wanted = wanted};
    status result;
    size_t bad;
    void *piece;

    *root = NULL;
    if (text_utf8_invalid(text, length, &bad))
        TRY(fail_at(&r, bad, "this is not UTF-8"));
    r.seed = ((uint64_t)clock_wall_ns() << 32 ^ (uint64_t)(uintptr_t)&r) *
             0x9E3779B97F4A7C15u;
    TRY(arena_take(arena, length + 1, &piece));
    r.strings = piece;
    TRY_GOTO(done, result, read_document(&r));
    TRY_GOTO(done, result, arena_take(arena, sizeof **root, &piece));
    memcpy(piece, r.stack, sizeof *r.stack);
    *root = piece;
done:
    memory_free(r.stack);
    return result;
}

status json_read_file(const struct json **root, struct arena *arena,
                      const char *path, size_t bytes_max)
{
    struct text text = {0};
    status result;

    *root = NULL;
    TRY_GOTO(done, result, file_read_regular(path, bytes_max, &text));
    TRY_GOTO(done, result,
             json_read(root, arena, text.bytes, text.length, path));
done:
    text_free(&text);
    return result;
}
