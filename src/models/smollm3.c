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
    ROW_IDLE("max_window_layers"), ROW_IDLE("layer_types"),
    ROW_ONLY("pretraining_tp", "1"),
};

static bool turns(int layer, int skip)
{
    return skip == 0 || (layer + 1) % skip != 0;
}

/* no_rope_layers has 1 where a layer turns. */
static status read_list(struct model *model, const struct json *list,
                        const char *source)
{
    model->rope_skip = 0;
    if (list->kind != JSON_ARRAY || list->count != model->layers)
        FAIL(ERR_CONFIG, "%s: no_rope_layers is not an array of %d numbers",
             source, model->layers);
    for (int i = 0; i < list->count; i++) {
        const bool yes = list->items[i].kind != JSON_INTEGER ||
                         list->items[i].integer != 0;

        if (!yes && model->rope_skip == 0) model->rope_skip = i + 1;
        if (yes != turns(i, model->rope_skip))
            FAIL(ERR_CONFIG, "%s: no_rope_layers: layer %d is out of step; "
                             "this build has each so manieth layer without "
                             "turning", source, i);
    }
    return OK;
}

static status read_more(struct model *model, const struct json *config,
                        const char *source)
{
    const struct json *list = json_get(config, "no_rope_layers");
    int64_t interval;
    bool window;

    TRY(config_read_int(config, source, "no_rope_layer_interval", 4,
                        &interval));
    model->rope_skip = (int)interval;
    if (list != NULL && list->kind != JSON_NULL)
        TRY(read_list(model, list, source));
    TRY(json_get_bool_or(config, source, "use_sliding_window", false,
                         &window));
    if (window)
        FAIL(ERR_CONFIG, "%s: use_sliding_window: this build takes only "
                         "false", source);
    return config_check_layers(config, source);
}

static void write_more(const struct model *model, struct json_writer *out)
{
    json_write_key(out, "no_rope_layers");
    json_write_array(out);
    for (int i = 0; i < model->layers; i++)
        json_write_integer(out, turns(i, model->rope_skip));
    json_write_array_end(out);
    config_write_no_window(model, out);
}

const struct model_kind model_smollm3 = {
    .name = "smollm3", .architecture = "SmolLM3ForCausalLM",
    .layer_prefix = "model.layers.%d.", .decoder = &decoder_llama,
    CONFIG_ROWS(rows), .heads = HEADS_FILL_WIDTH, .rope_skip = 4,
    .build = decoder_build, .read_more = read_more,
    .write_more = write_more};
