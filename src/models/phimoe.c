/* SPDX-License-Identifier: Apache-2.0 */
/* phimoe.c - Phi-3.5-MoE: LayerNorms and biases of attention, experts whose
 * gates are softmaxes of the logits near each choice, a bias of the logits.
 * Sources: Abdin et al. 2024, arXiv:2404.14219, section 2; routing: Liu et al.
 * 2024 (GRIN), arXiv:2409.12136, section 2, without its sampling. */
#include "models/config.h"

#define PARTS \
    .norms.layernorm = true, .embedding = "model.embed_tokens.weight", \
    .head = "lm_head.weight", .attention.q = OUTSIDE("self_attn.q_proj"), \
    .attention.k = OUTSIDE("self_attn.k_proj"), \
    .attention.v = OUTSIDE("self_attn.v_proj"), \
    .attention.out = OUTSIDE("self_attn.o_proj"), \
    .norm = OUTSIDE("model.norm"), .ffn.gated = true, \
    .attention.norm = OUTSIDE("input_layernorm"), \
    .ffn.norm = OUTSIDE("post_attention_layernorm"), \
    .moe.router = OUTSIDE_WEIGHT("block_sparse_moe.gate"), \
    .moe.joined = "mlp.experts", .moe.joined_router = "mlp.router", \
    .moe.gate = OUTSIDE_WEIGHT("block_sparse_moe.experts.%d.w1"), \
    .moe.up = OUTSIDE_WEIGHT("block_sparse_moe.experts.%d.w3"), \
    .moe.down = OUTSIDE_WEIGHT("block_sparse_moe.experts.%d.w2")
static const struct decoder decoder = {PARTS};
static const struct decoder biased = {PARTS, .head_bias = "lm_head.bias"};

/* input_jitter_noise: a run has moe.jitter. */
static const struct config_row rows[] = {
    ROWS_MIXTURE(1e-5), ROWS_ROPE,
    ROW_INTEGER("num_key_value_heads", kv_heads, 8), ROW_HEAD_WIDTH,
    ROW_INTEGER("max_position_embeddings", context, 131072),
    ROW_FLAG("tie_word_embeddings", tied, false), ROW_IDLE("sliding_window"),
    ROW_FLAG("attention_bias", biases.attention, false),
    ROW_FLAG("lm_head_bias", biases.head, false),
    ROW_DROPOUT("hidden_dropout"),
    ROW_INTEGER("num_local_experts", moe.experts, 16),
    ROW_INTEGER("num_experts_per_tok", moe.top_k, 2),
    ROW_REAL("router_jitter_noise", moe.noise, 0.01),
    ROW_IDLE("input_jitter_noise"), ROWS_ROUTER,
};

static status read_more(struct model *model, const struct json *config,
                        const char *source)
{
    model->moe.width = model->feed_forward;
    return config_read_window(model, config, source, 0);
}

static status settle(struct model *model)
{
    const struct moe *x = &model->moe;

    model->decoder = model->biases.head ? &biased : &decoder;
    if (x->top_k != 2)
        FAIL(ERR_CONFIG, "moe.top_k (num_experts_per_tok): %d; tokens of "
                         "phimoe have 2 experts", x->top_k);
    if (!(x->noise > 0 && x->noise <= 1))
        FAIL(ERR_CONFIG, "router_jitter_noise: %g; expected more than 0, up "
                         "to 1", x->noise);
    return OK;
}

const struct model_kind model_phimoe = {
    .name = "phimoe", .architecture = "PhiMoEForCausalLM",
    .layer_prefix = "model.layers.%d.", .decoder = &decoder,
    CONFIG_ROWS(rows), .biases.no_mlp = true, .window.may = true,
    .heads = HEADS_FILL_WIDTH, .moe.score = ROUTER_NEAR, .moe.experts = 16,
    .moe.top_k = 2, .moe.noise = 0.01, .biases.head = true,
    .rope.base = 1000000,
    .build = decoder_build, .read_more = read_more, .settle = settle,
    .write_more = config_write_window};
