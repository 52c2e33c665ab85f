/* SPDX-License-Identifier: Apache-2.0 */
/* glm4_moe.c - GLM-4.5 with experts: sigmoid scores, biases that count in the
 * choice alone, groups of experts, experts of all tokens, dense first blocks;
 * half of each head turns. dots.llm1: the same experts, each head turns as a
 * whole, and some blocks may have a window. Solar Open: the same experts in
 * every block. Sources: GLM-4.5 team 2025, arXiv:2508.06471, section 2.1; Huo
 * et al. 2025, arXiv:2506.05767, section 2.1; Solar Open as released (Upstage
 * 2025). */
#include "models/config.h"

#define PARTS \
    DECODER_LLAMA, DECODER_QWEN_MIXTURE, \
    .attention.norm = OUTSIDE_WEIGHT("input_layernorm"), \
    .ffn.norm = OUTSIDE_WEIGHT("post_attention_layernorm"), \
    .moe.bias = "mlp.gate.e_score_correction_bias", \
    .shared.gate = OUTSIDE_WEIGHT("mlp.shared_experts.gate_proj"), \
    .shared.up = OUTSIDE_WEIGHT("mlp.shared_experts.up_proj"), \
    .shared.down = OUTSIDE_WEIGHT("mlp.shared_experts.down_proj")

static const struct decoder decoder = {PARTS};
static const struct decoder normed = {
    PARTS, .attention.q_norm = OUTSIDE_WEIGHT("self_attn.q_norm"),
    .attention.k_norm = OUTSIDE_WEIGHT("self_attn.k_norm")};

/* Modules that predict later tokens (num_nextn_predict_layers) lie behind the
 * last block; their tensors say how many there are. */
#define ROWS(epsilon, context_, experts_, top_k_, normalize_) \
    ROW_INTEGER("intermediate_size", feed_forward, -1), \
    ROW_INTEGER("moe_intermediate_size", moe.width, 1408), \
    ROW_IDLE("first_k_dense_replace"), ROW_IDLE("num_mtp_layers"), \
    ROWS_AROUND(epsilon, context_, experts_, top_k_, normalize_)
#define ROWS_AROUND(epsilon, context_, experts_, top_k_, normalize_) \
    ROWS_SIZES_AROUND(epsilon), \
    ROW_ACTIVATION("hidden_act", ACTIVATION_SILU), ROWS_ROPE, \
    ROW_INTEGER("head_dim", head_width, 0), \
    ROW_INTEGER("max_position_embeddings", context, context_), \
    ROW_FLAG("tie_word_embeddings", tied, false), \
    ROW_FLAG("attention_bias", biases.attention, false), \
    ROW_INTEGER("n_routed_experts", moe.experts, experts_), \
    ROW_INTEGER("num_experts_per_tok", moe.top_k, top_k_), \
    ROW_INTEGER("n_group", moe.groups, 1), \
    ROW_INTEGER("topk_group", moe.groups_chosen, 1), \
    ROW_REAL("routed_scaling_factor", moe.scale, 1), \
    ROW_FLAG("norm_topk_prob", moe.normalize, normalize_), \
    ROW_IDLE("n_shared_experts"), ROW_IDLE("num_nextn_predict_layers"), \
    ROWS_ROUTER

static const struct config_row rows[] = {
    ROWS(1e-5, 131072, 128, 8, true), ROW_ROPE("partial_rotary_factor"),
    ROW_INTEGER("num_key_value_heads", kv_heads, 8),
    ROW_FLAG("use_qk_norm", qk_norm, false),
};
/* The last ones are those of the released file. */
static const struct config_row rows_dots[] = {
    ROWS(1e-6, 2048, -1, -1, false),
    ROW_INTEGER("num_key_value_heads", kv_heads, 32),
    ROW_IDLE("sliding_window"), ROW_IDLE("max_window_layers"),
    ROW_IDLE("layer_types"), ROW_IDLE("use_sliding_window"),
    ROW_ALSO("scoring_func", "noaux_tc|sigmoid"),
    ROW_ALSO("topk_method", "noaux_tc"), ROW_ALSO("moe_layer_freq", "1"),
    ROW_IDLE("ep_size"), ROW_ALSO("pretraining_tp", "1"),
};
/* Files of some versions have fields of GLM-4.5, without effect. */
static const struct config_row rows_solar[] = {
    ROWS_AROUND(1e-5, 131072, 128, 8, true), ROW_ROPE("partial_rotary_factor"),
    ROW_INTEGER("num_key_value_heads", kv_heads, 8),
    ROW_INTEGER("moe_intermediate_size", moe.width, 1280),
    ROW_INTEGER("intermediate_size", feed_forward, 0),
    ROW_ALSO("first_k_dense_replace", "0"),
    ROW_ALSO("use_qk_norm", "false"), ROW_ALSO("num_mtp_layers", "0"),
};

static status settle(struct model *model)
{
    const struct moe *x = &model->moe;

    if (model->kind == &model_glm4_moe)
        model->decoder = model->qk_norm ? &normed : &decoder;
    if (model->kind == &model_solar_open && blocks_count(&x->dense) > 0)
        FAIL(ERR_CONFIG, "moe.dense: every block of solar_open has experts "
                         "(moe.every, moe.first_dense, moe.dense); glm4_moe "
                         "may have dense ones");
    for (int i = 1; i < model->layers; i++)
        if (blocks_has(&x->dense, i) && !blocks_has(&x->dense, i - 1))
            FAIL(ERR_CONFIG, "moe.dense: block %d is dense behind one with "
                             "experts; %s takes only first blocks "
                             "(moe.first_dense)", i, model->kind->name);
    if (x->width > 0 && x->shared_width % x->width != 0)
        FAIL(ERR_CONFIG, "moe.shared_intermediate_size: %lld is no multiple of "
                         "moe.intermediate_size, %lld; %lld is",
             (long long)x->shared_width, (long long)x->width,
             (long long)((x->shared_width / x->width + 1) * x->width));
    return OK;
}

static status read_more(struct model *model, const struct json *config,
                        const char *source)
{
    const bool glm = model->kind == &model_glm4_moe;
    int64_t shared, dense;

    TRY(config_read_int(config, source, "n_shared_experts",
                        model->kind == &model_dots1 ? -1 : 1, &shared));
    TRY(json_get_integer_or(config, source, "first_k_dense_replace", glm,
                            &dense));
    if (dense < 0)
        FAIL(ERR_CONFIG, "%s: first_k_dense_replace: %lld is below 0", source,
             (long long)dense);
    model->moe.shared_width = shared * model->moe.width;
    for (int i = 0; i < model->layers && i < dense; i++)
        blocks_put(&model->moe.dense, i);
    return OK;
}

static void write_shared(const struct model *model, struct json_writer *out)
{
    json_write_key_integer(out, "n_shared_experts",
                           model->moe.shared_width / model->moe.width);
}

static void write_more(const struct model *model, struct json_writer *out)
{
    const struct moe *x = &model->moe;

    write_shared(model, out);
    json_write_key_integer(out, "first_k_dense_replace",
                           blocks_count(&x->dense));
    json_write_key_integer(out, "num_nextn_predict_layers",
                           model->mtp_depth);
}

/* Without layer_types, blocks from max_window_layers on have the window. */
static status read_dots(struct model *model, const struct json *config,
                        const char *source)
{
    int64_t first;

    TRY(read_more(model, config, source));
    TRY(json_get_integer_or(config, source, "max_window_layers", 62, &first));
    if (first < 0)
        FAIL(ERR_CONFIG, "%s: max_window_layers: %lld is below 0", source,
             (long long)first);
    TRY(config_read_window(model, config, source, 4096));
    for (int i = 0; i < first && i < model->layers; i++)
        blocks_put(&model->window.whole, i);
    return config_read_types(model, config, source);
}

static void write_dots(const struct model *model, struct json_writer *out)
{
    write_more(model, out);
    config_write_window(model, out);
    config_write_layers(model, out);
}

#define KIND \
    .layer_prefix = "model.layers.%d.", .biases.no_mlp = true, \
    .moe.experts = 128, .moe.score = ROUTER_SIGMOID, .moe.groups = 1, \
    .moe.groups_chosen = 1, .moe.group = ROUTER_GROUP_TOP2, \
    .moe.normalize = true, \
    .moe.normalize_choice = true, .moe.bias = true, .moe.bias_rate = 1e-3, \
    .moe.sizes = true, .moe.shared = true, .build = decoder_build, \
    .settle = settle

const struct model_kind model_glm4_moe = {
    .name = "glm4_moe", .architecture = "Glm4MoeForCausalLM",
    .decoder = &decoder, CONFIG_ROWS(rows), .biases.no_output = true,
    .qk_norm = true, .rope.share = 0.5, .moe.top_k = 8,
    .files.more_blocks = true,
    .moe.scale = 1, .moe.shared_count = 1, .read_more = read_more,
    .write_more = write_more, KIND};

const struct model_kind model_dots1 = {
    .name = "dots1", .architecture = "Dots1ForCausalLM", .decoder = &normed,
    CONFIG_ROWS(rows_dots), .window.may = true, .window.layers = true,
    .moe.top_k = 6, .moe.scale = 2.5, .moe.shared_count = 2,
    .read_more = read_dots, .write_more = write_dots, KIND};

const struct model_kind model_solar_open = {
    .name = "solar_open", .architecture = "SolarOpenForCausalLM",
    .decoder = &decoder, CONFIG_ROWS(rows_solar), .biases.no_output = true,
    .rope.share = 1, .rope.base = 1000000, .moe.top_k = 8, .moe.scale = 1,
    .moe.shared_count = 1, .read_more = read_more, .write_more = write_shared,
    KIND};
