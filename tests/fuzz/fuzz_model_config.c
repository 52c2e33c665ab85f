/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_model_config.c - can a model directory from a stranger hurt us? The
 * input is a config.json, then a zero byte and a model.safetensors.index.json,
 * to stand beside two shards of a tensor each. */
#include <stdio.h>
#include <string.h>
#include "checkpoint/weights.h"
#include "models/model.h"
#include "tests/fuzz/scratch.h"
#include "tests/fuzz/grammar.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { LAYERS_BUILT = 64, SHARDS = 2 };

/* a.safetensors with tensor a, b.safetensors with b: two numbers each. */
static void put_shard(char letter)
{
    char image[128] = {0}, name[] = "x.safetensors";
    const int length = snprintf(image + 8, sizeof image - 16,
                                "{\"%c\":{\"dtype\":\"F32\",\"shape\":[2],"
                                "\"data_offsets\":[0,8]}}", letter);

    image[0] = (char)length;
    name[0] = letter;
    scratch_put(name, image, 16 + (size_t)length);
}

static void make_once(void)
{
    if (!scratch_make()) return;
    put_shard('a');
    put_shard('b');
}

/* An accepted model is the same when it is written and read again. */
static void again(const struct model *model)
{
    struct text first = {0}, second = {0};
    struct model other = {0};

    CHECK(model_write_config(model, DTYPE_F32, &first) == OK);
    scratch_put("config.json", first.bytes, first.length);
    CHECK(model_from_config(&other, scratch) == OK);
    CHECK(model_write_config(&other, DTYPE_F32, &second) == OK);
    CHECK(first.length == second.length &&
          memcmp(first.bytes, second.bytes, first.length) == 0);
    text_free(&first);
    text_free(&second);
}

static void try_config(void)
{
    struct model model = {0};
    struct program whole;

    if (model_from_config(&model, scratch) == OK) {
        CHECK(model.kind != NULL && model.layers > 0 && model.width > 0 &&
              model.vocab > 0 && model.heads > 0 && model.kv_heads > 0);
        again(&model);
        if (model.layers <= LAYERS_BUILT &&
            model_build_whole(&whole, &model) == OK) {
            CHECK(whole.params.count > 0);
            program_free(&whole);
        }
    }
    status_clear();
}

static void try_index(void)
{
    struct weights weights;

    if (weights_open(&weights, scratch) == OK) {
        CHECK(weights.file_count > 0 && weights.file_count <= SHARDS);
        CHECK(weights.count == weights.file_count);
        for (int i = 0; i < weights.count; i++)
            CHECK(weights_find(&weights, weights.entries[i].tensor->name) ==
                  i);
    }
    status_clear();
    weights_close(&weights);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const uint8_t *end = size > 0 ? memchr(data, 0, size) : NULL;
    const size_t length = end != NULL ? (size_t)(end - data) : size;

    make_once();
    scratch_put("config.json", data, length);
    scratch_put("model.safetensors.index.json", end != NULL ? end + 1 : data,
        end != NULL ? size - length - 1 : 0);
    try_config();
    try_index();
    CHECK(arena_bytes_out() == 0);
    return 0;
}

/* ---- the mutator ---- */

static const char *const words[] = {
    "model_type", "llama", "gpt2", "gemma3", "falcon", "qwen3_moe", "mixtral",
    "deepseek_v3", "hidden_size", "n_embd", "num_hidden_layers", "n_layer",
    "num_attention_heads", "num_key_value_heads", "head_dim", "vocab_size",
    "intermediate_size", "rope_scaling", "rope_type", "type", "factor", "yarn",
    "llama3", "linear", "longrope", "short_factor", "long_factor",
    "original_max_position_embeddings", "max_position_embeddings",
    "rope_theta", "sliding_window", "layer_types", "sliding_attention",
    "full_attention", "tie_word_embeddings", "hidden_act", "silu", "gelu_new",
    "num_local_experts", "num_experts_per_tok", "partial_rotary_factor",
    "torch_dtype", "quantization_config", "architectures", "auto_map",
    "weight_map", "metadata", "total_size", "a.safetensors", "b.safetensors",
    "a", "b", NULL};
static const struct grammar grammar = {json_grammar_read, json_grammar_write,
                                       words};

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t room,
                               unsigned seed)
{
    mutate_seed(seed);
    return mutate_two((const struct grammar *const[]){&grammar, &grammar}, data,
                      size, room, false);
}
