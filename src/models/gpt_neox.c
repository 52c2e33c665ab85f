/* SPDX-License-Identifier: Apache-2.0 */
/* gpt_neox.c - GPT-NeoX and Pythia: attention and feed-forward side by side,
 * each with its LayerNorm; a quarter of each head turns; biases everywhere.
 * Source: Black et al. 2022, arXiv:2204.06745, section 2.1. In its files q, k
 * and v of a head follow each other. */
#include "models/config.h"

static const struct decoder decoder = {
    .norms.layernorm = true, .attention.by_group = true,
    .embedding = "gpt_neox.embed_in.weight", .head = "embed_out.weight",
    .attention.norm = OUTSIDE("input_layernorm"),
    .attention.qkv = OUTSIDE("attention.query_key_value"),
    .attention.out = OUTSIDE("attention.dense"),
    .ffn.norm = OUTSIDE("post_attention_layernorm"),
    .ffn.up = OUTSIDE("mlp.dense_h_to_4h"),
    .ffn.down = OUTSIDE("mlp.dense_4h_to_h"),
    .norm = OUTSIDE("gpt_neox.final_layer_norm")};

static const struct config_row rows[] = {
    ROW_INTEGER("vocab_size", vocab, -1),
    ROW_INTEGER("hidden_size", width, -1),
    ROW_INTEGER("intermediate_size", feed_forward, 24576),
    ROW_INTEGER("num_hidden_layers", layers, -1),
    ROW_INTEGER("num_attention_heads", heads, -1),
    ROW_INTEGER("max_position_embeddings", context, 2048),
    ROW_ACTIVATION("hidden_act", ACTIVATION_GELU_ERF),
    ROW_REAL("layer_norm_eps", norm_epsilon, 1e-5),
    ROW_REAL("initializer_range", init_std, 0.02),
    ROW_FLAG("tie_word_embeddings", tied, false),
    ROW_FLAG("use_parallel_residual", beside.on, true),
    ROW_DROPOUT("hidden_dropout"), ROW_DROPOUT("attention_dropout"),
    ROW_DROPOUT("hidden_dropout_prob"), /* GPT-NeoX-20B */
    ROW_DROPOUT("attention_probs_dropout_prob"),
    ROW_IDLE("classifier_dropout"), ROW_ONLY("attention_bias", "true"),
    ROWS_ROPE, ROW_ROPE("partial_rotary_factor"), ROW_ROPE("rotary_pct"),
    ROW_ROPE("rotary_emb_base"),
};

const struct model_kind model_gpt_neox = {
    .name = "gpt_neox", .architecture = "GPTNeoXForCausalLM",
    .layer_prefix = "gpt_neox.layers.%d.", .decoder = &decoder,
    CONFIG_ROWS(rows), .biases.attention = true, .biases.mlp = true,
    .heads = HEADS_ALIKE, .beside.always = true, .beside.choice = true,
    .rope.share = 0.25, .activation = ACTIVATION_GELU_ERF,
    .build = decoder_build};
