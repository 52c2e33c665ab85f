/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_chat.c - can a record of a conversation hurt us? The first byte of the
 * input chooses the template, the rest is the list of messages as JSON. */
#include "base/arena.h"
#include "corpus/chat.h"
#include "tests/fuzz/grammar.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const names[] = {"chatml", "llama3", "gemma", "phi3",
                                        "zephyr", "plain"};
    const struct chat_template *chat;
    struct chat_text text = {0};
    const struct json *root;
    struct arena arena;
    size_t length = 0;

    if (size < 2) return 0;
    arena_init(&arena, "fuzz", (size_t)1 << 28);
    CHECK(chat_find(names[data[0] % 6], &chat) == OK);
    if (json_read(&root, &arena, (const char *)data + 1, size - 1,
                  "fuzz") == OK &&
        chat_render(&text, chat, root, "fuzz") == OK) {
        for (int i = 0; i < text.segment_count; i++) {
            CHECK(text.segments[i].length > 0);
            length += text.segments[i].length;
        }
        CHECK(length == text.text.length);
    }
    status_clear();
    chat_text_free(&text);
    arena_free(&arena);
    CHECK(arena_bytes_out() == 0);
    return 0;
}

/* ---- the mutator ---- */

static const char *const words[] = {
    "role", "content", "from", "value", "system", "user", "assistant", "human",
    "gpt", "weight", "tool", "<|im_end|>", "<|im_start|>", NULL};
static const struct grammar grammar = {json_grammar_read, json_grammar_write,
                                       words};

/* The first byte, which chooses the template, changes now and then. */
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t room,
                               unsigned seed)
{
    mutate_seed(seed);
    if (size > 0 && draw(8) == 0) data[0] = (uint8_t)draw(6);
    return mutate_from(&grammar, data, size, room, 1);
}
