/* SPDX-License-Identifier: Apache-2.0 */
/* mixtral.c - Mixtral: a Mistral whose feed-forward parts are eight experts, of
 * which each token has two.
 * Source: Jiang et al. 2024, arXiv:2401.04088, section 2. */
#include "models/config.h"

static const struct decoder decoder = {
    DECODER_LLAMA, .attention.norm = OUTSIDE_WEIGHT("input_layernorm"),
    .ffn.norm = OUTSIDE_WEIGHT("post_attention_layernorm"),
    .moe.router = OUTSIDE_WEIGHT("block_sparse_moe.gate"),
    .moe.gate = OUTSIDE_WEIGHT("block_sparse_moe.experts.%d.w1"),
    .moe.up = OUTSIDE_WEIGHT("block_sparse_moe.experts.%d.w3"),
    .moe.down = OUTSIDE_WEIGHT("block_sparse_moe.experts.%d.w2")};

static const struct config_row rows[] = {
    ROWS_MIXTURE(1e-5), ROWS_ROPE,
    ROW_INTEGER("num_key_value_heads", kv_heads, 8),
    ROW_INTEGER("head_dim", head_width, 0),
    ROW_INTEGER("max_position_embeddings", context, 131072),
    ROW_FLAG("tie_word_embeddings", tied, false), ROW_IDLE("sliding_window"),
    ROW_INTEGER("num_local_experts", moe.experts, 8),
    ROW_INTEGER("num_experts_per_tok", moe.top_k, 2), ROWS_ROUTER,
    ROW_ALSO("router_jitter_noise", "0"),
};

static status read_more(struct model *model, const struct json *config,
                        const char *source)
{
    model->moe.width = model->feed_forward;
    model->moe.normalize = true;
    return config_read_window(model, config, source, 0);
}

const struct model_kind model_mixtral = {
    .name = "mixtral", .architecture = "MixtralForCausalLM",
    .layer_prefix = "model.layers.%d.", .decoder = &decoder,
    CONFIG_ROWS(rows), .biases.no_attention = true, .biases.no_mlp = true,
    .window.may = true, .rope.base = 1000000, .moe.experts = 8, .moe.top_k = 2,
    .moe.normalize = true, .build = decoder_build, .read_more = read_more,
    .write_more = config_write_window};
