/* SPDX-License-Identifier: Apache-2.0 */
/* test_tokenizer_families.c - mirrors src/tokenizer/tokenizer*.c for tokenizers
 * that are not byte-level: ids and text of their own libraries on nasty texts
 * (tests/golden/tokenizer_families.py, tokenizer_ties.py). */
#include "tokenizer/tokenizer.h"

#include "base/file.h"
#include "tests/unit/tokenizer/encoded.h"

#define GOLDEN "tests/golden/tokenizer/families/"
#define TIES "tests/golden/tokenizer/ties/"

static const char *const kinds[] = {
    "llama2", "llama2_added", "mistral", "mistral_split", "gemma", "phi3",
    "never", "ignore", "unknown", "unknown_whole", "fused", "dropped",
    "punctuation", "delimiter", "split_string", "unigram", "unigram_whole",
    "charsmap", "unigram_bytes"
};

/* Files of other libraries; they keep no decoded text. */
static const char *const files[] = {
    "bpe.model", "bpe_user.model", "bpe_unknown.model", "bpe_suffix.model",
    "unigram.model", "unigram_user.model", "unigram_bytes.model",
    "unigram_rules.model", "bpe_rules.model", "bpe_unused.model",
    "unigram_unused.model", "r50k_base.tiktoken",
    "cl100k_base.tiktoken", "o200k_base.tiktoken", "llama3.tiktoken",
    "qwen.tiktoken", "tekken.json"
};

static void read_file(struct tokenizer *tokenizer, const char *name)
{
    char path[PATH_BYTES];

    snprintf(path, sizeof path, GOLDEN "%s", name);
    IS_OK(tokenizer_read(tokenizer, path));
}

static void read_kind(struct tokenizer *tokenizer, const char *kind)
{
    char path[PATH_BYTES];

    snprintf(path, sizeof path, GOLDEN "%s.json", kind);
    IS_OK(tokenizer_read(tokenizer, path));
}

/* The ids of a text and the text of the ids, at once and one by one. */
static void check_text(const struct tokenizer *tokenizer, const char *kind,
                       const struct json *text, const struct json *ids,
                       const struct json *decoded)
{
    struct token_decoder decoder = {.tokenizer = tokenizer};
    struct token_list list = {0};
    struct text whole = {0}, in_parts = {0};
    const size_t length = (size_t)text->string_length;

    encodes_json(tokenizer, kind, text, ids, true);
    IS_OK(tokenizer_encode(tokenizer, text->string, length, false, &list));
    IS_OK(tokenizer_decode(tokenizer, list.ids, list.count, &whole));
    if (whole.length != (size_t)decoded->string_length ||
        memcmp(whole.bytes, decoded->string, whole.length) != 0)
        print_error("%s: \"%s\" decodes to\n\"%s\", not\n\"%s\"\n", kind,
                    text->string, whole.bytes, decoded->string);
    EQUAL_INT(whole.length, decoded->string_length);
    EQUAL_BYTES(whole.bytes, decoded->string, whole.length);
    IS_OK(text_append(&in_parts, "", 0));
    for (int64_t i = 0; i < list.count; i++)
        IS_OK(token_decoder_next(&decoder, list.ids[i], &in_parts));
    IS_OK(token_decoder_end(&decoder, &in_parts));
    EQUAL_INT(in_parts.length, whole.length);
    EQUAL_BYTES(in_parts.bytes, whole.bytes, whole.length);
    token_list_free(&list);
    text_free(&whole);
    text_free(&in_parts);
}

TEST(ids_and_text_are_those_of_the_library)
{
    struct arena arena;
    const struct json *root, *texts;

    arena_init(&arena, "expected", 0);
    IS_OK(json_read_file(&root, &arena, GOLDEN "expected.json", 1 << 24));
    texts = json_get(root, "texts");
    for (int k = 0; k < ROWS(kinds); k++) {
        const struct json *ids = json_get(json_get(root, "ids"), kinds[k]);
        const struct json *decoded =
            json_get(json_get(root, "decoded"), kinds[k]);
        struct tokenizer tokenizer;

        read_kind(&tokenizer, kinds[k]);
        EQUAL_INT(ids->count, texts->count);
        for (int i = 0; i < texts->count; i++)
            check_text(&tokenizer, kinds[k], &texts->items[i], &ids->items[i],
                       &decoded->items[i]);
        tokenizer_free(&tokenizer);
    }
    arena_free(&arena);
}

TEST(ids_of_other_files_are_those_of_their_libraries)
{
    struct arena arena;
    const struct json *root, *texts;

    arena_init(&arena, "expected", 0);
    IS_OK(json_read_file(&root, &arena, GOLDEN "expected.json", 1 << 24));
    texts = json_get(root, "texts");
    for (int k = 0; k < ROWS(files); k++) {
        const struct json *ids = json_get(json_get(root, "ids"), files[k]);
        struct tokenizer tokenizer;

        read_file(&tokenizer, files[k]);
        for (int i = 0; i < texts->count; i++)
            encodes_json(&tokenizer, files[k], &texts->items[i],
                         &ids->items[i], true);
        tokenizer_free(&tokenizer);
    }
    arena_free(&arena);
}

/* The text comes back if white space is kept and bytes spell the rest. */
TEST(decoding_gives_the_text_back)
{
    static const char *const exact[] = {"bpe.model", "bpe_user.model",
                                        "unigram_bytes.model", "tekken.json",
                                        "o200k_base.tiktoken"};
    static const char text[] = "  The keeper\xE2\x80\x99s <mark> the ship\n"
                               "\xF0\x9F\x9A\xA2 \t caf\xC3\xA9  ";

    for (int k = 0; k < ROWS(exact); k++) {
        struct tokenizer tokenizer;
        struct token_list list = {0};
        struct text out = {0};

        read_file(&tokenizer, exact[k]);
        IS_OK(tokenizer_encode(&tokenizer, text, strlen(text), true, &list));
        IS_OK(tokenizer_decode(&tokenizer, list.ids, list.count, &out));
        EQUAL_TEXT(out.bytes, text);
        token_list_free(&list);
        text_free(&out);
        tokenizer_free(&tokenizer);
    }
}

/* A .model that is cut short at every byte is an error, never a crash. */
TEST(a_model_that_is_cut_short_is_refused)
{
    struct text file = {0};

    IS_OK(file_read(GOLDEN "bpe.model", 1 << 20, &file));
    for (size_t length = 3; length < file.length; length += 7) {
        struct tokenizer tokenizer;

        if (tokenizer_read_text(&tokenizer, file.bytes, length, "t.model") ==
            OK)
            CHECK(tokenizer.vocab > 0); /* what is left may be whole */
        status_clear();
        tokenizer_free(&tokenizer);
    }
    text_free(&file);
}

/* A first piece without a score, and with a name of any length: its length may
 * be that of a tab, a line feed or a space. */
TEST(a_model_is_told_by_its_first_piece)
{
    struct text file = {0};

    IS_OK(file_read(GOLDEN "unigram.model", 1 << 20, &file));
    EQUAL_BYTES(file.bytes, "\n\x0e\n\5<unk>\x15", 10);
    for (int name = 1; name < 40; name++) {
        struct tokenizer tokenizer;
        struct text changed = {0};

        IS_OK(text_printf(&changed, "\n%c\n%c", name + 4, name));
        for (int i = 0; i < name; i++) IS_OK(text_append(&changed, "u", 1));
        IS_OK(text_append(&changed, "\x18\2", 2)); /* UNKNOWN */
        IS_OK(text_append(&changed, file.bytes + 16, file.length - 16));
        IS_OK(tokenizer_read_text(&tokenizer, changed.bytes, changed.length,
                                  "t.model"));
        EQUAL_INT(tokenizer.model, MODEL_UNIGRAM);
        EQUAL_INT(tokenizer.name_lengths[0], name);
        tokenizer_free(&tokenizer);
        text_free(&changed);
    }
    text_free(&file);
}

#define MARKED(before)                                                    \
    "\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[" before \
    "{\"type\":\"Metaspace\",\"replacement\":\"_\",\"prepend_scheme\":"  \
    "\"first\"}]},\"model\":{\"type\":\"BPE\",\"vocab\":{\"_\":0,"         \
    "\"x\":1,\"\\u0301\":2,\"y\":3},\"merges\":[]}}"

/* First is what came from the beginning, be it what is left of a character or
 * two words, and not what lost it. Ids of tokenizers 0.23.3. */
TEST(what_is_first_is_told_by_where_it_came_from)
{
    static const struct {
        const char *json;
        struct encoded encoded;
    } rows[] = {
        {"{\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[{\"type\":"
         "\"NFD\"},{\"type\":\"Replace\",\"pattern\":{\"String\":\"e\"},"
         "\"content\":\"\"}]}," MARKED(""), {"\xC3\xA9x", {0, 2, 1}, 3}},
        {"{\"normalizer\":{\"type\":\"Replace\",\"pattern\":{\"String\":"
         "\"e\"},\"content\":\"\"}," MARKED(""), {"ex", {1}, 1}},
        {"{\"normalizer\":{\"type\":\"Prepend\",\"prepend\":\"y \"},"
         MARKED("{\"type\":\"WhitespaceSplit\"},"),
         {"x x", {0, 3, 0, 1, 1}, 5}},
    };

    for (int i = 0; i < ROWS(rows); i++) {
        struct tokenizer tokenizer;

        IS_OK(tokenizer_read_text(&tokenizer, rows[i].json,
                                  strlen(rows[i].json), "t"));
        encodes_row(&tokenizer, &rows[i].encoded);
        tokenizer_free(&tokenizer);
    }
}

TEST(wrong_files_are_refused_by_name)
{
    static const struct { const char *bytes; size_t length; const char *words; }
    rows[] = {
        {"hello", 5, "neither a tokenizer.json"},
        {"IQ== 0x\n", 8, "line 1: the rank is not"},
        {"IQ== 0\nIg== x\n", 14, "line 2: the rank is not"},
        {"IQ== x\n", 7, "a tokenizer is a tokenizer.json"},
        {"IQ==\n Ig== 1\n", 13, "line 1 is not a token"},
        {"I!== 0\n", 7, "neither a tokenizer.json"},
        {"IQ== 0\nI!== 1\n", 14, "is not base64"},
        {"version: 1\n", 11, "neither a tokenizer.json"},
        {"IQ== 0\n", 7, "1 ranks with an unknown pattern"},
        {"\n\x03\n\x01" "a", 5, "no piece is of the type UNKNOWN"},
        {"\n\x03\n\x09" "a", 5, "ends in the middle of a field"},
        {"\n\x05\n\x01" "a\x18\x09", 7, "piece 0 has type 9"},
        {"\n\x05\n\x01" "a\x20\x09", 7, "piece 0 has a field 4"},
        {"\n\x03\n\x01" "a\x32\x00", 7, "has a field 6"},
        {"\n\x03\n\x01" "a\x12\x02\x18\x03", 9, "model_type 3"},
    };

    for (int i = 0; i < ROWS(rows); i++) {
        struct tokenizer tokenizer;

        FAILS(tokenizer_read_text(&tokenizer, rows[i].bytes, rows[i].length,
                                  "t"),
              ERR_FORMAT, rows[i].words);
        status_clear();
        tokenizer_free(&tokenizer);
    }
}

/* Whole texts are one word here, and must not cost a heap of their own. */
TEST(a_whole_text_is_merged_in_pieces)
{
    static const struct { const char *kind; bool cuts; } rows[] = {
        {"llama2", true}, {"gemma", true}, {"unknown_whole", true},
        {"fused", true}, {"ignore", false}};

    for (int i = 0; i < ROWS(rows); i++) {
        struct tokenizer tokenizer;

        read_kind(&tokenizer, rows[i].kind);
        EQUAL_INT(tokenizer.cuts.bits != NULL, rows[i].cuts);
        tokenizer_free(&tokenizer);
    }
}

static const struct json *read_ties(struct arena *arena, const char *name)
{
    const struct json *root;

    arena_init(arena, "ties", 0);
    IS_OK(json_read_file(&root, arena, TIES "expected.json", 1 << 20));
    return json_get(root, name);
}

/* Among tokens with one normal form a special one is found, then the first. */
TEST(of_added_tokens_that_look_alike_the_first_is_found)
{
    struct arena arena;
    const struct json *root = read_ties(&arena, "doubled");
    const struct json *file = json_get(root, "tokenizer");
    const struct json *texts = json_get(root, "texts");
    struct tokenizer tokenizer;

    IS_OK(tokenizer_read_text(&tokenizer, file->string,
                              (size_t)file->string_length, "doubled"));
    CHECK(texts->count > 0);
    for (int i = 0; i < texts->count; i++) {
        const struct json *text = &texts->items[i];
        struct token_list list = {0};

        IS_OK(tokenizer_encode(&tokenizer, text->string,
                               (size_t)text->string_length, true, &list));
        CHECK(same_ids(&list, &json_get(root, "ids")->items[i]));
        token_list_free(&list);
    }
    tokenizer_free(&tokenizer);
    arena_free(&arena);
}

/* Scores of a user's pieces, and sums that are counted anew. */
TEST(near_ties_of_unigram_fall_as_in_sentencepiece)
{
    struct arena arena;
    const struct json *rows = read_ties(&arena, "unigram");
    struct tokenizer tokenizer;

    IS_OK(tokenizer_read(&tokenizer, TIES "unigram.model"));
    EQUAL_INT(rows->count, 16);
    for (int i = 0; i < rows->count; i++) {
        const struct json *row = &rows->items[i];
        const struct json *rest = json_get(row, "rest");
        struct token_list list = {0};
        struct text text = {0};

        for (int64_t j = 0; j < json_get(row, "lead")->integer; j++)
            IS_OK(text_append(&text, "\xE2\x98\x83", 3)); /* U+2603 */
        IS_OK(text_append(&text, rest->string, (size_t)rest->string_length));
        IS_OK(tokenizer_encode(&tokenizer, text.bytes, text.length, true,
                               &list));
        if (!same_ids(&list, json_get(row, "ids")))
            print_error("row %d: \"%s\"\n", i, rest->string);
        CHECK(same_ids(&list, json_get(row, "ids")));
        token_list_free(&list);
        text_free(&text);
    }
    tokenizer_free(&tokenizer);
    arena_free(&arena);
}

TEST_MAIN(ids_and_text_are_those_of_the_library,
          ids_of_other_files_are_those_of_their_libraries,
          decoding_gives_the_text_back, a_model_that_is_cut_short_is_refused,
          a_model_is_told_by_its_first_piece,
          what_is_first_is_told_by_where_it_came_from,
          wrong_files_are_refused_by_name,
          of_added_tokens_that_look_alike_the_first_is_found,
          near_ties_of_unigram_fall_as_in_sentencepiece,
          a_whole_text_is_merged_in_pieces)
