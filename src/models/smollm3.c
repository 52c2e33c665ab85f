/* SPDX-License-Identifier: Apache-2.0 */
/* smollm3.c - SmolLM3: a Llama in which each fourth block does not turn its
 * queries and keys. Source: Yang et al. 2025, arXiv:2501.18795, section 3. */
#include "models/config.h"

static const struct config_row rows[] = {
    ROWS_LLAMA(1e-6), ROWS_ROPE,
    ROW_INTEGER("num_key_value_heads", kv_heads, 4),
    ROW_INTEGER("max_position_embeddings", context, 32768),
    ROW_FLAG("tie_word_embeddings", tied, true),
    ROW_FLAG("attention_bias", attention_bias, false),
    ROW_FLAG("mlp_bias", mlp_bias, false),
    ROW_IDLE("no_rope_layers"), ROW_IDLE("no_rope_layer_interval"),
    ROW_IDLE("use_sliding_window"), ROW_IDLE("sliding_window"),
    ROW_IDLE("max_window_layers"), ROW_IDLE("layer_types"), ROW_HEAD_WIDTH,
};

/* no_rope_layers has 1 where a layer turns; more of them than layers are not
 * looked at. */
static status read_list(struct model *model, const struct json *list,
                        const char *source)
{
    if (list->kind != JSON_ARRAY || list->count < model->layers)
        FAIL(ERR_CONFIG, "%s: no_rope_layers is not an array of %d numbers",
             source, model->layers);
    model->still = (struct blocks){{0}};
    for (int i = 0; i < model->layers; i++) {
        const struct json *turns = &list->items[i];

        if (turns->kind != JSON_INTEGER || turns->integer < 0 ||
            turns->integer > 1)
            FAIL(ERR_CONFIG, "%s: no_rope_layers: layer %d must be 0 or 1",
                 source, i);
        if (turns->integer == 0) blocks_put(&model->still, i);
    }
    return OK;
}

/* Where layer_types is absent, blocks that do not turn have the window. */
static status read_more(struct model *model, const struct json *config,
                        const char *source)
{
    const struct json *list = json_get(config, "no_rope_layers");
    int64_t interval;

    TRY(config_read_int(config, source, "no_rope_layer_interval", 4,
                        &interval));
    blocks_every(&model->still, model->layers, (int)interval);
    if (list != NULL && list->kind != JSON_NULL)
        TRY(read_list(model, list, source));
    for (int i = 0; i < model->layers; i++)
        if (!blocks_has(&model->still, i)) blocks_put(&model->whole, i);
    return config_read_used(model, config, source, 0);
}

static void write_more(const struct model *model, struct json_writer *out)
{
    json_write_key(out, "no_rope_layers");
    json_write_array(out);
    for (int i = 0; i < model->layers; i++)
        json_write_integer(out, !blocks_has(&model->still, i));
    json_write_array_end(out);
    config_write_used(model, out);
}

const struct model_kind model_smollm3 = {
    .name = "smollm3", .architecture = "SmolLM3ForCausalLM",
    .layer_prefix = "model.layers.%d.", .decoder = &decoder_llama,
    CONFIG_ROWS(rows), .heads = HEADS_FILL_WIDTH, .rope_skip = 4,
    .rope_base = 2e6, .windowed = true, .window_layers = true,
    .build = decoder_build, .read_more = read_more,
    .write_more = write_more};
