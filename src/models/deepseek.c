/* SPDX-License-Identifier: Apache-2.0 */
/* deepseek.c - DeepSeekMoE: small experts beside some of all tokens, dense
 * first blocks; DeepSeek-V2 and DeepSeek-V3: latent attention, and experts that
 * are chosen in a few groups. Sources: arXiv:2401.06066, section 3;
 * arXiv:2405.04434, section 2; arXiv:2412.19437, section 2.1. */
#include <string.h>

#include "models/config.h"
#include "models/mla.h"

#define DECODER_MIXTURE \
    .attention.norm = OUTSIDE_WEIGHT("input_layernorm"), \
    .ffn.norm = OUTSIDE_WEIGHT("post_attention_layernorm"), \
    .moe.router = OUTSIDE_WEIGHT("mlp.gate"), \
    .moe.gate = OUTSIDE_WEIGHT("mlp.experts.%d.gate_proj"), \
    .moe.up = OUTSIDE_WEIGHT("mlp.experts.%d.up_proj"), \
    .moe.down = OUTSIDE_WEIGHT("mlp.experts.%d.down_proj"), \
    .shared.gate = OUTSIDE_WEIGHT("mlp.shared_experts.gate_proj"), \
    .shared.up = OUTSIDE_WEIGHT("mlp.shared_experts.up_proj"), \
    .shared.down = OUTSIDE_WEIGHT("mlp.shared_experts.down_proj")
#define DECODER_DEEPSEEK \
    DECODER_MIXTURE, .ffn.gated = true, \
    .embedding = "model.embed_tokens.weight", .head = "lm_head.weight", \
    .attention.q = OUTSIDE_WEIGHT("self_attn.q_proj"), \
    .latent.q_down = OUTSIDE_WEIGHT("self_attn.q_a_proj"), \
    .latent.q_up = OUTSIDE_WEIGHT("self_attn.q_b_proj"), \
    .latent.kv_down = OUTSIDE_WEIGHT("self_attn.kv_a_proj_with_mqa"), \
    .latent.kv_up = OUTSIDE_WEIGHT("self_attn.kv_b_proj"), \
    .attention.out = OUTSIDE_WEIGHT("self_attn.o_proj"), \
    .ffn.gate = OUTSIDE_WEIGHT("mlp.gate_proj"), \
    .ffn.up = OUTSIDE_WEIGHT("mlp.up_proj"), \
    .ffn.down = OUTSIDE_WEIGHT("mlp.down_proj"), \
    .norm = OUTSIDE_WEIGHT("model.norm")

static const struct decoder decoder_v1 = {DECODER_LLAMA, DECODER_MIXTURE};
static const struct decoder decoder_v2 = {DECODER_DEEPSEEK};
static const struct decoder decoder_v3 = {
    DECODER_DEEPSEEK, .moe.bias = "mlp.gate.e_score_correction_bias"};

/* Fields of all three: losses and devices are settings of other training
 * programs. */
#define ROWS_DEEPSEEK_MIXTURE(experts_, width_, top_k_) \
    ROW_INTEGER("n_routed_experts", moe.experts, experts_), \
    ROW_INTEGER("num_experts_per_tok", moe.top_k, top_k_), \
    ROW_INTEGER("moe_intermediate_size", moe.width, width_), \
    ROW_IDLE("n_shared_experts"), ROW_IDLE("first_k_dense_replace"), \
    ROWS_ROUTER, ROW_ALSO("moe_layer_freq", "1"), ROW_IDLE("ep_size"), \
    ROW_ALSO("pretraining_tp", "1"), ROW_IDLE("aux_loss_alpha"), \
    ROW_IDLE("seq_aux")

/* The model's own code, which no library has. */
static const struct config_row rows_v1[] = {
    ROWS_MIXTURE(1e-6), ROWS_ROPE,
    ROW_INTEGER("num_key_value_heads", kv_heads, 0), ROW_HEAD_WIDTH,
    ROW_INTEGER("max_position_embeddings", context, 2048),
    ROW_FLAG("tie_word_embeddings", tied, false),
    ROW_ONLY("attention_bias", "false"),
    ROWS_DEEPSEEK_MIXTURE(-1, 1407, -1),
    ROW_FLAG("norm_topk_prob", moe.normalize, false),
    ROW_ALSO("scoring_func", "softmax"),
};

/* Fields of the later two. The library fills head_dim and qk_head_dim
 * itself. */
#define ROWS_DEEPSEEK(epsilon, context_, experts_, width_, top_k_) \
    ROWS_MIXTURE(epsilon), ROWS_ROPE, \
    ROW_INTEGER("num_key_value_heads", kv_heads, 0), \
    ROW_INTEGER("max_position_embeddings", context, context_), \
    ROW_FLAG("tie_word_embeddings", tied, false), \
    ROW_ONLY("attention_bias", "false"), \
    ROW_INTEGER("kv_lora_rank", mla.rank, 512), \
    ROW_INTEGER("qk_nope_head_dim", mla.nope, 128), \
    ROW_INTEGER("qk_rope_head_dim", mla.rope, 64), \
    ROW_INTEGER("v_head_dim", mla.value, 128), \
    ROW_IDLE("q_lora_rank"), ROW_IDLE("head_dim"), ROW_IDLE("qk_head_dim"), \
    ROW_IDLE("n_group"), ROW_IDLE("topk_group"), \
    ROWS_DEEPSEEK_MIXTURE(experts_, width_, top_k_)

static const struct config_row rows_v2[] = {
    ROWS_DEEPSEEK(1e-6, 2048, 64, 1407, -1), ROW_ONLY("mlp_bias", "false"),
    ROW_REAL("routed_scaling_factor", moe.scale, 1),
    ROW_ALSO("scoring_func", "softmax"), ROW_ALSO("norm_topk_prob", "false"),
    ROW_IDLE("topk_method"),
};

/* Modules that predict later tokens (num_nextn_predict_layers) lie behind the
 * last block; their tensors say how many there are. */
#define ROWS_SIGMOID(scale_) \
    ROW_REAL("routed_scaling_factor", moe.scale, scale_), \
    ROW_FLAG("norm_topk_prob", moe.normalize, true), \
    ROW_ALSO("scoring_func", "sigmoid"), ROW_ALSO("topk_method", "noaux_tc"), \
    ROW_ALSO("rope_interleave", "true"), \
    ROW_IDLE("num_nextn_predict_layers"), ROW_IDLE("num_mtp_layers")

static const struct config_row rows_v3[] = {
    ROWS_DEEPSEEK(1e-6, 4096, 256, 2048, 8), ROWS_SIGMOID(2.5),
};
static const struct config_row rows_lite[] = {
    ROWS_DEEPSEEK(1e-5, 202752, 64, 1536, 4), ROWS_SIGMOID(1.8),
    ROW_IDLE("mlp_layer_types"),
};

/* ---- config.json ---- */

static bool is_null(const struct json *config, const char *key)
{
    const struct json *value = json_get(config, key);

    return value != NULL && value->kind == JSON_NULL;
}

static status read_count(const struct json *config, const char *source,
                         const char *key, int other, int *out)
{
    int64_t number = 0;

    if (!is_null(config, key) && (other > 0 || json_get(config, key) != NULL))
        TRY(config_read_int(config, source, key, other, &number));
    *out = (int)number;
    return OK;
}

/* How many blocks at the beginning are dense: 0 or more. */
static status read_first(struct model *m, const struct json *config,
                         const char *source, int other)
{
    const char *key = "first_k_dense_replace";
    const struct json *value = json_get(config, key);
    int64_t first = other;

    if (value != NULL && value->kind != JSON_NULL) {
        if (value->kind != JSON_INTEGER || value->integer < 0 ||
            value->integer > m->layers)
            FAIL(ERR_CONFIG, "%s: %s is not a number of layers, 0 to %d",
                 source, key, m->layers);
        first = value->integer;
    }
    for (int i = 0; i < first; i++) blocks_put(&m->moe.dense, i);
    return OK;
}

static status read_method(const struct json *config, const char *source,
                          bool *groups)
{
    const char *name;

    TRY(json_get_string_or(config, source, "topk_method", "greedy", &name));
    *groups = strcmp(name, "group_limited_greedy") == 0;
    if (*groups || strcmp(name, "greedy") == 0) return OK;
    FAIL(ERR_CONFIG, "%s: topk_method: %s is not greedy or "
                     "group_limited_greedy", source, name);
}

/* DeepSeek-V3 and its relatives, not V1 or V2. */
static bool is_later(const struct model *m)
{
    return m->kind->moe.score == ROUTER_SIGMOID;
}

/* mlp_layer_types: which blocks are dense, instead of how many. */
static status read_blocks(struct model *m, const struct json *config,
                          const char *source)
{
    const struct json *list = json_get(config, "mlp_layer_types");

    if (list == NULL || list->kind == JSON_NULL ||
        m->kind->moe.first_dense == 0)
        return read_first(m, config, source, m->kind->moe.first_dense > 0
                                                 ? m->kind->moe.first_dense
                                             : is_later(m) ? 3 : 0);
    if (list->kind != JSON_ARRAY || list->count != m->layers)
        FAIL(ERR_CONFIG, "%s: mlp_layer_types is not an array of %d words",
             source, m->layers);
    for (int i = 0; i < list->count; i++) {
        const char *word = list->items[i].kind == JSON_STRING
                               ? list->items[i].string : "no word";

        if (strcmp(word, "dense") == 0) blocks_put(&m->moe.dense, i);
        else if (strcmp(word, "sparse") != 0)
            FAIL(ERR_CONFIG, "%s: mlp_layer_types: layer %d is %s; expected "
                             "dense or sparse", source, i, word);
    }
    return OK;
}

/* Which blocks are dense, and the experts of all tokens. */
static status read_mixture(struct model *m, const struct json *config,
                           const char *source)
{
    int shared;

    TRY(read_count(config, source, "n_shared_experts",
    m->kind->moe.shared_count,
                   &shared));
    TRY(read_blocks(m, config, source));
    m->moe.shared_width = shared * m->moe.width;
    if (shared > 0) return OK;
    FAIL(ERR_CONFIG, "%s: n_shared_experts: null; %s has one or more", source,
         m->kind->name);
}

/* The library turns head_dim elements, and writes there what turns. */
static status check_head(const struct model *m, const struct json *config,
                         const char *source)
{
    int width;

    TRY(read_count(config, source, "head_dim", 0, &width));
    if (width == 0 || width == m->mla.rope) return OK;
    FAIL(ERR_CONFIG, "%s: head_dim: %d, but qk_rope_head_dim is %d; leave "
                     "head_dim out", source, width, (int)m->mla.rope);
}

static status read_more(struct model *m, const struct json *config,
                        const char *source)
{
    const bool v3 = is_later(m);
    bool groups = true;
    int rank;

    TRY(read_mixture(m, config, source));
    if (v3) TRY(check_head(m, config, source));
    TRY(read_count(config, source, "q_lora_rank",
                   (int)m->kind->mla.query_rank, &rank));
    TRY(read_count(config, source, "n_group", v3 ? m->kind->moe.groups : 0,
                   &m->moe.groups));
    TRY(read_count(config, source, "topk_group",
                   v3 ? m->kind->moe.groups_chosen : 0, &m->moe.groups_chosen));
    if (!v3) TRY(read_method(config, source, &groups));
    if (!groups) m->moe.groups = m->moe.groups_chosen = 0;
    m->mla.query_rank = rank;
    return OK;
}

static void write_count(struct json_writer *out, const char *key,
                        int64_t value)
{
    json_write_key(out, key);
    if (value > 0) json_write_integer(out, value);
    else json_write_null(out);
}

static void write_mixture(const struct model *m, struct json_writer *out)
{
    json_write_key_integer(out, "n_shared_experts",
                           m->moe.shared_width / m->moe.width);
    json_write_key_integer(out, "first_k_dense_replace",
                           blocks_count(&m->moe.dense));
}

static void write_blocks(const struct model *m, struct json_writer *out)
{
    json_write_key(out, "mlp_layer_types");
    json_write_array(out);
    for (int i = 0; i < m->layers; i++)
        json_write_string(out, blocks_has(&m->moe.dense, i) ? "dense"
                                                            : "sparse");
    json_write_array_end(out);
}

static void write_more(const struct model *m, struct json_writer *out)
{
    const bool v3 = is_later(m);
    const bool groups = m->moe.groups > 1 || v3;

    write_mixture(m, out);
    write_count(out, "q_lora_rank", m->mla.query_rank);
    write_count(out, "n_group", groups && !m->moe.groups ? 1 : m->moe.groups);
    write_count(out, "topk_group",
                groups && !m->moe.groups ? 1 : m->moe.groups_chosen);
    json_write_key(out, "scoring_func");
    json_write_string(out, v3 ? "sigmoid" : "softmax");
    json_write_key(out, "topk_method");
    json_write_string(out, v3 ? "noaux_tc"
                      : groups ? "group_limited_greedy" : "greedy");
    if (v3)
        json_write_key_integer(out, "num_nextn_predict_layers", m->mtp_depth);
    if (m->kind->moe.first_dense > 0) write_blocks(m, out);
}

/* ---- sizes ---- */

static status settle_mixture(struct model *m)
{
    const struct moe *x = &m->moe;
    const int dense = blocks_count(&x->dense);

    if (x->groups < 2) m->moe.groups = m->moe.groups_chosen = 0;
    for (int i = 0; i < dense; i++)
        if (!blocks_has(&x->dense, i))
            FAIL(ERR_CONFIG, "moe.dense: dense blocks of %s are its first ones "
                             "(moe.first_dense)", m->kind->name);
    if (x->width < 1 || x->shared_width % x->width != 0)
        FAIL(ERR_CONFIG, "moe.shared_intermediate_size: %lld is not a multiple "
                         "of the width of one expert, %lld",
             (long long)x->shared_width, (long long)x->width);
    return OK;
}

static status settle(struct model *m)
{
    TRY(mla_settle(m));
    return settle_mixture(m);
}

/* transformers has no such family, so PEFT has no names of it to change. */
const struct model_kind model_deepseek = {
    .name = "deepseek", .architecture = "DeepseekForCausalLM",
    .layer_prefix = "model.layers.%d.", .decoder = &decoder_v1,
    CONFIG_ROWS(rows_v1), .biases.no_attention = true, .biases.no_mlp = true,
    .heads = HEADS_FILL_WIDTH, .moe.experts = 64, .moe.top_k = 6,
    .moe.sizes = true,
    .moe.shared = true, .moe.shared_count = 2, .moe.normalize_choice = true,
    .files.adapters_apart = true,
    .build = decoder_build, .read_more = read_mixture,
    .write_more = write_mixture, .settle = settle_mixture};

#define KIND_DEEPSEEK \
    .layer_prefix = "model.layers.%d.", .biases.no_attention = true, \
    .biases.no_mlp = true, .moe.sizes = true, .moe.shared = true, \
    .build = decoder_build, .read_more = read_more, \
    .write_more = write_more, .settle = settle
#define KIND_SIGMOID \
    KIND_DEEPSEEK, .decoder = &decoder_v3, .moe.score = ROUTER_SIGMOID, \
    .moe.normalize = true, .moe.normalize_choice = true, \
    .moe.shared_count = 1, \
    .moe.group = ROUTER_GROUP_TOP2, .moe.bias = true, .moe.bias_rate = 0.001, \
    .files.more_blocks = true

const struct model_kind model_deepseek_v2 = {
    .name = "deepseek_v2", .architecture = "DeepseekV2ForCausalLM",
    .decoder = &decoder_v2, CONFIG_ROWS(rows_v2), KIND_DEEPSEEK,
    .mla = {1536, 512, 128, 64, 128}, .moe.score = ROUTER_SOFTMAX,
    .moe.experts = 160,
    .moe.top_k = 8, .moe.shared_count = 2, .moe.scale = 16, .moe.groups = 8,
    .moe.groups_chosen = 3, .moe.group = ROUTER_GROUP_MAX};

/* Kimi K2 has its blocks and fields. */
const struct model_kind model_deepseek_v3 = {
    .name = "deepseek_v3", .also = "kimi_k2",
    .architecture = "DeepseekV3ForCausalLM", CONFIG_ROWS(rows_v3),
    KIND_SIGMOID, .mla = {1536, 512, 128, 64, 128}, .moe.experts = 256,
    .moe.top_k = 8,
    .moe.scale = 2.5, .moe.groups = 8, .moe.groups_chosen = 4};

/* GLM-4.7-Flash: DeepSeek-V3 with other sizes, and a list of its dense
 * blocks. */
const struct model_kind model_glm4_moe_lite = {
    .name = "glm4_moe_lite", .architecture = "Glm4MoeLiteForCausalLM",
    CONFIG_ROWS(rows_lite), KIND_SIGMOID, .mla = {768, 512, 192, 64, 256},
    .moe.experts = 64, .moe.top_k = 4, .moe.scale = 1.8, .moe.groups = 1,
    .moe.groups_chosen = 1, .moe.first_dense = 1};
