/* SPDX-License-Identifier: Apache-2.0 */
/* mistral.c - Mistral: a Llama without biases, whose tokens see a window of
 * the tokens before them.
 * Source: Jiang et al. 2023, arXiv:2310.06825, section 2. */
#include "models/config.h"

static const struct config_row rows[] = {
    ROWS_LLAMA(1e-6), ROWS_ROPE,
    ROW_INTEGER("num_key_value_heads", kv_heads, 8),
    ROW_INTEGER("head_dim", head_width, 0),
    ROW_INTEGER("max_position_embeddings", context, 131072),
    ROW_FLAG("tie_word_embeddings", tied, false), ROW_IDLE("sliding_window"),
};

static status read_window(struct model *model, const struct json *config,
                          const char *source)
{
    return config_read_window(model, config, source, 4096);
}

const struct model_kind model_mistral = {
    .name = "mistral", .architecture = "MistralForCausalLM",
    .layer_prefix = "model.layers.%d.", .decoder = &decoder_llama,
    CONFIG_ROWS(rows), .no_attention_bias = true, .no_mlp_bias = true,
    .windowed = true, .build = decoder_build, .read_more = read_window,
    .write_more = config_write_window};
