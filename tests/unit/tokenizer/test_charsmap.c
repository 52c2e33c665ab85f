/* SPDX-License-Identifier: Apache-2.0 */
/* test_charsmap.c - mirrors src/tokenizer/charsmap.c, normalize.c, base64.c,
 * piece_message.c: broken maps and messages, a normalizer that makes too much
 * of little. What whole maps do is compared in test_tokenizer_families.c. */
#include "tokenizer/charsmap.h"

#include "base/json.h"
#include "tokenizer/base64.h"
#include "tokenizer/normalize.h"
#include "tokenizer/piece_message.h"
#include "tests/test.h"

static status read_map(const void *bytes, size_t length)
{
    struct charsmap map;
    struct arena arena;
    status result;

    arena_init(&arena, "test", 0);
    result = charsmap_read(&map, &arena, bytes, length, "t");
    arena_free(&arena);
    return result;
}

TEST(broken_maps_are_refused)
{
    static const struct { const char *bytes; size_t length; const char *words; }
    rows[] = {
        {"\x04", 1, "claims a trie"},
        {"\x00\x00\x00\x00", 4, "claims a trie of 0"},
        {"\x03\x00\x00\x00" "abc", 7, "claims a trie of 3"},
        {"\x08\x00\x00\x00" "abcd", 8, "claims a trie of 8"},
        {"\x04\x00\x00\x00" "abcd\xFF", 9, "not UTF-8"},
    };
    char longest[4 + 4 + 300] = "\x04";

    for (int i = 0; i < ROWS(rows); i++) {
        FAILS(read_map(rows[i].bytes, rows[i].length), ERR_FORMAT,
              rows[i].words);
        status_clear();
    }
    memset(longest + 8, 'x', 300);
    FAILS(read_map(longest, sizeof longest), ERR_FORMAT, "more than 255");
    IS_OK(read_map("", 0));
}

/* A trie whose every unit points far outside finds nothing. */
TEST(a_map_of_lies_is_never_followed_outside)
{
    unsigned char bytes[4 + 64 + 8] = {64, 0, 0, 0};
    struct charsmap map;
    struct arena arena;

    memset(bytes + 4, 0xFF, 64);
    memset(bytes + 68, 'y', 8);
    for (int i = 0; i < 256; i++) {
        const char text[2] = {(char)(i & 0x7F), 0};

        bytes[4 + i % 64] = (unsigned char)(i * 7);
        arena_init(&arena, "test", 0);
        IS_OK(charsmap_read(&map, &arena, bytes, sizeof bytes, "t"));
        CHECK(charsmap_find(&map, text, 1, true).taken <= 1);
        arena_free(&arena);
    }
}

TEST(a_normalizer_that_explodes_is_an_error)
{
    static const char json[] =
        "{\"type\":\"Sequence\",\"normalizers\":["
        "{\"type\":\"Replace\",\"pattern\":{\"String\":\"a\"},\"content\":"
        "\"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\"},"
        "{\"type\":\"Replace\",\"pattern\":{\"Regex\":\"a\"},\"content\":"
        "\"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\"}]}";
    static char text[1 << 14];
    struct normalizer normalizer;
    struct normalized out = {0};
    const struct json *root;
    struct arena arena;

    memset(text, 'a', sizeof text);
    arena_init(&arena, "test", 0);
    IS_OK(json_read(&root, &arena, json, strlen(json), "t"));
    IS_OK(normalizer_read(&normalizer, &arena, root, "t"));
    FAILS(normalizer_run(&normalizer, text, sizeof text, &out), ERR_FORMAT,
          "more than 32 times longer");
    normalized_free(&out);
    out = (struct normalized){0};
    IS_OK(normalizer_run(&normalizer, "aa", 2, &out));
    EQUAL_INT(out.length, 2048);
    normalized_free(&out);
    normalizer_free(&normalizer);
    arena_free(&arena);
}

/* tokenizers 0.23 with Metaspace "first": a mark before eL, none before eeL. */
TEST(what_replaces_several_characters_is_no_beginning)
{
    static const struct { const char *content, *text; bool first; } rows[] = {
        {"\xC3\xBC", "eL", true}, {"\xC3\xBC", "eeL", false},
        {"xy", "eL", true}, {"xy", "eeL", false}, {"xy", "beeL", true},
        {"", "eL", false}, {"", "beeL", true}};

    for (int i = 0; i < ROWS(rows); i++) {
        char json[128];
        struct normalizer normalizer;
        struct normalized out = {.first = true};
        const struct json *root;
        struct arena arena;

        snprintf(json, sizeof json, "{\"type\":\"Replace\",\"pattern\":"
                 "{\"Regex\":\"[aeiou]+\"},\"content\":\"%s\"}",
                 rows[i].content);
        arena_init(&arena, "test", 0);
        IS_OK(json_read(&root, &arena, json, strlen(json), "t"));
        IS_OK(normalizer_read(&normalizer, &arena, root, "t"));
        IS_OK(normalizer_run(&normalizer, rows[i].text, strlen(rows[i].text),
                             &out));
        EQUAL_INT(out.first, rows[i].first);
        normalized_free(&out);
        normalizer_free(&normalizer);
        arena_free(&arena);
    }
}

TEST(base64_is_read_with_and_without_padding)
{
    static const struct { const char *text, *bytes; } rows[] = {
        {"", ""}, {"Zg==", "f"}, {"Zm8=", "fo"}, {"Zm9v", "foo"},
        {"Zm9vYg", "foob"}, {"Zm9vYmE=", "fooba"}, {"+/+/", "\xFB\xFF\xBF"}};
    struct text out = {0};

    for (int i = 0; i < ROWS(rows); i++) {
        out.length = 0;
        IS_OK(base64_read(&out, rows[i].text, strlen(rows[i].text), "t"));
        EQUAL_TEXT(out.bytes, rows[i].bytes);
    }
    FAILS(base64_read(&out, "Zm9v!a==", 8, "t"), ERR_FORMAT, "not base64");
    status_clear();
    FAILS(base64_read(&out, "Zm9vY", 5, "t"), ERR_FORMAT, "5 digits");
    status_clear();
    FAILS(base64_read(&out, "=m9v", 4, "t"), ERR_FORMAT, "not base64");
    text_free(&out);
}

TEST(messages_are_checked_field_by_field)
{
    static const struct { const char *bytes; size_t length; const char *words; }
    rows[] = {
        {"\x0A\x05" "abcd", 6, "ends in the middle"},
        {"\x08\xFF", 2, "ends in the middle"},
        {"\x15\x01\x02", 3, "ends in the middle"},
        {"\x03", 1, "field number that no"},
        {"\x0B", 1, "unknown wire type"},
        {"\x08\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\x02", 11, "64 bits"},
    };
    const unsigned char good[] = {0x08, 0x96, 0x01, 0x12, 0x02, 'h', 'i',
                                  0x1D, 0x00, 0x00, 0x80, 0x3F};
    struct piece_message in = {proto_open(good, sizeof good), "t", "a test"};
    struct proto_field field;
    bool more;

    IS_OK(piece_message_next(&in, &field, &more));
    EQUAL_INT(field.integer, 150);
    FAILS(piece_message_expect(&in, &field, PROTO_BYTES), ERR_FORMAT,
          "field 1");
    status_clear();
    IS_OK(piece_message_next(&in, &field, &more));
    EQUAL_INT(field.length, 2);
    IS_OK(piece_message_next(&in, &field, &more));
    CHECK(proto_real(&field) == 1);
    IS_OK(piece_message_next(&in, &field, &more));
    CHECK(!more);
    for (int i = 0; i < ROWS(rows); i++) {
        in.reader = proto_open(rows[i].bytes, rows[i].length);
        FAILS(piece_message_next(&in, &field, &more), ERR_FORMAT,
              rows[i].words);
        status_clear();
    }
}

TEST_MAIN(broken_maps_are_refused, a_map_of_lies_is_never_followed_outside,
          a_normalizer_that_explodes_is_an_error,
          what_replaces_several_characters_is_no_beginning,
          base64_is_read_with_and_without_padding,
          messages_are_checked_field_by_field)
