/* SPDX-License-Identifier: Apache-2.0 */
/* test_pretokenize.c - mirrors src/tokenizer/pretokenize.c, pretokenize_read.c,
 * regex.c and regex_dialect.c: the behaviors of Split, worked out by hand from
 * the words of the `tokenizers` documentation; the golden files cover whole
 * pipelines. */
#include "tokenizer/pretokenize.h"

#include "base/text.h"
#include "tests/test.h"

static status join(void *context, const unsigned char *piece, size_t length,
                   const struct origin *from)
{
    CHECK(from == NULL);
    TRY(text_append(context, piece, length));
    TRY(text_append(context, "|", 1));
    return OK;
}

/* pieces = those of the text; are the steps scanners alone? */
static bool pieces_of(const char *all, const char *text, struct text *pieces)
{
    struct pretokenizer pretokenizer;
    struct text json = {0};
    bool plain;
    const struct json *root;
    struct arena arena;

    arena_init(&arena, "test", 0);
    IS_OK(text_printf(&json, "{\"type\":\"Sequence\",\"pretokenizers\":[%s]}",
                      all));
    IS_OK(json_read(&root, &arena, json.bytes, json.length, "t"));
    IS_OK(pretokenizer_read(&pretokenizer, &arena, root, "t"));
    IS_OK(pretokenizer_run(&pretokenizer,
                           &(struct pretokenize_text){.bytes = text,
                                                      .length = strlen(text),
                                                      .first = true},
                           join, pieces));
    plain = pretokenizer.plain;
    pretokenizer_free(&pretokenizer);
    arena_free(&arena);
    text_free(&json);
    return plain;
}

static void cut_all(const char *all, const char *text, const char *expected)
{
    struct text pieces = {0};

    (void)pieces_of(all, text, &pieces);
    EQUAL_TEXT(pieces.bytes, expected);
    text_free(&pieces);
}

#define BYTES(use_regex)                                             \
    "{\"type\":\"ByteLevel\",\"add_prefix_space\":false,"             \
    "\"use_regex\":" use_regex "}"

static void cut(const char *steps, const char *text, const char *expected)
{
    struct text all = {0};

    IS_OK(text_printf(&all, "%s," BYTES("false"), steps));
    cut_all(all.bytes, text, expected);
    text_free(&all);
}

#define SPLIT(kind, pattern, behavior, invert)                       \
    "{\"type\":\"Split\",\"pattern\":{\"" kind "\":\"" pattern       \
    "\"},\"behavior\":\"" behavior "\",\"invert\":" invert "}"

TEST(behaviors_of_split)
{
    static const struct { const char *steps, *pieces; } rows[] = {
        {SPLIT("String", "-", "Isolated", "false"), "the|-|final|-|-|lap|-|"},
        {SPLIT("String", "-", "Removed", "false"), "the|final|lap|"},
        {SPLIT("String", "-", "MergedWithPrevious", "false"),
         "the-|final-|-|lap-|"},
        {SPLIT("String", "-", "MergedWithNext", "false"),
         "the|-final|-|-lap|-|"},
        {SPLIT("String", "-", "Contiguous", "false"), "the|-|final|--|lap|-|"},
        {SPLIT("String", "-", "Removed", "true"), "-|-|-|-|"},
        {SPLIT("Regex", "[a-z]+", "Removed", "true"), "the|final|lap|"},
        {SPLIT("Regex", "-+", "Isolated", "false"), "the|-|final|--|lap|-|"},
        {SPLIT("Regex", "x*", "Isolated", "false"), NULL},
        {SPLIT("String", "-", "Removed", "false") ","
         SPLIT("Regex", "[ai]", "Isolated", "false"),
         "the|f|i|n|a|l|l|a|p|"},
    };

    for (int i = 0; i < ROWS(rows); i++) {
        const char *expected = rows[i].pieces;

        if (expected == NULL) /* empty matches cut after each character */
            expected = "t|h|e|-|f|i|n|a|l|-|-|l|a|p|-|";
        cut(rows[i].steps, "the-final--lap-", expected);
    }
}

TEST(scanners_and_expressions_mix)
{
    cut("{\"type\":\"Digits\",\"individual_digits\":false},"
        SPLIT("Regex", "b", "Isolated", "false"), "a1b", "a|1|b|");
    cut(SPLIT("Regex", "\\\\p{N}", "Removed", "true"), "a12b3", "1|2|3|");
    cut(SPLIT("Regex", "\\\\p{N}", "Isolated", "true"), "a12b", "a|1|2|b|");
    cut("{\"type\":\"Whitespace\"}", " one, two\n", "one|,|two|");
}

#define NAMED(type) "{\"type\":\"" type "\"}"
#define DIGITS "{\"type\":\"Digits\",\"individual_digits\":false}"
#define PUNCTUATION(behavior)                                        \
    "{\"type\":\"Punctuation\",\"behavior\":\"" behavior "\"}"
#define THREE SPLIT("Regex", "[0-9][0-9][0-9]", "Isolated", "false")

/* They see a character for each byte: 0xB2 and 0xBC to 0xBE are numbers there
 * and 0xAB is punctuation, a blank is U+0120. The pieces are those of the
 * `tokenizers` library 0.23.3. */
TEST(steps_after_byte_level_see_its_alphabet)
{
    static const struct { const char *steps, *text, *pieces; } rows[] = {
        {BYTES("true") "," DIGITS "," THREE,
         "x\xC2\xB2 12345\xC2\xBE\xC3\xA9",
         "x|\xC2|\xB2| |123|45|\xC2|\xBE|\xC3\xA9|"},
        {PUNCTUATION("Contiguous") "," BYTES("true") "," DIGITS "," THREE,
         "in 1987, \xC2\xBC+\xC2\xB2",
         "in| |198|7|,| \xC2|\xBC|+|\xC2|\xB2|"},
        {BYTES("false") "," SPLIT("Regex", "\xC4\xA0", "Removed", "false"),
         "a b  c", "a|b|c|"},
        {BYTES("false") "," NAMED("WhitespaceSplit"), "a b\n c", "a b\n c|"},
        {BYTES("false") "," NAMED("Whitespace"), "a b\n \xC2\xAB",
         "a b\n \xC2|\xAB|"},
        {BYTES("false") "," PUNCTUATION("Isolated"),
         "a\xC2\xAB\xE2\x80\x94!", "a\xC2|\xAB|\xE2\x80\x94|!|"},
        {BYTES("false") ",{\"type\":\"CharDelimiterSplit\",\"delimiter\":"
                        "\"\xC3\x83\"}",
         "\xC3\xA9\xE8\x88\xB9\xC3\xA8", "\xA9\xE8\x88\xB9|\xA8|"},
        {BYTES("false") "," SPLIT("Regex", "(?<=\xC3\x83).",
                                  "MergedWithNext", "false"),
         "\xC3\xA9" "a\xC3\xA8", "\xC3|\xA9" "a\xC3|\xA8|"},
    };

    for (int i = 0; i < ROWS(rows); i++)
        cut_all(rows[i].steps, rows[i].text, rows[i].pieces);
}

TEST(what_rewrites_is_refused_after_byte_level)
{
    static const char *const types[] = {"ByteLevel", "Metaspace"};

    for (int i = 0; i < ROWS(types); i++) {
        struct pretokenizer pretokenizer;
        struct text json = {0}, words = {0};
        const struct json *root;
        struct arena arena;

        arena_init(&arena, "test", 0);
        IS_OK(text_printf(&json, "{\"type\":\"Sequence\",\"pretokenizers\":["
                                 BYTES("false") "," NAMED("%s") "]}",
                          types[i]));
        IS_OK(text_printf(&words, "%s stands after ByteLevel", types[i]));
        IS_OK(json_read(&root, &arena, json.bytes, json.length, "t"));
        FAILS(pretokenizer_read(&pretokenizer, &arena, root, "t.json"),
              ERR_FORMAT, words.bytes);
        status_clear();
        pretokenizer_free(&pretokenizer);
        arena_free(&arena);
        text_free(&json);
        text_free(&words);
    }
}

/* Qwen 2's pattern around what it has for \r and for \n. */
#define QWEN2(lines, open, close)                                        \
    SPLIT("Regex", open "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^" lines          \
          "\\\\p{L}\\\\p{N}]?\\\\p{L}+|\\\\p{N}| ?[^\\\\s\\\\p{L}\\\\p{N}]+[" \
          lines "]*|\\\\s*[" lines "]+|\\\\s+(?!\\\\S)|\\\\s+" close,          \
          "Isolated", "false")

/* StableLM 2's file has the new lines themselves in it; PCRE2, which a group
 * around the pattern calls for, says what it then means. */
TEST(new_lines_in_a_known_pattern_keep_it_fast)
{
    static const char *const texts[] = {
        "one\r\n\r\ntwo \n\r  three\n \n", "rn\\r\\n don't\rX\n\n\n",
        "a!\r\n? 12\n3 \r\r end", "\rn \nr 'S\r'll"};

    for (int i = 0; i < ROWS(texts); i++) {
        struct text escaped = {0}, real = {0}, slow = {0};

        CHECK(pieces_of(QWEN2("\\\\r\\\\n", "", ""), texts[i], &escaped));
        CHECK(pieces_of(QWEN2("\\r\\n", "", ""), texts[i], &real));
        CHECK(!pieces_of(QWEN2("\\r\\n", "(?:", ")"), texts[i], &slow));
        EQUAL_TEXT(real.bytes, escaped.bytes);
        EQUAL_TEXT(real.bytes, slow.bytes);
        text_free(&escaped);
        text_free(&real);
        text_free(&slow);
    }
    CHECK(scan_find("\n{N}") == NULL);
}

/* Patterns that Ruby's syntax reads otherwise than PCRE2; the pieces are those
 * of the `tokenizers` library 0.23. */
TEST(patterns_mean_what_the_library_means)
{
    static const struct { const char *pattern, *text, *pieces; } rows[] = {
        {"[0-9]{1,3}+", "a12345b", "a|12345|b|"},
        {"(?:[0-9]|x){2}+", "a1x345b", "a|1x34|5b|"},
        {"a[0-9]{1,2}?", "a123a4", "a1|23|a4|"},
        {"x{,2}y", "xxxy", "x|xxy|"},
        {"y$|^z", "yz\nyz\nzy\nyy", "yz\nyz\n|z|y|\ny|y|"},
        {"[0-9]{2,}", "123a4", "123|a4|"},
        {"[[:digit:]]++", "a12b", "a|12|b|"},
        /* Marks are letters of a word, half is one too, and U+180E no space:
         * the library says so to U+0E01 U+0E34, U+00BD and U+180E. */
        {"\\\\w+", "\xE0\xB8\x81\xE0\xB8\xB4 \xC2\xBD-\xE2\x91\xA0",
         "\xE0\xB8\x81\xE0\xB8\xB4| |\xC2\xBD|-\xE2\x91\xA0|"},
        /* But U+00BD is not of [\w]. */
        {"[\\\\w]+", "a\xC2\xBD-b", "a|\xC2\xBD-|b|"},
        {"[^\\\\w\\\\s]+", "a\xC2\xBD- b", "a|\xC2\xBD-| b|"},
        {"[[:word:]]+", "a\xC2\xBD-b", "a|\xC2\xBD-|b|"},
        {"\\\\b", "a\xC2\xBD-b", "a\xC2\xBD|-|b|"},
        {"\\\\s", "a\xE1\xA0\x8E" "b c", "a\xE1\xA0\x8E" "b| |c|"},
        {"[\\\\S]", "a\xE1\xA0\x8E", "a|\xE1\xA0\x8E|"},
        {"e\\\\b", "eye\xCC\x81 e", "eye\xCC\x81 |e|"},
        {"[[:punct:]]", "a\xE2\x82\xAC" "b", "a|\xE2\x82\xAC|b|"},
        {"\\\\p{Han}", "\xE8\x88\xB9\xE3\x80\x82",
         "\xE8\x88\xB9|\xE3\x80\x82|"},
        /* U+A7CB is a letter since Unicode 16, U+1E4D0 since 15. */
        {"\\\\p{L}+", "a\xEA\x9F\x8B-", "a\xEA\x9F\x8B|-|"},
        {"[^\\\\s\\\\p{L}]+", "-\xF0\x9E\x93\x90-",
         "-|\xF0\x9E\x93\x90|-|"},
        {"[a-f&&[^be]]+", "abcdef", "a|b|cd|e|f|"},
    };

    for (int i = 0; i < ROWS(rows); i++) {
        struct text steps = {0};

        IS_OK(text_printf(&steps, SPLIT("Regex", "%s", "Isolated", "false"),
                          rows[i].pattern));
        cut(steps.bytes, rows[i].text, rows[i].pieces);
        text_free(&steps);
    }
}

TEST(what_only_ruby_says_is_refused_by_name)
{
    static const struct { const char *pattern, *why; } rows[] = {
        {"[a&&b]", "&&"}, {"[^a&&[b]]", "&&"}, {"[\\W]", "\\W in a class"},
        {"[a[bc]]", "within a class"}, {"\\h", "\\h"},
        {"(?m:a.)", "(?m)"}, {"[a", "a [ without ]"}, {"a)", "without ("},
        {"a\\", "at its end"}, {"{2}", "not a repetition"}, {"a{2}?", "{n}?"},
        {"\\p{L", "a { without }"}, {"\\p{Nonsense}", "wrong at byte"},
    };

    for (int i = 0; i < ROWS(rows); i++) {
        struct regex *regex = NULL;

        FAILS(regex_build(&regex, rows[i].pattern, "t.json"), ERR_FORMAT,
              rows[i].why);
        regex_free(regex);
    }
}

/* Each a may belong to either plus: 2^40 ways to fail. */
TEST(a_pattern_that_explodes_is_an_error)
{
    static const char json[] =
        "{\"type\":\"Sequence\",\"pretokenizers\":["
        SPLIT("Regex", "(a+)+d", "Isolated", "false")
        ",{\"type\":\"ByteLevel\"}]}";
    static const struct pretokenize_text text = {
        "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa!d", 42, true, false,
        NULL};
    struct pretokenizer pretokenizer;
    struct text pieces = {0};
    const struct json *root;
    struct arena arena;

    arena_init(&arena, "test", 0);
    IS_OK(json_read(&root, &arena, json, strlen(json), "t"));
    IS_OK(pretokenizer_read(&pretokenizer, &arena, root, "t.json"));
    FAILS(pretokenizer_run(&pretokenizer, &text, join, &pieces), ERR_FORMAT,
          "t.json: matching");
    pretokenizer_free(&pretokenizer);
    arena_free(&arena);
    text_free(&pieces);
}

TEST_MAIN(behaviors_of_split, scanners_and_expressions_mix,
          steps_after_byte_level_see_its_alphabet,
          what_rewrites_is_refused_after_byte_level,
          new_lines_in_a_known_pattern_keep_it_fast,
          patterns_mean_what_the_library_means,
          what_only_ruby_says_is_refused_by_name,
          a_pattern_that_explodes_is_an_error)
