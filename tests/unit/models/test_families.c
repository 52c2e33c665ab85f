/* SPDX-License-Identifier: Apache-2.0 */
/* test_families.c - the fields that the relatives of Llama read, and refuse
 * by name. */
#include "base/file.h"
#include "base/text.h"
#include "models/config.h"
#include "tests/test.h"

static status read_config(struct model *model, const char *text)
{
    char directory[PATH_BYTES], path[PATH_BYTES];

    test_directory(directory);
    IS_OK(path_join(path, PATH_BYTES, directory, "config.json"));
    IS_OK(file_write_atomic(path, text, strlen(text)));
    const status result = model_from_config(model, directory);

    IS_OK(directory_remove(directory));
    return result;
}

/* The golden model's config.json, with `from` changed to `into`. */
static status changed(struct model *model, const char *name, const char *from,
                      const char *into)
{
    char path[PATH_BYTES];
    struct text old = {0}, new = {0};

    snprintf(path, sizeof path, "tests/golden/models/%s/config.json", name);
    IS_OK(file_read(path, 1 << 20, &old));
    const char *at = strstr(old.bytes, from);

    CHECK(at != NULL);
    IS_OK(text_append(&new, old.bytes, (size_t)(at - old.bytes)));
    IS_OK(text_append_string(&new, into));
    IS_OK(text_append_string(&new, at + strlen(from)));
    const status result = read_config(model, new.bytes);

    text_free(&old);
    text_free(&new);
    return result;
}

TEST(what_is_not_computed_is_refused)
{
    static const struct { const char *name, *from, *into, *words; } rows[] = {
        {"mistral", "\"vocab_size\"",
         "\"quantization_config\": {\"bits\": 4}, \"vocab_size\"",
         "the weights are quantized; this build takes"},
        {"mistral", "\"vocab_size\"", "\"text_config\": {}, \"vocab_size\"",
         "mistral is a model of text and something else"},
        {"gemma3", "\"model_type\": \"gemma3_text\"",
         "\"model_type\": \"gemma3\", \"text_config\": 3",
         "unknown fields, which could change the result"},
        {"gemma", "\"gelu_pytorch_tanh\"", "\"gelu_\"",
         "hidden_act: gelu_ is not supported; supported is only"},
        {"smollm2", "\"vocab_size\"",
         "\"activation\": \"swigl\", \"vocab_size\"",
         "activation: swigl is not supported"},
        {"qwen2", "\"use_mrope\": false", "\"use_mrope\": true", "use_mrope"},
        {"qwen2", "\"silu\"", "\"gelu\"",
         "hidden_act: gelu is not supported"},
        {"qwen2", "\"vocab_size\"", "\"attention_bias\": false, \"vocab_size\"",
         "attention_bias"},
        {"mistral", "\"vocab_size\"", "\"mlp_bias\": true, \"vocab_size\"",
         "mlp_bias"},
        {"mistral", "\"sliding_window\": null", "\"sliding_window\": 0",
         "sliding_window: 0 is outside"},
        {"gemma3", "\"rope_local_base_freq\": 5000.0",
         "\"rope_local_base_freq\": 0", "rope_local_base_freq: 0 is outside"},
        {"gemma3", "\"final_logit_softcapping\": null",
         "\"final_logit_softcapping\": 30.0",
         "final_logit_softcapping: 30 is not supported"},
        {"gemma3_v5", "\"sliding_attention\": {",
         "\"chunked_attention\": {", "expected only full_attention"},
        {"gemma3_v5", "\"rope_type\": \"default\"\n    },",
         "\"rope_type\": \"linear\", \"factor\": 2\n    },",
         "takes only rope_type default"},
        {"gpt_neox", "\"vocab_size\"",
         "\"attention_bias\": false, \"vocab_size\"",
         "attention_bias: false is not supported"},
        {"falcon_2", "\"parallel_attn\": true", "\"parallel_attn\": false",
         "parallel_attn is false; with new_decoder_architecture"},
        {"falcon_2", "\"num_ln_in_parallel_attn\": 1",
         "\"num_ln_in_parallel_attn\": 3", "num_ln_in_parallel_attn: 3;"},
        {"falcon", "\"bias\": false",
         "\"bias\": false, \"num_ln_in_parallel_attn\": 2",
         "num_ln_in_parallel_attn: 2;"},
        {"smollm3", "\"no_rope_layers\": [\n    1,\n    0",
         "\"no_rope_layers\": [\n    1,\n    2", "layer 1 must be 0"},
        {"smollm3", "\"no_rope_layers\": [\n    1,",
         "\"no_rope_layers\": [", "no_rope_layers is not an array of 5"},
        {"phi3", "\"rope_scaling\": null",
         "\"rope_scaling\": {\"type\": \"longrope\"}",
         "short_factor has 0 factors"},
        {"llama_dynamic", "\"head_dim\": 14", "\"head_dim\": 2",
         "at least 4 rotary elements"},
        {"mistral", "\"mistral\"", "\"mixtrl\"", "nearest: mixtral"},
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

/* Guards values that transformers heeds and that were passed over. */
TEST(fields_are_not_passed_over_that_another_library_heeds)
{
    static const struct { const char *from, *into, *words; } rows[] = {
        {"\"vocab_size\"", "\"head_dim\": 2, \"vocab_size\"",
         "head_dim: 2, but qk_rope_head_dim is"},
        {"\"norm_topk_prob\": true", "\"norm_topk_prob\": null",
         "null counts as false; expected true or false"},
        {"\"vocab_size\"", "\"rope_interleave\": null, \"vocab_size\"",
         "rope_interleave: null counts as false; expected true"},
    };
    struct model model;

    for (int i = 0; i < ROWS(rows); i++) {
        FAILS(changed(&model, "deepseek_v3", rows[i].from, rows[i].into),
              ERR_CONFIG, rows[i].words);
        status_clear();
    }
    FAILS(changed(&model, "glm4_moe", "\"partial_rotary_factor\": 0.5",
                  "\"partial_rotary_factor\": null"), ERR_CONFIG,
          "which part of a head turns");
}

/* Guards a Llama that was refused because it says what all its layers do. */
TEST(layer_types_may_say_what_all_layers_do)
{
    static const char full[] = "\"full_attention\"",
                      sliding[] = "\"sliding_attention\"";
    static const struct {
        const char *name, *all, *last, *words; /* NULL: it is read */
    } rows[] = {
        {"llama_linear", full, full, NULL},
        {"gpt2", full, full, NULL},
        {"deepseek_v3", full, full, NULL},
        {"llama_linear", full, sliding, "is sliding_attention; every layer"},
        {"llama_linear", full, "3", "is no word; every layer of this llama"},
        {"llama_linear", full, "", "is not an array of"},
        {"phi3", sliding, sliding, NULL},
        {"phi3", full, full, "layer 0 is full_attention; every layer of this "
                             "phi3 is sliding_attention"},
    };
    struct model model;
    char into[1024];

    for (int i = 0; i < ROWS(rows); i++) {
        const char *key = strcmp(rows[i].name, "gpt2") == 0
                              ? "\"n_embd\"" : "\"vocab_size\"";

        IS_OK(changed(&model, rows[i].name, key, key));
        snprintf(into, sizeof into, "\"layer_types\": [");
        for (int j = 1; j < model.layers; j++)
            snprintf(into + strlen(into), sizeof into - strlen(into), "%s%s",
                     j > 1 ? ", " : "", rows[i].all);
        snprintf(into + strlen(into), sizeof into - strlen(into), "%s%s], %s",
                 rows[i].last[0] != 0 && model.layers > 1 ? ", " : "",
                 rows[i].last, key);
        const status result = changed(&model, rows[i].name, key, into);

        if (rows[i].words == NULL) IS_OK(result);
        else FAILS(result, ERR_CONFIG, rows[i].words);
        status_clear();
    }
}

TEST(odd_ends_of_a_text_are_refused)
{
    static const struct {
        const char *into, *words;
    } rows[] = {
        {"\"x\"", "eos_token_id is neither"},
        {"[4, null]", "eos_token_id: item 2 is not"},
        {"[0, 1, 2, 3, 4, 5, 6, 7, 8, 9]", "more than 9 ids"},
    };
    struct model model;
    char into[80];

    for (int i = 0; i < ROWS(rows); i++) {
        snprintf(into, sizeof into, "\"eos_token_id\": %s", rows[i].into);
        FAILS(changed(&model, "qwen2", "\"eos_token_id\": 4", into),
              ERR_CONFIG, rows[i].words);
        status_clear();
    }
}

/* Guards imports of real models: a SmolLM2 with the first two was refused. */
TEST(fields_that_change_no_result_are_passed_over)
{
    static const char *const fields[] = {
        "\"_model_name_or_path\": \"x\", \"unk_token_id\": 0",
        "\"_anything\": {\"a\": [1]}, \"image_token_ids\": null",
        "\"generation_config\": {}, \"min_p\": 0.1, \"train_batch_size\": 8"};
    struct model model;

    for (int i = 0; i < ROWS(fields); i++) {
        char into[256];

        snprintf(into, sizeof into, "%s, \"vocab_size\"", fields[i]);
        IS_OK(changed(&model, "smollm2", "\"vocab_size\"", into));
        snprintf(into, sizeof into, "%s, \"router_bias\": 1, \"vocab_size\"",
                 fields[i]);
        FAILS(changed(&model, "smollm2", "\"vocab_size\"", into), ERR_CONFIG,
              "which could change the result: router_bias");
        status_clear();
    }
}

TEST(blocks_and_turns_that_cannot_be_are_refused)
{
    static const struct { const char *name, *from, *into, *words; } rows[] = {
        {"gpt_neox", "\"vocab_size\"", "\"rope_theta\": 500, \"vocab_size\"",
         "rope_theta: 500, but the base of a gpt_neox"},
        {"gpt_neox", "\"vocab_size\"",
         "\"partial_rotary_factor\": 1.0, \"vocab_size\"",
         "its rotary_pct, 0.25"},
        {"qwen2_yarn", "full_attention", "sliding_attention",
         "layer 0 is sliding_attention, but the size of the window is"},
        {"qwen3_mixed", "\"sliding_window\": 6", "\"sliding_window\": null",
         "layer 0 is sliding_attention, but the size of the window is"},
        {"qwen3_mixed", "\"use_sliding_window\": true",
         "\"use_sliding_window\": false", "but the size of the window is"},
        {"qwen3_mixed", "full_attention", "chunked_attention",
         "layer 1 is chunked_attention; qwen3 has full_attention and sliding"},
        {"qwen3_mixed", "\"full_attention\",", "", "an array of 4 words"},
        {"qwen2_last", "\"max_window_layers\": 1",
         "\"max_window_layers\": -1", "max_window_layers: -1 is below 0"},
        {"ministral", "\"ministral\"", "\"mistral\"",
         "mistral has a window in all"},
        {"qwen2", "\"num_hidden_layers\": 2",
         "\"num_hidden_layers\": 10001", "10001 layers; this build has"},
    };
    struct model model;

    for (int i = 0; i < ROWS(rows); i++) {
        FAILS(changed(&model, rows[i].name, rows[i].from, rows[i].into),
              ERR_CONFIG, rows[i].words);
        status_clear();
    }
}

/* Fields of published files, and the fields that are written for them. */
TEST(what_changes_nothing_is_read)
{
    static const struct { const char *name, *from, *into, *written; } rows[] = {
        {"smollm2", "\"pretraining_tp\": 1",
         "\"pretraining_tp\": 2, \"max_sequence_length\": 64, "
         "\"activation\": \"swiglu\"", "\"hidden_act\": \"silu\""},
        {"smollm3", "\"pretraining_tp\": 1", "\"pretraining_tp\": 2",
         "\"smollm3\""},
        {"gemma", "\"gelu_pytorch_tanh\"", "\"gelu\"",
         "\"hidden_act\": \"gelu_pytorch_tanh\""},
        {"gpt_neox", "\"hidden_act\": \"gelu\"",
         "\"hidden_act\": \"gelu_fast\", \"hidden_dropout_prob\": 0, "
         "\"attention_probs_dropout_prob\": 0, \"custom_pipelines\": {}",
         "\"hidden_act\": \"gelu_new\""},
        {"falcon_groups", "\"vocab_size\"", "\"ff_factor\": 4, \"vocab_size\"",
         "\"hidden_dropout\": 0.0,"},
        {"gpt2", "\"reorder_and_upcast_attn\": false",
         "\"reorder_and_upcast_attn\": true",
         "\"scale_attn_by_inverse_layer_idx\": false,"},
        {"gpt2_layer_scale", "\"vocab_size\"", "\"vocab_size\"",
         "\"scale_attn_by_inverse_layer_idx\": true,"},
        {"falcon_groups", "\"num_kv_heads\": 2", "\"num_kv_heads\": 1",
         "\"num_ln_in_parallel_attn\": 2"},
        {"falcon_2", "\"vocab_size\"", "\"vocab_size\"",
         "\"new_decoder_architecture\": true,\n  \"multi_query\": false,\n"
         "  \"num_ln_in_parallel_attn\": 1"},
        {"falcon_rw", "\"vocab_size\"", "\"vocab_size\"",
         "\"bias\": true,\n  \"alibi\": true,\n  \"parallel_attn\": false"},
        {"stablelm_heads", "\"vocab_size\"", "\"vocab_size\"",
         "\"qk_layernorm\": true"},
        {"gpt_neox_serial", "\"vocab_size\"",
         "\"rope_theta\": 5000, \"partial_rotary_factor\": 1, \"vocab_size\"",
         "\"rotary_emb_base\": 5000.0,\n  \"rotary_pct\": 1.0"},
        /* Python tells numbers with a point from others. */
        {"gemma2", "\"final_logit_softcapping\": 1.5",
         "\"final_logit_softcapping\": 30",
         "\"final_logit_softcapping\": 30.0,"},
        {"gemma2", "\"query_pre_attn_scalar\": 7",
         "\"query_pre_attn_scalar\": 256", "\"query_pre_attn_scalar\": 256,"},
        {"mistral", "\"rope_theta\": 1000000.0", "\"rope_theta\": 10000",
         "\"rope_theta\": 10000.0,"},
    };

    for (int i = 0; i < ROWS(rows); i++) {
        struct model model;
        struct text text = {0};

        IS_OK(changed(&model, rows[i].name, rows[i].from, rows[i].into));
        IS_OK(model_write_config(&model, DTYPE_F32, &text));
        if (strstr(text.bytes, rows[i].written) == NULL)
            EQUAL_TEXT(text.bytes, rows[i].written);
        text_free(&text);
    }
}

/* A checkpoint's config.json says how positions turn, and is read again. */
TEST(every_family_reads_the_rotary_kinds_that_it_writes)
{
    static const char *const names[] = {
        "smollm2", "mistral", "ministral", "qwen2", "qwen3", "smollm3", "phi3",
        "olmo2", "stablelm", "starcoder2", "gpt_neox", "falcon", "gemma",
        "gemma2", "gemma3", "palm", "mixtral", "olmoe", "qwen2_moe",
        "qwen3_moe", "granitemoe", "glm4_moe", "gpt_oss", "llama4", "deepseek",
        "deepseek_v2", "deepseek_v3", "dots1", "glm4_moe_lite", "minimax_m2",
        "flex_olmo", "ernie4_5_moe", "granitemoeshared", "solar_open"};
    static const char *const kinds[] = {
        "linear factor=2.5", "dynamic factor=3",
        "llama3 factor=8 low_freq_factor=1 high_freq_factor=4",
        "yarn factor=4 original_max_position_embeddings=9",
        "longrope factor=2 original_max_position_embeddings=9"};

    for (int i = 0; i < ROWS(names) * ROWS(kinds); i++) {
        const char *const name = names[i / ROWS(kinds)];
        const bool is_long = i % ROWS(kinds) == ROWS(kinds) - 1;
        struct model model, again;
        struct text line = {0}, config = {0};

        IS_OK(changed(&model, name, "\"model_type\"", "\"model_type\""));
        const int turning =
            model.rope.rotary > 0 ? model.rope.rotary : model.head_width;

        if (turning < 4) continue; /* too few for dynamic */
        IS_OK(text_append_string(&line, kinds[i % ROWS(kinds)]));
        for (int j = 0; is_long && j < turning; j++)
            IS_OK(text_append_string(
                &line, j == 0                ? " short_factor=1"
                       : j == turning / 2    ? " long_factor=3"
                       : j < turning / 2     ? ",1.5"
                                             : ",4"));
        IS_OK(rope_from_text(&model, line.bytes));
        IS_OK(model_write_config(&model, DTYPE_F32, &config));
        IS_OK(read_config(&again, config.bytes));
        CHECK(rope_scaling_same(&model.rope.scaling, &again.rope.scaling));
        text_free(&line);
        text_free(&config);
    }
}

TEST(windows_are_read)
{
    struct model model;

    IS_OK(changed(&model, "mistral", "\"rms", "\"rms"));
    EQUAL_INT(model.window.tokens, 0);
    IS_OK(changed(&model, "mistral_window", "\"rms", "\"rms"));
    EQUAL_INT(model.window.tokens, 37);
    IS_OK(changed(&model, "mistral", "\"sliding_window\": null,", ""));
    EQUAL_INT(model.window.tokens, 4096); /* what the library takes for it */
    IS_OK(changed(&model, "qwen2", "\"max_window_layers\": 1",
                  "\"max_window_layers\": 2"));
    EQUAL_INT(model.window.tokens, 0);
    IS_OK(changed(&model, "gemma2", "\"rms", "\"rms"));
    EQUAL_INT(blocks_period(&model.window.whole, model.layers), 2);
    IS_OK(changed(&model, "gemma3", "\"layer_types\"", "\"license\""));
    EQUAL_INT(blocks_period(&model.window.whole, model.layers),
              3); /* its pattern */
    IS_OK(changed(&model, "gemma3_v5", "\"rms", "\"rms"));
    EQUAL_INT(blocks_period(&model.window.whole, model.layers), 3);
    assert_true(model.rope.base == 5e5 && model.rope.local_base == 1e4);
}

/* As text, the blocks without the window and those that do not turn. */
static void excepted(const struct model *model, char out[64])
{
    struct text text = {0};

    IS_OK(blocks_to_text(&model->window.whole, model->layers, &text));
    IS_OK(text_append_string(&text, "|"));
    IS_OK(blocks_to_text(&model->rope.still, model->layers, &text));
    snprintf(out, 64, "%lld:%s", (long long)model->window.tokens, text.bytes);
    text_free(&text);
}

TEST(blocks_with_windows_are_read)
{
    static const struct { const char *name, *from, *into, *found; } rows[] = {
        {"qwen2_last", "\"rms", "\"rms", "6:0|"},
        {"qwen2_last", "\"max_window_layers\": 1", "\"max_window_layers\": 0",
         "6:|"},
        {"qwen2_last", "\"max_window_layers\": 1,", "", "0:|"},
        {"qwen2_last", "\"sliding_window\": 6", "\"sliding_window\": null",
         "0:|"},
        {"qwen2_last", "\"sliding_window\": 6", "\"license\": 6", "4096:0|"},
        {"qwen3_mixed", "\"rms", "\"rms", "6:1|"},
        {"smollm3_mixed", "\"rms", "\"rms", "6:2-3|0,3"},
        {"smollm3_nope", "\"rms", "\"rms", "6:0,3|1-2"},
        {"smollm3_nope", "\"use_sliding_window\": true",
         "\"use_sliding_window\": false", "0:|1-2"},
        {"smollm3_nope", "\"no_rope_layers\"", "\"license\"", "6:0,2|1,3"},
        {"ministral", "\"rms", "\"rms", "6:1-2|"},
        {"ministral", "\"layer_types\"", "\"license\"", "6:|"},
        {"gemma3_mixed", "\"rms", "\"rms", "6:0,3|"},
    };

    for (int i = 0; i < ROWS(rows); i++) {
        struct model model;
        char found[64];

        IS_OK(changed(&model, rows[i].name, rows[i].from, rows[i].into));
        excepted(&model, found);
        EQUAL_TEXT(found, rows[i].found);
    }
}

/* Files of gemma have the number that scores are divided by, never 0. */
TEST(scores_have_the_width_of_a_head)
{
    struct options_set set = {0};
    struct model model;

    IS_OK(options_init(&set));
    IS_OK(options_assign(&set, "model.family=gemma3", ORIGIN_FILE));
    IS_OK(options_assign(&set, "model.head_width=24", ORIGIN_FILE));
    IS_OK(model_from_options(&model, &set.values, 100));
    CHECK(model.scaled.queries == 24);
    options_free(&set);
}

TEST(options_choose_blocks)
{
    static const struct { const char *lines[3], *found, *words; } rows[] = {
        {{"model.window=9", "model.window_except=1,3"}, "9:1,3|3", NULL},
        {{"model.window=9", "model.rope_except=0-2"}, "9:|0-2", NULL},
        {{"model.window=9", "model.window_skip=2", "model.rope_skip=0"},
         "9:1,3|", NULL},
        {{"model.window=9", "model.window_except=0-4"}, "0:|3", NULL},
        {{"model.window_except=1"}, NULL, "set model.window"},
        {{"model.window=9", "model.window_except=5"}, NULL, "from 0 to 4"},
        {{"model.tied=perhaps"}, NULL, "model.tied: perhaps is not true"},
        {{"model.rope_except=x"}, NULL, "model.rope_except: \"x\" is not a"},
        {{"model.rope_except=1", "model.rope_skip=2"}, NULL,
         "model.rope_skip selects blocks, too"},
        {{"model.family=qwen3", "model.rope_except=1"}, NULL,
         "model.rope_except: qwen3 has no such choice"},
        {{"model.family=qwen3", "model.qk_norm=true"}, NULL, /* always has it */
         "model.qk_norm: qwen3 has no such choice"},
        {{"model.family=phi3", "model.window=9", "model.window_except=1"},
         NULL, "model.window_except: phi3 has no such choice"},
    };

    for (int i = 0; i < ROWS(rows); i++) {
        struct options_set set = {0};
        struct model model;
        char found[64];

        IS_OK(options_init(&set));
        IS_OK(options_assign(&set, "model.family=smollm3", ORIGIN_FILE));
        IS_OK(options_assign(&set, "model.layers=5", ORIGIN_FILE));
        for (int j = 0; j < 3 && rows[i].lines[j] != NULL; j++)
            IS_OK(options_assign(&set, rows[i].lines[j], ORIGIN_FILE));
        const status result = model_from_options(&model, &set.values, 100);

        if (rows[i].words != NULL) {
            FAILS(result, ERR_CONFIG, rows[i].words);
        } else {
            IS_OK(result);
            excepted(&model, found);
            EQUAL_TEXT(found, rows[i].found);
        }
        status_clear();
        options_free(&set);
    }
}

/* A sequence longer than a config.json says: where it may be, and what helps
 * where it may not. */
TEST(a_longer_sequence_is_allowed_or_says_how)
{
    static const struct {
        const char *from, *sequence, *context, *words;
        int64_t found;
    } rows[] = {
        {"llama_dynamic_long", "37", "0", NULL, 20},
        {"llama_dynamic_long", "37", "37", "config.json of model.from has 20",
         0},
        {"falcon_rw", "4096", "0", NULL, 2048},
        {"llama_untied", "65", "0",
         "context of 64; raise model.context or shorten", 0},
        {"llama_untied", "65", "65", NULL, 65},
        {"llama_untied", "9", "32", "config.json of model.from has 64", 0},
        {"llama_yarn", "300", "512", NULL, 512},
        {"gpt2", "65", "0",
         "learned positions of model.from, 64; shorten the sequence", 0},
        {"gpt2", "65", "65", "config.json of model.from has 64", 0},
        {"gptj", "65", "65", NULL, 65},
    };

    for (int i = 0; i < ROWS(rows); i++) {
        struct options_set set = {0};
        struct model model;
        char line[PATH_BYTES];

        IS_OK(options_init(&set));
        snprintf(line, sizeof line, "model.from=tests/golden/models/%s",
                 rows[i].from);
        IS_OK(options_assign(&set, line, ORIGIN_FILE));
        snprintf(line, sizeof line, "data.sequence=%s", rows[i].sequence);
        IS_OK(options_assign(&set, line, ORIGIN_FILE));
        snprintf(line, sizeof line, "model.context=%s", rows[i].context);
        IS_OK(options_assign(&set, line, ORIGIN_FILE));
        const status result = model_from_options(&model, &set.values, 0);

        if (rows[i].words != NULL) {
            FAILS(result, ERR_CONFIG, rows[i].words);
        } else {
            IS_OK(result);
            EQUAL_INT(model.context, rows[i].found);
            EQUAL_INT(model.rope.scaling.kind == ROPE_YARN
                          ? model.rope.scaling.original : 64,
                      64); /* what it was made for stays */
        }
        status_clear();
        options_free(&set);
    }
}

TEST(options_know_the_families)
{
    static const struct { const char *name, *value, *words; } rows[] = {
        {"model.attention_bias", "true", "model.attention_bias: mistral has"},
        {"model.mlp_bias", "true", "mlp_bias: mistral has no such choice"},
        {"model.activation", "relu", "the gate of mistral takes only silu"},
        {"model.window_skip", "2", "skip: mistral has no such choice"},
        {"model.head_softcap", "3", "softcap: mistral has no such choice"},
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
        IS_OK(options_assign(&set, "model.family=llama", ORIGIN_FILE));
        FAILS(model_from_options(&model, &set.values, 100), ERR_CONFIG,
              "");
        status_clear();
        options_free(&set);
    }
}

/* Options beside model.from say what its files say; modules for later tokens
 * are the options' alone. */
TEST(choices_beside_files_are_those_of_the_files)
{
    static const struct {
        const char *from, *line, *words;
        int depth;
    } rows[] = {
        {"llama_untied", "model.rope_base=50", "model.rope_base: the conf", 0},
        {"llama_untied", "model.norm_epsilon=0.1", "model.norm_epsilon: t", 0},
        {"llama_untied", "model.tied=true", "model.tied: the config.json", 0},
        {"llama_untied", "model.tied=false", NULL, 0},
        {"llama_untied", "model.attention_bias=true", "attention_bias: th", 0},
        {"llama_untied", "model.mlp_bias=true", "model.mlp_bias: the conf", 0},
        {"llama_tied_bias", "model.mlp_bias=true", NULL, 0},
        {"llama_untied", "model.activation=relu", "model.activation: the", 0},
        {"llama_untied", "model.activation=silu", NULL, 0},
        {"llama_untied", "model.family=gpt2", "model.family: the config", 0},
        {"gpt2", "model.family=gpt2", NULL, 0},
        {"llama_untied", "model.parallel=1", "model.parallel: the config", 0},
        {"stablelm_parallel", "model.parallel=1", NULL, 0},
        {"gemma2", "model.head_softcap=0", "model.head_softcap: the conf", 0},
        {"gemma2", "model.query_scale=77", "model.query_scale: the config", 0},
        {"llama_untied", "mtp.depth=2", NULL, 2},
        {"deepseek_v3", "mtp.depth=1", NULL, 1},
        {"gpt2", "mtp.depth=1", "gpt2 can have no modules", 0},
    };

    for (int i = 0; i < ROWS(rows); i++) {
        struct options_set set = {0};
        struct model model;
        char line[PATH_BYTES];

        IS_OK(options_init(&set));
        snprintf(line, sizeof line, "model.from=tests/golden/models/%s",
                 rows[i].from);
        IS_OK(options_assign(&set, line, ORIGIN_FILE));
        IS_OK(options_assign(&set, "data.sequence=16", ORIGIN_FILE));
        IS_OK(options_assign(&set, rows[i].line, ORIGIN_FILE));
        const status result = model_from_options(&model, &set.values, 0);

        if (rows[i].words != NULL) {
            FAILS(result, ERR_CONFIG, rows[i].words);
        } else {
            IS_OK(result);
            EQUAL_INT(model.mtp_depth, rows[i].depth);
        }
        status_clear();
        options_free(&set);
    }
}

TEST_MAIN(fields_that_change_no_result_are_passed_over,
          what_is_not_computed_is_refused,
          fields_are_not_passed_over_that_another_library_heeds,
          layer_types_may_say_what_all_layers_do,
          odd_ends_of_a_text_are_refused,
          blocks_and_turns_that_cannot_be_are_refused,
          what_changes_nothing_is_read,
          every_family_reads_the_rotary_kinds_that_it_writes, windows_are_read,
          blocks_with_windows_are_read,
          scores_have_the_width_of_a_head, options_choose_blocks,
          a_longer_sequence_is_allowed_or_says_how,
          options_know_the_families,
          choices_beside_files_are_those_of_the_files)
