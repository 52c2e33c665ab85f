/* SPDX-License-Identifier: Apache-2.0 */
/* gptj.c - GPT-J: attention and feed-forward side by side after one LayerNorm;
 * of a part of each head neighbours turn; a bias on the logits.
 * Source: Wang and Komatsuzaki 2021, "GPT-J-6B". */
#include "models/config.h"

static const struct decoder decoder = {
    .norms.layernorm = true, .attention.pairs = true,
    .embedding = "transformer.wte.weight", .head = "lm_head.weight",
    .head_bias = "lm_head.bias", .attention.norm = OUTSIDE("ln_1"),
    .attention.q = OUTSIDE_WEIGHT("attn.q_proj"),
    .attention.k = OUTSIDE_WEIGHT("attn.k_proj"),
    .attention.v = OUTSIDE_WEIGHT("attn.v_proj"),
    .attention.out = OUTSIDE_WEIGHT("attn.out_proj"),
    .ffn.up = OUTSIDE("mlp.fc_in"),
    .ffn.down = OUTSIDE("mlp.fc_out"), .norm = OUTSIDE("transformer.ln_f")};

static const struct config_row rows[] = {
    ROW_INTEGER("vocab_size", vocab, -1),
    ROW_INTEGER("n_positions", context, 2048),
    ROW_INTEGER("n_embd", width, -1), ROW_INTEGER("n_layer", layers, -1),
    ROW_INTEGER("n_head", heads, -1), ROW_INTEGER("n_inner", feed_forward, 0),
    ROW_INTEGER("rotary_dim", rope.rotary, 64),
    ROW_ACTIVATION("activation_function", ACTIVATION_GELU_TANH),
    ROW_REAL("layer_norm_epsilon", norm_epsilon, 1e-5),
    ROW_REAL("initializer_range", init_std, 0.02), ROW_DROPOUT("attn_pdrop"),
    ROW_DROPOUT("embd_pdrop"), ROW_DROPOUT("resid_pdrop"),
    ROW_FLAG("tie_word_embeddings", tied, false), ROW_ONLY("rotary", "true"),
    ROW_ONLY("scale_attn_weights", "true"),
    ROW_IDLE("summary_type"), ROW_IDLE("summary_use_proj"),
    ROW_IDLE("summary_activation"), ROW_IDLE("summary_proj_to_labels"),
    ROW_IDLE("summary_first_dropout"),
};

/* rotary_dim says all of a head, too. */
static status settle(struct model *model)
{
    if (model->rope.rotary == 0) model->rope.rotary = model->head_width;
    if (model->rope.base != 10000 || model->rope.scaling.kind != ROPE_PLAIN)
        FAIL(ERR_CONFIG, "model.rope_base: gptj takes only 10000, unscaled");
    return OK;
}

const struct model_kind model_gptj = {
    .name = "gptj", .architecture = "GPTJForCausalLM",
    .layer_prefix = "transformer.h.%d.", .decoder = &decoder,
    CONFIG_ROWS(rows), .biases.no_attention = true, .biases.mlp = true,
    .heads = HEADS_ALIKE, .beside.always = true, .rope.share = 0.25,
    .activation = ACTIVATION_GELU_TANH, .build = decoder_build,
    .settle = settle};
