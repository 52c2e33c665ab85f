/* SPDX-License-Identifier: Apache-2.0 */
/* gemma3.c - Gemma 3 (text): Gemma 2 whose queries and keys are normed head by
 * head instead of capped, and whose blocks with a window, five of six, turn by
 * a base of their own.
 * Source: Gemma team 2025, arXiv:2503.19786, section 2. */
#include "models/config.h"

static const struct decoder decoder = {
    DECODER_LLAMA, .norms.plus_one = true, .scaled_embedding = true,
    .ffn.gelu = true, .attention.norm = OUTSIDE_WEIGHT("input_layernorm"),
    .attention.q_norm = OUTSIDE_WEIGHT("self_attn.q_norm"),
    .attention.k_norm = OUTSIDE_WEIGHT("self_attn.k_norm"),
    .attention.after = OUTSIDE_WEIGHT("post_attention_layernorm"),
    .ffn.norm = OUTSIDE_WEIGHT("pre_feedforward_layernorm"),
    .ffn.after = OUTSIDE_WEIGHT("post_feedforward_layernorm")};

/* The text part of a model of images leaves out what is as here. */
static const struct config_row rows[] = {
    ROW_INTEGER("vocab_size", vocab, 262208),
    ROW_INTEGER("hidden_size", width, 2304),
    ROW_INTEGER("intermediate_size", feed_forward, 9216),
    ROW_INTEGER("num_hidden_layers", layers, 26),
    ROW_INTEGER("num_attention_heads", heads, 8),
    ROW_REAL("rms_norm_eps", norm_epsilon, 1e-6),
    ROW_REAL("initializer_range", init_std, 0.02),
    ROW_DROPOUT("attention_dropout"), ROWS_ROPE,
    ROW_ROPE("rope_local_base_freq"),
    ROW_ONLY("hidden_activation", "gelu_pytorch_tanh"),
    ROW_INTEGER("num_key_value_heads", kv_heads, 4),
    ROW_INTEGER("head_dim", head_width, 256),
    ROW_INTEGER("max_position_embeddings", context, 131072),
    ROW_REAL("query_pre_attn_scalar", scaled.queries, 256),
    ROW_ONLY("attn_logit_softcapping", "null"),
    ROW_ONLY("final_logit_softcapping", "null"),
    ROW_FLAG("tie_word_embeddings", tied, true),
    ROW_FLAG("attention_bias", biases.attention, false),
    ROW_IDLE("sliding_window"), ROW_IDLE("layer_types"),
    ROW_IDLE("sliding_window_pattern"), ROW_IDLE("_sliding_window_pattern"),
    ROW_ONLY("use_bidirectional_attention", "false"),
};

/* layer_types, or, in older files, their period. */
static status read_more(struct model *model, const struct json *config,
                        const char *source)
{
    int64_t period;

    TRY(config_read_window(model, config, source, 4096));
    TRY(config_read_int(config, source, "sliding_window_pattern",
                        model->kind->window.skip, &period));
    blocks_every(&model->window.whole, model->layers, (int)period);
    return config_read_types(model, config, source);
}

/* The fields around text_config. Only the text part is used. */
static const struct config_row around[] = {
    ROW_IDLE("text_config"), ROW_IDLE("vision_config"),
    ROW_IDLE("mm_tokens_per_image"), ROW_IDLE("boi_token_index"),
    ROW_IDLE("eoi_token_index"), ROW_IDLE("image_token_index"),
    ROW_IDLE("boi_token_id"), ROW_IDLE("eoi_token_id"),
    ROW_IDLE("image_token_id"), ROW_ONLY("tie_word_embeddings", "true"),
};

const struct model_kind model_gemma3_around = {
    .name = "gemma3", CONFIG_ROWS(around)};

const struct model_kind model_gemma3 = {
    .name = "gemma3", .type = "gemma3_text",
    .architecture = "Gemma3ForCausalLM", .layer_prefix = "model.layers.%d.",
    .decoder = &decoder, CONFIG_ROWS(rows), .biases.no_mlp = true, .tied = true,
    .window.may = true, .window.layers = true, .window.skip = 6,
    .scaled.queries = true, .rope.base = 1e6, .rope.local_base = 1e4,
    .build = decoder_build, .read_more = read_more,
    .write_more = config_write_types};
