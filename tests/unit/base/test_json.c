/* SPDX-License-Identifier: Apache-2.0 */
/* test_json.c - mirrors src/base/json.c, json_get.c and json_write.c. */
#include "base/json.h"

#include <math.h>
#include "tests/test.h"

static const struct json *read_text(struct arena *arena, const char *text)
{
    const struct json *root = NULL;

    arena_init(arena, "test", 0);
    IS_OK(json_read(&root, arena, text, strlen(text), "t.json"));
    return root;
}

TEST(every_kind_is_read)
{
    struct arena arena;
    const struct json *root = read_text(
        &arena, " {\"a\" : [1, -2.5e1, true, false, null, \"x\", {}, []],\n"
                "\"b\":{\"c\":-0}} ");
    const struct json *a = json_get(root, "a");
    static const enum json_kind kinds[] = {
        JSON_INTEGER, JSON_REAL, JSON_TRUE, JSON_FALSE,
        JSON_NULL, JSON_STRING, JSON_OBJECT, JSON_ARRAY};

    EQUAL_INT(root->count, 2);
    EQUAL_INT(a->count, 8);
    for (int i = 0; i < 8; i++) EQUAL_INT(a->items[i].kind, kinds[i]);
    CHECK(a->items[1].real == -25.0);
    EQUAL_TEXT(a->items[5].string, "x");
    EQUAL_TEXT(root->items[2].string, "b");
    CHECK(signbit(json_get(json_get(root, "b"), "c")->real));
    CHECK(json_get(root, "c") == NULL);
    CHECK(json_get(a, "c") == NULL);
    arena_free(&arena);
}

TEST(a_byte_order_mark_is_skipped)
{
    struct arena arena;
    const struct json *root = read_text(&arena, "\xEF\xBB\xBF {\"a\": 3}");

    EQUAL_INT(json_get(root, "a")->integer, 3);
    arena_free(&arena);
}

TEST(numbers_are_exact)
{
    static const struct {
        const char *text;
        enum json_kind kind;
        int64_t integer;
        double real;
    } rows[] = {
        {"0", JSON_INTEGER, 0, 0},
        {"9223372036854775807", JSON_INTEGER, INT64_MAX, 0x1p63},
        {"-9223372036854775808", JSON_INTEGER, INT64_MIN, -0x1p63},
        {"9007199254740993", JSON_INTEGER, 9007199254740993, 0x1p53},
        {"9223372036854775808", JSON_REAL, 0, 0x1p63},
        {"-9223372036854775809", JSON_REAL, 0, -0x1p63},
        {"1000000000000000019884624838656", JSON_REAL, 0, 1e30},
        {"1e5", JSON_REAL, 0, 1e5},
        {"0.1", JSON_REAL, 0, 0.1},
        {"1E-400", JSON_REAL, 0, 0},
        {"4.9406564584124654e-324", JSON_REAL, 0, 0x1p-1074},
    };

    for (int i = 0; i < ROWS(rows); i++) {
        struct arena arena;
        const struct json *root = read_text(&arena, rows[i].text);

        EQUAL_INT(root->kind, rows[i].kind);
        EQUAL_INT(root->integer, rows[i].integer);
        CHECK(root->real == rows[i].real);
        arena_free(&arena);
    }
}

TEST(strings_are_unescaped)
{
    static const struct {
        const char *text, *bytes;
        int length;
    } rows[] = {
        {"\"\"", "", 0},
        {"\"a\\n\\t\\\"\\\\\\/\\b\\f\\r\"", "a\n\t\"\\/\b\f\r", 9},
        {"\"\\u0041\\u00e9\\u20AC\"", "A\xC3\xA9\xE2\x82\xAC", 6},
        {"\"\\ud83d\\ude00!\"", "\xF0\x9F\x98\x80!", 5},
        {"\"\\uDBFF\\uDFFF\"", "\xF4\x8F\xBF\xBF", 4},
        {"\"a\\u0000b\"", "a\0b", 3},
        {"\"\xE6\xBC\xA2\"", "\xE6\xBC\xA2", 3},
    };

    for (int i = 0; i < ROWS(rows); i++) {
        struct arena arena;
        const struct json *root = read_text(&arena, rows[i].text);

        EQUAL_INT(root->kind, JSON_STRING);
        EQUAL_INT(root->string_length, rows[i].length);
        EQUAL_BYTES(root->string, rows[i].bytes, rows[i].length + 1);
        arena_free(&arena);
    }
}

TEST(what_is_not_json_is_refused_with_its_place)
{
    static const struct {
        const char *text, *words;
    } rows[] = {
        {"", "t.json:1:1: expected a value, found the end"},
        {"  \n ", "t.json:2:2: expected a value, found the end"},
        {"[1,]", "t.json:1:4: expected a value, found ']'"},
        {"{\"a\":1,}", "1:8: expected a key in quotes, found '}'"},
        {"[1 2]", "1:4: expected ',' or ']', found '2'"},
        {"{\"a\":1]", "1:7: expected ',' or '}', found ']'"},
        {"{\"a\" 1}", "1:6: expected ':' after a key, found '1'"},
        {"{a:1}", "a key in quotes, found 'a'"},
        {"[1", "expected ',' or ']', found the end"},
        {"[", "expected a value, found the end"},
        {"{", "expected a key in quotes, found the end"},
        {"1 1", "expected nothing after the value, found '1'"},
        {"01", "a number with a leading 0"},
        {"-", "expected a digit, found the end"},
        {"+1", "expected a value, found '+'"},
        {".5", "expected a value"},
        {"1.", "expected a digit, found the end"},
        {"1e", "expected a digit"},
        {"1e+", "expected a digit"},
        {"1e999", "a number too large for float64"},
        {"NaN", "expected a value, found 'N'"},
        {"nul", "expected a value, found 'n'"},
        {"truE", "expected a value"},
        {"/* */1", "expected a value, found '/'"},
        {"'a'", "expected a value"},
        {"\"a", "1:1: this string does not end"},
        {"\"a\nb\"", "no raw control character in a string, found byte 0x0a"},
        {"\"\\x\"", "after a backslash, found 'x'"},
        {"\"\\u12G4\"", "1:2: \\u needs four hexadecimal digits"},
        {"\"\\u12", "four hexadecimal digits"},
        {"\"\\ud800\"", "a high surrogate without a low surrogate"},
        {"\"\\ud800\\u0041\"", "a high surrogate without a low surrogate"},
        {"\"\\ud800\\n\"", "a high surrogate"},
        {"\"\\udc00\"", "a low surrogate without a high surrogate"},
        {"\"\xC3\x28\"", "1:2: this is not UTF-8"},
        {"\"\xED\xA0\x80\"", "this is not UTF-8"},
        {"\xEF\xBB\xBF", "found the end"},
        {"\xEF\xBB\xBF\xEF\xBB\xBF{}", "found byte 0xef"},
        {" \xEF\xBB\xBF{}", "found byte 0xef"},
        {"{\"a\":1,\n \"b\":2, \"a\":3}",
         "t.json:2:9: the key \"a\" occurs twice"},
        {"{\"\\u0061\":1,\"a\":3}", "the key \"a\" occurs twice"},
    };

    for (int i = 0; i < ROWS(rows); i++) {
        const struct json *root;
        struct arena arena;

        arena_init(&arena, "test", 0);
        FAILS(json_read(&root, &arena, rows[i].text, strlen(rows[i].text),
                        "t.json"),
              ERR_FORMAT, rows[i].words);
        CHECK(root == NULL);
        arena_free(&arena);
    }
}

TEST(depth_is_limited)
{
    char text[2 * JSON_DEPTH_MAX + 3];

    for (int depth = JSON_DEPTH_MAX; depth <= JSON_DEPTH_MAX + 1; depth++) {
        const struct json *root;
        struct arena arena;

        arena_init(&arena, "test", 0);
        memset(text, '[', (size_t)depth);
        memset(text + depth, ']', (size_t)depth);
        EQUAL_INT(json_read(&root, &arena, text, 2 * (size_t)depth, "t"),
                  depth <= JSON_DEPTH_MAX ? OK : ERR_FORMAT);
        arena_free(&arena);
    }
    CHECK(strstr(status_message(), "t:1:33: nested deeper than 32") != NULL);
}

/* The time is checked by nobody here, but 200,000 keys compared pairwise
 * would take minutes. */
TEST(large_objects_are_indexed)
{
    enum { KEYS = 200000 };
    struct text text = {0};
    const struct json *root;
    struct arena arena;
    char key[32];

    IS_OK(text_append_string(&text, "{"));
    for (int i = 0; i < KEYS; i++)
        IS_OK(text_printf(&text, "%s\"key %d\":%d", i > 0 ? "," : "", i, i));
    IS_OK(text_append_string(&text, "}"));
    root = read_text(&arena, text.bytes);
    EQUAL_INT(root->count, KEYS);
    for (int i = 0; i < KEYS; i++) {
        snprintf(key, sizeof key, "key %d", i);
        EQUAL_INT(json_get(root, key)->integer, i);
        EQUAL_TEXT(root->items[2 * i].string, key); /* order is kept */
    }
    CHECK(json_get(root, "key") == NULL);
    arena_free(&arena);

    text.length--;
    IS_OK(text_append_string(&text, ",\"key 77\":0}"));
    arena_init(&arena, "test", 0);
    FAILS(json_read(&root, &arena, text.bytes, text.length, "t"), ERR_FORMAT,
          "the key \"key 77\" occurs twice in this object");
    arena_free(&arena);
    text_free(&text);
}

TEST(typed_reads_say_what_they_found)
{
    struct arena arena;
    const struct json *o = read_text(
        &arena, "{\"i\":3,\"r\":0.5,\"s\":\"x\",\"b\":true,\"n\":null,"
                "\"z\":\"a\\u0000\"}");
    const char *s = NULL;
    int64_t i = 0;
    double r = 0;
    bool b = false;

    IS_OK(json_get_integer(o, "f", "i", &i));
    EQUAL_INT(i, 3);
    IS_OK(json_get_real(o, "f", "i", &r));
    CHECK(r == 3.0);
    IS_OK(json_get_integer_or(o, "f", "n", 7, &i));
    EQUAL_INT(i, 7);
    IS_OK(json_get_real_or(o, "f", "no", 2.5, &r));
    CHECK(r == 2.5);
    IS_OK(json_get_bool_or(o, "f", "b", false, &b));
    CHECK(b);
    IS_OK(json_get_string_or(o, "f", "n", "other", &s));
    EQUAL_TEXT(s, "other");
    IS_OK(json_get_string(o, "f", "s", &s));
    EQUAL_TEXT(s, "x");
    FAILS(json_get_integer(o, "f", "no", &i), ERR_FORMAT,
          "f: the key \"no\" is missing");
    FAILS(json_get_integer(o, "f", "n", &i), ERR_FORMAT,
          "f: \"n\" must be an integer, found null");
    FAILS(json_get_integer_or(o, "f", "r", 1, &i), ERR_FORMAT,
          "must be an integer, found 0.5");
    FAILS(json_get_real(o, "f", "s", &r), ERR_FORMAT,
          "must be a number, found \"x\"");
    FAILS(json_get_bool_or(o, "f", "i", true, &b), ERR_FORMAT,
          "must be true or false, found an integer");
    FAILS(json_get_string(o, "f", "z", &s), ERR_FORMAT, "U+0000");
    FAILS(json_get_string(NULL, "f", "s", &s), ERR_FORMAT,
          "expected an object with the key \"s\", found nothing");
    arena_free(&arena);
}

static void write_sample(struct json_writer *w, int indent)
{
    json_write_begin(w, indent);
    json_write_object(w);
    json_write_key(w, "a\"b");
    json_write_array(w);
    json_write_integer(w, INT64_MIN);
    json_write_real(w, 0.1);
    json_write_real(w, NAN);
    json_write_bool(w, true);
    json_write_null(w);
    json_write_array(w);
    json_write_array_end(w);
    json_write_array_end(w);
    json_write_key(w, "c");
    json_write_string_n(w, "\x01\n\xFF\xC3\xA9\0", 6);
    json_write_object_end(w);
    IS_OK(json_write_end(w));
}

TEST(the_writer_writes_what_the_reader_reads)
{
    struct json_writer w;
    struct arena arena;

    write_sample(&w, 0);
    EQUAL_TEXT(w.out.bytes,
               "{\"a\\\"b\": [-9223372036854775808, 0.1, null, true, null, []],"
               " \"c\": \"\\u0001\\n\xEF\xBF\xBD\xC3\xA9\\u0000\"}");
    json_writer_free(&w);
    write_sample(&w, 2);
    EQUAL_TEXT(w.out.bytes,
               "{\n  \"a\\\"b\": [\n    -9223372036854775808,\n    0.1,\n"
               "    null,\n    true,\n    null,\n    []\n  ],\n"
               "  \"c\": \"\\u0001\\n\xEF\xBF\xBD\xC3\xA9\\u0000\"\n}");
    EQUAL_INT(json_get(read_text(&arena, w.out.bytes), "c")->string_length,
              8);
    arena_free(&arena);
    json_writer_free(&w);
}

TEST(reals_round_trip_in_their_shortest_form)
{
    static const struct {
        double value;
        const char *text;
    } rows[] = {
        {0.1, "0.1"}, {1, "1"}, {-0.0, "-0.0"}, {1e22, "1e+22"},
        {0.1 + 0.2, "0.30000000000000004"}, {1.0 / 3, "0.3333333333333333"},
        {0x1p-1074, "4.94065645841247e-324"}, {3e-4, "0.0003"},
        {0x1.fffffffffffffp1023, "1.7976931348623157e+308"},
        {INFINITY, "null"},
    };

    for (int i = 0; i < ROWS(rows); i++) {
        struct json_writer w;

        json_write_begin(&w, 0);
        json_write_real(&w, rows[i].value);
        IS_OK(json_write_end(&w));
        EQUAL_TEXT(w.out.bytes, rows[i].text);
        json_writer_free(&w);
    }
}

static status add_number(void *context, const struct json *value)
{
    if (value->kind != JSON_INTEGER)
        FAIL(ERR_FORMAT, "kind %d", (int)value->kind);
    *(int64_t *)context = *(int64_t *)context * 10 + value->integer;
    return OK;
}

/* Guards records: what is not wanted leaves nothing, and is still checked. */
TEST(of_a_record_only_what_is_wanted_is_kept)
{
    static const char *const keys[] = {"ids", "text"};
    static const struct { const char *text, *words; int64_t ids; } rows[] = {
        {"{\"ids\": [1, 2 ,3], \"text\": \"a\"}", NULL, 123},
        {"{\"a\": {\"b\": [1, {\"c\": []}, {}], \"d\": {}}, \"ids\":[4],"
         " \"x\": [[[]]], \"text\": \"a\", \"z\": {}}", NULL, 4},
        {"{\"z\":[], \"text\": \"a\",\"ids\":[ -0 ]}", NULL, 0},
        {"{\"text\": \"a\", \"ids\": [1, [2]]}", "kind 6", 1},
        {"{\"text\": \"a\", \"ids\": [1, \"2\"]}", "kind 5", 1},
        {"{\"text\": \"a\", \"ids\": [1, ]}", "expected a value", 1},
        {"{\"text\": \"a\", \"ids\": [1 2]}", "',' or ']'", 1},
        {"{\"text\": \"a\", \"ids\": [1", "the end", 1},
        {"{\"text\": \"a\", \"x\": [1, }", "expected a value", 0},
        {"{\"text\": \"a\", \"x\": tru}", "expected a value", 0},
        {"{\"text\": \"a\", \"x\": {\"y\": [1]}", "',' or '}'", 0},
        {"{\"text\": \"a\", \"text\": \"a\"}", "occurs twice", 0},
    };

    for (int i = 0; i < ROWS(rows); i++) {
        int64_t ids = 0;
        const struct json_wanted wanted = {keys, 2, "ids", add_number, &ids};
        const struct json *root;
        struct arena arena;
        status result;

        arena_init(&arena, "test", 0);
        result = json_read_record(&root, &arena, rows[i].text,
                                  strlen(rows[i].text), "test", &wanted);
        EQUAL_INT(ids, rows[i].ids);
        if (rows[i].words != NULL) {
            FAILS(result, ERR_FORMAT, rows[i].words);
            status_clear();
        } else {
            IS_OK(result);
            EQUAL_INT(root->count, 2);
            EQUAL_TEXT(json_get(root, "text")->string, "a");
            EQUAL_INT(json_get(root, "ids")->count, 0);
        }
        arena_free(&arena);
    }
}

TEST(files_have_a_limit)
{
    char directory[PATH_BYTES], path[PATH_BYTES];
    const struct json *root;
    struct arena arena;

    arena_init(&arena, "test", 0);
    test_directory(directory);
    IS_OK(path_join(path, sizeof path, directory, "x.json"));
    IS_OK(file_write_atomic(path, "[1,2]\n", 6));
    IS_OK(json_read_file(&root, &arena, path, 6));
    EQUAL_INT(root->count, 2);
    FAILS(json_read_file(&root, &arena, path, 5), ERR_FORMAT,
          "x.json has 6 bytes; the limit is 5 bytes");
    IS_OK(directory_remove(directory));
    FAILS(json_read_file(&root, &arena, path, 5), ERR_MISSING,
          "x.json: no such file");
    arena_free(&arena);
}

TEST_MAIN(of_a_record_only_what_is_wanted_is_kept, every_kind_is_read,
          a_byte_order_mark_is_skipped, numbers_are_exact,
          strings_are_unescaped,
          what_is_not_json_is_refused_with_its_place, depth_is_limited,
          large_objects_are_indexed, typed_reads_say_what_they_found,
          the_writer_writes_what_the_reader_reads,
          reals_round_trip_in_their_shortest_form, files_have_a_limit)
