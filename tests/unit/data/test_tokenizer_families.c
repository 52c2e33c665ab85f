/* SPDX-License-Identifier: Apache-2.0 */
/* test_tokenizer_families.c - mirrors src/data/tokenizer*.c for tokenizers
 * that are not byte-level: ids and text of their own libraries on nasty texts
 * (tests/golden/tokenizer_families.py). */
#include "data/tokenizer.h"

#include "base/json.h"
#include "tests/test.h"

#define GOLDEN "tests/golden/tokenizer/families/"

static const char *const kinds[] = {
    "llama2", "llama2_added", "mistral", "mistral_split", "gemma", "phi3",
    "never", "ignore", "unknown", "unknown_whole", "fused", "dropped",
    "punctuation", "delimiter", "split_string", "unigram", "unigram_whole",
    "unigram_bytes"
};

static void read_kind(struct tokenizer *tokenizer, const char *kind)
{
    char path[PATH_BYTES];

    snprintf(path, sizeof path, GOLDEN "%s.json", kind);
    IS_OK(tokenizer_read(tokenizer, path));
}

static bool same_ids(const struct token_list *list, const struct json *ids)
{
    if (ids == NULL || list->count != ids->count) return false;
    for (int64_t i = 0; i < list->count; i++)
        if (list->ids[i] != ids->items[i].integer) return false;
    return true;
}

/* The ids of a text and the text of the ids, at once and one by one. */
static void check_text(const struct tokenizer *tokenizer, const char *kind,
                       const struct json *text, const struct json *ids,
                       const struct json *decoded)
{
    struct token_stream stream = {.tokenizer = tokenizer};
    struct token_list list = {0};
    struct text whole = {0}, streamed = {0};
    const size_t length = (size_t)text->string_length;

    IS_OK(tokenizer_encode(tokenizer, text->string, length, true, &list));
    if (!same_ids(&list, ids))
        print_error("%s: ids of \"%s\"\n", kind, text->string);
    CHECK(same_ids(&list, ids));
    list.count = 0;
    IS_OK(tokenizer_encode(tokenizer, text->string, length, false, &list));
    IS_OK(tokenizer_decode(tokenizer, list.ids, list.count, &whole));
    if (whole.length != (size_t)decoded->string_length ||
        memcmp(whole.bytes, decoded->string, whole.length) != 0)
        print_error("%s: \"%s\" decodes to\n\"%s\", not\n\"%s\"\n", kind,
                    text->string, whole.bytes, decoded->string);
    EQUAL_INT(whole.length, decoded->string_length);
    EQUAL_BYTES(whole.bytes, decoded->string, whole.length);
    IS_OK(text_append(&streamed, "", 0));
    for (int64_t i = 0; i < list.count; i++)
        IS_OK(token_stream_next(&stream, list.ids[i], &streamed));
    IS_OK(token_stream_end(&stream, &streamed));
    EQUAL_INT(streamed.length, whole.length);
    EQUAL_BYTES(streamed.bytes, whole.bytes, whole.length);
    token_list_free(&list);
    text_free(&whole);
    text_free(&streamed);
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

/* Whole texts are one word here, and must not cost a heap of their own. */
TEST(a_whole_text_is_merged_in_pieces)
{
    static const struct { const char *kind; bool cuts; } rows[] = {
        {"llama2", true}, {"gemma", true}, {"unknown_whole", true},
        {"fused", false}, {"ignore", false}};

    for (int i = 0; i < ROWS(rows); i++) {
        struct tokenizer tokenizer;

        read_kind(&tokenizer, rows[i].kind);
        EQUAL_INT(tokenizer.cuts.bits != NULL, rows[i].cuts);
        tokenizer_free(&tokenizer);
    }
}

TEST_MAIN(ids_and_text_are_those_of_the_library,
          a_whole_text_is_merged_in_pieces)
