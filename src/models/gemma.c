/* SPDX-License-Identifier: Apache-2.0 */
/* gemma.c - Gemma: a Llama with GELU in its gate, embeddings times the root of
 * the width, and norms whose weights are stored less 1.
 * Source: Gemma team 2024, arXiv:2403.08295, section 2. */
#include "models/config.h"

static const struct decoder decoder = {
    DECODER_LLAMA, .norms.plus_one = true, .scaled_embedding = true,
    .ffn.gelu = true, .attention.norm = OUTSIDE_WEIGHT("input_layernorm"),
    .ffn.norm = OUTSIDE_WEIGHT("post_attention_layernorm")};

static const struct config_row rows[] = {
    ROWS_SIZES(1e-6), ROWS_ROPE, /* the first files say gelu and mean tanh */
    ROW_ONLY("hidden_act", "gelu_pytorch_tanh|gelu"),
    ROW_ONLY("hidden_activation", "gelu_pytorch_tanh"),
    ROW_INTEGER("num_key_value_heads", kv_heads, 16),
    ROW_INTEGER("head_dim", head_width, 256),
    ROW_INTEGER("max_position_embeddings", context, 8192),
    ROW_FLAG("tie_word_embeddings", tied, true),
    ROW_FLAG("attention_bias", biases.attention, false),
    ROW_ONLY("use_bidirectional_attention", "false"),
};

const struct model_kind model_gemma = {
    .name = "gemma", .architecture = "GemmaForCausalLM",
    .layer_prefix = "model.layers.%d.", .decoder = &decoder,
    CONFIG_ROWS(rows), .biases.no_mlp = true, .tied = true,
    .build = decoder_build};
