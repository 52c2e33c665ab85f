/* SPDX-License-Identifier: Apache-2.0 */
/* palm.c - PaLM: attention and feed-forward side by side after one LayerNorm,
 * one key-value head for all queries, SwiGLU, no biases at all.
 * Source: Chowdhery et al. 2022, arXiv:2204.02311, section 2. No library has a
 * class for it: names and fields are those of a Llama. */
#include "models/config.h"

static const struct decoder decoder = {
    DECODER_LLAMA, .norms.layernorm = true,
    .attention.norm = OUTSIDE_WEIGHT("input_layernorm")};

static const struct config_row rows[] = {
    ROW_INTEGER("vocab_size", vocab, -1),
    ROW_INTEGER("hidden_size", width, -1),
    ROW_INTEGER("intermediate_size", feed_forward, 0),
    ROW_INTEGER("num_hidden_layers", layers, -1),
    ROW_INTEGER("num_attention_heads", heads, -1),
    ROW_INTEGER("num_key_value_heads", kv_heads, 1),
    ROW_INTEGER("head_dim", head_width, 0),
    ROW_INTEGER("max_position_embeddings", context, 2048),
    ROW_REAL("layer_norm_eps", norm_epsilon, 1e-5),
    ROW_REAL("initializer_range", init_std, 0.02),
    ROW_FLAG("tie_word_embeddings", tied, true), ROWS_ROPE,
    ROW_ONLY("hidden_act", "silu"),
};

const struct model_kind model_palm = {
    .name = "palm", .architecture = "PaLMForCausalLM",
    .layer_prefix = "model.layers.%d.", .decoder = &decoder,
    CONFIG_ROWS(rows), .biases.no_attention = true, .biases.no_mlp = true,
    .kv_heads = 1, .beside.always = true, .build = decoder_build};
