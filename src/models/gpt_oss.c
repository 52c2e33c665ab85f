/* SPDX-License-Identifier: Apache-2.0 */
/* gpt_oss.c - gpt-oss: clamped gates and biases in experts, a bias of the
 * router's logits, attention sinks, a window in every second block; files have
 * all experts of a block in one tensor, gate and up row by row in turn.
 * Source: OpenAI 2025, arXiv:2508.10925, section 2, and as released. */
#include "models/config.h"

#define STACK "mlp.experts."
static const struct decoder decoder = {
    DECODER_LLAMA, .attention.norm = OUTSIDE_WEIGHT("input_layernorm"),
    .ffn.norm = OUTSIDE_WEIGHT("post_attention_layernorm"),
    .attention.sinks = "self_attn.sinks", .moe.router = OUTSIDE("mlp.router"),
    .moe.gate = OUTSIDE(STACK "%d.gate"),
    .moe.up = OUTSIDE(STACK "%d.up"),
    .moe.down = OUTSIDE_WEIGHT(STACK "%d.down"),
    .moe.biases = STACK "down_proj_bias",
    .moe.joined = "mlp.experts", .moe.joined_router = "mlp.router",
    .moe.stacks = {{STACK "gate_up_proj",
                {STACK "%d.gate.weight", STACK "%d.up.weight"}, true, true},
               {STACK "gate_up_proj_bias",
                {STACK "%d.gate.bias", STACK "%d.up.bias"}, false, true},
               {STACK "down_proj", {STACK "%d.down.weight", NULL}, true,
                false}}};

static const struct config_row rows[] = {
    ROWS_LLAMA(1e-5), ROWS_ROPE,
    ROW_INTEGER("num_key_value_heads", kv_heads, 8),
    ROW_INTEGER("head_dim", head_width, 64),
    ROW_INTEGER("max_position_embeddings", context, 131072),
    ROW_FLAG("tie_word_embeddings", tied, false),
    ROW_FLAG("attention_bias", biases.attention, true),
    ROW_IDLE("sliding_window"), ROW_IDLE("layer_types"),
    ROW_INTEGER("num_local_experts", moe.experts, 128),
    ROW_INTEGER("num_experts_per_tok", moe.top_k, 4),
    ROW_IDLE("experts_per_token"), ROW_IDLE("initial_context_length"),
    ROW_IDLE("quantization_config"), /* mxfp4, or refused before */
    ROW_REAL("swiglu_alpha", moe.swiglu_alpha, 1.702),
    ROW_REAL("swiglu_limit", moe.swiglu_limit, 7), ROWS_ROUTER,
};

static status read_more(struct model *model, const struct json *config,
                        const char *source)
{
    const struct json *old = json_get(config, "rope_scaling");
    const struct json *new = json_get(config, "rope_parameters");

    if ((old == NULL || old->kind == JSON_NULL) &&
        (new == NULL || new->kind == JSON_NULL))
        FAIL(ERR_CONFIG, "%s: neither rope_scaling nor rope_parameters: a "
                         "library would take yarn with a factor of 32 without "
                         "saying so; write one of them down", source);
    if (!(model->moe.swiglu_alpha > 0) || !(model->moe.swiglu_limit > 0))
        FAIL(ERR_CONFIG, "%s: swiglu_alpha and swiglu_limit: %g and %g; "
                         "expected more than 0", source,
             model->moe.swiglu_alpha, model->moe.swiglu_limit);
    model->moe.width = model->feed_forward;
    TRY(config_read_window(model, config, source, 128));
    return config_read_types(model, config, source);
}

const struct model_kind model_gpt_oss = {
    .name = "gpt_oss", .architecture = "GptOssForCausalLM",
    .layer_prefix = "model.layers.%d.", .decoder = &decoder,
    CONFIG_ROWS(rows), .biases.no_mlp = true, .window.may = true,
    .window.layers = true, .window.skip = 2, .rope.base = 150000,
    .moe.score = ROUTER_CHOSEN, .moe.experts = 128, .moe.top_k = 4,
    .moe.swiglu_alpha = 1.702, .moe.swiglu_limit = 7, .moe.mxfp4 = true,
    .build = decoder_build, .read_more = read_more,
    .write_more = config_write_types};
