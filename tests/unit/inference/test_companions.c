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
    IS_OK(companions_copy(tokenizer, run, 64));
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

/* Guards a tokenizer that cut at the context that its model had before. */
TEST(the_longest_text_follows_the_context)
{
    static const struct { const char *config, *before, *after; } rows[] = {
        {"{\"max_position_embeddings\": 32}",
         "{\"a\": {\"model_max_length\": 32}, "
         "\"b\": \"\\\"model_max_length\\\"\", \"model_max_length\" : 32}",
         "{\"a\": {\"model_max_length\": 32}, "
         "\"b\": \"\\\"model_max_length\\\"\", \"model_max_length\" : 64}"},
        {"{\"n_positions\": 32}", "{\"model_max_length\":32,\"x\":1}",
         "{\"model_max_length\":64,\"x\":1}"},
        {"{\"n_positions\": 32}", "{\"model_max_length\":320}", NULL},
        {"{\"n_positions\": 32}", "{\"model_max_length\":32.5}", NULL},
        {"{\"n_positions\": 32}", "{\"model_max_length\":1e30}", NULL},
        {"{\"n_positions\": 32}", "{\"x\": [\"model_max_length\", 32]}", NULL},
        {"[]", "{\"model_max_length\":32}", NULL},
        {"no JSON", "{\"model_max_length\":32}", NULL},
        {NULL, "{\"model_max_length\":32}", NULL},
    };
    char tokenizer[PATH_BYTES], run[PATH_BYTES], config[PATH_BYTES];

    strcpy(room + strlen(room) - 6, "XXXXXX");
    CHECK(mkdtemp(room) != NULL);
    IS_OK(path_join(tokenizer, sizeof tokenizer, room, "tokenizer.json"));
    IS_OK(path_join(config, sizeof config, room, "config.json"));
    IS_OK(path_join(run, sizeof run, room, "run"));
    CHECK(mkdir(run, 0700) == 0);
    for (int i = 0; i < ROWS(rows); i++) {
        if (rows[i].config != NULL) put("config.json", rows[i].config);
        put("tokenizer_config.json", rows[i].before);
        IS_OK(companions_copy(tokenizer, run, 64));
        has("run/tokenizer_config.json",
            rows[i].after != NULL ? rows[i].after : rows[i].before);
        unlink(config);
    }
    put("tokenizer_config.json", "");
    has("tokenizer_config.json", "");
    CHECK(rmdir(run) == 0 && rmdir(room) == 0);
}

TEST_MAIN(several_files_are_copied_one_after_the_other,
          the_longest_text_follows_the_context)
