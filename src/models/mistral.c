/* SPDX-License-Identifier: Apache-2.0 */
/* mistral.c - Mistral: a Llama without biases, whose tokens see a window of
 * the tokens before them; Ministral: in some of its blocks.
 * Source: Jiang et al. 2023, arXiv:2310.06825, section 2; the configuration of
 * Ministral 8B, 2024. */
#include "models/config.h"

static const struct config_row rows[] = {
    ROWS_LLAMA(1e-6), ROWS_ROPE,
    ROW_INTEGER("num_key_value_heads", kv_heads, 8),
    ROW_INTEGER("head_dim", head_width, 0),
    ROW_INTEGER("max_position_embeddings", context, 131072),
    ROW_FLAG("tie_word_embeddings", tied, false), ROW_IDLE("sliding_window"),
    ROW_IDLE("layer_types"),
};

static status read_layers(struct model *model, const struct json *config,
                          const char *source)
{
    TRY(config_read_window(model, config, source, 4096));
    return config_read_types(model, config, source);
}

/* transformers passes over layer_types of a Mistral: they may only say what
 * the window says. */
static status read_window(struct model *model, const struct json *config,
                          const char *source)
{
    TRY(read_layers(model, config, source));
    if (model->window.tokens > 0 && blocks_count(&model->window.whole) > 0)
        FAIL(ERR_CONFIG, "%s: layer_types: mistral has a window in all blocks; "
                         "use model_type ministral to choose the blocks",
             source);
    return OK;
}

const struct model_kind model_mistral = {
    .name = "mistral", .architecture = "MistralForCausalLM",
    .layer_prefix = "model.layers.%d.", .decoder = &decoder_llama,
    CONFIG_ROWS(rows), .biases.no_attention = true, .biases.no_mlp = true,
    .window.may = true, .moe.made = &model_mixtral, .build = decoder_build,
    .read_more = read_window,
    .write_more = config_write_window};

const struct model_kind model_ministral = {
    .name = "ministral", .architecture = "MinistralForCausalLM",
    .layer_prefix = "model.layers.%d.", .decoder = &decoder_llama,
    CONFIG_ROWS(rows), .biases.no_attention = true, .biases.no_mlp = true,
    .window.may = true, .window.layers = true, .build = decoder_build,
    .read_more = read_layers, .write_more = config_write_types};
