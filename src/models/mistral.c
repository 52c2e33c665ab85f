/* SPDX-License-Identifier: Apache-2.0 */
/* mistral.c - Mistral: a Llama without biases, whose tokens see a window of
 * the tokens before them. Here no sequence is longer than the window, so that
 * all of it is seen.
 * Source: Jiang et al. 2023, arXiv:2310.06825, section 2. */
#include "models/config.h"

static const struct config_field fields[] = {
    {"vocab_size", NULL}, {"hidden_size", NULL}, {"intermediate_size", NULL},
    {"num_hidden_layers", NULL}, {"num_attention_heads", NULL},
    {"num_key_value_heads", NULL}, {"head_dim", NULL}, {"hidden_act", "silu"},
    {"max_position_embeddings", NULL}, {"rms_norm_eps", NULL},
    {"rope_theta", NULL}, {"rope_scaling", NULL}, {"rope_parameters", NULL},
    {"attention_dropout", NULL}, {"sliding_window", NULL},
};

/* Absent: 4096, as the library has it; null: none. */
static status read_window(struct model *model, const struct json *config,
                          const char *source)
{
    const struct json *value = json_get(config, "sliding_window");

    if (value != NULL && value->kind == JSON_NULL) return OK;
    return config_read_int(config, source, "sliding_window", 4096,
                           &model->window);
}

static status read_config(struct model *model, const struct json *config,
                          const char *source)
{
    TRY(config_check(config, source, fields,
                     (int)(sizeof fields / sizeof *fields)));
    *model = (struct model){.kind = &model_mistral};
    TRY(llama_read_sizes(model, config, source, 8, 4096 * 32));
    TRY(read_window(model, config, source));
    return model_check(model);
}

static void write_config(const struct model *model, struct json_writer *out)
{
    llama_write_sizes(model, "MistralForCausalLM", out);
    json_write_key(out, "sliding_window");
    if (model->window > 0) json_write_integer(out, model->window);
    else json_write_null(out);
}

const struct model_kind model_mistral = {
    .name = "mistral", .layer_prefix = "model.layers.%d.",
    .no_attention_bias = true, .no_mlp_bias = true, .windowed = true,
    .build = llama_build, .read_config = read_config,
    .write_config = write_config};
