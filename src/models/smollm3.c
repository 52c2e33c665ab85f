/* SPDX-License-Identifier: Apache-2.0 */
/* smollm3.c - SmolLM3: a Llama in which each fourth block does not turn its
 * queries and keys. Source: Yang et al. 2025, arXiv:2501.18795, section 3. */
#include "models/config.h"

static const struct config_row rows[] = {
    ROWS_LLAMA(1e-6), ROWS_ROPE,
    ROW_INTEGER("num_key_value_heads", kv_heads, 4),
    ROW_INTEGER("max_position_embeddings", context, 32768),
    ROW_FLAG("tie_word_embeddings", tied, true),
    ROW_FLAG("attention_bias", biases.attention, false),
    ROW_FLAG("mlp_bias", biases.mlp, false),
    ROW_IDLE("no_rope_layers"), ROW_IDLE("no_rope_layer_interval"),
    ROW_IDLE("use_sliding_window"), ROW_IDLE("sliding_window"),
    ROW_IDLE("max_window_layers"), ROW_IDLE("layer_types"), ROW_HEAD_WIDTH,
};

/* Where layer_types is absent, blocks that do not turn have the window. */
static status read_more(struct model *model, const struct json *config,
                        const char *source)
{
    TRY(config_read_still(model, config, source));
    for (int i = 0; i < model->layers; i++)
        if (!blocks_has(&model->rope.still, i))
            blocks_put(&model->window.whole, i);
    return config_read_used(model, config, source, 0);
}

static void write_more(const struct model *model, struct json_writer *out)
{
    config_write_still(model, out);
    config_write_used(model, out);
}

const struct model_kind model_smollm3 = {
    .name = "smollm3", .architecture = "SmolLM3ForCausalLM",
    .layer_prefix = "model.layers.%d.", .decoder = &decoder_llama,
    CONFIG_ROWS(rows), .heads = HEADS_FILL_WIDTH, .rope.skip = 4,
    .rope.base = 2e6, .window.may = true, .window.layers = true,
    .build = decoder_build, .read_more = read_more,
    .write_more = write_more};
