/* SPDX-License-Identifier: Apache-2.0 */
/* olmo2.c - OLMo 2: norms of what attention and feed-forward add, not of what
 * they read, and of all queries, all keys together.
 * Source: OLMo team 2024, arXiv:2501.00656, section 3.1. */
#include "models/config.h"

static const struct decoder decoder = {
    DECODER_LLAMA, .attention.q_norm = OUTSIDE_WEIGHT("self_attn.q_norm"),
    .attention.k_norm = OUTSIDE_WEIGHT("self_attn.k_norm"), .norms.whole = true,
    .attention.after = OUTSIDE_WEIGHT("post_attention_layernorm"),
    .ffn.after = OUTSIDE_WEIGHT("post_feedforward_layernorm")};

static const struct config_row rows[] = {
    ROWS_LLAMA(1e-5), ROWS_ROPE,
    ROW_INTEGER("num_key_value_heads", kv_heads, 0),
    ROW_INTEGER("max_position_embeddings", context, 2048),
    ROW_FLAG("tie_word_embeddings", tied, false),
    ROW_FLAG("attention_bias", biases.attention, false), ROW_HEAD_WIDTH,
};

const struct model_kind model_olmo2 = {
    .name = "olmo2", .architecture = "Olmo2ForCausalLM",
    .layer_prefix = "model.layers.%d.", .decoder = &decoder,
    CONFIG_ROWS(rows), .biases.no_mlp = true, .heads = HEADS_FILL_WIDTH,
    .moe.made = &model_flex_olmo, .build = decoder_build};
