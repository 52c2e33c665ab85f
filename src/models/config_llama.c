/* SPDX-License-Identifier: Apache-2.0 */
/* config_llama.c - config.json of the Llama family, as transformers v4 and v5
 * spell it. */
#include "models/config.h"

static const struct config_field fields[] = {
    {"vocab_size", NULL}, {"hidden_size", NULL}, {"intermediate_size", NULL},
    {"num_hidden_layers", NULL}, {"num_attention_heads", NULL},
    {"num_key_value_heads", NULL}, {"head_dim", NULL}, {"hidden_act", "silu"},
    {"max_position_embeddings", NULL}, {"rms_norm_eps", NULL},
    {"attention_bias", NULL}, {"mlp_bias", NULL}, {"rope_theta", NULL},
    {"rope_scaling", NULL}, {"rope_parameters", NULL},
    {"attention_dropout", NULL}, {"pretraining_tp", "1"},
    {"is_llama_config", NULL}, {"rope_interleaved", "false"},
};

/* An absent number of key-value heads is the family's own, null is as many as
 * heads. */
static status read_kv_heads(struct model *model, const struct json *config,
                            const char *source, int absent)
{
    int64_t heads;
    const bool named = json_get(config, "num_key_value_heads") != NULL;

    TRY(config_read_int(config, source, "num_key_value_heads",
                        named || absent == 0 ? model->heads : absent,
                        &heads));
    model->kv_heads = (int)heads;
    return OK;
}

status llama_read_sizes(struct model *model, const struct json *config,
                        const char *source, int kv_heads, int64_t context)
{
    static const char *const dropout[] = {"attention_dropout"};
    int64_t layers, heads, head_width;

    model->activation = ACTIVATION_SILU;
    TRY(config_read_common(model, config, source));
    TRY(config_read_int(config, source, "vocab_size", -1, &model->vocab));
    TRY(config_read_int(config, source, "hidden_size", -1, &model->width));
    TRY(config_read_int(config, source, "intermediate_size", -1,
                        &model->feed_forward));
    TRY(config_read_int(config, source, "num_hidden_layers", -1, &layers));
    TRY(config_read_int(config, source, "num_attention_heads", -1, &heads));
    model->layers = (int)layers;
    model->heads = (int)heads;
    TRY(read_kv_heads(model, config, source, kv_heads));
    TRY(config_read_int(config, source, "head_dim",
                        model->width / heads > 0 ? model->width / heads : 1,
                        &head_width));
    model->head_width = (int)head_width;
    TRY(config_read_int(config, source, "max_position_embeddings", context,
                        &model->context));
    TRY(json_get_real_or(config, source, "rms_norm_eps", 1e-6,
                         &model->norm_epsilon));
    TRY(json_get_bool_or(config, source, "tie_word_embeddings", false,
                         &model->tied));
    TRY(config_read_dropout(model, config, source, dropout, 1));
    return rope_read_config(model, config, source);
}

status llama_read_config(struct model *model, const struct json *config,
                         const char *source)
{
    TRY(config_check(config, source, fields,
                     (int)(sizeof fields / sizeof *fields)));
    *model = (struct model){.kind = &model_llama};
    TRY(llama_read_sizes(model, config, source, 0, 2048));
    TRY(json_get_bool_or(config, source, "attention_bias", false,
                         &model->attention_bias));
    TRY(json_get_bool_or(config, source, "mlp_bias", false, &model->mlp_bias));
    return model_check(model);
}

static void boolean(struct json_writer *out, const char *key, bool value)
{
    json_write_key(out, key);
    json_write_bool(out, value);
}

void llama_write_sizes(const struct model *model, const char *architecture,
                       struct json_writer *out)
{
    json_write_key(out, "architectures");
    json_write_array(out);
    json_write_string(out, architecture);
    json_write_array_end(out);
    json_write_key(out, "model_type");
    json_write_string(out, model->kind->name);
    json_write_key_integer(out, "vocab_size", model->vocab);
    json_write_key_integer(out, "hidden_size", model->width);
    json_write_key_integer(out, "intermediate_size", model->feed_forward);
    json_write_key_integer(out, "num_hidden_layers", model->layers);
    json_write_key_integer(out, "num_attention_heads", model->heads);
    json_write_key_integer(out, "num_key_value_heads", model->kv_heads);
    json_write_key_integer(out, "head_dim", model->head_width);
    json_write_key(out, "hidden_act");
    json_write_string(out, "silu");
    json_write_key_integer(out, "max_position_embeddings", model->context);
    json_write_key_real(out, "initializer_range", model->init_std);
    json_write_key_real(out, "rms_norm_eps", model->norm_epsilon);
    boolean(out, "tie_word_embeddings", model->tied);
    json_write_key_real(out, "attention_dropout", 0);
    rope_write_config(model, out);
}

void llama_write_config(const struct model *model, struct json_writer *out)
{
    llama_write_sizes(model, "LlamaForCausalLM", out);
    boolean(out, "attention_bias", model->attention_bias);
    boolean(out, "mlp_bias", model->mlp_bias);
    json_write_key_integer(out, "pretraining_tp", 1);
}
