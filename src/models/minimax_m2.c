/* SPDX-License-Identifier: Apache-2.0 */
/* minimax_m2.c - MiniMax-M2: sigmoid scores with biases of the choice, gates
 * over their sum, norms of all queries and of all keys, half of each head
 * turns. Source: the model as released (MiniMax 2025), and the same in
 * transformers 5. */
#include "models/config.h"

static const struct decoder decoder = {
    DECODER_LLAMA, .attention.norm = OUTSIDE_WEIGHT("input_layernorm"),
    .ffn.norm = OUTSIDE_WEIGHT("post_attention_layernorm"),
    .attention.q_norm = OUTSIDE_WEIGHT("self_attn.q_norm"),
    .attention.k_norm = OUTSIDE_WEIGHT("self_attn.k_norm"), .norms.whole = true,
    .moe.router = OUTSIDE_WEIGHT("block_sparse_moe.gate"),
    .moe.bias = "block_sparse_moe.e_score_correction_bias",
    .moe.gate = OUTSIDE_WEIGHT("block_sparse_moe.experts.%d.w1"),
    .moe.up = OUTSIDE_WEIGHT("block_sparse_moe.experts.%d.w3"),
    .moe.down = OUTSIDE_WEIGHT("block_sparse_moe.experts.%d.w2")};

/* The last ones are those of the released file. */
static const struct config_row rows[] = {
    ROWS_MIXTURE(1e-6), ROWS_ROPE, ROW_ROPE("partial_rotary_factor"),
    ROW_INTEGER("num_key_value_heads", kv_heads, 8),
    ROW_INTEGER("head_dim", head_width, 128),
    ROW_INTEGER("max_position_embeddings", context, 196608),
    ROW_FLAG("tie_word_embeddings", tied, false),
    ROW_INTEGER("num_local_experts", moe.experts, 256),
    ROW_INTEGER("num_experts_per_tok", moe.top_k, 8), ROWS_ROUTER,
    ROW_ALSO("router_jitter_noise", "0"), ROW_IDLE("rotary_dim"),
    ROW_IDLE("attn_type_list"), ROW_ALSO("use_qk_norm", "true"),
    ROW_ALSO("qk_norm_type", "per_layer"), ROW_ALSO("scoring_func", "sigmoid"),
    ROW_ALSO("use_routing_bias", "true"),
    ROW_ALSO("shared_intermediate_size", "0"), ROW_IDLE("use_mtp"),
    ROW_IDLE("num_mtp_modules"), ROW_IDLE("mtp_transformer_layers"),
};

/* rotary_dim says how many elements of a head turn, where
 * partial_rotary_factor does not. */
static status read_rotary(struct model *model, const struct json *config,
                          const char *source)
{
    static const char *const share = "partial_rotary_factor";
    const struct json *rope = json_get(config, "rope_parameters");
    int64_t turning;

    if (json_get(config, "rotary_dim") == NULL ||
        json_get(config, share) != NULL ||
        (rope != NULL && rope->kind == JSON_OBJECT &&
         json_get(rope, share) != NULL))
        return OK;
    TRY(config_read_int(config, source, "rotary_dim", -1, &turning));
    if (turning > model->head_width || turning % 2 != 0)
        FAIL(ERR_CONFIG, "%s: rotary_dim: %lld; expected an even number up to "
                         "head_dim, %d", source, (long long)turning,
             model->head_width);
    model->rope.rotary = turning == model->head_width ? 0 : (int)turning;
    return OK;
}

/* attn_type_list: 1 is a block with the usual attention. */
static status read_types(const struct model *model, const struct json *config,
                         const char *source)
{
    const struct json *list = json_get(config, "attn_type_list");

    if (list == NULL || list->kind == JSON_NULL) return OK;
    for (int i = 0; list->kind == JSON_ARRAY && i < list->count; i++)
        if (list->items[i].kind != JSON_INTEGER || list->items[i].integer != 1)
            FAIL(ERR_CONFIG, "%s: attn_type_list: layer %d has linear "
                             "attention; %s has the usual one (1) everywhere",
                 source, i, model->kind->name);
    if (list->kind != JSON_ARRAY)
        FAIL(ERR_CONFIG, "%s: attn_type_list is not an array", source);
    return OK;
}

static status read_more(struct model *model, const struct json *config,
                        const char *source)
{
    model->moe.width = model->feed_forward;
    model->moe.normalize = true;
    TRY(read_types(model, config, source));
    return read_rotary(model, config, source);
}

/* Versions of transformers before 5 and other programs read rotary_dim. */
static void write_more(const struct model *model, struct json_writer *out)
{
    json_write_key_integer(out, "rotary_dim",
                           model->rope.rotary > 0 ? model->rope.rotary
                                             : model->head_width);
    json_write_key(out, "scoring_func");
    json_write_string(out, "sigmoid");
    json_write_key(out, "use_routing_bias");
    json_write_bool(out, true);
    json_write_key(out, "use_qk_norm");
    json_write_bool(out, true);
}

const struct model_kind model_minimax_m2 = {
    .name = "minimax_m2", .architecture = "MiniMaxM2ForCausalLM",
    .layer_prefix = "model.layers.%d.", .decoder = &decoder,
    CONFIG_ROWS(rows), .biases.no_attention = true, .biases.no_mlp = true,
    .rope.share = 1, .rope.base = 5000000, .moe.experts = 256, .moe.top_k = 8,
    .moe.score = ROUTER_SIGMOID, .moe.normalize = true, .moe.bias = true,
    .moe.bias_rate = 1e-3, .build = decoder_build, .read_more = read_more,
    .write_more = write_more};
