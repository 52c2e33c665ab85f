/* SPDX-License-Identifier: Apache-2.0 */
/* falcon.c - Falcon: attention and feed-forward side by side, no biases. The 7B
 * has one norm for both and one key-value head; the "new decoder architecture"
 * groups, with two norms (40B) or one (Falcon 2). The RW models are one after
 * the other, with biases, and tell positions by linear biases of scores.
 * Source: Almazrouei et al. 2023, arXiv:2311.16867, section 4; Penedo et al.
 * 2023, arXiv:2306.01116, section 4.1 (RW). */
#include "models/config.h"

#define NAMES \
    .norms.layernorm = true, .attention.by_group = true, \
    .embedding = "transformer.word_embeddings.weight", \
    .head = "lm_head.weight", \
    .attention.qkv = OUTSIDE("self_attention.query_key_value"), \
    .attention.out = OUTSIDE("self_attention.dense"), \
    .ffn.up = OUTSIDE("mlp.dense_h_to_4h"), \
    .ffn.down = OUTSIDE("mlp.dense_4h_to_h"), \
    .norm = OUTSIDE("transformer.ln_f")

static const struct decoder one_norm = {
    NAMES, .attention.norm = OUTSIDE("input_layernorm")};
static const struct decoder two_norms = {
    NAMES, .attention.norm = OUTSIDE("ln_attn"),
    .ffn.norm = OUTSIDE("ln_mlp")};
static const struct decoder serial = {
    NAMES, .attention.norm = OUTSIDE("input_layernorm"),
    .ffn.norm = OUTSIDE("post_attention_layernorm")};

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
    ROW_FLAG("bias", biases.attention, false), ROW_FLAG("alibi", alibi, false),
    ROW_FLAG("parallel_attn", beside.on, true), ROW_IDLE("multi_query"),
    ROW_IDLE("new_decoder_architecture"), ROW_IDLE("num_ln_in_parallel_attn"),
    ROW_ONLY("apply_residual_connection_post_layernorm", "false"),
};

static bool is_grouped(const struct model *m)
{
    return m->kv_heads > 1 && m->kv_heads < m->heads;
}

/* As transformers builds it: the old architecture has as many key-value heads
 * as heads, or one; only the new one has two norms. */
static status read_more(struct model *model, const struct json *config,
                        const char *source)
{
    bool new, one;
    int64_t norms;

    TRY(json_get_bool_or(config, source, "new_decoder_architecture", false,
                         &new));
    TRY(json_get_bool_or(config, source, "multi_query", true, &one));
    TRY(json_get_integer_or(config, source, "num_ln_in_parallel_attn",
                            new ? 2 : 1, &norms));
    if (!new) model->kv_heads = one ? 1 : model->heads;
    if (new && !model->beside.on)
        FAIL(ERR_CONFIG, "%s: parallel_attn is false; with "
                         "new_decoder_architecture it must be true",
             source);
    if (norms < 1 || norms > (new ? 2 : 1))
        FAIL(ERR_CONFIG, "%s: num_ln_in_parallel_attn: %lld; with "
                         "new_decoder_architecture there are 1 and 2, else "
                         "only 1", source, (long long)norms);
    model->beside.norms = model->beside.on ? (int)norms : 0;
    model->biases.mlp = model->biases.attention;
    return OK;
}

static void write_more(const struct model *model, struct json_writer *out)
{
    const bool new = is_grouped(model) || model->beside.norms == 2;

    json_write_key(out, "new_decoder_architecture");
    json_write_bool(out, new);
    json_write_key(out, "multi_query");
    json_write_bool(out, model->kv_heads == 1);
    if (new)
        json_write_key_integer(out, "num_ln_in_parallel_attn",
                               model->beside.norms);
}

static status settle(struct model *m)
{
    if (m->biases.attention != m->biases.mlp)
        FAIL(ERR_CONFIG, "model.%s: falcon has biases everywhere or nowhere; "
                         "set model.attention_bias and model.mlp_bias to the "
                         "same value",
             m->biases.attention ? "mlp_bias" : "attention_bias");
    if (!m->beside.on && (is_grouped(m) || m->beside.norms > 0))
        FAIL(ERR_CONFIG, "model.parallel: 0, but a falcon has %s only in a "
                         "parallel block",
             is_grouped(m) ? "several key-value heads with groups of queries"
                           : "model.parallel_norms");
    if (m->beside.on && m->beside.norms == 0)
        m->beside.norms = is_grouped(m) ? 2 : 1;
    m->decoder = !m->beside.on               ? &serial
                 : m->beside.norms == 2 ? &two_norms
                                          : &one_norm;
    return OK;
}

const struct model_kind model_falcon = {
    .name = "falcon", .architecture = "FalconForCausalLM",
    .layer_prefix = "transformer.h.%d.", .decoder = &one_norm,
    CONFIG_ROWS(rows), .heads = HEADS_FILL_WIDTH, .kv_heads = 1,
    .beside.always = true, .beside.choice = true, .beside.norms = true,
    .alibi = true, .activation = ACTIVATION_GELU_ERF, .build = decoder_build,
    .read_more = read_more, .write_more = write_more, .settle = settle};
