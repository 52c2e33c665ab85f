/* SPDX-License-Identifier: Apache-2.0 */
/* config.c - code for the config.json of all families: the fields that may be
 * there, and how their numbers are read. */
#include "models/config.h"

#include <string.h>

#include "base/log.h"

/* Fields of transformers' base configuration (v4 and v5) that say nothing
 * about the arithmetic of these families. */
static const struct { const char *name, *only; } everywhere[] = {
    {"architectures", NULL}, {"model_type", NULL}, {"torch_dtype", NULL},
    {"dtype", NULL}, {"use_cache", NULL}, {"transformers_version", NULL},
    {"pad_token_id", NULL}, {"bos_token_id", NULL}, {"eos_token_id", NULL},
    {"sep_token_id", NULL}, {"decoder_start_token_id", NULL},
    {"_name_or_path", NULL}, {"_attn_implementation_autoset", NULL},
    {"attn_implementation", NULL}, {"_attn_implementation", NULL},
    {"initializer_range", NULL}, {"tie_word_embeddings", NULL},
    {"return_dict", NULL}, {"output_hidden_states", NULL},
    {"output_attentions", NULL}, {"torchscript", NULL},
    {"use_bfloat16", NULL}, {"tf_legacy_loss", NULL},
    {"pruned_heads", "{}"}, {"chunk_size_feed_forward", "0"},
    {"is_encoder_decoder", "false"}, {"is_decoder", NULL},
    {"add_cross_attention", "false"}, {"cross_attention_hidden_size", "null"},
    {"tie_encoder_decoder", "false"}, {"finetuning_task", NULL},
    {"id2label", NULL}, {"label2id", NULL}, {"num_labels", NULL},
    {"problem_type", NULL}, {"tokenizer_class", NULL}, {"prefix", NULL},
    {"task_specific_params", NULL}, {"transformers.js_config", NULL},
    {"max_length", NULL}, {"min_length", NULL}, {"do_sample", NULL},
    {"temperature", NULL}, {"top_k", NULL}, {"top_p", NULL},
    {"repetition_penalty", NULL}, {"unsloth_version", NULL},
    {"num_beams", NULL}, {"num_beam_groups", NULL}, {"early_stopping", NULL},
    {"length_penalty", NULL}, {"diversity_penalty", NULL},
    {"no_repeat_ngram_size", NULL}, {"encoder_no_repeat_ngram_size", NULL},
    {"bad_words_ids", NULL}, {"num_return_sequences", NULL},
    {"typical_p", NULL}, {"forced_bos_token_id", NULL},
    {"forced_eos_token_id", NULL}, {"remove_invalid_values", NULL},
    {"exponential_decay_length_penalty", NULL}, {"suppress_tokens", NULL},
    {"begin_suppress_tokens", NULL}, {"output_scores", NULL},
    {"return_dict_in_generate", NULL}, {"output_past", NULL},
    {"_num_labels", NULL}, {"n_special", NULL},
    {"predict_special_tokens", NULL},
    {"license", NULL}, {"auto_map", NULL}, {"custom_pipelines", NULL},
    {"num_assistant_tokens", NULL}, {"max_new_tokens", NULL},
    {"min_new_tokens", NULL}, {"max_time", NULL},
    {"cache_implementation", NULL}, {"name_or_path", NULL},
    {"_commit_hash", NULL}, {"_attn_implementation_internal", NULL},
    {"_experts_implementation_internal", NULL},
    {"_flash_attn_2_enabled", NULL}, {"gradient_checkpointing", NULL},
    {"xla_device", NULL}, {"unsloth_fixed", NULL},
    {"pretraining_tp", NULL}, {"is_llama_config", NULL},
    {"max_sequence_length", NULL}, {"tie_last_hidden_states", NULL},
    {"partial_rotary_factor", "1"}, /* where a family has no such part */
};
enum { EVERYWHERE = sizeof everywhere / sizeof *everywhere };

/* text: words with | between them. */
static bool is_one_of(const char *word, const char *text)
{
    const size_t length = strlen(word);

    for (;; text++) {
        const size_t end = strcspn(text, "|");

        if (end == length && memcmp(text, word, end) == 0) return true;
        text += end;
        if (*text == 0) return false;
    }
}

static bool value_is(const struct json *value, const char *text)
{
    switch (value->kind) {
    case JSON_NULL: return strcmp(text, "null") == 0;
    case JSON_FALSE: return strcmp(text, "false") == 0;
    case JSON_TRUE: return strcmp(text, "true") == 0;
    case JSON_INTEGER:
    case JSON_REAL:
        return (text[0] == '0' && text[1] == 0 && value->real == 0.0) ||
               (text[0] == '1' && text[1] == 0 && value->real == 1.0);
    case JSON_STRING: return is_one_of(value->string, text);
    case JSON_OBJECT: return strcmp(text, "{}") == 0 && value->count == 0;
    case JSON_ARRAY: return strcmp(text, "[]") == 0 && value->count == 0;
    }
    return false;
}

/* Finds the value that a field must have, NULL: any. False: the field is
 * unknown. */
static bool find(const struct model_kind *kind, const char *name,
                 const char **only)
{
    for (int i = 0; i < kind->row_count; i++)
        if (strcmp(kind->rows[i].name, name) == 0) {
            *only = kind->rows[i].only;
            return true;
        }
    for (int i = 0; i < EVERYWHERE; i++)
        if (strcmp(everywhere[i].name, name) == 0) {
            *only = everywhere[i].only;
            return true;
        }
    return false;
}

/* Names by which a program keeps notes of its own, says which tokens are
 * special, or how it generated or trained: they cannot change what the model
 * computes. Tokens whose numbers matter have rows of their own. */
static bool is_hint(const char *name)
{
    static const char *const ends[] = {
        "_token", "_token_id", "_token_ids", "_tokens", "_penalty"};
    static const char *const begins[] = {
        "_", "generation_", "gradient_checkpointing", "training_", "train_",
        "wandb_", "unsloth_", "tokenizer_", "torch_compile"};
    static const char *const names[] = {
        "min_p", "penalty_alpha", "guidance_scale", "epsilon_cutoff",
        "eta_cutoff", "stop_strings", "learning_rate", "weight_decay",
        "warmup_steps", "lr_scheduler_type", "optimizer", "seed",
        "use_flash_attn", "use_flash_attention", "use_flash_attention_2",
        "flash_attention", "use_fused_rope", "model_name", "model_version",
        "base_model", "language", "languages", "datasets", "tags",
        "library_name", "pipeline_tag", "created_at", "author"};

    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
        if (text_ends_with(name, ends[i])) return true;
    for (size_t i = 0; i < sizeof begins / sizeof *begins; i++)
        if (strncmp(name, begins[i], strlen(begins[i])) == 0) return true;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(name, names[i]) == 0) return true;
    return false;
}

static status list_add(struct text *list, const char *name)
{
    return text_printf(list, "%s%s", list->length ? ", " : "", name);
}

/* Files of another kind, whatever their fields. */
static status check_kind(const struct model_kind *kind,
                         const struct json *config, const char *source)
{
    const struct json *quantized = json_get(config, "quantization_config");
    const char *method = "";

    if (quantized != NULL && quantized->kind == JSON_OBJECT && kind->moe.mxfp4)
        TRY(json_get_string_or(quantized, source, "quant_method", "",
                               &method));
    if (strcmp(method, "mxfp4") == 0) return OK; /* stacks are widened */
    if (quantized != NULL && quantized->kind != JSON_NULL)
        FAIL(ERR_CONFIG, "%s: quantization_config: the weights are quantized; "
                         "this build takes a model whose weights are F64, F32, "
                         "BF16 or F16", source);
    return OK;
}

static status fail_value(const char *source, const char *name,
                         const struct json *value, const char *only)
{
    char found[48] = "an object";

    if (value->kind == JSON_STRING)
        snprintf(found, sizeof found, "%.40s", value->string);
    else if (value->kind == JSON_INTEGER || value->kind == JSON_REAL)
        snprintf(found, sizeof found, "%.9g", value->real);
    else if (value->kind == JSON_TRUE || value->kind == JSON_FALSE)
        snprintf(found, sizeof found,
                 value->kind == JSON_TRUE ? "true" : "false");
    else if (value->kind == JSON_ARRAY)
        snprintf(found, sizeof found, "an array");
    FAIL(ERR_CONFIG, "%s: %s: %s is not supported; supported is only %s",
         source, name, found, only);
}

/* Python takes null for false: where an absent field means true, it is not as
 * if it were absent. */
static status check_null(const struct model_kind *kind, const char *name,
                         const char *source)
{
    for (int i = 0; i < kind->row_count; i++) {
        const struct config_row *row = &kind->rows[i];
        const bool flag = row->type == CONFIG_FLAG && row->other != 0;
        const bool must = row->only != NULL && strcmp(row->only, "true") == 0;

        if ((flag || must) && strcmp(row->name, name) == 0)
            FAIL(ERR_CONFIG, "%s: %s: null counts as false; expected true%s",
                 source, name, flag ? " or false" : "");
    }
    return OK;
}

status config_check(const struct model_kind *kind, const struct json *config,
                    const char *source)
{
    struct text unknown = {0}, hints = {0};
    status result = OK;

    TRY(check_kind(kind, config, source));
    for (int i = 0; i < config->count; i++) {
        const char *name = config->items[2 * i].string, *only = NULL;
        const struct json *value = &config->items[2 * i + 1];

        if (value->kind == JSON_NULL) { /* as if absent */
            TRY_GOTO(done, result, check_null(kind, name, source));
            continue;
        }
        if (strcmp(name, "layer_types") == 0) continue; /* by whom reads it */
        if (!find(kind, name, &only))
            TRY_GOTO(done, result,
                     list_add(is_hint(name) ? &hints : &unknown, name));
        else if (only != NULL && !value_is(value, only))
            TRY_GOTO(done, result, fail_value(source, name, value, only));
    }
    if (hints.length > 0 && unknown.length == 0)
        LOG(INFO, "model", "%s: ignored, because they do not change the "
            "result: %s",
            source, hints.bytes);
    if (unknown.length > 0) {
        result = status_fail(ERR_CONFIG, __FILE__, __LINE__,
                             "%s: unknown fields, which could change the "
                             "result: %s", source, unknown.bytes);
        result = status_hint(result, "remove those fields that do not change "
                                     "what the model computes");
    }
done:
    text_free(&unknown);
    text_free(&hints);
    return result;
}

status config_read_int(const struct json *config, const char *source,
                       const char *key, int64_t other, int64_t *out)
{
    const int64_t most = 1 << 24;

    if (other < 0)
        TRY(json_get_integer(config, source, key, out));
    else
        TRY(json_get_integer_or(config, source, key, other, out));
    if (*out < 1 || *out > most)
        FAIL(ERR_CONFIG, "%s: %s: %lld is outside 1 to %lld", source, key,
             (long long)*out, (long long)most);
    return OK;
}
