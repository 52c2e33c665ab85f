/* SPDX-License-Identifier: Apache-2.0 */
/* qwen2.c - Qwen2 and Qwen2.5: a Llama with biases in the projections to q, k
 * and v. Source: Yang et al. 2024, arXiv:2407.10671, section 2.2. */
#include <string.h>

#include "models/config.h"

static const struct config_field fields[] = {
    {"vocab_size", NULL}, {"hidden_size", NULL}, {"intermediate_size", NULL},
    {"num_hidden_layers", NULL}, {"num_attention_heads", NULL},
    {"num_key_value_heads", NULL}, {"head_dim", NULL}, {"hidden_act", "silu"},
    {"max_position_embeddings", NULL}, {"rms_norm_eps", NULL},
    {"rope_theta", NULL}, {"rope_scaling", NULL}, {"rope_parameters", NULL},
    {"attention_dropout", NULL}, {"use_sliding_window", NULL},
    {"sliding_window", NULL}, {"max_window_layers", NULL},
    {"layer_types", NULL}, {"use_mrope", "false"},
};

/* Only the layers from max_window_layers on have the window. A model that sees
 * whole sequences without it is the same one. */
static status check_window(const struct model *model,
                           const struct json *config, const char *source)
{
    const struct json *types = json_get(config, "layer_types");
    int64_t window, first;
    bool used;

    TRY(json_get_bool_or(config, source, "use_sliding_window", false, &used));
    TRY(json_get_integer_or(config, source, "sliding_window", 4096, &window));
    TRY(json_get_integer_or(config, source, "max_window_layers", 28, &first));
    if (used && first < model->layers && window < model->context)
        FAIL(ERR_CONFIG, "%s: sliding_window: layers from %lld on see %lld "
                         "tokens of up to %lld, which this build cannot "
                         "compute; it takes use_sliding_window false",
             source, (long long)first, (long long)window,
             (long long)model->context);
    if (types == NULL || types->kind == JSON_NULL) return OK;
    if (types->kind != JSON_ARRAY)
        FAIL(ERR_CONFIG, "%s: layer_types is not an array", source);
    for (int i = 0; i < types->count; i++)
        if (types->items[i].kind != JSON_STRING ||
            strcmp(types->items[i].string, "full_attention") != 0)
            FAIL(ERR_CONFIG, "%s: layer_types: layer %d is not "
                             "full_attention, the only type that this build "
                             "has", source, i);
    return OK;
}

static status read_config(struct model *model, const struct json *config,
                          const char *source)
{
    TRY(config_check(config, source, fields,
                     (int)(sizeof fields / sizeof *fields)));
    *model = (struct model){.kind = &model_qwen2, .attention_bias = true};
    TRY(llama_read_sizes(model, config, source, 32, 32768));
    TRY(check_window(model, config, source));
    return model_check(model);
}

static void write_config(const struct model *model, struct json_writer *out)
{
    llama_write_sizes(model, "Qwen2ForCausalLM", out);
    json_write_key(out, "use_sliding_window");
    json_write_bool(out, false);
}

const struct model_kind model_qwen2 = {
    .name = "qwen2", .layer_prefix = "model.layers.%d.",
    .attention_bias = true, .no_mlp_bias = true, .no_output_bias = true,
    .build = llama_build, .read_config = read_config,
    .write_config = write_config};
