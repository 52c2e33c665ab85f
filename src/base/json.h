/* SPDX-License-Identifier: Apache-2.0 */
/* json.h - one strict JSON reader and one writer.
 *
 * The reader takes RFC 8259 and nothing else: no comments, no trailing commas,
 * no duplicate keys, valid UTF-8, numbers that are finite, a stated depth.
 * Everything lives in one arena; strings are unescaped and end with a NUL
 * (their length is kept: they may hold U+0000). */
#ifndef LOCKSTEP_BASE_JSON_H
#define LOCKSTEP_BASE_JSON_H

#include <stdbool.h>
#include <stdint.h>
#include "base/arena.h"
#include "base/text.h"

enum json_kind {
    JSON_NULL, JSON_FALSE, JSON_TRUE, JSON_INTEGER, JSON_REAL, JSON_STRING,
    JSON_ARRAY, JSON_OBJECT
};

struct json {
    enum json_kind kind;
    int32_t count;           /* items of an array, pairs of an object */
    int64_t integer;         /* JSON_INTEGER (fits in 64 bits, signed) */
    double real;             /* JSON_REAL and JSON_INTEGER */
    const char *string;      /* JSON_STRING: bytes, NUL after them */
    int64_t string_length;   /* bytes */
    const struct json *items;/* array: values. object: key, value, key, ... */
    const struct json_index *index; /* of a large object's keys, else NULL */
};

enum { JSON_DEPTH_MAX = 32 };

/* *root = the document in text [length]. `source` names it in errors
 * (ERR_FORMAT: line and column, found, expected). Takes memory from `arena`,
 * at most about 40 bytes per byte of text. An integer that does not fit in 64
 * bits is a real. */
status json_read(const struct json **root, struct arena *arena,
                 const char *text, size_t length, const char *source);
/* Parses a record of which only some fields are wanted. Memory grows with the
 * wanted fields and the text, not with the number of other values. Other fields
 * are checked like all text, except for duplicate keys, and left out. The
 * numbers of one array go to `take` one after the other; so does anything else
 * in that array, for the error message (an array or object: its first bracket).
 * In the tree that array is empty. At most a million values are kept. `source`
 * names the record's line, too; errors say the column. */
struct json_wanted {
    const char *const *keys;  /* [count] of the record; NULL: all */
    int count;
    const char *numbers;      /* key of the array, one of `keys`; NULL: none */
    status (*take)(void *context, const struct json *value);
    void *context;
};
status json_read_record(const struct json **root, struct arena *arena,
                        const char *text, size_t length, const char *source,
                        const struct json_wanted *wanted);
status json_read_file(const struct json **root, struct arena *arena,
                      const char *path, size_t bytes_max);

/* NULL when `object` is not an object or has no such key. */
const struct json *json_get(const struct json *object, const char *key);
/* Typed reads of object[key]: ERR_FORMAT names source, key, kind found and
 * kind expected. The `_or` forms take the default when the key is missing or
 * null. An integer also serves where a real is asked for. */
status json_get_integer(const struct json *object, const char *source,
                        const char *key, int64_t *out);
status json_get_integer_or(const struct json *object, const char *source,
                           const char *key, int64_t other, int64_t *out);
status json_get_real(const struct json *object, const char *source,
                     const char *key, double *out);
status json_get_real_or(const struct json *object, const char *source,
                        const char *key, double other, double *out);
status json_get_bool_or(const struct json *object, const char *source,
                        const char *key, bool other, bool *out);
status json_get_string(const struct json *object, const char *source,
                       const char *key, const char **out);
status json_get_string_or(const struct json *object, const char *source,
                          const char *key, const char *other,
                          const char **out);
/* ERR_FORMAT: the object has a key that is none of keys [count], which the
 * sentence lists. A misspelt key would change nothing in silence. */
status json_only_keys(const struct json *object, const char *source,
                      const char *const *keys, int count);

/* Writer: commas and escapes are its business. `indent` spaces per level, 0
 * for one line. Errors stay in the writer and come out of json_write_end. */
struct json_writer {
    struct text out;   /* owned */
    int indent;        /* spaces */
    int depth;
    bool comma;        /* a value came before at this depth */
    bool after_key;
    status error;
};

void json_write_begin(struct json_writer *writer, int indent);
void json_write_object(struct json_writer *writer);      /* { */
void json_write_object_end(struct json_writer *writer);  /* } */
void json_write_array(struct json_writer *writer);
void json_write_array_end(struct json_writer *writer);
void json_write_key(struct json_writer *writer, const char *key);
void json_write_string(struct json_writer *writer, const char *string);
void json_write_string_n(struct json_writer *writer, const char *bytes,
                         size_t length);
void json_write_integer(struct json_writer *writer, int64_t value);
/* The first of 15, 16 and 17 digits that reads back to the same double; NaN and
 * infinities become null. */
void json_write_real(struct json_writer *writer, double value);
/* With a point or an exponent, by which Python tells it from an integer. */
void json_write_float(struct json_writer *writer, double value);
void json_write_bool(struct json_writer *writer, bool value);
void json_write_null(struct json_writer *writer);
/* A key and its value. */
void json_write_key_integer(struct json_writer *writer, const char *key,
                            int64_t value);
/* null where the text is "". */
void json_write_key_text(struct json_writer *writer, const char *key,
                         const char *value);
void json_write_key_real(struct json_writer *writer, const char *key,
                         double value);
/* An array of numbers, each as `write` writes it. */
void json_write_key_list(struct json_writer *writer, const char *key,
                         const double *values, int64_t count,
                         void (*write)(struct json_writer *, double));
/* OK when all went well; the text is in writer->out. */
status json_write_end(struct json_writer *writer);
/* Like json_write_end, and appends what was written to `out` as a line. */
status json_write_line(struct json_writer *writer, struct text *out);
void json_writer_free(struct json_writer *writer);

#endif
