/* SPDX-License-Identifier: Apache-2.0 */
/* starcoder2.c - StarCoder2: LayerNorm, GELU without a gate, biases, grouped
 * queries, a window.
 * Source: Lozhkov et al. 2024, arXiv:2402.19173, section 6. */
#include "models/config.h"

static const struct decoder decoder = {
    .norms.layernorm = true,
    .embedding = "model.embed_tokens.weight", .head = "lm_head.weight",
    .attention.norm = OUTSIDE("input_layernorm"),
    .attention.q = OUTSIDE("self_attn.q_proj"),
    .attention.k = OUTSIDE("self_attn.k_proj"),
    .attention.v = OUTSIDE("self_attn.v_proj"),
    .attention.out = OUTSIDE("self_attn.o_proj"),
    .ffn.norm = OUTSIDE("post_attention_layernorm"),
    .ffn.up = OUTSIDE("mlp.c_fc"), .ffn.down = OUTSIDE("mlp.c_proj"),
    .norm = OUTSIDE("model.norm")};

static const struct config_row rows[] = {
    ROW_INTEGER("vocab_size", vocab, -1),
    ROW_INTEGER("hidden_size", width, -1),
    ROW_INTEGER("intermediate_size", feed_forward, -1),
    ROW_INTEGER("num_hidden_layers", layers, -1),
    ROW_INTEGER("num_attention_heads", heads, -1),
    ROW_INTEGER("num_key_value_heads", kv_heads, 2),
    ROW_INTEGER("max_position_embeddings", context, 4096),
    ROW_ACTIVATION("hidden_act", ACTIVATION_GELU_TANH),
    ROW_REAL("norm_epsilon", norm_epsilon, 1e-5),
    ROW_REAL("initializer_range", init_std, 0.018042),
    ROW_FLAG("tie_word_embeddings", tied, true), ROWS_ROPE,
    ROW_DROPOUT("attention_dropout"), ROW_DROPOUT("residual_dropout"),
    ROW_DROPOUT("embedding_dropout"), ROW_ONLY("use_bias", "true"),
    ROW_IDLE("sliding_window"), ROW_ONLY("mlp_type", "default"),
    ROW_ONLY("norm_type", "layer_norm"), ROW_HEAD_WIDTH,
    /* StarCoder had these fields, and StarCoder2 still writes them; no library
     * reads them. */
    ROW_IDLE("activation_function"), ROW_IDLE("layer_norm_epsilon"),
    ROW_IDLE("attention_softmax_in_fp32"),
    ROW_IDLE("scale_attention_softmax_in_fp32"),
    ROW_ALSO("scale_attn_weights", "true"),
};

static status read_window(struct model *model, const struct json *config,
                          const char *source)
{
    return config_read_window(model, config, source, 0);
}

const struct model_kind model_starcoder2 = {
    .name = "starcoder2", .architecture = "Starcoder2ForCausalLM",
    .layer_prefix = "model.layers.%d.", .decoder = &decoder,
    CONFIG_ROWS(rows), .biases.attention = true, .biases.mlp = true,
    .window.may = true, .heads = HEADS_FILL_WIDTH,
    .activation = ACTIVATION_GELU_TANH, .build = decoder_build,
    .read_more = read_window, .write_more = config_write_window};
