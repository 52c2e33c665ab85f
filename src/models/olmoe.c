/* SPDX-License-Identifier: Apache-2.0 */
/* olmoe.c - OLMoE: 64 small experts, of which each token has eight, and norms
 * of all queries, all keys together.
 * Source: Muennighoff et al. 2024, arXiv:2409.02060, section 2. */
#include "models/config.h"

static const struct decoder decoder = {
    DECODER_LLAMA, DECODER_QWEN_MIXTURE,
    .attention_norm = OUTSIDE_WEIGHT("input_layernorm"),
    .ffn_norm = OUTSIDE_WEIGHT("post_attention_layernorm"),
    .q_norm = OUTSIDE_WEIGHT("self_attn.q_norm"),
    .k_norm = OUTSIDE_WEIGHT("self_attn.k_norm"), .whole_norm = true};

static const struct config_row rows[] = {
    ROWS_MIXTURE(1e-5), ROWS_ROPE,
    ROW_INTEGER("num_key_value_heads", kv_heads, 0),
    ROW_INTEGER("max_position_embeddings", context, 4096),
    ROW_FLAG("tie_word_embeddings", tied, false),
    ROW_FLAG("attention_bias", attention_bias, false), ROW_HEAD_WIDTH,
    ROW_ONLY("clip_qkv", "null"),
    ROW_INTEGER("num_experts", moe.experts, 64),
    ROW_INTEGER("num_experts_per_tok", moe.top_k, 8),
    ROW_FLAG("norm_topk_prob", moe.normalize, false), ROWS_ROUTER,
};

static status read_more(struct model *model, const struct json *config,
                        const char *source)
{
    (void)config, (void)source;
    model->moe.width = model->feed_forward;
    return OK;
}

const struct model_kind model_olmoe = {
    .name = "olmoe", .architecture = "OlmoeForCausalLM",
    .layer_prefix = "model.layers.%d.", .decoder = &decoder,
    CONFIG_ROWS(rows), .no_mlp_bias = true, .heads = HEADS_FILL_WIDTH,
    .experts = 64, .top_k = 8, .normalize_choice = true,
    .build = decoder_build, .read_more = read_more};
