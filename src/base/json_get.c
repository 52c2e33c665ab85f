/* SPDX-License-Identifier: Apache-2.0 */
/* json_get.c - finding the value of a key, as the type that is needed.
 *
 * Small objects are searched one key after the other. Large ones have a hash
 * table with linear probing; its seed differs from reader to reader, so that
 * no file can be made to collide. */
#include <string.h>
#include "base/json_index.h"

enum { PAIRS_WITHOUT_INDEX = 12 }; /* fewer are compared one by one */

struct json_index {
    uint64_t seed;
    uint32_t mask;
    uint32_t slots[]; /* [mask + 1] 1 + pair; 0: free */
};

/* Eight bytes a step, folded by a 64 x 64 bit product under the seed. */
static uint64_t hash_key(const char *key, size_t length, uint64_t seed)
{
    __extension__ typedef unsigned __int128 wide;
    uint64_t hash = seed ^ length;

    for (size_t i = 0; i < length; i += 8) {
        uint64_t word = 0;
        wide product;

        memcpy(&word, key + i, length - i < 8 ? length - i : 8);
        product = (wide)(hash ^ word) * (seed | 0x9E3779B97F4A7C15u);
        hash = (uint64_t)product ^ (uint64_t)(product >> 64);
    }
    return hash ^ hash >> 32;
}

static bool key_equals(const struct json *string, const char *key,
                       size_t length)
{
    return (size_t)string->string_length == length &&
           memcmp(string->string, key, length) == 0;
}

/* The slot of `key`, or the free one where it belongs. */
static uint32_t index_slot(const struct json_index *index,
                           const struct json *items, const char *key,
                           size_t length)
{
    uint32_t slot = (uint32_t)hash_key(key, length, index->seed);

    for (;; slot++) {
        slot &= index->mask;
        if (index->slots[slot] == 0) return slot;
        if (key_equals(&items[2 * (size_t)(index->slots[slot] - 1)], key,
                       length))
            return slot;
    }
}

/* The first pair below `pairs` whose key this is; `pairs` if there is none. */
static int32_t search(const struct json *items, int32_t pairs,
                      const char *key, size_t length)
{
    int32_t i = 0;

    while (i < pairs && !key_equals(&items[2 * (size_t)i], key, length)) i++;
    return i;
}

status json_index_build(struct json *object, struct arena *arena,
                        uint64_t seed, const struct json **twice)
{
    const struct json *items = object->items;
    const int32_t pairs = object->count;
    struct json_index *index = NULL;
    size_t slots = 32;
    void *piece;

    *twice = NULL;
    if (pairs > PAIRS_WITHOUT_INDEX) {
        while (slots < 2 * (size_t)pairs) slots *= 2;
        TRY(arena_take(arena, sizeof *index + slots * sizeof *index->slots,
                       &piece));
        index = piece;
        index->seed = seed;
        index->mask = (uint32_t)(slots - 1);
    }
    for (int32_t i = 0; i < pairs && *twice == NULL; i++) {
        const struct json *key = &items[2 * (size_t)i];
        const size_t length = (size_t)key->string_length;

        if (index == NULL) {
            if (search(items, i, key->string, length) < i) *twice = key;
            continue;
        }
        const uint32_t slot = index_slot(index, items, key->string, length);

        if (index->slots[slot] != 0) *twice = key;
        index->slots[slot] = (uint32_t)i + 1;
    }
    object->index = index;
    return OK;
}

const struct json *json_get(const struct json *object, const char *key)
{
    const size_t length = strlen(key);
    int32_t pair;

    if (object == NULL || object->kind != JSON_OBJECT) return NULL;
    if (object->index != NULL) {
        const uint32_t slot =
            index_slot(object->index, object->items, key, length);

        if (object->index->slots[slot] == 0) return NULL;
        pair = (int32_t)(object->index->slots[slot] - 1);
    } else {
        pair = search(object->items, object->count, key, length);
        if (pair == object->count) return NULL;
    }
    return &object->items[2 * (size_t)pair + 1];
}

static const char *const kind_names[] = {
    [JSON_NULL] = "null",          [JSON_FALSE] = "false",
    [JSON_TRUE] = "true",          [JSON_INTEGER] = "an integer",
    [JSON_REAL] = "a real number", [JSON_STRING] = "a string",
    [JSON_ARRAY] = "an array",     [JSON_OBJECT] = "an object",
};

/* *out = object[key], or NULL when it may be missing and is, or is null. */
static status find(const struct json *object, const char *source,
                   const char *key, bool optional, const struct json **out)
{
    const struct json *value = json_get(object, key);

    *out = NULL;
    if (object == NULL || object->kind != JSON_OBJECT)
        FAIL(ERR_FORMAT,
             "%s: expected an object with the key \"%s\", found %s", source,
             key, object == NULL ? "nothing" : kind_names[object->kind]);
    if (optional && (value == NULL || value->kind == JSON_NULL)) return OK;
    if (value == NULL)
        FAIL(ERR_FORMAT, "%s: the key \"%s\" is missing", source, key);
    *out = value;
    return OK;
}

static status wrong_kind(const char *source, const char *key,
                         const char *expected, const struct json *value)
{
    if (value->kind == JSON_STRING)
        FAIL(ERR_FORMAT, "%s: \"%s\" must be %s, found \"%.40s\"", source, key,
             expected, value->string);
    if (value->kind == JSON_REAL)
        FAIL(ERR_FORMAT, "%s: \"%s\" must be %s, found %.17g", source, key,
             expected, value->real);
    FAIL(ERR_FORMAT, "%s: \"%s\" must be %s, found %s", source, key, expected,
         kind_names[value->kind]);
}

static status as_integer(const struct json *value, const char *source,
                         const char *key, int64_t *out)
{
    if (value->kind != JSON_INTEGER)
        TRY(wrong_kind(source, key, "an integer", value));
    *out = value->integer;
    return OK;
}

static status as_real(const struct json *value, const char *source,
                      const char *key, double *out)
{
    if (value->kind != JSON_INTEGER && value->kind != JSON_REAL)
        TRY(wrong_kind(source, key, "a number", value));
    *out = value->real;
    return OK;
}

static status as_string(const struct json *value, const char *source,
                        const char *key, const char **out)
{
    if (value->kind != JSON_STRING)
        TRY(wrong_kind(source, key, "a string", value));
    if (strlen(value->string) != (size_t)value->string_length)
        FAIL(ERR_FORMAT, "%s: \"%s\" holds a character U+0000", source, key);
    *out = value->string;
    return OK;
}

status json_get_integer(const struct json *object, const char *source,
                        const char *key, int64_t *out)
{
    const struct json *value;

    TRY(find(object, source, key, false, &value));
    TRY(as_integer(value, source, key, out));
    return OK;
}

status json_get_integer_or(const struct json *object, const char *source,
                           const char *key, int64_t other, int64_t *out)
{
    const struct json *value;

    TRY(find(object, source, key, true, &value));
    *out = other;
    if (value != NULL) TRY(as_integer(value, source, key, out));
    return OK;
}

status json_get_real(const struct json *object, const char *source,
                     const char *key, double *out)
{
    const struct json *value;

    TRY(find(object, source, key, false, &value));
    TRY(as_real(value, source, key, out));
    return OK;
}

status json_get_real_or(const struct json *object, const char *source,
                        const char *key, double other, double *out)
{
    const struct json *value;

    TRY(find(object, source, key, true, &value));
    *out = other;
    if (value != NULL) TRY(as_real(value, source, key, out));
    return OK;
}

status json_get_bool_or(const struct json *object, const char *source,
                        const char *key, bool other, bool *out)
{
    const struct json *value;

    TRY(find(object, source, key, true, &value));
    *out = other;
    if (value == NULL) return OK;
    if (value->kind != JSON_TRUE && value->kind != JSON_FALSE)
        TRY(wrong_kind(source, key, "true or false", value));
    *out = value->kind == JSON_TRUE;
    return OK;
}

status json_get_string(const struct json *object, const char *source,
                       const char *key, const char **out)
{
    const struct json *value;

    TRY(find(object, source, key, false, &value));
    TRY(as_string(value, source, key, out));
    return OK;
}

status json_get_string_or(const struct json *object, const char *source,
                          const char *key, const char *other,
                          const char **out)
{
    const struct json *value;

    TRY(find(object, source, key, true, &value));
    *out = other;
    if (value != NULL) TRY(as_string(value, source, key, out));
    return OK;
}

status json_only_keys(const struct json *object, const char *source,
                      const char *const *keys, int count)
{
    for (int i = 0; i < object->count; i++) {
        const char *found = object->items[2 * i].string;
        char all[256] = "";
        bool known = false;

        for (int k = 0; k < count; k++) {
            const size_t length = strlen(all);

            known |= strcmp(found, keys[k]) == 0;
            snprintf(all + length, sizeof all - length, "%s%s",
                     k == 0 ? "" : k == count - 1 ? " or " : ", ", keys[k]);
        }
        if (!known)
            FAIL(ERR_FORMAT, "%s: unknown key \"%.60s\"; expected %s", source,
                 found, all);
    }
    return OK;
}
