/* SPDX-License-Identifier: Apache-2.0 */
/* llama4.c - Llama 4 (text): one expert of each token, whose gate multiplies
 * what the expert reads, beside an expert of all tokens; three of four blocks
 * turn and attend to chunks, the others do neither.
 * Source: Llama 4 (Meta 2025), as released. */
#include "models/config.h"

#define PART "feed_forward."
static const struct decoder decoder = {
    .ffn.gated = true, .attention.pairs = true, .norms.square = true,
    .moe.gated_inputs = true,
    .embedding = "model.embed_tokens.weight", .head = "lm_head.weight",
    .attention.q = OUTSIDE("self_attn.q_proj"),
    .attention.k = OUTSIDE("self_attn.k_proj"),
    .attention.v = OUTSIDE("self_attn.v_proj"),
    .attention.out = OUTSIDE("self_attn.o_proj"),
    .ffn.gate = OUTSIDE(PART "gate_proj"), .ffn.up = OUTSIDE(PART "up_proj"),
    .ffn.down = OUTSIDE(PART "down_proj"), .norm = OUTSIDE_WEIGHT("model.norm"),
    .attention.norm = OUTSIDE_WEIGHT("input_layernorm"),
    .ffn.norm = OUTSIDE_WEIGHT("post_attention_layernorm"),
    .moe.router = OUTSIDE_WEIGHT(PART "router"),
    .moe.joined = PART "experts", .moe.joined_router = PART "router",
    .moe.joined_turned = true,
    .moe.gate = OUTSIDE_WEIGHT(PART "experts.%d.gate"),
    .moe.up = OUTSIDE_WEIGHT(PART "experts.%d.up"),
    .moe.down = OUTSIDE_WEIGHT(PART "experts.%d.down"),
    .shared.gate = OUTSIDE_WEIGHT(PART "shared_expert.gate_proj"),
    .shared.up = OUTSIDE_WEIGHT(PART "shared_expert.up_proj"),
    .shared.down = OUTSIDE_WEIGHT(PART "shared_expert.down_proj"),
    .moe.stacks = {{PART "experts.gate_up_proj",
                {PART "experts.%d.gate.weight", PART "experts.%d.up.weight"},
                true, false},
               {PART "experts.down_proj",
                {PART "experts.%d.down.weight", NULL}, true, false}}};

static const struct config_row rows[] = {
    ROW_INTEGER("vocab_size", vocab, 202048),
    ROW_INTEGER("hidden_size", width, 5120),
    ROW_INTEGER("intermediate_size", moe.width, 8192),
    ROW_INTEGER("intermediate_size_mlp", feed_forward, 16384),
    ROW_INTEGER("num_hidden_layers", layers, 48),
    ROW_INTEGER("num_attention_heads", heads, 40),
    ROW_REAL("rms_norm_eps", norm_epsilon, 1e-5),
    ROW_REAL("initializer_range", init_std, 0.02),
    ROW_DROPOUT("attention_dropout"),
    ROW_ACTIVATION("hidden_act", ACTIVATION_SILU),
    ROWS_ROPE, ROW_INTEGER("num_key_value_heads", kv_heads, 8),
    ROW_INTEGER("head_dim", head_width, 128),
    ROW_INTEGER("max_position_embeddings", context, 131072),
    ROW_FLAG("tie_word_embeddings", tied, false),
    ROW_FLAG("attention_bias", biases.attention, false),
    ROW_FLAG("use_qk_norm", qk_norm, true),
    ROW_INTEGER("num_local_experts", moe.experts, 16),
    ROW_INTEGER("num_experts_per_tok", moe.top_k, 1),
    ROW_REAL("attn_scale", tempered.by, 0.1),
    ROW_INTEGER("floor_scale", tempered.floor, 8192),
    ROW_IDLE("attn_temperature_tuning"), ROW_IDLE("attention_chunk_size"),
    ROW_IDLE("layer_types"), ROW_IDLE("no_rope_layers"),
    ROW_IDLE("no_rope_layer_interval"), ROW_IDLE("moe_layers"),
    ROW_IDLE("interleave_moe_layer_step"), ROW_IDLE("router_jitter_noise"),
    ROW_IDLE("for_llm_compressor"), ROWS_ROUTER,
};

/* moe_layers, or every n-th block. */
static status read_experts(struct model *model, const struct json *config,
                           const char *source)
{
    const struct json *list = json_get(config, "moe_layers");
    struct blocks mixed = {{0}};
    int64_t step;

    TRY(config_read_int(config, source, "interleave_moe_layer_step", 1,
                        &step));
    blocks_every(&mixed, model->layers, step > BLOCKS_MOST ? 0 : (int)step);
    if (list != NULL && list->kind != JSON_NULL) {
        if (list->kind != JSON_ARRAY)
            FAIL(ERR_CONFIG, "%s: moe_layers is not an array of numbers",
                 source);
        mixed = (struct blocks){{0}};
        for (int i = 0; i < list->count; i++) {
            const struct json *at = &list->items[i];

            if (at->kind != JSON_INTEGER || at->integer < 0 ||
                at->integer >= model->layers)
                FAIL(ERR_CONFIG, "%s: moe_layers: entry %d is not the number "
                                 "of a layer, 0 to %d", source, i,
                     model->layers - 1);
            blocks_put(&mixed, (int)at->integer);
        }
    }
    for (int i = 0; i < model->layers; i++)
        if (!blocks_has(&mixed, i)) blocks_put(&model->moe.dense, i);
    return OK;
}

/* Some files say how often instead of true. */
static status read_temper(struct model *model, const struct json *config,
                          const char *source)
{
    const struct json *tuned = json_get(config, "attn_temperature_tuning");

    if (!(model->tempered.by >= 0))
        FAIL(ERR_CONFIG, "%s: attn_scale: %g; expected 0 or more", source,
             model->tempered.by);
    if (tuned == NULL || tuned->kind == JSON_NULL) return OK;
    if (tuned->kind != JSON_FALSE && tuned->kind != JSON_TRUE &&
        tuned->kind != JSON_INTEGER)
        FAIL(ERR_CONFIG, "%s: attn_temperature_tuning is not true or false",
             source);
    if (tuned->kind == JSON_FALSE ||
        (tuned->kind == JSON_INTEGER && tuned->integer == 0))
        model->tempered.by = 0;
    return OK;
}

/* Where layer_types is absent, blocks that turn attend to chunks. */
static status read_more(struct model *model, const struct json *config,
                        const char *source)
{
    const struct json *chunk = json_get(config, "attention_chunk_size");

    if (chunk != NULL && chunk->kind == JSON_NULL)
        FAIL(ERR_CONFIG, "%s: attention_chunk_size is null; expected a "
                         "number of tokens (max_position_embeddings: all are "
                         "one chunk)",
             source);
    TRY(config_read_int(config, source, "attention_chunk_size", 8192,
                        &model->window.tokens));
    TRY(config_read_still(model, config, source));
    model->window.whole = model->rope.still;
    TRY(read_experts(model, config, source));
    TRY(read_temper(model, config, source));
    model->moe.shared_width = model->moe.width;
    return config_read_types(model, config, source);
}

static void write_more(const struct model *model, struct json_writer *out)
{
    json_write_key(out, "attn_temperature_tuning");
    json_write_bool(out, model->tempered.by > 0);
    json_write_key_integer(out, "attention_chunk_size",
                           model->window.tokens > 0 ? model->window.tokens
                                             : model->context);
    config_write_still(model, out);
    config_write_layers(model, out);
    json_write_key(out, "moe_layers");
    json_write_array(out);
    for (int i = 0; i < model->layers; i++)
        if (!blocks_has(&model->moe.dense, i)) json_write_integer(out, i);
    json_write_array_end(out);
}

static status settle(struct model *model)
{
    const struct moe *x = &model->moe;

    if (x->top_k != 1)
        FAIL(ERR_CONFIG, "moe.top_k (num_experts_per_tok): %d; tokens of "
                         "llama4 have 1 expert beside that of all tokens",
             x->top_k);
    if (x->shared_width != x->width)
        FAIL(ERR_CONFIG, "moe.shared_intermediate_size: %lld; in llama4 it is "
                         "that of one expert, %lld (moe.intermediate_size)",
             (long long)x->shared_width, (long long)x->width);
    return OK;
}

/* The fields around text_config. Only the text part is used. */
static const struct config_row around[] = {
    ROW_IDLE("text_config"), ROW_IDLE("vision_config"),
    ROW_IDLE("boi_token_index"), ROW_IDLE("eoi_token_index"),
    ROW_IDLE("image_token_index"), ROW_ONLY("tie_word_embeddings", "false"),
};

const struct model_kind model_llama4_around = {
    .name = "llama4", CONFIG_ROWS(around)};

const struct model_kind model_llama4 = {
    .name = "llama4", .type = "llama4_text",
    .architecture = "Llama4ForCausalLM", .layer_prefix = "model.layers.%d.",
    .decoder = &decoder, CONFIG_ROWS(rows), .biases.no_mlp = true,
    .window.may = true, .window.layers = true, .window.skip = 4,
    .window.chunked = true, .tempered.by = 0.1, .tempered.floor = 8192,
    .qk_norm = true,
    .rope.skip = 4, .rope.base = 5e5, .moe.score = ROUTER_SIGMOID,
    .moe.experts = 16, .moe.top_k = 1, .moe.sizes = true, .moe.shared = true,
    .moe.shared_count = 1, .build = decoder_build, .read_more = read_more,
    .settle = settle, .write_more = write_more};
