/* SPDX-License-Identifier: Apache-2.0 */
/* olmoe.c - OLMoE: 64 small experts, of which each token has eight, and norms
 * of all queries, all keys together; FlexOlmo: the same experts in the blocks
 * of OLMo 2, whose norms are behind each part. Sources: Muennighoff et al.
 * 2024, arXiv:2409.02060, section 2; Shi et al. 2025, arXiv:2507.07024,
 * section 3. */
#include "models/config.h"

#define PARTS \
    DECODER_LLAMA, DECODER_QWEN_MIXTURE, \
    .attention.q_norm = OUTSIDE_WEIGHT("self_attn.q_norm"), \
    .attention.k_norm = OUTSIDE_WEIGHT("self_attn.k_norm"), .norms.whole = true
static const struct decoder decoder = {
    PARTS, .attention.norm = OUTSIDE_WEIGHT("input_layernorm"),
    .ffn.norm = OUTSIDE_WEIGHT("post_attention_layernorm")};
static const struct decoder decoder_flex = {
    PARTS, .attention.after = OUTSIDE_WEIGHT("post_attention_layernorm"),
    .ffn.after = OUTSIDE_WEIGHT("post_feedforward_layernorm")};

#define ROWS(epsilon, experts_, top_k_) \
    ROWS_MIXTURE(epsilon), ROWS_ROPE, \
    ROW_INTEGER("num_key_value_heads", kv_heads, 0), \
    ROW_INTEGER("max_position_embeddings", context, 4096), \
    ROW_FLAG("tie_word_embeddings", tied, false), \
    ROW_FLAG("attention_bias", biases.attention, false), ROW_HEAD_WIDTH, \
    ROW_INTEGER("num_experts", moe.experts, experts_), \
    ROW_INTEGER("num_experts_per_tok", moe.top_k, top_k_), \
    ROW_FLAG("norm_topk_prob", moe.normalize, false), ROWS_ROUTER

static const struct config_row rows[] = {
    ROWS(1e-5, 64, 8), ROW_ONLY("clip_qkv", "null"),
};
static const struct config_row rows_flex[] = {ROWS(1e-6, 7, 5)};

static status read_more(struct model *model, const struct json *config,
                        const char *source)
{
    (void)config, (void)source;
    model->moe.width = model->feed_forward;
    return OK;
}

#define KIND \
    .layer_prefix = "model.layers.%d.", .biases.no_mlp = true, \
    .heads = HEADS_FILL_WIDTH, .moe.normalize_choice = true, \
    .build = decoder_build, .read_more = read_more

const struct model_kind model_olmoe = {
    .name = "olmoe", .architecture = "OlmoeForCausalLM", .decoder = &decoder,
    CONFIG_ROWS(rows), .moe.experts = 64, .moe.top_k = 8, KIND};

const struct model_kind model_flex_olmo = {
    .name = "flex_olmo", .architecture = "FlexOlmoForCausalLM",
    .decoder = &decoder_flex, CONFIG_ROWS(rows_flex), .rope.base = 500000,
    .moe.experts = 7, .moe.top_k = 5, KIND};
