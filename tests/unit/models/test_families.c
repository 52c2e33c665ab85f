/* SPDX-License-Identifier: Apache-2.0 */
/* test_families.c - what the relatives of Llama read, and refuse by name. */
#include "base/file.h"
#include "base/text.h"
#include "models/model.h"
#include "tests/test.h"

/* The golden model's config.json, with `from` changed to `into`. */
static status changed(struct model *model, const char *name, const char *from,
                      const char *into)
{
    char directory[PATH_BYTES], path[PATH_BYTES];
    struct text old = {0}, new = {0};

    test_directory(directory);
    snprintf(path, sizeof path, "tests/golden/models/%s/config.json", name);
    IS_OK(file_read(path, 1 << 20, &old));
    const char *at = strstr(old.bytes, from);

    CHECK(at != NULL);
    IS_OK(text_append(&new, old.bytes, (size_t)(at - old.bytes)));
    IS_OK(text_append_string(&new, into));
    IS_OK(text_append_string(&new, at + strlen(from)));
    IS_OK(path_join(path, PATH_BYTES, directory, "config.json"));
    IS_OK(file_write_atomic(path, new.bytes, new.length));
    const status result = model_from_config(model, directory);

    text_free(&old);
    text_free(&new);
    IS_OK(directory_remove(directory));
    return result;
}

TEST(what_is_not_computed_is_refused)
{
    static const struct { const char *name, *from, *into, *words; } rows[] = {
        {"qwen2", "\"use_sliding_window\": false",
         "\"use_sliding_window\": true", "sliding_window: layers from 1 on"},
        {"qwen2_yarn", "full_attention", "sliding_attention",
         "layer_types: layer 0 is not full_attention"},
        {"qwen2", "\"use_mrope\": false", "\"use_mrope\": true", "use_mrope"},
        {"qwen2", "\"silu\"", "\"gelu\"", "hidden_act has a value"},
        {"qwen2", "\"eos_token_id\": 4", "\"eos_token_id\": \"x\"",
         "eos_token_id is neither"},
        {"qwen2", "\"vocab_size\"", "\"attention_bias\": false, \"vocab_size\"",
         "attention_bias"},
        {"mistral", "\"vocab_size\"", "\"mlp_bias\": true, \"vocab_size\"",
         "mlp_bias"},
        {"mistral", "\"sliding_window\": null", "\"sliding_window\": 0",
         "sliding_window: 0 is outside"},
        {"gemma2", "sliding_attention", "full_attention",
         "layer_types: layer 2 is out of step"},
        {"gemma3", "\"rope_local_base_freq\": 5000.0",
         "\"rope_local_base_freq\": 0", "rope_local_base_freq: 0 is outside"},
        {"gemma3", "\"final_logit_softcapping\": null",
         "\"final_logit_softcapping\": 30.0",
         "final_logit_softcapping has a value"},
        {"gemma3_v5", "\"sliding_attention\": {",
         "\"chunked_attention\": {", "nothing is known"},
        {"gemma3_v5", "\"rope_type\": \"default\"\n    },",
         "\"rope_type\": \"linear\", \"factor\": 2\n    },",
         "takes only rope_type default"},
        {"gpt_neox", "\"vocab_size\"",
         "\"attention_bias\": false, \"vocab_size\"",
         "attention_bias has a value"},
        {"falcon_groups", "\"num_kv_heads\": 2", "\"num_kv_heads\": 1",
         "new_decoder_architecture: this build takes"},
        {"falcon", "\"alibi\": false", "\"alibi\": true",
         "alibi has a value"},
        {"smollm3", "\"no_rope_layers\": [\n    1,\n    0",
         "\"no_rope_layers\": [\n    0,\n    1", "layer 1 is out of step"},
        {"phi3", "\"rope_scaling\": null",
         "\"rope_scaling\": {\"type\": \"longrope\"}", "longrope is not"},
        {"stablelm", "\"qk_layernorm\": false", "\"qk_layernorm\": true",
         "qk_layernorm has a value"},
        {"mistral", "\"mistral\"", "\"mixtral\"", "nearest: mistral"},
        {"mistral", "\"vocab_size\"", "\"num_experts\": 2, \"vocab_size\"",
         "num_experts"},
        {"smollm2", "\"rope_interleaved\": false",
         "\"rope_interleaved\": true", "rope_interleaved"},
    };
    struct model model;

    for (int i = 0; i < ROWS(rows); i++) {
        FAILS(changed(&model, rows[i].name, rows[i].from, rows[i].into),
              ERR_CONFIG, rows[i].words);
        status_clear();
    }
}

TEST(windows_are_read)
{
    struct model model;

    IS_OK(changed(&model, "mistral", "\"rms", "\"rms"));
    EQUAL_INT(model.window, 0);
    IS_OK(changed(&model, "mistral_window", "\"rms", "\"rms"));
    EQUAL_INT(model.window, 37);
    IS_OK(changed(&model, "mistral", "\"sliding_window\": null,", ""));
    EQUAL_INT(model.window, 4096); /* what the library takes for it */
    IS_OK(changed(&model, "qwen2", "\"max_window_layers\": 1",
                  "\"max_window_layers\": 2"));
    EQUAL_INT(model.window, 0);
    IS_OK(changed(&model, "gemma2", "\"rms", "\"rms"));
    EQUAL_INT(model.window_skip, 2);
    IS_OK(changed(&model, "gemma3", "\"layer_types\"", "\"license\""));
    EQUAL_INT(model.window_skip, 3); /* of sliding_window_pattern */
    IS_OK(changed(&model, "gemma3_v5", "\"rms", "\"rms"));
    EQUAL_INT(model.window_skip, 3);
    assert_true(model.rope_base == 5e5 && model.rope_local_base == 1e4);
}

TEST(options_know_the_families)
{
    static const struct { const char *name, *value, *words; } rows[] = {
        {"model.attention_bias", "true", "model.attention_bias: mistral has"},
        {"model.mlp_bias", "true", "model.mlp_bias: mistral has none"},
        {"model.activation", "relu", "the gate of mistral takes only silu"},
        {"model.window_skip", "2", "model.window_skip: mistral has none"},
        {"model.head_softcap", "3", "model.head_softcap: mistral has none"},
        {"model.family", "mistrel", "nearest: mistral"},
    };

    for (int i = 0; i < ROWS(rows); i++) {
        struct options_set set = {0};
        struct model model;
        char line[128];

        IS_OK(options_init(&set));
        IS_OK(options_assign(&set, "model.family=mistral", ORIGIN_FILE));
        IS_OK(options_assign(&set, "data.sequence=128", ORIGIN_FILE));
        IS_OK(options_assign(&set, "model.window=128", ORIGIN_FILE));
        IS_OK(options_assign(&set, "model.context=256", ORIGIN_FILE));
        IS_OK(model_from_options(&model, &set.values, 100));
        snprintf(line, sizeof line, "%s=%s", rows[i].name, rows[i].value);
        IS_OK(options_assign(&set, line, ORIGIN_FILE));
        FAILS(model_from_options(&model, &set.values, 100), ERR_CONFIG,
              rows[i].words);
        status_clear();
        IS_OK(options_assign(&set, "model.family=qwen2", ORIGIN_FILE));
        FAILS(model_from_options(&model, &set.values, 100), ERR_CONFIG,
              "");
        status_clear();
        options_free(&set);
    }
}

TEST_MAIN(what_is_not_computed_is_refused, windows_are_read,
          options_know_the_families)
