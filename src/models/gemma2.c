/* SPDX-License-Identifier: Apache-2.0 */
/* gemma2.c - Gemma 2: Gemma with norms before and after, soft caps of scores
 * and logits, and a window in every second block.
 * Source: Gemma team 2024, arXiv:2408.00118, section 2. */
#include "models/config.h"

static const struct decoder decoder = {
    DECODER_LLAMA, .norms.plus_one = true, .scaled_embedding = true,
    .ffn.gelu = true, .attention.norm = OUTSIDE_WEIGHT("input_layernorm"),
    .attention.after = OUTSIDE_WEIGHT("post_attention_layernorm"),
    .ffn.norm = OUTSIDE_WEIGHT("pre_feedforward_layernorm"),
    .ffn.after = OUTSIDE_WEIGHT("post_feedforward_layernorm")};

static const struct config_row rows[] = {
    ROWS_SIZES(1e-6), ROWS_ROPE,
    ROW_ONLY("hidden_act", "gelu_pytorch_tanh|gelu"),
    ROW_ONLY("hidden_activation", "gelu_pytorch_tanh"),
    ROW_INTEGER("num_key_value_heads", kv_heads, 4),
    ROW_INTEGER("head_dim", head_width, 256),
    ROW_INTEGER("max_position_embeddings", context, 8192),
    ROW_REAL("query_pre_attn_scalar", scaled.queries, 256),
    ROW_REAL("attn_logit_softcapping", softcap.attention, 50),
    ROW_REAL("final_logit_softcapping", softcap.head, 30),
    ROW_FLAG("tie_word_embeddings", tied, true),
    ROW_FLAG("attention_bias", biases.attention, false),
    ROW_IDLE("sliding_window"), ROW_IDLE("layer_types"),
    ROW_IDLE("sliding_window_size"),
    ROW_ONLY("use_bidirectional_attention", "false"),
};

static status read_more(struct model *model, const struct json *config,
                        const char *source)
{
    TRY(config_read_window(model, config, source, 4096));
    return config_read_types(model, config, source);
}

const struct model_kind model_gemma2 = {
    .name = "gemma2", .architecture = "Gemma2ForCausalLM",
    .layer_prefix = "model.layers.%d.", .decoder = &decoder,
    CONFIG_ROWS(rows), .biases.no_mlp = true, .tied = true, .window.may = true,
    .window.layers = true, .window.skip = 2, .scaled.queries = true,
    .softcap.attention = 50, .softcap.head = 30, .build = decoder_build,
    .read_more = read_more, .write_more = config_write_types};
