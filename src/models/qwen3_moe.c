/* SPDX-License-Identifier: Apache-2.0 */
/* qwen3_moe.c - Qwen3 with experts: 128 of them, of which each token has
 * eight. Source: Yang et al. 2025, arXiv:2505.09388, section 2. */
#include "models/config.h"

static const struct decoder decoder = {
    DECODER_LLAMA, DECODER_QWEN_MIXTURE,
    .attention.norm = OUTSIDE_WEIGHT("input_layernorm"),
    .attention.q_norm = OUTSIDE_WEIGHT("self_attn.q_norm"),
    .attention.k_norm = OUTSIDE_WEIGHT("self_attn.k_norm"),
    .ffn.norm = OUTSIDE_WEIGHT("post_attention_layernorm")};

/* The library has one window for all blocks here, or none. */
static const struct config_row rows[] = {
    ROWS_MIXTURE(1e-6), ROWS_ROPE,
    ROW_INTEGER("num_key_value_heads", kv_heads, 4),
    ROW_INTEGER("head_dim", head_width, 0),
    ROW_INTEGER("max_position_embeddings", context, 32768),
    ROW_FLAG("tie_word_embeddings", tied, false),
    ROW_FLAG("attention_bias", biases.attention, false),
    ROW_IDLE("use_sliding_window"), ROW_IDLE("sliding_window"),
    ROW_IDLE("max_window_layers"), ROW_IDLE("num_local_experts"),
    ROWS_QWEN_MIXTURE(128, 8, 768),
    /* Qwen3-Coder has these; the library reads none of them. */
    ROW_ALSO("qkv_bias", "false"), ROW_ALSO("use_qk_norm", "true"),
    ROW_ALSO("shared_expert_intermediate_size", "0"),
};

/* The number of experts, as transformers 5 writes it. */
static status read_experts(struct model *model, const struct json *config,
                           const char *source)
{
    const struct json *own = json_get(config, "num_experts");
    int64_t local;

    if (json_get(config, "num_local_experts") == NULL) return OK;
    TRY(json_get_integer(config, source, "num_local_experts", &local));
    if (local < 1 || local > EXPERTS_MAX ||
        (own != NULL && local != model->moe.experts))
        FAIL(ERR_CONFIG, "%s: num_local_experts: %lld; expected 1 to %d, and "
                         "what num_experts says", source, (long long)local,
             EXPERTS_MAX);
    model->moe.experts = (int)local;
    return OK;
}

static status read_more(struct model *model, const struct json *config,
                        const char *source)
{
    bool used;

    TRY(read_experts(model, config, source));
    TRY(json_get_bool_or(config, source, "use_sliding_window", false, &used));
    if (used) TRY(config_read_window(model, config, source, 4096));
    return config_read_dense(model, config, source);
}

static void write_more(const struct model *model, struct json_writer *out)
{
    json_write_key(out, "use_sliding_window");
    json_write_bool(out, model->window.tokens > 0);
    config_write_window(model, out);
    config_write_dense(model, out);
}

const struct model_kind model_qwen3_moe = {
    .name = "qwen3_moe", .architecture = "Qwen3MoeForCausalLM",
    .layer_prefix = "model.layers.%d.", .decoder = &decoder,
    CONFIG_ROWS(rows), .biases.no_mlp = true, .window.may = true,
    .moe.experts = 128,
    .moe.top_k = 8, .moe.normalize = true, .moe.normalize_choice = true,
    .moe.sizes = true, .build = decoder_build, .read_more = read_more,
    .write_more = write_more};
