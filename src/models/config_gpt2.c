/* SPDX-License-Identifier: Apache-2.0 */
/* config_gpt2.c - config.json of GPT-2. */
#include "models/config.h"

#include <string.h>

static const struct config_field fields[] = {
    {"vocab_size", NULL}, {"n_positions", NULL}, {"n_embd", NULL},
    {"n_layer", NULL}, {"n_head", NULL}, {"n_inner", NULL},
    {"activation_function", NULL}, {"layer_norm_epsilon", NULL},
    {"n_ctx", NULL}, {"attn_pdrop", NULL}, {"embd_pdrop", NULL},
    {"resid_pdrop", NULL}, {"scale_attn_weights", "true"},
    {"scale_attn_by_inverse_layer_idx", "false"},
    {"reorder_and_upcast_attn", "false"}, {"gradient_checkpointing", NULL},
    {"summary_type", NULL}, {"summary_use_proj", NULL},
    {"summary_activation", NULL}, {"summary_proj_to_labels", NULL},
    {"summary_first_dropout", NULL},
};

static const struct { const char *name; enum activation value; }
    activations[] = {{"gelu_new", ACTIVATION_GELU_TANH},
                     {"gelu_pytorch_tanh", ACTIVATION_GELU_TANH},
                     {"gelu", ACTIVATION_GELU_ERF},
                     {"relu", ACTIVATION_RELU},
                     {"silu", ACTIVATION_SILU}};
enum { ACTIVATIONS = sizeof activations / sizeof *activations };

static status read_activation(struct model *model, const struct json *config,
                              const char *source)
{
    const char *name;

    TRY(json_get_string_or(config, source, "activation_function", "gelu_new",
                           &name));
    for (int i = 0; i < ACTIVATIONS; i++) {
        if (strcmp(activations[i].name, name) != 0) continue;
        model->activation = activations[i].value;
        return OK;
    }
    FAIL(ERR_CONFIG, "%s: activation_function: %s is not gelu_new, gelu, relu "
                     "or silu", source, name);
}

status gpt2_read_config(struct model *model, const struct json *config,
                        const char *source)
{
    static const char *const dropout[] = {"attn_pdrop", "embd_pdrop",
                                          "resid_pdrop"};
    int64_t layers, heads, feed_forward;

    TRY(config_check(config, source, fields,
                     (int)(sizeof fields / sizeof *fields)));
    *model = (struct model){.kind = &model_gpt2, .attention_bias = true,
                            .mlp_bias = true, .rope_base = 10000};
    TRY(config_read_common(model, config, source));
    TRY(config_read_int(config, source, "vocab_size", -1, &model->vocab));
    TRY(config_read_int(config, source, "n_embd", -1, &model->width));
    TRY(config_read_int(config, source, "n_layer", -1, &layers));
    TRY(config_read_int(config, source, "n_head", -1, &heads));
    TRY(config_read_int(config, source, "n_inner", 4 * model->width,
                        &feed_forward));
    TRY(config_read_int(config, source, "n_positions", 1024,
                        &model->context));
    TRY(json_get_real_or(config, source, "layer_norm_epsilon", 1e-5,
                         &model->norm_epsilon));
    TRY(json_get_bool_or(config, source, "tie_word_embeddings", true,
                         &model->tied));
    TRY(config_read_dropout(model, config, source, dropout, 3));
    TRY(read_activation(model, config, source));
    model->layers = (int)layers;
    model->heads = model->kv_heads = (int)heads;
    model->feed_forward = feed_forward;
    model->head_width = (int)(model->width / heads);
    return model_check(model);
}

void gpt2_write_config(const struct model *model, struct json_writer *out)
{
    const char *activation = "gelu_new";

    for (int i = ACTIVATIONS - 1; i >= 0; i--)
        if (activations[i].value == model->activation)
            activation = activations[i].name;
    json_write_key(out, "architectures");
    json_write_array(out);
    json_write_string(out, "GPT2LMHeadModel");
    json_write_array_end(out);
    json_write_key(out, "model_type");
    json_write_string(out, "gpt2");
    json_write_key_integer(out, "vocab_size", model->vocab);
    json_write_key_integer(out, "n_positions", model->context);
    json_write_key_integer(out, "n_embd", model->width);
    json_write_key_integer(out, "n_layer", model->layers);
    json_write_key_integer(out, "n_head", model->heads);
    json_write_key_integer(out, "n_inner", model->feed_forward);
    json_write_key(out, "activation_function");
    json_write_string(out, activation);
    json_write_key_real(out, "layer_norm_epsilon", model->norm_epsilon);
    json_write_key_real(out, "initializer_range", model->init_std);
    json_write_key_real(out, "attn_pdrop", 0);
    json_write_key_real(out, "embd_pdrop", 0);
    json_write_key_real(out, "resid_pdrop", 0);
    json_write_key(out, "tie_word_embeddings");
    json_write_bool(out, model->tied);
}
