/* SPDX-License-Identifier: Apache-2.0 */
/* qwen3.c - Qwen3: a Llama whose queries and keys are normed, head by head.
 * Source: Yang et al. 2025, arXiv:2505.09388, section 2. */
#include "models/config.h"

static const struct decoder decoder = {
    DECODER_LLAMA, .attention.norm = OUTSIDE_WEIGHT("input_layernorm"),
    .attention.q_norm = OUTSIDE_WEIGHT("self_attn.q_norm"),
    .attention.k_norm = OUTSIDE_WEIGHT("self_attn.k_norm"),
    .ffn.norm = OUTSIDE_WEIGHT("post_attention_layernorm")};

static const struct config_row rows[] = {
    ROWS_LLAMA(1e-6), ROWS_ROPE,
    ROW_INTEGER("num_key_value_heads", kv_heads, 32),
    ROW_INTEGER("head_dim", head_width, 128),
    ROW_INTEGER("max_position_embeddings", context, 32768),
    ROW_FLAG("tie_word_embeddings", tied, false),
    ROW_FLAG("attention_bias", biases.attention, false),
    ROW_IDLE("use_sliding_window"), ROW_IDLE("sliding_window"),
    ROW_IDLE("max_window_layers"), ROW_IDLE("layer_types"),
};

const struct model_kind model_qwen3 = {
    .name = "qwen3", .architecture = "Qwen3ForCausalLM",
    .layer_prefix = "model.layers.%d.", .decoder = &decoder,
    CONFIG_ROWS(rows), .biases.no_mlp = true, .window.may = true,
    .window.layers = true, .moe.made = &model_qwen3_moe,
    .build = decoder_build,
    .read_more = config_read_last, .write_more = config_write_last};
