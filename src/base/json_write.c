/* SPDX-License-Identifier: Apache-2.0 */
/* json_write.c - one JSON writer. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/json.h"
#include "base/text.h"

static void put(struct json_writer *writer, const char *bytes, size_t length)
{
    if (writer->error == OK)
        writer->error = text_append(&writer->out, bytes, length);
}

static void put_line(struct json_writer *writer)
{
    if (writer->indent == 0) return;
    put(writer, "\n", 1);
    for (int i = 0; i < writer->depth * writer->indent; i++)
        put(writer, " ", 1);
}

/* Writes the separator between the previous value and this value or key. */
static void separate(struct json_writer *writer)
{
    if (writer->after_key) {
        writer->after_key = false;
        return;
    }
    CHECK(writer->depth > 0 || !writer->comma); /* one document */
    if (writer->comma) put(writer, writer->indent > 0 ? "," : ", ",
                           writer->indent > 0 ? 1 : 2);
    if (writer->depth > 0) put_line(writer);
}

static void value_begin(struct json_writer *writer)
{
    separate(writer);
    writer->comma = true;
}

static void container_begin(struct json_writer *writer, const char *bracket)
{
    value_begin(writer);
    put(writer, bracket, 1);
    writer->depth++;
    writer->comma = false;
}

static void container_end(struct json_writer *writer, const char *bracket)
{
    CHECK(writer->depth > 0 && !writer->after_key);
    writer->depth--;
    if (writer->comma) put_line(writer);
    put(writer, bracket, 1);
    writer->comma = true;
}

void json_write_begin(struct json_writer *writer, int indent)
{
    *writer = (struct json_writer){.indent = indent};
}

void json_write_object(struct json_writer *writer)
{
    container_begin(writer, "{");
}

void json_write_object_end(struct json_writer *writer)
{
    container_end(writer, "}");
}

void json_write_array(struct json_writer *writer)
{
    container_begin(writer, "[");
}

void json_write_array_end(struct json_writer *writer)
{
    container_end(writer, "]");
}

static void put_escape(struct json_writer *writer, unsigned char c)
{
    static const char from[] = "\"\\\b\f\n\r\t", to[] = "\"\\bfnrt";
    const char *found = c != '\0' ? strchr(from, c) : NULL;
    char escape[8];

    if (found != NULL)
        snprintf(escape, sizeof escape, "\\%c", to[found - from]);
    else
        snprintf(escape, sizeof escape, "\\u%04x", c);
    put(writer, escape, strlen(escape));
}

static bool stands_for_itself(unsigned char c)
{
    return c >= 0x20 && c != '"' && c != '\\';
}

/* With escapes where JSON wants them. */
static void put_escaped(struct json_writer *writer, const char *bytes,
                        size_t length)
{
    size_t at = 0;

    while (at < length) {
        size_t run = at;

        while (run < length && stands_for_itself((unsigned char)bytes[run]))
            run++;
        put(writer, bytes + at, run - at);
        if (run < length) put_escape(writer, (unsigned char)bytes[run++]);
        at = run;
    }
}

/* Bytes that are not UTF-8 (of a file's name, say) become U+FFFD: what
 * is written can always be read. */
static void put_quoted(struct json_writer *writer, const char *bytes,
                       size_t length)
{
    struct text mended = {0};
    size_t bad;

    if (writer->error == OK && text_utf8_invalid(bytes, length, &bad)) {
        writer->error = text_append_utf8(&mended, bytes, length);
        bytes = mended.bytes;
        length = mended.length;
    }
    put(writer, "\"", 1);
    put_escaped(writer, bytes, length);
    put(writer, "\"", 1);
    text_free(&mended);
}

void json_write_key(struct json_writer *writer, const char *key)
{
    CHECK(!writer->after_key && writer->depth > 0);
    separate(writer);
    put_quoted(writer, key, strlen(key));
    put(writer, ": ", 2);
    writer->after_key = true;
    writer->comma = true;
}

void json_write_string(struct json_writer *writer, const char *string)
{
    json_write_string_n(writer, string, strlen(string));
}

void json_write_string_n(struct json_writer *writer, const char *bytes,
                         size_t length)
{
    value_begin(writer);
    put_quoted(writer, bytes, length);
}

void json_write_integer(struct json_writer *writer, int64_t value)
{
    char digits[32];

    value_begin(writer);
    put(writer, digits,
        (size_t)snprintf(digits, sizeof digits, "%" PRId64, value));
}

static void write_real(struct json_writer *writer, double value,
                       const char *point)
{
    char digits[40];

    if (!isfinite(value)) {
        json_write_null(writer);
        return;
    }
    value_begin(writer);
    for (int precision = 15; precision <= 17; precision++) {
        snprintf(digits, sizeof digits, "%.*g", precision, value);
        if (strtod(digits, NULL) == value) break;
    }
    if (value == 0 && signbit(value))
        memcpy(digits, "-0.0", sizeof "-0.0"); /* "-0" is the integer 0 */
    put(writer, digits, strlen(digits));
    if (strpbrk(digits, ".e") == NULL) put(writer, point, strlen(point));
}

void json_write_real(struct json_writer *writer, double value)
{
    write_real(writer, value, "");
}

void json_write_float(struct json_writer *writer, double value)
{
    write_real(writer, value, ".0");
}

void json_write_key_integer(struct json_writer *writer, const char *key,
                            int64_t value)
{
    json_write_key(writer, key);
    json_write_integer(writer, value);
}

void json_write_key_real(struct json_writer *writer, const char *key,
                         double value)
{
    json_write_key(writer, key);
    json_write_real(writer, value);
}

void json_write_key_list(struct json_writer *writer, const char *key,
                         const double *values, int64_t count,
                         void (*write)(struct json_writer *, double))
{
    json_write_key(writer, key);
    json_write_array(writer);
    for (int64_t i = 0; i < count; i++) write(writer, values[i]);
    json_write_array_end(writer);
}

void json_write_key_text(struct json_writer *writer, const char *key,
                         const char *value)
{
    json_write_key(writer, key);
    if (value[0] != '\0')
        json_write_string(writer, value);
    else
        json_write_null(writer);
}

void json_write_bool(struct json_writer *writer, bool value)
{
    value_begin(writer);
    put(writer, value ? "true" : "false", value ? 4 : 5);
}

void json_write_null(struct json_writer *writer)
{
    value_begin(writer);
    put(writer, "null", 4);
}

status json_write_end(struct json_writer *writer)
{
    CHECK(writer->depth == 0 && !writer->after_key);
    TRY(writer->error);
    return OK;
}

status json_write_line(struct json_writer *writer, struct text *out)
{
    TRY(json_write_end(writer));
    TRY(text_append(out, writer->out.bytes, writer->out.length));
    return text_append(out, "\n", 1);
}

void json_writer_free(struct json_writer *writer)
{
    text_free(&writer->out);
    *writer = (struct json_writer){0};
}
