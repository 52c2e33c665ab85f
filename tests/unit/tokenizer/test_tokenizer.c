/* SPDX-License-Identifier: Apache-2.0 */
/* test_tokenizer.c - mirrors src/tokenizer/tokenizer*.c: the ids of the library
 * on nasty texts (tests/golden/tokenizer_golden.py), decoding, refusals. */
#include "tokenizer/tokenizer.h"

#include "tests/unit/tokenizer/encoded.h"

#define GOLDEN "tests/golden/tokenizer/"

static const char *const kinds[] = {
    "gpt2", "llama3", "qwen2", "smollm", "o200k", "deepseek", "nfkc",
    "previous", "next", "contiguous", "removed", "falcon"
};

static void read_kind(struct tokenizer *tokenizer, const char *kind)
{
    char path[PATH_BYTES];

    snprintf(path, sizeof path, GOLDEN "%s.json", kind);
    IS_OK(tokenizer_read(tokenizer, path));
}

static const struct json *read_expected(struct arena *arena)
{
    const struct json *root;

    arena_init(arena, "expected", 0);
    IS_OK(json_read_file(&root, arena, GOLDEN "expected.json", 1 << 24));
    return root;
}

static void compare(const struct tokenizer *tokenizer, const char *kind,
                    const struct json *texts, const struct json *ids,
                    bool special)
{
    for (int i = 0; i < texts->count; i++)
        encodes_json(tokenizer, kind, &texts->items[i], &ids->items[i],
                     special);
}

TEST(ids_are_those_of_the_library)
{
    struct arena arena;
    const struct json *root = read_expected(&arena);
    const struct json *texts = json_get(root, "texts");

    for (int k = 0; k < ROWS(kinds); k++) {
        struct tokenizer tokenizer;
        const struct json *with = json_get(json_get(root, "with"), kinds[k]);
        const struct json *without =
            json_get(json_get(root, "without"), kinds[k]);

        read_kind(&tokenizer, kinds[k]);
        EQUAL_INT(with->count, texts->count);
        compare(&tokenizer, kinds[k], texts, with, true);
        if (without == NULL) without = with; /* no template */
        compare(&tokenizer, kinds[k], texts, without, false);
        tokenizer_free(&tokenizer);
    }
    arena_free(&arena);
}

/* The known patterns must take the fast path, or a test of speed lies. */
TEST(known_patterns_need_no_regular_expression)
{
    static const struct { const char *kind; bool plain; } rows[] = {
        {"gpt2", true}, {"llama3", true}, {"qwen2", true}, {"smollm", true},
        {"o200k", true}, {"deepseek", false}};

    for (int i = 0; i < ROWS(rows); i++) {
        struct tokenizer tokenizer;

        read_kind(&tokenizer, rows[i].kind);
        EQUAL_INT(tokenizer.pretokenizer.plain, rows[i].plain);
        tokenizer_free(&tokenizer);
    }
}

/* The bytes come back if no normalizer changes the text, all at once and token
 * by token. */
TEST(decoding_gives_the_bytes_back)
{
    static const char *const exact[] = {"gpt2", "llama3", "smollm", "o200k",
                                        "falcon"};
    struct arena arena;
    const struct json *texts = json_get(read_expected(&arena), "texts");

    for (int k = 0; k < ROWS(exact); k++) {
        struct tokenizer tokenizer;

        read_kind(&tokenizer, exact[k]);
        for (int i = 0; i < texts->count; i++) {
            const struct json *text = &texts->items[i];
            struct token_decoder decoder = {.tokenizer = &tokenizer};
            struct token_list list = {0};
            struct text whole = {0}, decoded = {0};
            size_t bad;

            IS_OK(tokenizer_encode(&tokenizer, text->string,
                                   (size_t)text->string_length, false, &list));
            IS_OK(tokenizer_decode(&tokenizer, list.ids, list.count, &whole));
            EQUAL_INT(whole.length, text->string_length);
            EQUAL_BYTES(whole.bytes, text->string, whole.length);
            for (int64_t j = 0; j < list.count; j++) {
                IS_OK(token_decoder_next(&decoder, list.ids[j], &decoded));
                CHECK(!text_utf8_invalid(decoded.bytes, decoded.length, &bad));
            }
            IS_OK(token_decoder_end(&decoder, &decoded));
            EQUAL_INT(decoded.length, whole.length);
            EQUAL_BYTES(decoded.bytes, whole.bytes, whole.length);
            text_free(&whole);
            text_free(&decoded);
            token_list_free(&list);
        }
        tokenizer_free(&tokenizer);
    }
    arena_free(&arena);
}

TEST(a_broken_character_does_not_stop_the_decoder)
{
    struct tokenizer tokenizer;
    struct token_decoder decoder;
    struct text out = {0};
    /* Bytes E2 82 (a start), then 'A'; then 80 (no start), F0 and the end. */
    static const unsigned char bytes[] = {0xE2, 0x82, 'A', 0x80, 0xF0};

    read_kind(&tokenizer, "gpt2");
    decoder = (struct token_decoder){.tokenizer = &tokenizer};
    for (int i = 0; i < 5; i++)
        IS_OK(token_decoder_next(&decoder, tokenizer.byte_ids[bytes[i]], &out));
    EQUAL_INT(out.length, 4);
    IS_OK(token_decoder_end(&decoder, &out));
    EQUAL_INT(out.length, 5);
    EQUAL_BYTES(out.bytes, bytes, 5);
    text_free(&out);
    tokenizer_free(&tokenizer);
}

TEST(tokens_are_found_by_name)
{
    struct tokenizer tokenizer;
    struct token_list list = {0};
    int32_t id = -1;

    read_kind(&tokenizer, "llama3");
    EQUAL_INT(tokenizer_vocab(&tokenizer), 421);
    CHECK(tokenizer_find(&tokenizer, "<|begin|>", &id));
    EQUAL_INT(id, 420);
    EQUAL_INT(tokenizer_kind(&tokenizer, id), TOKEN_SPECIAL);
    EQUAL_INT(tokenizer_kind(&tokenizer, 421), TOKEN_MISSING);
    CHECK(!tokenizer_find(&tokenizer, "<|begin", &id));
    IS_OK(tokenizer_end_of_text(&tokenizer, "", &id));
    EQUAL_INT(id, 0);
    IS_OK(tokenizer_end_of_text(&tokenizer, "<|begin|>", &id));
    EQUAL_INT(id, 420);
    FAILS(tokenizer_end_of_text(&tokenizer, "</x>", &id), ERR_CONFIG, "</x>");
    status_clear();
    FAILS(tokenizer_encode(&tokenizer, "ab\xC0z", 4, true, &list), ERR_FORMAT,
          "byte 2 is 0xc0");
    token_list_free(&list);
    tokenizer_free(&tokenizer);
}

TEST(an_id_outside_the_vocabulary_is_named)
{
    struct tokenizer tokenizer;
    struct text out = {0};
    const int32_t ids[] = {5, 420};

    read_kind(&tokenizer, "gpt2");
    FAILS(tokenizer_decode(&tokenizer, ids, 2, &out), ERR_CONFIG,
          "token id 420 is outside the vocabulary");
    text_free(&out);
    tokenizer_free(&tokenizer);
}

#define HEAD "{\"added_tokens\":[],\"normalizer\":null,"
#define PRE "\"pre_tokenizer\":{\"type\":\"ByteLevel\"},"
#define MODEL "\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":1," \
              "\"ab\":2},\"merges\":[\"a b\"]}}"

TEST(what_is_not_supported_is_refused_by_name)
{
    static const struct { const char *json, *words; } rows[] = {
        {"[]", "no object at its top"},
        {"{}", "no object `model`"},
        {"{\"normalizer\":{\"type\":\"BertNormalizer\"},"
         "\"model\":{\"type\":\"WordPiece\"}}",
         "model WordPiece is not supported; BPE and Unigram are"},
        {"{\"model\":{\"type\":\"WordLevel\"}}", "tokenizer train"},
        {HEAD "\"truncation\":{}," PRE MODEL, "truncation is set"},
        {HEAD "\"padding\":{}," PRE MODEL, "padding is set"},
        {HEAD "\"pre_tokenizer\":{\"type\":\"BertPreTokenizer\"}," MODEL,
         "pre_tokenizer BertPreTokenizer"},
        {HEAD "\"pre_tokenizer\":{\"type\":\"Digits\",\"hex\":true}," MODEL,
         "pre_tokenizer Digits has a field `hex`"},
        {"{\"normalizer\":{\"type\":\"Lowercase\"}," PRE MODEL,
         "normalizer Lowercase"},
        {HEAD PRE "\"decoder\":{\"type\":\"WordPiece\"}," MODEL,
         "decoder WordPiece"},
        {HEAD PRE "\"post_processor\":{\"type\":\"Sequence\","
         "\"processors\":[{\"type\":\"BertProcessing\",\"sep\":[\"a\",0],"
         "\"cls\":[\"b\",1]},{\"type\":\"BertProcessing\",\"sep\":[\"a\","
         "0],\"cls\":[\"b\",1]}]}," MODEL, "after another that puts"},
        {HEAD PRE "\"post_processor\":{\"type\":\"XlmProcessing\"}," MODEL,
         "post_processor XlmProcessing"},
        {HEAD PRE "\"model\":{\"dropout\":0.1}}", "model.dropout"},
        {HEAD PRE "\"model\":{\"vocab\":{}}}", "vocabulary is empty"},
        {HEAD PRE "\"model\":{\"vocab\":{\"a\":-1}}}", "\"a\" is not a whole"},
        {HEAD PRE "\"model\":{\"vocab\":{\"a\":99999999}}}", "whole number"},
        {HEAD PRE "\"model\":{\"vocab\":{\"a\":999999}}}", "only 1 tokens"},
        {HEAD PRE "\"model\":{\"vocab\":{\"a\":0,\"b\":0}}}", "the same id 0"},
        {HEAD PRE "\"model\":{\"vocab\":{\"a\":0}}}", "model.merges"},
        {HEAD PRE "\"model\":{\"vocab\":{\"a\":0},\"merges\":[1]}}",
         "merges[0] is neither"},
        {HEAD PRE "\"model\":{\"vocab\":{\"a\":0},\"merges\":[\"a a\"]}}",
         "merges[0]: \"aa\" is not in the vocabulary"},
        {HEAD PRE "\"model\":{\"unk_token\":\"a\",\"vocab\":{\"a\":0},"
         "\"merges\":[]}}", "lacks byte"},
        {"{\"added_tokens\":[{\"id\":1,\"content\":\"x\"}]," PRE MODEL,
         "\"x\" has id 1, which \"b\" has"},
        {"{\"added_tokens\":[{\"id\":3,\"content\":\"  \","
         "\"normalized\":true}],\"normalizer\":{\"type\":\"Strip\","
         "\"strip_left\":true,\"strip_right\":false}," PRE MODEL,
         "the normalizer makes the text of id 3 empty"},
        {HEAD "\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":["
         "{\"type\":\"Split\",\"pattern\":{\"Regex\":\"(\"},\"behavior\":"
         "\"Isolated\",\"invert\":false}]}," MODEL, "pattern is wrong"},
        {HEAD "\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"Regex\":"
         "\"a\"},\"behavior\":\"Sometimes\"}," MODEL, "behavior Sometimes"},
    };

    for (int i = 0; i < ROWS(rows); i++) {
        struct tokenizer tokenizer;

        FAILS(tokenizer_read_text(&tokenizer, rows[i].json,
                                  strlen(rows[i].json), "t.json"),
              ERR_FORMAT, rows[i].words);
        status_clear();
        tokenizer_free(&tokenizer); /* safe after a failure */
    }
}

/* The second match begins in the white space that the first one took: the
 * library gives both. */
TEST(white_space_may_be_taken_twice)
{
    static const char json[] =
        "{\"added_tokens\":[{\"id\":3,\"content\":\"  \",\"rstrip\":true,"
        "\"normalized\":true},{\"id\":4,\"content\":\"\\t\\t\","
        "\"rstrip\":true,\"normalized\":false}],\"normalizer\":null,"
        "\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":"
        "false}," MODEL;
    static const struct encoded rows[] = {{"    ab", {3, 3, 2}, 3},
                                          {"\t\t\t\tab", {4, 4, 2}, 3},
                                          {"b   a", {1, 3, 0}, 3}};
    struct tokenizer tokenizer;

    IS_OK(tokenizer_read_text(&tokenizer, json, strlen(json), "t.json"));
    for (int i = 0; i < ROWS(rows); i++) encodes_row(&tokenizer, &rows[i]);
    tokenizer_free(&tokenizer);
}

/* U+00E9 spells byte E9, and somebody added it as a token: U+9999 needs the
 * byte. Ids and text are those of tokenizers 0.23. */
TEST(an_added_token_may_be_a_byte_of_the_model)
{
    static const char json[] =
        "{\"added_tokens\":[{\"id\":1,\"content\":\"\\u00e9\","
        "\"normalized\":false}],\"normalizer\":null,\"pre_tokenizer\":"
        "{\"type\":\"ByteLevel\",\"add_prefix_space\":false},\"decoder\":"
        "{\"type\":\"ByteLevel\"},\"model\":{\"type\":\"BPE\",\"vocab\":"
        "{\"a\":0,\"\\u00e9\":1,\"\\u00a6\":2,\"\\u013b\":3},"
        "\"merges\":[]}}";
    static const char word[] = "a\xE9\xA6\x99\xC3\xA9"; /* and U+00E9 */
    static const int32_t ids[] = {0, 1, 2, 3, 1};
    struct tokenizer tokenizer;
    struct token_list list = {0};
    struct text text = {0};

    IS_OK(tokenizer_read_text(&tokenizer, json, strlen(json), "t.json"));
    IS_OK(tokenizer_encode(&tokenizer, word, strlen(word), true, &list));
    EQUAL_INT(list.count, 5);
    EQUAL_BYTES(list.ids, ids, sizeof ids);
    IS_OK(tokenizer_decode(&tokenizer, list.ids, 4, &text));
    EQUAL_INT(text.length, 4);
    EQUAL_BYTES(text.bytes, word, 4);
    text_free(&text);
    token_list_free(&list);
    tokenizer_free(&tokenizer);
}

TEST(a_small_vocabulary_drops_the_bytes_it_lacks)
{
    static const char json[] = HEAD PRE MODEL;
    struct tokenizer tokenizer;
    struct token_list list = {0};

    IS_OK(tokenizer_read_text(&tokenizer, json, strlen(json), "t.json"));
    IS_OK(tokenizer_encode(&tokenizer, "abcba", 5, true, &list));
    EQUAL_INT(list.count, 3); /* a prefix space and c vanish: ab b a */
    EQUAL_INT(list.ids[0], 2);
    token_list_free(&list);
    tokenizer_free(&tokenizer);
    FAILS(tokenizer_read(&tokenizer, ""), ERR_CONFIG, "tokenizer.from");
    status_clear();
    FAILS(tokenizer_read(&tokenizer, "/nonexistent"), ERR_MISSING, "no such");
}

/* A hostile word: one run of a million letters, quadratic if done naively. */
TEST(a_very_long_word_takes_no_quadratic_time)
{
    enum { LENGTH = 1 << 20 };
    struct tokenizer tokenizer;
    struct token_list list = {0};
    struct text text = {0};
    void *run;

    read_kind(&tokenizer, "learned");
    IS_OK(memory_take(LENGTH, 1, &run));
    memset(run, 'e', LENGTH);
    IS_OK(tokenizer_encode(&tokenizer, run, LENGTH, true, &list));
    IS_OK(tokenizer_decode(&tokenizer, list.ids, list.count, &text));
    EQUAL_INT(text.length, LENGTH);
    EQUAL_BYTES(text.bytes, run, LENGTH);
    memory_free(run);
    text_free(&text);
    token_list_free(&list);
    tokenizer_free(&tokenizer);
}

TEST_MAIN(ids_are_those_of_the_library,
          known_patterns_need_no_regular_expression,
          decoding_gives_the_bytes_back,
          a_broken_character_does_not_stop_the_decoder,
          tokens_are_found_by_name, an_id_outside_the_vocabulary_is_named,
          what_is_not_supported_is_refused_by_name,
          an_added_token_may_be_a_byte_of_the_model,
          white_space_may_be_taken_twice,
          a_small_vocabulary_drops_the_bytes_it_lacks,
          a_very_long_word_takes_no_quadratic_time)
