/* SPDX-License-Identifier: Apache-2.0 */
/* qwen2_moe.c - Qwen1.5 and Qwen2 with experts: some that are chosen, and one
 * of all tokens, which counts by a share of its own.
 * Source: Yang et al. 2024, arXiv:2407.10671, section 2.2.2. */
#include "models/config.h"

static const struct decoder decoder = {
    DECODER_LLAMA, DECODER_QWEN_MIXTURE,
    .moe.joined = "mlp.experts", .moe.joined_router = "mlp.gate",
    .attention.norm = OUTSIDE_WEIGHT("input_layernorm"),
    .ffn.norm = OUTSIDE_WEIGHT("post_attention_layernorm"),
    .shared.gate = OUTSIDE_WEIGHT("mlp.shared_expert.gate_proj"),
    .shared.up = OUTSIDE_WEIGHT("mlp.shared_expert.up_proj"),
    .shared.down = OUTSIDE_WEIGHT("mlp.shared_expert.down_proj"),
    .shared.share = OUTSIDE_WEIGHT("mlp.shared_expert_gate")};

static const struct config_row rows[] = {
    ROWS_MIXTURE(1e-6), ROWS_ROPE,
    ROW_INTEGER("num_key_value_heads", kv_heads, 16),
    ROW_INTEGER("max_position_embeddings", context, 32768),
    ROW_FLAG("tie_word_embeddings", tied, false),
    ROW_ONLY("qkv_bias", "true"), ROW_HEAD_WIDTH,
    ROW_ONLY("use_sliding_window", "false"), ROW_IDLE("sliding_window"),
    ROW_IDLE("max_window_layers"), ROW_IDLE("layer_types"),
    ROW_INTEGER("shared_expert_intermediate_size", moe.shared_width,
                5632),
    ROWS_QWEN_MIXTURE(60, 4, 1408),
};

static status read_more(struct model *model, const struct json *config,
                        const char *source)
{
    TRY(config_read_types(model, config, source));
    return config_read_dense(model, config, source);
}

const struct model_kind model_qwen2_moe = {
    .name = "qwen2_moe", .architecture = "Qwen2MoeForCausalLM",
    .layer_prefix = "model.layers.%d.", .decoder = &decoder,
    CONFIG_ROWS(rows), .biases.no_mlp = true, .biases.no_output = true,
    .biases.attention = true, .heads = HEADS_FILL_WIDTH, .moe.experts = 60,
    .moe.top_k = 4,
    .moe.normalize_choice = true, .moe.sizes = true, .moe.shared = true,
    .files.adapters_apart = true,
    .build = decoder_build, .read_more = read_more,
    .write_more = config_write_dense};
