/* SPDX-License-Identifier: Apache-2.0 */
/* gpt2.c - GPT-2: learned positions, LayerNorm, GELU, biases, tied head.
 * Source: Radford et al. 2019, "Language models are unsupervised multitask
 * learners", section 2.3. Its four projections are stored transposed. */
#include "models/config.h"

static const struct decoder decoder = {
    .norms.layernorm = true, .transposed = true,
    .embedding = "transformer.wte.weight",
    .positions = "transformer.wpe.weight", .head = "lm_head.weight",
    .attention.norm = OUTSIDE("ln_1"), .attention.qkv = OUTSIDE("attn.c_attn"),
    .attention.out = OUTSIDE("attn.c_proj"), .ffn.norm = OUTSIDE("ln_2"),
    .ffn.up = OUTSIDE("mlp.c_fc"), .ffn.down = OUTSIDE("mlp.c_proj"),
    .norm = OUTSIDE("transformer.ln_f")};

static const struct config_row rows[] = {
    ROW_INTEGER("vocab_size", vocab, -1),
    ROW_INTEGER("n_positions", context, 1024),
    ROW_INTEGER("n_embd", width, -1), ROW_INTEGER("n_layer", layers, -1),
    ROW_INTEGER("n_head", heads, -1), ROW_INTEGER("n_inner", feed_forward, 0),
    ROW_ACTIVATION("activation_function", ACTIVATION_GELU_TANH),
    ROW_REAL("layer_norm_epsilon", norm_epsilon, 1e-5),
    ROW_REAL("initializer_range", init_std, 0.02), ROW_DROPOUT("attn_pdrop"),
    ROW_DROPOUT("embd_pdrop"), ROW_DROPOUT("resid_pdrop"),
    ROW_FLAG("tie_word_embeddings", tied, true),
    ROW_ONLY("scale_attn_weights", "true"),
    ROW_FLAG("scale_attn_by_inverse_layer_idx", scaled.layers, false),
    ROW_IDLE("reorder_and_upcast_attn"), /* the same scores */
    ROW_IDLE("n_ctx"),
    ROW_IDLE("summary_type"),
    ROW_IDLE("summary_use_proj"), ROW_IDLE("summary_activation"),
    ROW_IDLE("summary_proj_to_labels"), ROW_IDLE("summary_first_dropout"),
};

const struct model_kind model_gpt2 = {
    .name = "gpt2", .architecture = "GPT2LMHeadModel",
    .layer_prefix = "transformer.h.%d.", .decoder = &decoder,
    CONFIG_ROWS(rows), .biases.attention = true, .biases.mlp = true,
    .tied = true, .heads = HEADS_ALIKE, .scaled.layers = true,
    .activation = ACTIVATION_GELU_TANH, .build = decoder_build};
