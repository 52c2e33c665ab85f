/* SPDX-License-Identifier: Apache-2.0 */
/* falcon.c - Falcon: attention and feed-forward side by side, no biases. The 7B
 * has one norm for both and one key-value head, the 40B (the "new decoder
 * architecture") two norms and groups.
 * Source: Almazrouei et al. 2023, arXiv:2311.16867, section 4. */
#include "models/config.h"

#define NAMES \
    .layernorm = true, .by_group = true, \
    .embedding = "transformer.word_embeddings.weight", \
    .head = "lm_head.weight", \
    .qkv = OUTSIDE("self_attention.query_key_value"), \
    .out = OUTSIDE("self_attention.dense"), \
    .up = OUTSIDE("mlp.dense_h_to_4h"), .down = OUTSIDE("mlp.dense_4h_to_h"), \
    .norm = OUTSIDE("transformer.ln_f")

static const struct decoder one_norm = {
    NAMES, .attention_norm = OUTSIDE("input_layernorm")};
static const struct decoder two_norms = {
    NAMES, .attention_norm = OUTSIDE("ln_attn"),
    .ffn_norm = OUTSIDE("ln_mlp")};

static const struct config_row rows[] = {
    ROW_INTEGER("vocab_size", vocab, -1),
    ROW_INTEGER("hidden_size", width, -1),
    ROW_INTEGER("ffn_hidden_size", feed_forward, 0),
    ROW_INTEGER("num_hidden_layers", layers, -1),
    ROW_INTEGER("num_attention_heads", heads, -1),
    ROW_INTEGER("num_kv_heads", kv_heads, 0),
    ROW_INTEGER("max_position_embeddings", context, 2048),
    ROW_ACTIVATION("activation", ACTIVATION_GELU_ERF),
    ROW_REAL("layer_norm_epsilon", norm_epsilon, 1e-5),
    ROW_REAL("initializer_range", init_std, 0.02),
    ROW_FLAG("tie_word_embeddings", tied, true), ROWS_ROPE,
    ROW_DROPOUT("hidden_dropout"), ROW_DROPOUT("attention_dropout"),
    ROW_IDLE("ff_factor"), /* ffn_hidden_size says it */
    ROW_ONLY("bias", "false"), ROW_ONLY("alibi", "false"),
    ROW_ONLY("parallel_attn", "true"), ROW_IDLE("multi_query"),
    ROW_IDLE("new_decoder_architecture"), ROW_IDLE("num_ln_in_parallel_attn"),
    ROW_ONLY("apply_residual_connection_post_layernorm", "false"),
};

static bool is_grouped(const struct model *m)
{
    return m->kv_heads > 1 && m->kv_heads < m->heads;
}

static status read_more(struct model *model, const struct json *config,
                        const char *source)
{
    bool grouped, one;
    int64_t norms;

    TRY(json_get_bool_or(config, source, "new_decoder_architecture", false,
                         &grouped));
    TRY(json_get_bool_or(config, source, "multi_query", true, &one));
    TRY(json_get_integer_or(config, source, "num_ln_in_parallel_attn",
                            grouped ? 2 : 1, &norms));
    if (!grouped) model->kv_heads = one ? 1 : model->heads;
    if (grouped != is_grouped(model))
        FAIL(ERR_CONFIG, "%s: new_decoder_architecture: this build takes it "
                         "with 2 to %d key-value heads, not %d", source,
             model->heads - 1, model->kv_heads);
    if (norms != (grouped ? 2 : 1))
        FAIL(ERR_CONFIG, "%s: num_ln_in_parallel_attn: %lld; this build takes "
                         "2 with new_decoder_architecture, else 1", source,
             (long long)norms);
    return OK;
}

static void write_more(const struct model *model, struct json_writer *out)
{
    json_write_key(out, "new_decoder_architecture");
    json_write_bool(out, is_grouped(model));
    json_write_key(out, "multi_query");
    json_write_bool(out, model->kv_heads == 1);
}

static status settle(struct model *model)
{
    model->decoder = is_grouped(model) ? &two_norms : &one_norm;
    return OK;
}

const struct model_kind model_falcon = {
    .name = "falcon", .architecture = "FalconForCausalLM",
    .layer_prefix = "transformer.h.%d.", .decoder = &one_norm,
    CONFIG_ROWS(rows), .no_attention_bias = true, .no_mlp_bias = true,
    .heads = HEADS_FILL_WIDTH, .kv_heads = 1, .parallel = true,
    .activation = ACTIVATION_GELU_ERF, .build = decoder_build,
    .read_more = read_more, .write_more = write_more, .settle = settle};
