/* SPDX-License-Identifier: Apache-2.0 */
/* test_companions.c - mirrors src/inference/companions.c. */
#include "inference/companions.h"

#include "tests/test.h"

static char room[] = "/tmp/test_companions_XXXXXX";

static void put(const char *name, const char *bytes)
{
    char path[PATH_BYTES];

    IS_OK(path_join(path, sizeof path, room, name));
    IS_OK(file_write_atomic(path, bytes, strlen(bytes)));
}

static void has(const char *name, const char *bytes)
{
    char path[PATH_BYTES];
    struct text text = {0};

    IS_OK(path_join(path, sizeof path, room, name));
    EQUAL_INT(file_exists(path), bytes != NULL);
    if (bytes == NULL) return;
    IS_OK(file_read(path, 1000, &text));
    EQUAL_TEXT(text.bytes, bytes);
    text_free(&text);
    unlink(path);
}

/* Guards the memory of a file that was lost where another one followed. */
TEST(several_files_are_copied_one_after_the_other)
{
    char tokenizer[PATH_BYTES], run[PATH_BYTES];

    CHECK(mkdtemp(room) != NULL);
    put("tokenizer_config.json", "{\"pad_token\": \"x\"}");
    put("special_tokens_map.json", "no JSON");
    put("added_tokens.json", "{\"more\": 1}");
    put("chat_template.jinja", "{{ messages }}");
    IS_OK(path_join(tokenizer, sizeof tokenizer, room, "tokenizer.json"));
    IS_OK(path_join(run, sizeof run, room, "run"));
    CHECK(mkdir(run, 0700) == 0);
    IS_OK(companions_copy(tokenizer, run));
    has("run/tokenizer_config.json", "{\"pad_token\": \"x\"}");
    has("run/special_tokens_map.json", NULL);
    has("run/added_tokens.json", "{\"more\": 1}");
    has("run/chat_template.jinja", "{{ messages }}");
    has("run/generation_config.json", NULL);
    for (int i = 0; companion_names[i] != NULL; i++) {
        char path[PATH_BYTES];

        IS_OK(path_join(path, sizeof path, room, companion_names[i]));
        unlink(path);
    }
    CHECK(rmdir(run) == 0 && rmdir(room) == 0);
}

TEST_MAIN(several_files_are_copied_one_after_the_other)
