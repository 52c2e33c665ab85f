/* SPDX-License-Identifier: Apache-2.0 */
/* test_chat.c - mirrors src/corpus/chat.c: the text of each template, and what
 * of it is learned ({...} here). */
#include "corpus/chat.h"

#include "tests/test.h"

/* Learned parts in braces. */
static status render(const char *name, const char *json, struct text *out)
{
    const struct chat_template *chat;
    struct chat_text text = {0};
    const struct json *root;
    struct arena arena;
    size_t at = 0;
    status result;

    *out = (struct text){0};
    arena_init(&arena, "test", 0);
    IS_OK(json_read(&root, &arena, json, strlen(json), "test"));
    IS_OK(chat_find(name, &chat));
    result = chat_render(&text, chat, root, "line 1");
    for (int i = 0; result == OK && i < text.segment_count; i++) {
        const struct corpus_segment *s = &text.segments[i];

        IS_OK(text_printf(out, s->learned ? "{%.*s}" : "%.*s", (int)s->length,
                          text.text.bytes + at));
        at += s->length;
    }
    if (result == OK) EQUAL_INT(at, text.text.length);
    chat_text_free(&text);
    arena_free(&arena);
    return result;
}

#define TALK "{\"role\":\"user\",\"content\":\" Hi \"}," \
             "{\"role\":\"assistant\",\"content\":\"Ho\\n\"}"
#define SYSTEM "{\"role\":\"system\",\"content\":\"Be\"},"

TEST(templates_are_those_of_the_families)
{
    static const struct { const char *name, *json, *text; } rows[] = {
        {"chatml", "[" SYSTEM TALK "]",
         "<|im_start|>system\nBe<|im_end|>\n<|im_start|>user\n Hi <|im_end|>\n"
         "<|im_start|>assistant\n{Ho\n<|im_end|>}\n"},
        {"llama3", "[" SYSTEM TALK "]",
         "<|begin_of_text|><|start_header_id|>system<|end_header_id|>\n\nBe"
         "<|eot_id|><|start_header_id|>user<|end_header_id|>\n\nHi<|eot_id|>"
         "<|start_header_id|>assistant<|end_header_id|>\n\n{Ho<|eot_id|>}"},
        {"gemma", "[" TALK "]",
         "<bos><start_of_turn>user\nHi<end_of_turn>\n<start_of_turn>model\n"
         "{Ho<end_of_turn>}\n"},
        {"phi3", "[" TALK "," TALK "]",
         "<|user|>\n Hi <|end|>\n<|assistant|>\n{Ho\n<|end|>}\n"
         "<|user|>\n Hi <|end|>\n<|assistant|>\n{Ho\n<|end|>}\n"},
        {"plain", "[" TALK "]", "user: Hi\nassistant: {Ho\n}"},
        {"zephyr", "[{\"from\":\"human\",\"value\":\"a\"},"
                   "{\"from\":\"gpt\",\"value\":\"\"}]",
         "<|user|>\na</s>\n<|assistant|>\n{</s>}\n"},
        {"chatml", "[{\"role\":\"assistant\",\"content\":\"a\",\"weight\":0},"
                   "{\"role\":\"assistant\",\"content\":\"b\"}]",
         "<|im_start|>assistant\na<|im_end|>\n"
         "<|im_start|>assistant\n{b<|im_end|>}\n"},
        /* U+3000, U+00A0, \v and U+001F are spaces of Jinja's trim, U+200B is
         * none. */
        {"gemma", "[{\"role\":\"user\",\"content\":"
                  "\"\\u3000\\u000bHi \\u00a0\"},"
                  "{\"role\":\"assistant\",\"content\":"
                  "\"\\u001fHo\\u200b\\u2028\\f\"}]",
         "<bos><start_of_turn>user\nHi<end_of_turn>\n<start_of_turn>model\n"
         "{Ho\xe2\x80\x8b<end_of_turn>}\n"},
        {"llama3", "[{\"role\":\"user\",\"content\":\"\\u3000 \"}]",
         "<|begin_of_text|><|start_header_id|>user<|end_header_id|>\n\n"
         "<|eot_id|>"},
    };

    for (int i = 0; i < ROWS(rows); i++) {
        struct text out;

        IS_OK(render(rows[i].name, rows[i].json, &out));
        EQUAL_TEXT(out.bytes, rows[i].text);
        text_free(&out);
    }
}

TEST(what_is_no_conversation_is_refused)
{
    static const struct { const char *name, *json, *words; } rows[] = {
        {"chatml", "[]", "not a list of messages"},
        {"chatml", "[{\"content\":\"a\"}]", "no \"role\""},
        {"chatml", "[{\"role\":\"user\"}]", "no \"content\""},
        {"chatml", "[{\"role\":\"asistant\",\"content\":\"\"}]",
         "nearest: assistant"},
        {"gemma", "[" SYSTEM TALK "]", "no place for one"},
    };

    for (int i = 0; i < ROWS(rows); i++) {
        struct text out;

        FAILS(render(rows[i].name, rows[i].json, &out), ERR_FORMAT,
              rows[i].words);
        status_clear();
        text_free(&out);
    }
}

TEST(templates_need_their_tokens)
{
    const struct chat_template *chat;
    struct tokenizer tokenizer;

    FAILS(chat_find("none", &chat), ERR_CONFIG, "there are chatml, llama3");
    status_clear();
    IS_OK(chat_find("gemma", &chat));
    IS_OK(tokenizer_read(&tokenizer, "tests/golden/tokenizer/llama3.json"));
    FAILS(chat_check(chat, &tokenizer), ERR_CONFIG, "has no token <bos>");
    tokenizer_free(&tokenizer);
}

/* Text without a beginning of its own gets the tokenizer's. */
TEST(pairs_and_plain_conversations_are_headed)
{
    static const struct { const char *name; bool headed; } rows[] = {
        {"plain", true}, {"chatml", false}, {"llama3", false}};
    struct chat_text out = {0};
    const struct json *messages;
    struct arena arena;

    arena_init(&arena, "test", 0);
    IS_OK(json_read(&messages, &arena, "[" TALK "]", strlen("[" TALK "]"),
                    "test"));
    for (int i = 0; i < ROWS(rows); i++) {
        const struct chat_template *chat;

        IS_OK(chat_find(rows[i].name, &chat));
        IS_OK(chat_render(&out, chat, messages, "line 1"));
        CHECK(out.headed == rows[i].headed);
    }
    IS_OK(chat_pair(&out, json_get(&messages->items[0], "content"),
                    json_get(&messages->items[1], "content")));
    CHECK(out.headed);
    chat_text_free(&out);
    arena_free(&arena);
}

TEST_MAIN(templates_are_those_of_the_families,
          what_is_no_conversation_is_refused, templates_need_their_tokens,
          pairs_and_plain_conversations_are_headed)
