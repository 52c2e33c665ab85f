/* SPDX-License-Identifier: Apache-2.0 */
/* test_token_place.c - mirrors src/tokenizer/token_place.c, token_trace.c and
 * origin.c: where tokens come from. What the libraries say about every
 * tokenizer of tests/golden/tokenizer is kept as digests
 * (tests/golden/tokenizer_places.py). */
#include "tokenizer/token_place.h"

#include "base/json.h"
#include "tokenizer/tokenizer.h"
#include "tests/test.h"

#define GOLDEN "tests/golden/tokenizer/"

static void digest_add(uint32_t *digest, int64_t value)
{
    for (int shift = 0; shift < 32; shift += 8)
        *digest = (*digest ^ (uint32_t)(value >> shift & 0xFF)) * 0x01000193u;
}

/* tiktoken tells only where a token begins. */
static uint32_t digest_of(const struct token_places *places, bool starts)
{
    uint32_t digest = 0x811C9DC5u;

    for (int64_t i = 0; i < places->count; i++) {
        digest_add(&digest, places->items[i].characters.start);
        if (!starts) digest_add(&digest, places->items[i].characters.stop);
    }
    return digest;
}

static int64_t characters_of(const char *text, int64_t bytes)
{
    int64_t count = 0;

    for (int64_t i = 0; i < bytes; i++) count += (text[i] & 0xC0) != 0x80;
    return count;
}

static bool is_end(const struct json *text, int64_t at)
{
    return at == text->string_length || (text->string[at] & 0xC0) != 0x80;
}

/* Both units say the same, ranges lie in the text, end at ends of characters
 * and go from left to right. */
static void check_sound(const struct json *text,
                        const struct token_places *places)
{
    struct token_range last = {0, 0};

    for (int64_t i = 0; i < places->count; i++) {
        const struct token_place *place = &places->items[i];
        const struct token_range bytes = place->bytes;

        CHECK(bytes.start >= 0 && bytes.start <= bytes.stop &&
              bytes.stop <= text->string_length);
        CHECK(is_end(text, bytes.start) && is_end(text, bytes.stop));
        EQUAL_INT(place->characters.start,
                  characters_of(text->string, bytes.start));
        EQUAL_INT(place->characters.stop,
                  characters_of(text->string, bytes.stop));
        if (bytes.stop == 0) continue; /* of a template, or a prefix */
        CHECK(bytes.start >= last.start && bytes.stop >= last.stop);
        last = bytes;
    }
}

/* Asking for places changes no id. */
static void check_ids(const struct tokenizer *tokenizer,
                      const struct json *text, const struct token_list *list,
                      bool special)
{
    struct token_list plain = {0};

    IS_OK(tokenizer_encode(tokenizer, text->string,
                           (size_t)text->string_length, special, &plain));
    EQUAL_INT(plain.count, list->count);
    if (plain.count > 0)
        EQUAL_BYTES(plain.ids, list->ids,
                    (size_t)plain.count * sizeof *plain.ids);
    token_list_free(&plain);
}

static void check_texts(const char *name, const struct json *texts,
                        const struct json *digests)
{
    const bool starts =
        strstr(name, ".tiktoken") != NULL || strstr(name, "tekken") != NULL;
    struct tokenizer tokenizer;
    char path[PATH_BYTES];

    snprintf(path, sizeof path, GOLDEN "%s", name);
    IS_OK(tokenizer_read(&tokenizer, path));
    EQUAL_INT(digests->count, texts->count);
    for (int i = 0; i < texts->count; i++) {
        const struct json *text = &texts->items[i];
        const size_t length = (size_t)text->string_length;
        struct token_list list = {0};
        struct token_places places = {0};

        IS_OK(tokenizer_encode_places(&tokenizer, text->string, length, true,
                                      &list, &places));
        EQUAL_INT(places.count, list.count);
        check_ids(&tokenizer, text, &list, true);
        check_sound(text, &places);
        if (digest_of(&places, starts) != digests->items[i].integer)
            print_error("%s: places of text %d, \"%s\"\n", name, i,
                        text->string);
        EQUAL_INT(digest_of(&places, starts), digests->items[i].integer);
        list.count = places.count = 0;
        IS_OK(tokenizer_encode_places(&tokenizer, text->string, length, false,
                                      &list, &places));
        EQUAL_INT(places.count, list.count);
        check_ids(&tokenizer, text, &list, false);
        token_list_free(&list);
        token_places_free(&places);
    }
    tokenizer_free(&tokenizer);
}

TEST(places_are_those_of_the_libraries)
{
    struct arena arena;
    const struct json *nasty, *more, *places;

    arena_init(&arena, "expected", 0);
    IS_OK(json_read_file(&nasty, &arena, GOLDEN "expected.json", 1 << 24));
    IS_OK(json_read_file(&more, &arena, GOLDEN "families/expected.json",
                         1 << 24));
    IS_OK(json_read_file(&places, &arena, GOLDEN "places.json", 1 << 24));
    CHECK(places->count > 45);
    for (int i = 0; i < places->count; i++) {
        const char *name = places->items[2 * i].string;
        const bool family = strncmp(name, "families/", 9) == 0;

        check_texts(name, json_get(family ? more : nasty, "texts"),
                    &places->items[2 * i + 1]);
    }
    arena_free(&arena);
}

#define HEAD "{\"added_tokens\":[],\"normalizer\":"
#define BYTES ",\"pre_tokenizer\":{\"type\":\"ByteLevel\"," \
              "\"add_prefix_space\":%s},"
#define MODEL "\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":1," \
              "\"\xC4\xA0\":2,\"\xC3\x83\":3,\"\xC2\xA9\":4,\"ab\":5," \
              "\"\xC4\xA0" "a\":6},\"merges\":[\"a b\",\"\xC4\xA0 a\"]}}"
#define TRIM(prefix) "\"post_processor\":{\"type\":\"ByteLevel\"," \
                     "\"trim_offsets\":true,\"add_prefix_space\":" prefix "},"

struct expected_place { int64_t bytes[2], characters[2]; };

static void place_text(const char *json, const char *text,
                       const struct expected_place *wanted, int count)
{
    struct tokenizer tokenizer;
    struct token_list list = {0};
    struct token_places places = {0};

    IS_OK(tokenizer_read_text(&tokenizer, json, strlen(json), "t.json"));
    IS_OK(tokenizer_encode_places(&tokenizer, text, strlen(text), true, &list,
                                  &places));
    EQUAL_INT(places.count, count);
    for (int i = 0; i < count; i++) {
        EQUAL_INT(places.items[i].bytes.start, wanted[i].bytes[0]);
        EQUAL_INT(places.items[i].bytes.stop, wanted[i].bytes[1]);
        EQUAL_INT(places.items[i].characters.start, wanted[i].characters[0]);
        EQUAL_INT(places.items[i].characters.stop, wanted[i].characters[1]);
    }
    token_list_free(&list);
    token_places_free(&places);
    tokenizer_free(&tokenizer);
}

/* Worked out by hand. */
TEST(places_of_small_texts)
{
    static const struct {
        const char *normalizer, *prefix, *trim, *text;
        int count;
        struct expected_place places[4];
    } rows[] = {
        {"null", "false", "", "ab b", 3,
         {{{0, 2}, {0, 2}}, {{2, 3}, {2, 3}}, {{3, 4}, {3, 4}}}},
        /* Both bytes of e with an accent are all of it. */
        {"null", "false", "", "\xC3\xA9" "ab", 3,
         {{{0, 2}, {0, 1}}, {{0, 2}, {0, 1}}, {{2, 4}, {1, 3}}}},
        /* Two characters become one, which stands for the first of them. */
        {"{\"type\":\"NFC\"}", "false", "", "e\xCC\x81" "a", 3,
         {{{0, 1}, {0, 1}}, {{0, 1}, {0, 1}}, {{3, 4}, {2, 3}}}},
        /* The space that is put there shares the first character. */
        {"null", "true", "", "ab", 2, {{{0, 1}, {0, 1}}, {{0, 2}, {0, 2}}}},
        {"null", "false", TRIM("true"), "b a", 2,
         {{{0, 1}, {0, 1}}, {{2, 3}, {2, 3}}}},
        {"null", "false", TRIM("false"), " a", 1, {{{1, 2}, {1, 2}}}},
        {"null", "false", TRIM("true"), " a", 1, {{{0, 2}, {0, 2}}}},
    };

    for (int i = 0; i < ROWS(rows); i++) {
        struct text json = {0};

        IS_OK(text_printf(&json, HEAD "%s" BYTES "%s" MODEL,
                          rows[i].normalizer, rows[i].prefix, rows[i].trim));
        place_text(json.bytes, rows[i].text, rows[i].places, rows[i].count);
        text_free(&json);
    }
}

TEST(a_text_that_is_no_text_has_no_places)
{
    struct tokenizer tokenizer;
    struct token_list list = {0};
    struct token_places places = {0};

    IS_OK(tokenizer_read(&tokenizer, GOLDEN "gpt2.json"));
    FAILS(tokenizer_encode_places(&tokenizer, "a\xFF", 2, true, &list,
                                  &places), ERR_FORMAT, "byte 1 is 0xff");
    status_clear();
    EQUAL_INT(places.count, 0);
    token_list_free(&list);
    token_places_free(&places);
    tokenizer_free(&tokenizer);
}

TEST_MAIN(places_are_those_of_the_libraries, places_of_small_texts,
          a_text_that_is_no_text_has_no_places)
